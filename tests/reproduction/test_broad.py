"""The criteria of the studies of broad learning, with results planted on each side."""

import pandas as pd
import pytest

from labkit.lab.claims import NO, UNDECIDED, YES
from reproduction.broad import (
    PAPER,
    UPDATES,
    direct_claims,
    first_claims,
    growth_claims,
    near,
)
from reproduction.broad_solvers import LAST, STEP, inverse_claims, lost_claims, sizes_of
from reproduction.criteria import of_runs

TWO = of_runs(YES, 2)  # what two draws say that lie as a yes asks


def judged(claims):
    return [verdict for _, _, verdict in claims]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([98.31, 98.29, 98.30], YES),
        ([97.99, 98.01, 98.00], NO),
        ([98.12, 98.28, 98.20], UNDECIDED),  # about a margin apart
        ([98.30, 98.30], TWO),
        ([98.30, 98.30, float("nan")], UNDECIDED),
    ],
)
def test_a_mean_is_the_papers_or_not(ours, verdict):
    assert near(pd.Series(ours), 98.30, 0.06) == verdict


@pytest.mark.parametrize(
    ("shift", "verdict"), [(0.0, YES), (0.4, NO), (0.1, UNDECIDED)]
)
def test_the_first_column(shift, verdict):
    label = "ridge 1e-06"
    scores = [PAPER[label][0] + shift + noise for noise in (-0.02, 0.0, 0.02)]
    rows = pd.DataFrame({"label": label, "seed": range(3), "accuracy": scores})
    assert judged(first_claims(rows)) == [verdict]


def drawn(label, ends):
    """Draws of one row of the table: where each lost a pivot, None for nowhere."""
    rows = []
    for seed, lost in enumerate(ends):
        for k in range(3060, (lost or LAST) + 1, STEP):
            row = {"label": label, "seed": seed, "columns": k, "accuracy": 98.89}
            row["accuracy"] += 0.01 * (seed - 1)
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
        ("chol-2 1e-08", [None], [of_runs(YES, 1), of_runs(YES, 1)]),
    ],
)
def test_where_a_solver_ends(label, ends, verdicts):
    rows = drawn(label, ends)
    assert judged(lost_claims(rows)) == verdicts
    lost = ["" if end is None else f"{end:,}" for end in ends]
    assert sizes_of(rows)["lost at"].tolist() == lost


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
    (_, (claim, _, found)) = lost_claims(pd.concat(rows))
    assert claim.startswith("ours: ") and found == verdict


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
    assert judged(inverse_claims(grown(**scores))) == verdicts


@pytest.mark.parametrize(
    ("shift", "seeds", "verdicts"),
    [
        (0.0, 3, [YES, YES, YES]),
        (-0.8, 3, [NO, NO, NO]),
        (0.0, 2, [UNDECIDED, TWO, TWO]),
    ],
)
def test_all_sizes_of_the_ridge_solution(shift, seeds, verdicts):
    """Whether it rises, ends at the paper's number, and has the paper's maximum."""
    label = "ridge 1e-07"
    last = PAPER[label][-1] + shift
    rows = [
        {"label": label, "seed": seed, "columns": k, "accuracy": score + 0.001 * seed}
        for seed in range(seeds)
        for k, score in ((3060, 98.30), (25_170, last))
    ]
    assert judged(direct_claims(pd.DataFrame(rows))) == verdicts


@pytest.mark.parametrize(("seconds", "verdict"), [(1.0, NO), (1.53, YES), (1.8, YES)])
def test_the_ratio_of_seconds(seconds, verdict):
    rows = [
        {"label": label, "seed": seed, "columns": k, "accuracy": score}
        | {"seconds_cpu": spent, "seconds_at_rate": spent}
        for label, spent in (("chol-1 1e-06", 1.0), ("exg-e 1e-06", seconds))
        for seed in range(3)
        for k, score in enumerate(PAPER[label][: UPDATES + 1])
    ]
    claims = list(growth_claims(pd.DataFrame(rows)))
    assert [v for claim, _, v in claims if "Table VI" in claim] == [verdict]
    assert [v for claim, _, v in claims if claim.startswith("V-B")] == [YES, YES]
    rows = pd.DataFrame(rows)
    rows.accuracy = rows.accuracy.where(rows["columns"] < UPDATES, 98.3)
    rows.loc[rows.label == "chol-1 1e-06", "accuracy"] -= rows["columns"]
    fell = [v for claim, _, v in growth_claims(rows) if claim.startswith("V-B")]
    assert fell == [NO, NO]
    one = [v for claim, _, v in growth_claims(rows[rows.seed == 0]) if "V-B" in claim]
    assert one == [UNDECIDED, UNDECIDED]
