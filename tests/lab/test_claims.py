"""Claims as they are judged and drawn."""

import math

import pytest

from labkit.lab.claims import (
    NO,
    UNDECIDED,
    YES,
    Claim,
    claim_figure,
    claim_table,
    duel,
    folded,
)

HIGH, LOW, NEAR = ({"mean": m, "sd": 0.2} for m in (97.0, 96.0, 96.9))
CLAIMS = [
    duel("A is better", HIGH, LOW, ("A", "B"), "digits"),
    duel("B is better", LOW, HIGH, ("B", "A"), "digits"),
    duel("A beats C", HIGH, NEAR, ("A", "C"), "digits", unit="cosine"),
    Claim("A is quicker", "2 times", "digits", "a clock, not a test"),
]


def test_a_duel_says_the_numbers_and_how_far_the_claim_holds():
    won, lost, level, _ = CLAIMS
    assert (won.verdict, lost.verdict, level.verdict) == (YES, NO, UNDECIDED)
    assert won.found == "A 97.0 ± 0.2, B 96.0 ± 0.2"
    assert (won.gap, lost.gap) == pytest.approx((1.0, -1.0))
    assert won.spread == pytest.approx(0.4)
    lower = duel("B errs less", LOW, HIGH, ("B", "A"), "digits", higher=False)
    assert lower.verdict == YES and lower.gap == pytest.approx(1.0)


def test_a_bar_reaches_zero_where_nothing_is_decided():
    for trace in claim_figure(CLAIMS)["data"]:
        for gap, spread in zip(trace["x"], trace["error_x"]["array"], strict=True):
            assert (trace["name"] == UNDECIDED) == (abs(gap) <= spread)


def test_each_unit_has_a_panel_and_a_claim_without_a_number_none():
    figure = claim_figure(CLAIMS, "What to see.")
    assert {trace["xaxis"] for trace in figure["data"]} == {"x", "x2"}
    assert sum(len(trace["x"]) for trace in figure["data"]) == 3
    domains = [figure["layout"][f"yaxis{i}"]["domain"] for i in ("", "2")]
    assert domains[1][0] == pytest.approx(0.0)
    assert domains[1][1] < domains[0][0] < domains[0][1] == 1.0
    assert figure["layout"]["meta"]["caption"] == "What to see."


def test_the_table_has_every_claim():
    assert list(claim_table(CLAIMS)["verdict"]) == [claim.verdict for claim in CLAIMS]
    assert "A is quicker" in folded(claim_table(CLAIMS), "All <claims>").html
    assert "All &lt;claims&gt;" in folded(claim_table(CLAIMS), "All <claims>").html


def test_one_run_has_no_error_bar():
    one = duel("A", HIGH, {"mean": 90.0, "sd": math.nan}, ("A", "B"), "digits")
    (trace,) = claim_figure([one])["data"]
    assert one.verdict == UNDECIDED and trace["error_x"]["array"] == [0]
