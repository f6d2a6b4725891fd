"""Recorded runs: what the page plays is what the panel's rows say."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from labkit.panels import Bars, Lines, LiveLab, live_lab
from labkit.panels.embedded import Once, embedded
from labkit.panels.played import LEAST, MOST, packed, plain, played
from labkit.pictures.curve import CURVE
from labkit.pictures.ellipse import ELLIPSE
from tests.panels.test_live_lab import ROWS

ROUNDING = 5e-4  # of numbers of four digits


def noisy(settings):
    """A row that trains before, then an unknown number of measured ones."""
    torch.manual_seed(settings.seed)
    yield {"step": 1, "measured": False, "warm": 1.0}
    for step in range(2, 200):
        value = float(torch.randn(())) * settings.gain
        row = {"step": step, "value": value, "bar": step / 3, "level": value}
        yield row | ({"seldom": np.nan if step == 5 else value} if step % 3 else {})


NOISY = replace(
    ROWS,
    rows=noisy,
    panels=(
        Lines(("value", "seldom"), "Value", "unit"),
        Bars(("bar",), "Bar", "unit", level="level"),
    ),
    recorded={"gain": (0.0, 2.0), "start": (1, 3, 5)},
)


def unpacked(data, run):
    """The figures of a run, as the page makes them of their parts."""
    parts = data["parts"]

    def part(number):
        return parts[number[0]][: number[1]] if type(number) is list else parts[number]

    nodes = [[dict(node) for node in frame] for frame in run["frames"]]
    whole = [
        [part(n.pop("")) | {k: part(v) for k, v in n.items()} for n in frame]
        for frame in nodes
    ]
    return [{"layout": layout, "data": traces} for layout, *traces in whole]


@pytest.fixture
def lab():
    made = LiveLab(NOISY, interactive=False)
    made.run(10)
    return made


@pytest.fixture
def data(lab):
    return json.loads(json.dumps(played(lab), allow_nan=False))


def test_each_run_shows_at_each_step_what_its_trace_has_until_then(lab, data):
    values = [knob["values"] for knob in data["knobs"]]
    assert values == [[0.0, 1.0, 2.0], [1, 3, 5]]
    assert [knob["at"] for knob in data["knobs"]] == [1, 0] and data["step"] == 11
    runs = iter(data["runs"])
    for gain in values[0]:
        for start in values[1]:
            run, again = next(runs), lab.afresh(gain=gain, start=start)
            figures = unpacked(data, run)
            assert run["steps"] == list(range(2, 12)) and len(figures) == 10
            for figure in figures:
                again.run(1)
                same(figure["data"], again.figure)
    assert next(runs, None) is None


def same(traces, figure):
    """Traces have the figure's numbers, to four digits, and its look."""
    for trace, found in zip(traces, figure.data, strict=True):
        look = {k: v for k, v in found.to_plotly_json().items() if k not in "xy"}
        for axis in "xy":
            numbers = np.array(trace.pop(axis), dtype=float)
            wanted = np.array(found[axis], dtype=float)
            assert np.allclose(numbers, wanted, ROUNDING, 0, equal_nan=True)
        assert trace == plain(look)


def test_the_page_begins_where_the_panel_stands(lab, data):
    figures = unpacked(data, data["runs"][3])
    same(figures[-1]["data"], lab.figure)
    assert figures[-1]["layout"] == plain(lab.figure.to_plotly_json()["layout"])


def test_a_curve_that_grows_and_the_steps_that_curves_share_are_kept_once(data):
    lists = [part for part in data["parts"] if type(part) is list]
    assert lists.count(list(range(2, 12))) == 1
    assert not [each for each in lists if each == list(range(2, 11))]


def test_a_beginning_is_told_from_another_list():
    frames = [[1, 2], [1, 2, 3], [1, 5], [1, 5, 6]]
    given = [{"layout": {}, "data": [{"x": x, "name": "a"}]} for x in frames]
    parts = Once()
    run = {"frames": packed(given, parts)}
    assert unpacked({"parts": parts}, run) == given
    assert [part for part in parts if type(part) is list] == [[1, 5, 6], [1, 2, 3]]


def test_recording_leaves_the_panel_and_the_random_numbers(lab):
    torch.manual_seed(3)
    before, rows = torch.get_rng_state(), lab.trace.rows
    played(lab)
    assert torch.equal(torch.get_rng_state(), before)
    assert lab.trace.rows == rows
    lab.run(1)  # its generator and its trace go on


def test_only_what_has_run_is_recorded_and_only_so_far(lab):
    assert played(LiveLab(NOISY, interactive=False)) is None
    lab.run(MOST)
    assert {len(run["steps"]) for run in played(lab)["runs"]} == {MOST}
    ended = LiveLab(ROWS, interactive=False)
    ended.run(100)
    (run,) = played(ended)["runs"]
    assert run["steps"] == list(range(2, 8))


@pytest.mark.parametrize(("experiment", "first"), [(ELLIPSE, 12), (CURVE, 1)])
def test_a_picture_is_played_on_from_the_step_that_is_shown(experiment, first):
    lab = LiveLab(experiment, interactive=False)
    lab.run(first)
    data = played(lab)
    (knob,) = data["knobs"]
    figures = unpacked(data, data["runs"][knob["at"]])
    assert data["step"] == first and len(figures) == LEAST
    assert figures[first - 1] == plain(experiment.picture(lab.pictures._now, None))
    ends = [unpacked(data, run)[-1] for run in data["runs"]]
    assert all(one != other for one, other in pairwise(ends))
    assert len(json.dumps(data)) < 600_000


@pytest.mark.parametrize(("interactive", "wanted"), [(False, 1), (True, 0)])
def test_headless_the_module_stands_below_the_figure(interactive, wanted, monkeypatch):
    shown = []
    monkeypatch.setattr(live_lab, "display", shown.append)
    lab = LiveLab(NOISY, interactive=interactive)
    lab._ipython_display_()
    assert shown == []  # nothing has run
    lab.run(3)
    lab._ipython_display_()
    assert len(shown) == wanted
    assert all('class="labkit-play"' in page.html for page in shown)


def test_what_stands_in_a_page_cannot_end_its_script():
    html = embedded("play", {"parts": ["</script>"]})
    (inside,) = re.findall(r'application/json">(.*?)</script>', html)
    assert json.loads(inside) == {"parts": ["</script>"]}
