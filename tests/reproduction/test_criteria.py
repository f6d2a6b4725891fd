"""Each criterion comes out either way, by a planted result on either side."""

import math

import pandas as pd
import pytest
from scipy import stats

from labkit.lab.claims import NO, UNDECIDED, YES
from reproduction import criteria, rls
from reproduction.criteria import NOT_AT_END


def runs(*values):
    return pd.Series(values, pd.RangeIndex(len(values), name="seed"), dtype=float)


TWO_RUNS = f"{criteria.NOT_CONTRADICTED} (2 runs)"
HIGH, LOW = runs(9.0, 9.1, 9.2), runs(5.0, 5.1, 5.2)


@pytest.mark.parametrize(
    ("a", "b", "options", "expected"),
    [
        (HIGH, LOW, {}, YES),
        (LOW, HIGH, {}, NO),
        (LOW, HIGH, {"higher": False}, YES),
        (HIGH, LOW, {"margin": 3.0}, YES),
        (HIGH, LOW, {"margin": 5.0}, NO),
        (HIGH, LOW, {"margin": 4.0}, UNDECIDED),
        (runs(1, 9, 2), runs(8, 2, 1), {}, UNDECIDED),
        (HIGH[:2], LOW[:2], {}, UNDECIDED),
        (LOW[:2], HIGH, {}, UNDECIDED),
        (HIGH[:2], LOW, {"margin": 3.0}, TWO_RUNS),
        (HIGH[:2], LOW, {"margin": 5.0}, UNDECIDED),
        (LOW[:2], HIGH, {"margin": 3.0}, UNDECIDED),
        (runs(9.001, 9.101, 9.201), HIGH, {"paired": True}, UNDECIDED),
        (runs(1, 5, 9), runs(0.9, 4.8, 8.9), {}, UNDECIDED),
        (runs(1, 5, 9), runs(0.9, 4.9, 8.88), {"paired": True}, YES),
        (runs(1, 5, math.nan), runs(0.9, 4.8, 8.9), {"paired": True}, UNDECIDED),
        (runs(2, 2, 2), runs(1, 1, 1), {}, YES),
    ],
)
def test_a_lead_is_judged_by_its_interval_and_a_margin(a, b, options, expected):
    assert criteria.ahead(a, b, **options) == expected


@pytest.mark.parametrize(
    ("b", "margin", "expected"),
    [(HIGH, 1.0, YES), (LOW, 1.0, NO), (HIGH + 0.9, 1.0, UNDECIDED)],
)
def test_as_good_as_is_within_a_margin_on_either_side(b, margin, expected):
    assert criteria.level(HIGH, b, margin=margin) == expected
    assert criteria.level(b, HIGH, margin=margin) == expected
    near = abs(HIGH[:2].mean() - b.mean()) <= margin
    few = criteria.level(HIGH[:2], b, margin=margin)
    assert few == (TWO_RUNS if near else UNDECIDED)


@pytest.mark.parametrize(
    ("number", "expected"), [(9.1, YES), (8.0, NO), (9.5, UNDECIDED)]
)
def test_a_printed_number_is_met_within_a_margin(number, expected):
    assert criteria.meets(HIGH, number, margin=0.5) == expected
    few = criteria.meets(HIGH[:2], number, margin=0.5)
    assert few == (UNDECIDED if expected == NO else TWO_RUNS)


def curves(label, delay, top=98.0, seeds=3):
    """Accuracies that rise by ten an epoch after a delay, up to a top."""
    return pd.DataFrame(
        {"label": label, "seed": seed, "look": look, "seconds": 2.0 * look, "loss": 1.0}
        | {"accuracy": min(top, 50.0 + 10 * (look - delay)) + 0.01 * seed}
        for seed in range(seeds)
        for look in range(1, 12)
    )


def faster(*both):
    rows, (a, b) = pd.concat(both), (each.label.iloc[0] for each in both)
    options = {"goals": {"accuracy": 90.0}, "clocks": ["epoch", "seconds"]}
    return {
        claim.rpartition(", ")[2]: (words, held)
        for claim, words, held in rls.faster(rows, a=a, b=b, **options)
    }


def verdicts(*both):
    return {claim: held for claim, (_, held) in faster(*both).items()}


def test_faster_is_judged_in_five_ways_by_paired_seeds():
    quick, slow = curves("a", 0), curves("b", 2)
    by = ("epochs to accuracy 90", "seconds to accuracy 90", "best accuracy")
    by = *by, "mean accuracy over all epochs", "last accuracy"
    found = verdicts(quick, slow)
    assert found == dict(zip(by, (YES, YES, UNDECIDED, YES, UNDECIDED), strict=True))
    assert verdicts(slow.replace("b", "c"), quick)["epochs to accuracy 90"] == NO
    assert set(verdicts(curves("a", 0, seeds=2), slow).values()) == {UNDECIDED}
    assert verdicts(quick, curves("b", 0, top=95.0))["best accuracy"] == YES
    never = verdicts(quick, curves("b", 0, top=80.0))
    assert never["epochs to accuracy 90"] == YES
    assert not faster(quick, quick)


def test_a_run_that_failed_is_named_and_decides_nothing():
    rows = pd.concat([curves("a", 0), curves("b", 2)], ignore_index=True)
    first = (rows.label == "a") & (rows.seed == 0)
    rows = rows[~first | (rows.look == 1)].copy()
    rows.loc[first & (rows.look == 1), "accuracy"] = float("nan")
    found = faster(rows[rows.label == "a"], rows[rows.label == "b"])
    for claim in ("best accuracy", "mean accuracy over all epochs"):
        words, held = found[claim]
        assert "(1 failed)" in words and held == UNDECIDED


def test_a_run_that_still_improves_is_not_at_its_end():
    falling = pd.DataFrame(
        {"label": "a", "seed": seed, "look": look, "error": 1 / look}
        for seed in (0, 1)
        for look in range(1, 21)
    )
    flat = falling.assign(error=falling["error"].clip(lower=0.2))
    how = {"column": "error", "least": 0.01}
    assert criteria.still_improving(falling, **how)
    assert not criteria.still_improving(flat, **how)
    assert not criteria.still_improving(falling, column="error", least=0.2)
    assert criteria.unless_improving(NO, falling, **how) == NOT_AT_END
    assert criteria.unless_improving(NO, flat, **how) == NO
    assert criteria.unless_improving(YES, falling, **how) == YES


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_a_comparison_of_means_has_scipys_p_value(paired, margin):
    a, b = runs(1.2, 5.1, 9.9, 4.0), runs(0.4, 4.8, 8.9, 3.9)
    test = stats.ttest_rel if paired else stats.ttest_ind
    how = {} if paired else {"equal_var": False}
    held = criteria.ahead(a, b, margin=margin, paired=paired)
    assert held.p == pytest.approx(test(a - margin, b, **how).pvalue)
    assert (held == UNDECIDED) == (held.p > 0.05)


def test_holms_correction_keeps_order_and_gaps():
    found = criteria.holm(runs(0.04, math.nan, 0.01, 0.03, 0.9))
    assert found.fillna(-1).tolist() == pytest.approx([0.09, -1, 0.04, 0.09, 0.9])


@pytest.mark.parametrize("owner", ["ours", "identity", "reading"])
def test_claims_say_whose_they_are(owner):
    assert criteria.whose(f"{owner}, a: x") == criteria.whose(f"{owner}: x") == owner
    assert criteria.whose(f"4.1: {owner} above") == "paper"
