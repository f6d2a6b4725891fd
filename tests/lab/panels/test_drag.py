"""A hand on a picture turns knobs: nothing else, and nothing where it is refused."""

from dataclasses import dataclass

import pytest

from labkit.lab.panels import Experiment, LiveLab, knob


@dataclass(frozen=True)
class Knobs:
    gain: float = knob(1.0, low=0.0, high=9.0, restart=False, about="value")
    shift: float = knob(0.0, low=0.0, high=9.0, restart=False)
    odd: int = knob(1, low=1, high=9, restart=False)

    def __post_init__(self):
        if self.odd % 2 == 0:
            raise ValueError(f"odd must be odd, got {self.odd}")


def rows(settings):
    for step in range(1, 100):
        value = settings.gain + settings.shift
        yield {"step": step, "value": value, "pictures": value}


def dragged(_now, _knobs, name, index, point):
    if name == "odd":
        return {"odd": int(point[1]) if point[1].is_integer() else point[1]}
    return {("gain", "shift")[index]: point[1]}


HELD = Experiment(
    "held",
    Knobs,
    rows,
    (),
    picture=lambda now, _before: {"data": [], "layout": {"meta": now}},
    drag=dragged,
    afresh=lambda _now, knobs: knobs.gain + knobs.shift,
)


def hold(lab, y, drag=1, **touched):
    """Say what a page says of a hand."""
    place = {"name": "bars", "index": 0, "x": 0.0, "y": y, "drag": drag}
    lab.pictures.widget.set_state({"touched": place | touched})


@pytest.mark.parametrize("steps", [3, 12])
def test_what_is_dragged_is_a_turn_of_its_knob_and_seen_at_once(steps):
    lab, other = LiveLab(HELD), LiveLab(HELD)
    for each in (lab, other):
        each.run(steps)
    hold(lab, 4.0)
    assert lab.pictures.now == 4.0 and len(lab.trace) == steps  # without a step
    other.controls.turn(gain=4.0)
    for each in (lab, other):
        each.run(2)
    assert lab.trace.rows == other.trace.rows and lab.pictures.now == 4.0
    for part in ("turned", "outcome", "note"):
        assert getattr(lab, part).value == getattr(other, part).value
    assert lab.controls.value == other.controls.value
    hold(lab, 77.0, index=1)
    assert lab.controls.widgets["shift"].value == 9.0  # cut to its bounds


def test_one_drag_is_one_turn():
    lab = LiveLab(HELD)
    lab.run(12)
    lab.controls.asked["gain"].value = "up"
    for y in (2.0, 3.0, 1.5):  # the run goes on far meanwhile
        hold(lab, y)
        lab.run(12)
    told = "after 10 steps: value 1 without, 1.5 with: up, as predicted"
    assert lab.outcome.value.startswith(told)
    lab._marked = (0.0, *lab._marked[1:])  # long ago
    hold(lab, 0.5, drag=2)
    lab.run(12)
    assert lab.outcome.value.startswith("after 10 steps: value 1.5 without, 0.5 with")


def test_what_is_no_place_turns_nothing():
    lab = LiveLab(HELD)
    hold(lab, 4.0)  # no step is drawn
    lab.run(2)
    hold(lab, 5.0, index=2)
    assert lab.turned.value == "nothing is turned: tuple index out of range"
    assert lab.controls.value == Knobs()


@pytest.mark.parametrize(("y", "said"), [(2, "odd must be odd"), (3.5, "type int")])
def test_what_the_knobs_refuse_they_say_as_ever(y, said):
    lab = LiveLab(HELD)
    lab.run(2)
    hold(lab, y, name="odd")
    assert lab.controls.value == Knobs() and said in lab.controls._message.value
