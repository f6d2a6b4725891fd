"""What a panel says of a turn: the same run with and without it, never the training."""

import asyncio
import contextlib
import math
from dataclasses import dataclass, replace
from itertools import islice

import pytest
import torch
from hypothesis import given, settings, strategies as st

from labkit.lab.panels import Experiment, Lines, LiveLab, knob
from labkit.lab.panels.live.turn import MOST, ROWS
from tests.lab.panels.conftest import in_loop


@dataclass(frozen=True)
class Knobs:
    gain: float = knob(
        1.0, low=0.0, high=9.0, restart=False, about="value", look_for="?"
    )
    seed: int = knob(0, low=0, high=9, about="value")
    shift: float = knob(0.0, low=0.0, high=9.0, restart=False, about="an other: other")
    idle: float = knob(0.0, low=0.0, high=9.0, restart=False, about="value")


def rows(settings):
    """A value that falls as a loss does, and depends on all but ``idle``."""
    for step in range(1, 5000):
        yield {"step": 2 * step - 1, "measured": False, "value": 1e6}
        value = math.nan if step == 3 else settings.gain + settings.seed + 100 / step
        yield {"step": 2 * step, "value": value, "pictures": value}


VALUES = Experiment("values", Knobs, rows, [Lines(("value",), "Value", "1")])


@pytest.fixture
def lab():
    return LiveLab(VALUES)


def answer(lab, name, predicted):
    """Answer the question that stands beside a knob."""
    lab.controls.asked[name].value = predicted


def of(count, gain=1.0, seed=0):
    """The value after so many measured rows."""
    return gain + seed + 100 / count


def outcome(steps, without, turned, verdict):
    """What a panel says of both values so many steps after a turn."""
    count = f"{steps} steps" if steps > 1 else "1 step"
    return f"after {count}: value {without:.3g} without, {turned:.3g} with: {verdict}"


@pytest.mark.parametrize(
    ("predicted", "to", "verdict"),
    [
        ("up", 9.0, "up, as predicted"),
        ("down", 9.0, "up, not down as predicted"),
        ("nothing", 0.5, "down, not nothing as predicted"),
        (None, 0.5, "down"),
        ("nothing", 1.002, "nothing, as predicted"),
    ],
)
def test_a_turn_says_both_values_at_the_same_step(lab, predicted, to, verdict):
    lab.run(14)
    answer(lab, "gain", predicted)
    lab.controls.set(gain=to)
    for steps in range(1, 20):
        lab.run(1)
        compared = min(steps, ROWS)
        values = of(14 + compared), of(14 + compared, to)
        assert lab.outcome.value == outcome(compared, *values, verdict)
    assert "same run without" in str(lab.plot.figure["layout"]["meta"])


@settings(max_examples=25)
@given(
    turns=st.lists(st.tuples(st.integers(1, 12), st.floats(0, 9)), max_size=4),
    steps=st.integers(1, 12),
)
def test_progress_of_the_training_is_never_credited_to_a_knob(turns, steps):
    """Whatever was turned before: a knob that does nothing is said to do nothing."""
    lab = LiveLab(VALUES)
    lab.run(4)
    for count, gain in turns:
        lab.controls.set(gain=gain)
        lab.run(count)
    lab.controls.set(idle=lab.controls.value.idle + 1.0)
    before = lab.trace.rows[-1]["value"]
    lab.run(steps)
    assert lab.trace.rows[-1]["value"] < before  # all the same
    if "after" in lab.outcome.value:
        assert lab.outcome.value.endswith("nothing")


@pytest.mark.parametrize("before", [0, 14, 300])
@pytest.mark.parametrize("name", ["gain", "seed"])
def test_a_question_always_gets_its_answer(before, name):
    """At the first step, in the middle and at the end; right by a run apart."""
    lab = LiveLab(replace(VALUES, rows=lambda knobs: islice(rows(knobs), 600)))
    lab.run(before + (before == 300))
    assert lab.stepper.exhausted == (before == 300)
    lab.controls.widgets[name].value = 4
    assert "labkit-waits" in lab.controls._rows[name]._dom_classes
    answer(lab, name, "up")
    lab.run(ROWS)
    since = before if name == "gain" and before < 300 else 0
    at = since + ROWS
    text = outcome(ROWS, of(at), of(at, **{name: 4}), "up, as predicted")
    assert lab.outcome.value == text
    assert "labkit-right" in lab.controls.asked[name]._dom_classes


def test_what_comes_between_is_told_to_both_and_asks_nothing(lab):
    lab.run(3)
    answer(lab, "gain", "up")
    lab.controls.set(gain=5.0)
    lab.run(2)
    lab.controls.widgets["idle"].value = 2.0
    assert lab.controls.value.idle == 2.0  # it did not wait
    lab.controls.set(seed=2)  # both begin anew
    for steps in (2, ROWS):
        lab.run(steps)
        values = of(steps, seed=2), of(steps, 5.0, 2)
        assert lab.outcome.value == outcome(steps, *values, "up, as predicted")
        lab.stepper.reset()
    assert lab.outcome.value == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "no answer: it ends with ArithmeticError"),
        (math.inf, outcome(ROWS, 1, math.inf, "up, as predicted")),
    ],
)
def test_a_run_that_fails_after_the_turn_is_an_answer(value, text):
    def failing(settings):
        for step in range(1, 200):
            if settings.gain > 8 and math.isnan(value):
                raise ArithmeticError("no number")
            yield {"step": step, "value": value if settings.gain > 8 else 1.0}

    lab = LiveLab(replace(VALUES, rows=failing))
    lab.run(3)
    answer(lab, "gain", "up")
    lab.controls.set(gain=9.0)
    with contextlib.suppress(ArithmeticError):
        lab.run(MOST)
    assert lab.outcome.value == text


def test_a_hand_that_turns_on_makes_one_turn_and_a_later_one_another(lab):
    lab.run(12)
    answer(lab, "gain", "up")
    for gain in (2.0, 3.0, 4.0):  # an arrow key held down, while the run goes on
        lab.controls.set(gain=gain)
        lab.run(2)
    assert lab.outcome.value == outcome(6, of(18), of(18, 4.0), "up, as predicted")
    assert [*lab.plot._marks.values()] == ["gain = 4"]
    lab.run(ROWS)
    lab.controls.set(gain=5.0)
    lab.run(1)
    assert lab.outcome.value == outcome(1, of(29, 4.0), of(29, 5.0), "up")
    assert len(lab.plot._marks) == 2


def test_nothing_is_said_of_what_cannot_be_compared(lab):
    lab.controls.set(gain=2.0, seed=1)  # two at once
    lab.run(3)
    assert lab.outcome.value == ""
    lab.controls.set(gain=5.0)
    lab.run(3)
    text = lab.outcome.value
    assert text.endswith("up")
    lab.controls.turn(gain=5.0 * (1 + 1e-9))  # as a slider rounds
    assert lab.outcome.value == text and lab.controls.value.gain == 5.0


@in_loop
async def test_the_twin_keeps_level_beside_the_run():
    lab = LiveLab(VALUES)
    lab.stepper.start()
    while lab.turns.run.count < 40:
        await asyncio.sleep(0)
    lab.controls.widgets["gain"].value = 2.0
    answer(lab, "gain", "up")
    seen = set()
    while lab.turns.open:
        seen.add(lab.turns.run.count)
        await asyncio.sleep(0)
    assert len(seen) > 5 and lab.stepper.running  # the run stood still at no time
    assert "with: up" in lab.outcome.value and min(seen) + ROWS <= lab.turns.run.count
    lab.stepper.pause()
    lab.run(200)  # in a cell: the twin is far behind
    assert not lab.controls.asks("gain") and lab.controls.asks("seed")
    while not lab.turns.level():
        await asyncio.sleep(0)
    assert lab.controls.asks("gain")


def test_the_picture_without_the_turn_is_grey_beside_that_of_the_step():
    drawn = []
    draw = lambda *both: drawn.append(both) or {"data": [], "layout": {}}  # noqa: E731
    lab = LiveLab(replace(VALUES, picture=draw))
    lab.run(5)
    lab.controls.set(gain=3.0)
    lab.run(2)
    lab.scene.widget.flush()
    assert drawn[-1] == (of(7, 3.0), of(7))


def test_random_numbers_of_the_run_are_its_own():
    def chance(settings):
        torch.manual_seed(settings.seed)
        for step in range(1, 99):
            yield {"step": step, "value": float(torch.rand(())) + settings.gain}

    alone, lab = (LiveLab(replace(VALUES, rows=chance)) for _ in range(2))
    lab.run(4)
    lab.controls.set(idle=1.0)
    assert lab.run(5)["value"].equals(alone.run(9)["value"])
    assert lab.outcome.value.endswith("nothing")


def test_a_knob_waits_for_a_prediction_that_can_be_skipped(lab):
    controls = lab.controls
    slider, asked = controls.widgets["gain"], controls.asked["gain"]
    lab.run(3)
    assert "?" not in controls._texts["gain"].value  # what to look for comes after
    slider.value = 3.0
    assert controls.value.gain == 1.0 and slider.value == 3.0
    lab.run(1)  # meanwhile the run goes on as it was
    assert "gain" in controls._message.value and "turned" not in lab.trace.rows[-1]
    asked.value = "up"
    assert controls.value.gain == 3.0 and not controls._message.value
    assert asked.value == "up"  # what was answered is marked
    assert "?" in controls._texts["gain"].value
    lab.run(ROWS)
    slider.value = 4.0
    assert asked.value is None
    asked.value = "skip"
    assert controls.value.gain == 4.0
    lab.run(ROWS)
    slider.value = 5.0  # it asks no more
    assert controls.value.gain == 5.0
    asked.value = "down"  # until it is answered
    slider.value = 6.0
    lab.run(ROWS)
    slider.value = 7.0
    assert controls.value.gain == 6.0
    controls.widgets["idle"].value = 1.0  # only one knob waits
    assert slider.value == 6.0 and "idle" in controls._message.value
    controls.reset()
    assert controls.value == Knobs() and not controls._message.value
    assert controls.asked["shift"].description == "Which way will an other go?"
