"""What the notebooks on RLS, broad learning and RTRL make of their measurements."""

import math

import pandas as pd
import pytest

from labkit.lab import broad, rtrl
from labkit.lab.claims import NO, UNDECIDED, YES
from labkit.lab.race import Race


def race(accuracies, **columns):
    """Two seeds of each label, whose last accuracies are given; two looks at each."""
    rows = [
        {"label": label, "seed": seed, "look": look, "epoch": look + 1, "failed": ""}
        | {
            "accuracy": value - 5 * (1 - look),
            "loss": 2.0 - look,
            "seconds": 1.0 + look,
        }
        | {name: values[label] for name, values in columns.items()}
        for label, values in accuracies.items()
        for seed, value in enumerate(values)
        for look in (0, 1)
    ]
    return Race(pd.DataFrame(rows), "digits")


RACE = race({"A": (90.0, 91.0), "B": (80.0, 81.0), "C": (89.9, 91.2)})


def growth(last_of_orig):
    """Accuracies at one ridge, at the start, in the middle and at the end."""
    index = pd.MultiIndex.from_product([[1e-2], [0, 1, 2]], names=["ridge", "step"])
    rows = [[80.0] * 5, [85.0] * 5, [90.0, 90.0, 90.05, 90.0, last_of_orig]]
    names = ["chol-1", "d-rdg", "chol-2", "r-inv", "orig"]
    return pd.DataFrame(rows, index=index, columns=names).assign(**{"exg-e": 70.0})


@pytest.mark.parametrize(
    ("last", "said"), [(70.0, YES), (84.5, NO), (math.nan, UNDECIDED)]
)
def test_orig_has_to_rise_and_then_to_fall(last, said):
    start = pd.Series([98.0, 93.0], index=[1e-8, 1e-1])
    first, grows, agree, chol1, chol2, _ = broad.growth_claims(start, growth(last), "x")
    assert first.verdict == YES and first.gap == pytest.approx(4.9)
    assert grows.verdict == said
    assert agree.verdict == (said if said != NO else NO)
    assert chol1.gap == pytest.approx(0.1) and chol2.gap == pytest.approx(0.05)


def test_what_ends_at_a_tiny_ridge_is_named():
    lost = pd.DataFrame({"solver": ["chol-1", "bordered"], "ridge": [1e-11, 1e-11]})
    errors = {(1e-10, "chol-1"): 1e-6, (1e-10, "chol-2"): 1e-6}
    ends, stable = broad.edge_claims(lost, errors, "x")
    assert ends.verdict == YES and "chol-1 at 1e-11; bordered" in ends.found
    assert stable.verdict.endswith("its factor is not more accurate")


def test_noise_is_judged_by_cosine_and_by_variance():
    columns = pd.MultiIndex.from_product(
        [["cosine", "relative variance"], ["mean", "sd"]]
    )
    values = [[0.9, 0.01, 0.2, 0.01], [0.5, 0.01, 0.4, 0.3]]
    table = pd.DataFrame(values, index=["OK", "KF"], columns=columns)
    cosine, variance = rtrl.noise_claims(table, [("OK leads", "OK", "KF")], "x")
    assert cosine.verdict == YES and cosine.gap == pytest.approx(0.4)
    assert variance.verdict == UNDECIDED and variance.gap == pytest.approx(0.5)
    assert rtrl.above_claim(table, "OK", 0.8, "x").verdict == YES
