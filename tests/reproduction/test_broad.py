"""The criteria of the studies of broad learning, with results planted on each side."""

import pandas as pd
import pytest

from labkit.lab.claims import NO, UNDECIDED, YES
from reproduction.broad import agrees
from reproduction.criteria import of_runs
from reproduction.studies import find_study

TWO = of_runs(YES, 2)  # what two draws say that lie as a yes asks
FIRST, LAST, STEP = 3060, 25_170, 2010  # columns at the start, at the end, of an update


def judged(name, rows):
    return [verdict for _, _, verdict in find_study(name).claims(rows)]


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [
        ([98.31, 98.29, 98.30], YES),
        ([97.99, 98.01, 98.00], NO),
        ([98.12, 98.28, 98.20], UNDECIDED),  # about a margin apart
        ([98.30, 98.30], TWO),
        ([98.30, 98.30, float("nan")], UNDECIDED),
    ],
)
def test_a_mean_is_the_papers_or_not(accuracy, verdict):
    assert agrees(pd.Series(accuracy), 98.30, 0.06) == verdict


def drawn(label, ends):
    """Draws of one row of the table: where each lost a pivot, None for nowhere."""
    rows = []
    for seed, lost in enumerate(ends):
        for k in range(FIRST, (lost or LAST) + 1, STEP):
            score = 98.88 + 0.01 * seed
            row = {"label": label, "seed": seed, "columns": k, "accuracy": score}
            gone = {"accuracy": float("nan"), "lost": "pivot 7 is -1e-9"}
            rows.append(row | (gone if k == lost else {}))
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("label", "ends", "verdicts"),
    [
        ("chol-1 1e-08", [13_110, 11_100, 15_120], [YES]),
        ("chol-1 1e-08", [13_110, 5070, 15_120], [UNDECIDED]),
        ("chol-1 1e-08", [None, None, None], [NO]),
        ("chol-1 1e-08", [5070, 5070, 7080], [NO]),
        ("chol-1 1e-08", [13_110, 13_110], [TWO]),
        ("chol-1 1e-07", [19_140, 21_150, 17_130], [YES]),
        ("chol-2 1e-08", [None, None, None], [YES, YES]),
        ("chol-2 1e-08", [None, None, 21_150], [NO, TWO]),
    ],
)
def test_where_a_solver_ends(label, ends, verdicts):
    assert judged("broad/lost-pivots", drawn(label, ends)) == verdicts


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ([15_120, None, 13_110], YES),
        ([15_120, None, 15_120], NO),
        ([15_120, None], TWO),
    ],
)
def test_whether_larger_pieces_change_where_a_solver_ends(ends, verdict):
    label = "chol-1 1e-07"
    other = f"{label}, 20,000 images at once"
    rows = [drawn(label, [15_120, None, 13_110]), drawn(other, ends)]
    assert judged("broad/lost-pivots", pd.concat(rows))[1] == verdict


def grown(**scores):
    """Rows of several solvers: accuracies at every size, the same in every draw."""
    rows = []
    for solver, (draws, curve) in scores.items():
        label = f"{solver.replace('_', '-')} 1e-06"
        for seed in range(draws):
            rows += [
                {"label": label, "seed": seed, "columns": 3060 + k, "accuracy": score}
                for k, score in enumerate(curve)
            ]
    return pd.DataFrame(rows)


FALLS, LEVEL = [98.0, 98.6, 95.0], [98.0, 98.6, 98.55]


@pytest.mark.parametrize(
    ("scores", "verdicts"),
    [
        ({"orig": (3, FALLS), "exg_e": (3, [98.0, 98.6, 95.08])}, [YES, YES]),
        ({"orig": (3, LEVEL), "exg_e": (3, FALLS)}, [NO, NO]),
        ({"orig": (2, FALLS), "exg_e": (2, FALLS)}, [TWO, TWO]),
        ({"r_inv": (3, LEVEL), "chol_2": (3, LEVEL)}, [YES]),
        ({"r_inv": (3, FALLS), "chol_2": (3, LEVEL)}, [NO]),
    ],
)
def test_two_solvers_are_one_or_not(scores, verdicts):
    assert judged("broad/inverses", grown(**scores)) == verdicts


@pytest.mark.parametrize(("seconds", "verdict"), [(1.0, NO), (1.53, YES), (1.8, YES)])
def test_the_ratio_of_seconds(seconds, verdict):
    study = find_study("broad/growth")
    rows = pd.DataFrame(
        {"label": label, "seed": seed, "columns": k, "accuracy": score}
        | {"seconds_cpu": spent}
        for label, spent in (("chol-1 1e-06", 1.0), ("exg-e 1e-06", seconds))
        for seed in range(3)
        for k, score in enumerate(study.printed[label])
    )
    claims = study.claims(rows)
    verdicts = {claim.split(":")[0].split(",")[0]: held for claim, _, held in claims}
    assert verdicts == {"V-B": YES, "V-C": YES, "Table VI": verdict}
