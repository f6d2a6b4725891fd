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


def answer(lab, name, said):
    """Answer the question that stands beside a knob."""
    lab.controls.asked[name].value = said


def of(count, gain=1.0, seed=0):
    """The value after so many measured rows."""
    return gain + seed + 100 / count


@pytest.mark.parametrize(
    ("said", "to", "verdict"),
    [
        ("up", 9.0, "up, as predicted"),
        ("down", 9.0, "up, not down as predicted"),
        ("nothing", 0.5, "down, not nothing as predicted"),
        (None, 0.5, "down"),
        ("nothing", 1.002, "nothing, as predicted"),
    ],
)
def test_a_turn_says_both_values_at_the_same_step(said, to, verdict):
    lab = LiveLab(VALUES)
    lab.run(14)
    answer(lab, "gain", said)
    lab.controls.set(gain=to)
    for steps in range(1, 20):
        lab.run(1)
        compared = min(steps, ROWS)
        count = f"{compared} steps" if compared > 1 else "1 step"
        values = of(14 + compared), of(14 + compared, to)
        told = "after {}: value {:.3g} without, {:.3g} with: ".format(count, *values)
        if compared == ROWS:
            assert lab.outcome.value == told + verdict
        else:
            assert lab.outcome.value.startswith(told)
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


@pytest.mark.parametrize("before", [0, 1, 14, 300])
@pytest.mark.parametrize("name", ["gain", "seed"])
def test_a_question_always_gets_its_answer(before, name):
    """At the first step, in the middle and at the end; right by a run apart."""
    rows_of = replace(VALUES, rows=lambda s: islice(rows(s), 600))
    lab = LiveLab(rows_of)
    lab.run(before + (before == 300))
    assert lab.stepper.exhausted == (before == 300)
    slider = lab.controls.widgets[name]
    slider.value = 4
    assert "labkit-waits" in lab.controls._rows[name]._dom_classes
    answer(lab, name, "up")
    lab.run(ROWS)
    since = before if name == "gain" and before < 300 else 0
    at = since + ROWS
    turned = of(at, 4.0) if name == "gain" else of(at, seed=4)
    told = f"after 10 steps: value {of(at):.3g} without, {turned:.3g} with: up, as"
    assert lab.outcome.value.startswith(told)
    assert "labkit-right" in lab.controls.asked[name]._dom_classes


def test_what_comes_between_is_told_to_both_and_asks_nothing():
    lab = LiveLab(VALUES)
    lab.run(3)
    answer(lab, "gain", "up")
    lab.controls.set(gain=5.0)
    lab.run(2)
    lab.controls.widgets["idle"].value = 2.0
    assert lab.controls.value.idle == 2.0  # it did not wait
    lab.controls.set(seed=2)  # both begin anew
    lab.run(2)
    said = f"value {of(2, seed=2):.3g} without, {of(2, 5.0, 2):.3g} with: up"
    assert lab.outcome.value.startswith(f"after 2 steps: {said}")
    lab.stepper.reset()
    lab.run(ROWS)
    said = f"value {of(10, seed=2):.3g} without, {of(10, 5.0, 2):.3g} with: up"
    assert lab.outcome.value.startswith(f"after 10 steps: {said}, as predicted")
    lab.stepper.reset()
    assert lab.outcome.value == ""


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_run_that_fails_after_the_turn_is_an_answer(value):
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
    wanted = "no answer: it ends with Ar" if math.isnan(value) else "after 10 steps: va"
    assert lab.outcome.value.startswith(wanted)
    assert math.isnan(value) or "with: up, as predicted" in lab.outcome.value


def test_a_hand_that_turns_on_makes_one_turn_and_a_later_one_another():
    lab = LiveLab(VALUES)
    lab.run(12)
    answer(lab, "gain", "up")
    for gain in (2.0, 3.0, 4.0):  # an arrow key held down, while the run goes on
        lab.controls.set(gain=gain)
        lab.run(2)
    values = f"value {of(18):.3g} without, {of(18, 4.0):.3g} with: up, as predicted"
    assert lab.outcome.value == f"after 6 steps: {values}"
    assert [*lab.plot._marks.values()] == ["gain = 4"]
    lab.run(ROWS)
    lab.controls.set(gain=5.0)
    lab.run(1)
    values = f"value {of(29, 4.0):.3g} without, {of(29, 5.0):.3g} with: up"
    assert lab.outcome.value == f"after 1 step: {values}"
    assert len(lab.plot._marks) == 2


def test_nothing_is_said_of_what_cannot_be_compared():
    lab = LiveLab(VALUES)
    lab.controls.set(gain=2.0, seed=1)  # two at once
    lab.run(3)
    assert lab.outcome.value == ""
    lab.controls.set(gain=5.0)
    lab.run(3)
    assert lab.outcome.value.endswith("up")
    lab.controls.turn(gain=5.0 * (1 + 1e-9))  # as a slider rounds
    assert lab.outcome.value.endswith("up") and lab.controls.value.gain == 5.0


@in_loop
async def test_the_twin_keeps_level_beside_the_run():
    lab = LiveLab(VALUES)
    lab.stepper.start()
    while lab.turns.run.count < 40:
        await asyncio.sleep(0)
    lab.controls.widgets["gain"].value = 2.0
    answer(lab, "gain", "up")
    begin, seen = lab.turns.run.count, set()
    while lab.turns.open:
        seen.add(lab.turns.run.count)
        await asyncio.sleep(0)
    assert len(seen) > 5 and lab.stepper.running  # the run stood still at no time
    assert "with: up" in lab.outcome.value and begin + ROWS <= lab.turns.run.count
    lab.stepper.pause()
    lab.run(200)  # in a cell: the twin is far behind
    assert not lab.controls.asks("gain") and lab.controls.asks("seed")
    while not lab.turns.level():
        await asyncio.sleep(0)
    assert lab.controls.asks("gain")


def test_the_picture_without_the_turn_is_grey_beside_that_of_the_step():
    drawn = []
    experiment = replace(
        VALUES,
        picture=lambda *both: drawn.append(both) or {"data": [], "layout": {}},
        playable={"gain": (2.0,)},
    )
    lab = LiveLab(experiment)
    assert lab.stepper._speed.value <= 10  # so that it is seen
    lab.run(5)
    lab.controls.set(gain=3.0)
    lab.run(2)
    lab.scene.widget.flush()
    assert drawn[-1] == (of(7, 3.0), of(7))


def test_random_numbers_of_the_run_are_its_own():
    def chance(settings):
        torch.manual_seed(settings.seed)
        for step in range(1, 99):
            value = float(torch.rand(())) + settings.gain
            yield {"step": step, "value": value}

    drawing = replace(VALUES, rows=chance)
    alone, lab = LiveLab(drawing), LiveLab(drawing)
    alone.run(9)
    lab.run(4)
    lab.controls.set(idle=1.0)
    lab.run(5)
    values = (x.trace.column("value") for x in (alone, lab))
    assert next(values) == next(values) and lab.outcome.value.endswith("nothing")


# The question


def test_a_knob_waits_for_a_prediction_that_can_be_skipped():
    lab = LiveLab(VALUES)
    slider = lab.controls.widgets["gain"]
    lab.run(3)
    slider.value = 3.0
    assert lab.controls.value.gain == 1.0 and slider.value == 3.0
    lab.run(1)  # meanwhile the run goes on as it was
    assert "gain" in lab.controls._message.value and "turned" not in lab.trace.rows[-1]
    answer(lab, "gain", "up")
    assert lab.controls.value.gain == 3.0 and not lab.controls._message.value
    assert lab.controls.asked["gain"].value == "up"  # what was answered is marked
    lab.run(ROWS)
    assert "up, as predicted" in lab.outcome.value
    slider.value = 4.0
    assert lab.controls.asked["gain"].value is None
    answer(lab, "gain", "skip")
    assert lab.controls.value.gain == 4.0
    lab.run(ROWS)
    slider.value = 5.0  # it asks no more
    assert lab.controls.value.gain == 5.0
    answer(lab, "gain", "down")  # until it is answered
    slider.value = 6.0
    lab.run(ROWS)
    slider.value = 7.0
    assert lab.controls.value.gain == 6.0
    lab.controls.widgets["idle"].value = 1.0  # only one knob waits
    assert slider.value == 6.0 and "idle" in lab.controls._message.value
    lab.controls.reset()
    assert lab.controls.value == Knobs() and not lab.controls._message.value
    assert lab.controls.asked["shift"].description == "Which way will an other go?"
    # What to look for stands there after the turn alone.
    assert "?" not in lab.controls._texts["gain"].value
    lab.controls.set(gain=2.0)
    assert "?" in lab.controls._texts["gain"].value
