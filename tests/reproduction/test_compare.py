"""The comparison with today's rules: equal trials, seeds of its own, fair verdicts."""

import math
from functools import partial

import pandas as pd
import pytest

from labkit.lab.claims import YES
from labkit.lab.tuning import TUNING_SEED
from reproduction import compare
from reproduction.compare import ADAM, DEFAULT, READERS
from reproduction.criteria import NOT_AT_END
from reproduction.studies import find_study

RIVALS = find_study("compare/rivals")


class Unsaved:
    """A checkpoint of a unit that nobody cuts off."""

    def __init__(self):
        self.states = []

    def load(self):
        return self.states[-1] if self.states else None

    def save(self, state):
        self.states.append(state | {"rows": list(state["rows"])})


def test_each_trial_is_judged_on_rows_of_its_own_and_the_best_one_races():
    sizes = {"passes": 1, "batch": 32, "hidden": 4}
    rows = compare.tuned_and_raced(
        Unsaved(), data="digits", rule="SGD", trials=3, seeds=2, **sizes
    )
    frame = pd.DataFrame(rows)
    tuned, raced = (frame[frame["part"] == part] for part in ("tune", "test"))
    assert list(tuned["seed"]) == [TUNING_SEED] * 3
    assert set(raced["seed"]) == {0, 1}
    best = tuned.loc[tuned["score"].idxmax()]
    assert set(raced["values"]) == {best["values"]}
    assert (raced["seconds"] > 0).all()


@pytest.mark.parametrize("rule", READERS)
def test_every_reader_learns_from_text(rule, monkeypatch):
    many = partial(compare.bits_on, streams=1024)  # 16 times as many as in the study
    monkeypatch.setattr(compare, "bits_on", many)
    sizes = {"steps": 10, "batch": 64, "hidden": 4}
    rows = compare.tuned_and_raced(
        Unsaved(), data="text", rule=rule, trials=1, seeds=1, **sizes
    )
    looks = [row for row in rows if row["part"] == "test"]
    assert len(looks) == 5
    assert all(0 < row["score"] < 10 for row in looks)


class Slow:
    """A processor whose clock goes on by as many seconds with each question."""

    def __init__(self, seconds):
        self.seconds, self.now = seconds, 0.0

    def __call__(self):
        self.now += self.seconds
        return self.now


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(("seconds", "count"), [(50.0, 3), (10.0, 9), (200.0, 1)])
def test_a_run_is_stopped_by_the_clock_and_judged_where_it_is(
    last, seconds, count, monkeypatch
):
    monkeypatch.setattr(compare.time, "process_time", Slow(seconds))
    looks = ((passes, lambda at=passes: 10.0 * at) for passes in range(1, 10))
    rows = [*compare.timed(looks, 120, last=last)]
    assert len(rows) == (1 if last else count)
    wanted = {"passes": count, "score": 10.0 * count, "seconds": count * seconds}
    assert rows[-1] == wanted


def test_a_failed_trial_is_never_chosen():
    rows = [{"trial": 0, "failed": "x"}, {"trial": 1, "score": math.nan}]
    rows += [{"trial": 2, "score": 3.0}, {"trial": 3, "score": 2.0}]
    assert compare.best_trial(rows, "mnist") == 2
    assert compare.best_trial(rows, "usps") == 3
    assert compare.best_trial(rows[:2], "mnist") == 0


def planted(data, **scores):
    """Results in which rules have these scores, by seed."""
    return pd.DataFrame(
        {"label": label, "seed": seed, "look": 0, "data": data, "part": "test"}
        | {"score": score, "passes": 1.0, "seconds": 1.0 + seed}
        for label, values in scores.items()
        for seed, score in enumerate(values)
    )


@pytest.mark.parametrize(
    ("scores", "held"), [([95.0] * 3, NOT_AT_END), ([98.0] * 3, YES)]
)
def test_no_rule_loses_because_the_clock_has_stopped_it(scores, held):
    rows = planted("mnist", **{ADAM: [97.0] * 3, "Muon": scores})
    rows.loc[rows["label"] == "Muon", ["seconds", "passes"]] = 130.0, 3.25
    ((_, measured, verdict),) = RIVALS.claims(rows)
    assert verdict == held and measured.endswith(", stopped at 3.2 passes")
    shown = RIVALS.table(rows)["MNIST, right [%]"]
    assert shown["Muon"].endswith(", stopped at 3.2 passes")
    assert "stopped" not in shown[ADAM]
    assert not [*RIVALS.claims(rows[rows["label"] == "Muon"])]


def test_the_table_says_where_a_rule_stands_and_begins_with_the_best():
    """The best is the one with the best mean rank where it takes part."""
    marks = {
        "broad": ("▲", [99.0, 99.1, 99.0]),
        "SGD": ("=", [97.1, 97.1, 97.0]),
        ADAM: ("97", [97.0, 97.1, 97.0]),
        "RLS": ("▼", [96.0, 96.1, 96.0]),
        DEFAULT: ("▼", [95.0, 95.1, 95.0]),
        "BPLS": ("○", [90.0, 99.0, 94.0]),
    }
    mnist = planted("mnist", **{rule: scores for rule, (_, scores) in marks.items()})
    usps = planted("usps", **{ADAM: [2.0] * 3, "broad": [1.0] * 3})
    shown = RIVALS.table(pd.concat([mnist, usps]))
    assert list(shown.index) == ["broad", "SGD", "RLS", ADAM, DEFAULT, "BPLS"]
    for rule, (mark, _) in marks.items():
        assert shown["MNIST, right [%]"][rule].startswith(mark)
    assert shown["USPS, rebuilt, squared error"]["broad"].startswith("▲")
