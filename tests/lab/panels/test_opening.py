"""A picture that is a function of its knobs: the path, its slider, its pale twin."""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from labkit.lab.panels import Experiment, Opening, knob
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.figures.planes import GHOST, path, planes, put

LIMITS = (((0, 20), (-50, 50)),)


@dataclass(frozen=True)
class Knobs:
    """A rate, and the place of a dot."""

    rate: float = knob(0.5, low=0.0, high=2.0, look_for="Faster?")
    place: str = knob("1", look_for="Further?")


def rows(settings) -> Iterator[dict]:
    """Yield points on a line."""
    points = [float(settings.place)]
    for step in range(1, 99):
        points.append(points[-1] + settings.rate)
        yield {"step": step, "at": points[-1], "pictures": np.array(points)}


def picture(now, before):
    """Draw the line, and the one before in grey."""
    figure = planes(["A line"], ["step"], ["place"], LIMITS, caption="A line.")
    for points, colour, name in ((now, "#000000", "line"), (before, GHOST, EARLIER)):
        if points is not None:
            steps = np.arange(len(points))
            put(figure, 0, [path(np.stack([steps, points], 1), colour, name)])
    return figure


LINE = Experiment(
    "line",
    Knobs,
    rows,
    (),
    "A line.",
    lambda row: f"$x = {row['at']:g}$",
    picture=picture,
)


def drawn(opening):
    """The values of the line that is drawn, and of the one in grey."""
    found = {each["name"]: [*each["y"]] for each in opening.figure["data"]}
    return found["line"], found.get("before the turn")


@pytest.fixture(params=[True, False], ids=["widgets", "headless"])
def opening(request):
    return Opening(LINE, steps=4, interactive=request.param)


def test_the_whole_path_is_there_and_a_turn_computes_it_anew(opening):
    first = [1, 1.5, 2, 2.5, 3]
    assert drawn(opening) == (first, None)
    opening.controls.set(rate=1.0)
    assert drawn(opening) == ([1, 2, 3, 4, 5], first)


def test_a_drag_keeps_the_path_from_where_it_began(opening, monkeypatch):
    clock = SimpleNamespace(monotonic=iter([0.0, 0.5, 1.0, 9.0]).__next__)
    monkeypatch.setattr("labkit.lab.panels.opening.time", clock)
    for rate in (0.6, 0.7, 0.8):
        opening.controls.set(rate=rate)
        assert drawn(opening)[1][1] == 1.5
    opening.controls.set(rate=1.0)  # long after: another turn
    assert drawn(opening)[1][1] == 1.8


def test_the_slider_moves_along_the_steps_with_the_formula_of_each():
    opening = Opening(LINE, steps=4)
    assert opening.slider.max == 3 and opening.formula.value == "$x = 3$"
    opening.slider.value = 1
    assert drawn(opening)[0] == [1, 1.5, 2]
    assert opening.slider.description == "step 2" and opening.formula.value == "$x = 2$"
    opening.controls.set(rate=1.0)
    assert drawn(opening)[0] == [1, 2, 3]  # at the same step
    assert Opening(LINE, steps=1).slider.layout.display == "none"


def test_a_setting_can_be_copied(opening):
    assert opening.call == "Knobs()"
    opening.controls.set(rate=1.0, place="2")
    assert eval(opening.call) == opening.controls.value
    if opening.interactive:
        assert html.escape(opening.call) in opening.setting.value
