"""What a panel says of a turn: the same run with and without it, never the training."""

import asyncio
import math
import weakref
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from labkit.lab import bpls, predictions
from labkit.lab.compare import live as compare
from labkit.lab.panels import Experiment, Lines, LiveLab, knob
from labkit.lab.panels.live import predictions as kept, twin
from labkit.lab.panels.live.predictions import NONE, score
from labkit.lab.panels.live.twin import ROWS, direction, replay
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
    lab.controls._asked[name].value = said


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
            right = lab.outcome.value.removeprefix(told + verdict)
            assert (" right)" in right) == (said is not None)
        else:
            assert lab.outcome.value.startswith(told)
    assert lab.controls.take_prediction("gain") is None  # nothing is kept
    assert any("same run without" in part for part in lab.plot._said())


TURNS = st.lists(st.tuples(st.integers(1, 12), st.floats(0, 9)), max_size=4)
FEW = settings(max_examples=25)
MANY = pytest.param(settings(max_examples=500), marks=pytest.mark.long)


@pytest.mark.parametrize("count", [FEW, MANY], ids=["few", "many"])
def test_progress_of_the_training_is_never_credited_to_a_knob(count):
    """Whatever was turned before: a knob that does nothing is said to do nothing."""
    count(given(turns=TURNS, steps=st.integers(1, 12))(turned_without_effect))()


def turned_without_effect(turns, steps):
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


def test_a_run_begun_anew_is_compared_with_the_same_steps_of_the_old_knobs():
    lab = LiveLab(VALUES)
    lab.run(4)
    lab.controls.set(gain=5.0)
    lab.run(30)
    answer(lab, "seed", "up")
    lab.controls.set(seed=3)
    lab.run(2)  # at gain 5 as well, from the first row on; before it was 1
    said = f"value {of(2, 5.0):.3g} without, {of(2, 5.0, 3):.3g} with: up, as predicted"
    assert lab.outcome.value == f"after 2 steps: {said}"


def test_a_hand_that_turns_on_makes_one_turn_and_a_later_one_another(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(
        "labkit.lab.panels.live.live_lab.time.monotonic", lambda: now[0]
    )
    lab = LiveLab(VALUES)
    lab.run(12)
    answer(lab, "gain", "up")
    for gain in (2.0, 3.0, 4.0):
        lab.controls.set(gain=gain)
        lab.run(2)
        now[0] += 0.5
    values = f"value {of(18):.3g} without, {of(18, 4.0):.3g} with: up, as predicted"
    assert lab.outcome.value == f"after 2 steps: {values}"
    now[0] += 5
    lab.controls.set(gain=5.0)
    lab.run(1)
    values = f"value {of(19, 4.0):.3g} without, {of(19, 5.0):.3g} with: up"
    assert lab.outcome.value == f"after 1 step: {values}"


def test_nothing_is_said_of_what_cannot_be_compared():
    lab = LiveLab(VALUES)
    lab.controls.set(gain=2.0)  # no row before
    lab.run(3)
    assert lab.outcome.value == ""
    lab.controls.set(gain=1.0, seed=1)  # two at once
    lab.run(3)
    assert lab.outcome.value == ""
    lab.controls.set(gain=5.0)
    lab.run(3)
    assert lab.outcome.value.endswith("up")
    lab.controls.turn(gain=5.0 * (1 + 1e-9))  # as a slider rounds
    assert lab.outcome.value.endswith("up") and lab.controls.value.gain == 5.0
    lab.stepper.reset()
    assert lab.outcome.value == ""


def test_a_replay_that_is_long_or_comes_out_otherwise_is_no_answer(monkeypatch):
    lab = LiveLab(VALUES)
    lab.run(4)
    lab._spent = 60.0
    lab.controls.set(gain=5.0)
    assert lab.outcome.value.startswith(
        "no answer: to repeat 14 steps would take about"
    )
    chance = iter(range(10**6))
    fickle = lambda s: ({"step": i, "value": next(chance)} for i in range(1, 99))  # noqa: E731
    lab = LiveLab(replace(VALUES, rows=fickle))
    lab.run(4)
    lab.controls.set(gain=5.0)
    lab.run(4)
    assert lab.outcome.value == "no answer: this run cannot be repeated"


@in_loop
async def test_the_replay_goes_on_beside_the_run_and_is_dropped_at_the_next_turn():
    lab = LiveLab(VALUES)
    lab.stepper.start()
    while lab._count < 40:
        await asyncio.sleep(0)
    lab.controls.set(gain=2.0)
    begin, dropped, seen = lab._count, weakref.ref(lab._twin), set()
    lab.controls.set(shift=2.0)
    assert dropped() is None
    lab.controls.set(gain=1.0)
    while not (lab._twin.done and lab._twin.whole):
        seen.add(lab._count)
        await asyncio.sleep(0)
    assert len(seen) > 5 and lab.stepper.running  # the run stood still at no time
    assert "with: down" in str(lab._twin) and begin + ROWS <= lab._count
    lab.stepper.pause()


def test_the_picture_without_the_turn_is_grey_beside_that_of_the_step():
    drawn = []
    experiment = replace(
        VALUES, picture=lambda *both: drawn.append(both) or {"data": [], "layout": {}}
    )
    lab = LiveLab(experiment)
    assert lab.stepper._speed.value <= 10  # so that it is seen
    lab.run(5)
    lab.controls.set(gain=3.0)
    lab.run(2)
    lab.pictures.update()
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


def test_only_a_knob_about_something_asks_and_tells_after_the_turn():
    lab = LiveLab(VALUES)
    assert set(lab.controls._asked) == {"gain", "seed", "shift", "idle"}
    assert lab.controls._asked["shift"].description == "Which way will an other go?"
    text = lab.controls._texts["gain"]
    assert "?" not in text.value
    lab.controls.set(gain=2.0)
    assert "?" in text.value


def test_a_knob_waits_for_a_prediction_that_can_be_skipped():
    lab = LiveLab(VALUES)
    slider = lab.controls.widgets["gain"]
    slider.value = 2.0  # before the first step nothing is asked
    assert lab.controls.value.gain == 2.0
    lab.run(3)
    slider.value = 3.0
    assert lab.controls.value.gain == 2.0 and slider.value == 3.0
    lab.run(1)  # meanwhile the run goes on as it was
    assert "gain" in lab.controls._message.value and "turned" not in lab.trace.rows[-1]
    answer(lab, "gain", "up")
    assert lab.controls.value.gain == 3.0 and not lab.controls._message.value
    assert lab.controls._asked["gain"].value == "up"  # what was answered is marked
    lab.run(ROWS)
    assert "up, as predicted" in lab.outcome.value
    slider.value = 4.0
    assert lab.controls._asked["gain"].value is None
    answer(lab, "gain", "skip")
    assert lab.controls.value.gain == 4.0
    slider.value = 5.0  # it asks no more
    assert lab.controls.value.gain == 5.0
    answer(lab, "gain", "down")  # until it is answered
    slider.value = 6.0
    lab.run(1)
    slider.value = 7.0
    assert lab.controls.value.gain == 6.0
    lab.controls.widgets["idle"].value = 1.0  # only one knob waits
    assert slider.value == 6.0 and "idle" in lab.controls._message.value
    lab.controls.reset()
    assert lab.controls.value == Knobs() and not lab.controls._message.value


def test_the_score_is_kept_and_shown_at_the_end(monkeypatch):
    monkeypatch.setattr(kept, "_made", [])
    assert repr(predictions(interactive=False)._still.text) == repr(NONE)
    board = predictions()
    assert NONE in board.widget.value
    lab = LiveLab(VALUES)
    for said, gain in (("up", 5.0), ("nothing", 1.0), ("down", 5.0)):
        lab.run(3)
        answer(lab, "gain", said)
        lab.controls.set(gain=gain)
        lab.run(ROWS)
    assert score("values") == (1, 3) and score("others") == (0, 0)
    assert lab.outcome.value.endswith("not down as predicted (1 of 3 right)")
    assert "1 of 3 predictions" in board.widget.value
    assert board.widget.value.count("<tr>") == 4


@pytest.mark.parametrize(
    ("without", "turned", "said"),
    [(1, 2, "up"), (-1, -2, "down"), (1, 1.01, "nothing"), (0, 0, "nothing")],
)
def test_a_direction_mirrors(without, turned, said):
    assert direction(without, turned) == said
    mirrored = {"up": "down", "down": "up"}.get(said, said)
    assert direction(turned, without) == mirrored


# The three cases in which the panel said what was false


def said_of(experiment, problem, steps, **turned):
    """What the panel says, and what two runs by themselves come to."""
    lab = LiveLab(experiment, *problem)
    lab.run(steps)
    before = vars(lab.controls.value)
    lab.controls.set(**turned)
    lab.run(ROWS)
    ends = []
    for turns in ([], [(steps, turned)]):
        alone = replay(experiment, problem, before, turns)
        ends.append([next(alone) for _ in range(steps + ROWS)][-1])
    return lab, *ends


def test_label_noise_in_mid_run_is_not_said_to_help(monkeypatch):
    monkeypatch.setattr(twin, "LONGEST", 1e9)  # on a machine that is busy
    three = compare.race_of("RLS", "SGD", "Adam")
    problem = compare.spirals(), compare.middle_values(), 8
    lab, without, turned = said_of(three, problem, 30, label_noise=0.9)
    values = without["Adam"], turned["Adam"]
    told = "after 10 steps: Adam's error {:.3g} % without, {:.3g} % with".format(
        *values
    )
    assert lab.outcome.value == f"{told}: {direction(*values)}"
    assert "down" not in lab.outcome.value
    assert values[1] < lab.trace.rows[29]["Adam"]  # though the error falls meanwhile


def test_a_click_that_leaves_the_ridge_where_it_was_says_nothing():
    lab = LiveLab(bpls.CURVE)
    lab.run(3)
    slider = lab.controls.widgets["ridge"]
    slider.value = slider.value * (1 + 3e-12)  # as the page rounds
    lab.run(3)
    assert lab.outcome.value == lab.turned.value == lab.controls._message.value == ""
    assert "turned" not in lab.trace.frame()


@in_loop
async def test_a_drag_computes_one_twin_in_one_task_and_counts_once(monkeypatch):
    monkeypatch.setattr(kept, "_made", [])
    lab = LiveLab(VALUES)
    lab.run(12)
    answer(lab, "gain", "up")
    lab.controls.set(gain=2.0)
    first, task = lab._twin, lab._task
    lab.controls.set(gain=3.0)
    assert lab._twin is first and lab._task is task
    await task
    lab.run(2)
    lab.controls.set(gain=4.0)  # before it was seen what the first did
    await lab._task
    lab.run(ROWS)
    assert lab._twin is first and score("values") == (1, 1)
