"""What a panel says of a turn: the measured means, whatever was predicted."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, strategies as st

from labkit.lab.panels import Experiment, Lines, LiveLab, knob
from labkit.lab.panels.live.predict import ROWS, happened

LEVELS = st.lists(st.floats(-100, 100), min_size=1, max_size=ROWS)


@dataclass(frozen=True)
class Knobs:
    gain: float = knob(
        1.0, low=0.0, high=9.0, restart=False, about="value", look_for="?"
    )
    seed: int = knob(0, low=0, high=9, about="value")
    shift: float = knob(0.0, low=0.0, high=9.0, restart=False)


def rows(settings):
    """A value of level ``gain`` that wobbles a little; now and then another column."""
    for step in range(1, 60):
        yield {"step": 2 * step - 1, "measured": False, "value": 1e6}
        value = math.nan if step == 3 else settings.gain + settings.seed
        yield {"step": 2 * step, "value": value + 0.01 * (-1) ** step}


VALUES = Experiment("values", Knobs, rows, [Lines(("value",), "Value", "1")])


def answer(lab, name, said):
    """Answer the question that stands beside a knob."""
    lab.controls._asked[name].value = said


@pytest.mark.parametrize(
    ("said", "to", "verdict"),
    [
        ("up", 3.0, "up, as predicted"),
        ("down", 3.0, "up, not down as predicted"),
        ("nothing", 0.5, "down, not nothing as predicted"),
        (None, 0.5, "down"),
        ("nothing", 1.002, "nothing, as predicted"),
    ],
)
def test_a_turn_says_both_means_and_whether_the_prediction_held(said, to, verdict):
    lab = LiveLab(VALUES)
    lab.run(14)
    before = lab.trace.frame()
    answer(lab, "gain", said)
    lab.controls.set(gain=to)
    assert lab.outcome.value == ""
    after = lab.run(20).iloc[len(before) :]
    means = [
        frame["value"][frame["measured"].isna()].dropna() for frame in (before, after)
    ]
    means = means[0].iloc[-ROWS:].mean(), means[1].iloc[:ROWS].mean()
    told = "value: {:.3g} before, {:.3g} after (means of 10 rows): ".format(*means)
    assert lab.outcome.value == told + verdict
    assert lab.controls.take_prediction("gain") is None  # nothing is kept


def test_a_run_begun_anew_is_compared_at_the_same_rows():
    lab = LiveLab(VALUES)
    lab.run(4)
    lab.controls.set(gain=5.0)
    lab.run(30)
    answer(lab, "seed", "up")
    lab.controls.set(seed=3)
    lab.run(2)  # at gain 5 as well, from the first row on; before it was 1
    said = "value: 1 before, 8 after (means of 2 rows): up, as predicted"
    assert lab.outcome.value == said


def test_a_knob_that_is_turned_on_is_one_turn():
    lab = LiveLab(VALUES)
    lab.run(12)
    answer(lab, "gain", "up")
    for gain in (2.0, 3.0, 4.0):
        lab.controls.set(gain=gain)
        lab.run(2)
    assert lab.outcome.value.startswith("value: 1 before, 4 after")
    assert lab.outcome.value.endswith("up, as predicted")


def test_nothing_is_said_of_what_cannot_be_compared():
    lab = LiveLab(VALUES, interactive=False)
    lab.controls.set(gain=2.0)  # no row before
    lab.run(3)
    assert lab.outcome.value == ""
    for turned in ({"shift": 1.0}, {"gain": 1.0, "seed": 1}):
        lab.controls.set(**turned)
        lab.run(3)
        assert lab.outcome.value == ""
    lab.controls.set(gain=5.0)
    lab.run(3)
    assert lab.outcome.value.endswith("up")
    lab.stepper.reset()
    assert lab.outcome.value == ""


def test_only_a_knob_about_something_asks_and_tells_after_the_turn():
    lab = LiveLab(VALUES)
    assert set(lab.controls._asked) == {"gain", "seed"}
    text = lab.controls._texts["gain"]
    assert "?" not in text.value
    lab.controls.set(gain=2.0)
    assert "?" in text.value


@given(before=LEVELS, after=LEVELS)
def test_up_and_down_are_more_than_scatter_and_mirror_each_other(before, after):
    said, gap = happened(before, after), np.mean(after) - np.mean(before)
    scatter = (np.std(before) + np.std(after)) / 2
    if said != "nothing":
        assert abs(gap) > scatter - 1e-9 and (gap > 0) == (said == "up")
    mirrored = happened([-x for x in before], [-x for x in after])
    assert mirrored == {"up": "down", "down": "up"}.get(said, said)
    assert happened(before, before) == "nothing"
