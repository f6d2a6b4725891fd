"""Recorded runs: what the page plays is what the panel's rows say."""

import base64
import gzip
import json
import re
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from labkit.lab.bpls.curve import CURVE
from labkit.lab.panels import Bars, Lines, LiveLab
from labkit.lab.panels.figures.shown import embedded
from labkit.lab.panels.live import live_lab
from labkit.lab.panels.live.played import LEAST, MOST, changes, packed, plain, played
from tests.lab.panels.test_live_lab import ROWS

ROUNDING = 5e-5  # of numbers of five digits
# the function hides the module of its name
PLAYED = sys.modules["labkit.lab.panels.live.played"]


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
    playable={"gain": (2.0,), "start": (1, 5)},
)


def unpacked(run):
    """The figures of a run, as the page makes them of what changed."""

    return unpacked_all([run])[0]


def unpacked_all(runs):
    """The figures of all runs: each goes on from what the run before has ended with."""
    memory, made = defaultdict(dict), []

    def whole(steps, place):
        for changed in steps:
            memory[place] = memory[place] | (changed or {})
            yield None if changed is None else memory[place]

    for run in runs:
        layouts = [*whole(run["layout"], "layout")]
        places = enumerate(run["traces"])
        traces = zip(*(whole(steps, place) for place, steps in places), strict=True)
        both = zip(layouts, traces, strict=True)
        made.append([{"layout": x, "data": [t for t in now if t]} for x, now in both])
    return made


def at(lab, **knobs):
    """The same, not run, at other knobs."""
    knobs = replace(lab.controls.value, **knobs)
    return LiveLab(lab.experiment, knobs=knobs, interactive=False)


@pytest.fixture
def lab():
    made = LiveLab(NOISY, interactive=False)
    made.run(10)
    return made


@pytest.fixture
def data(lab):
    return json.loads(gzip.decompress(base64.b64decode(packed(played(lab)))))


def test_each_run_shows_at_each_step_what_its_trace_has_until_then(lab, data):
    values = [knob["values"] for knob in data["knobs"]]
    assert values == [[1.0, 2.0], [1, 5]]
    assert [knob["at"] for knob in data["knobs"]] == [0, 0] and data["step"] == 11
    runs = zip(data["runs"], unpacked_all(data["runs"]), strict=True)
    for gain in values[0]:
        for start in values[1]:
            (run, figures), again = next(runs), at(lab, gain=gain, start=start)
            assert run["steps"] == list(range(2, 12)) and len(figures) == 10
            for figure in figures:
                again.run(1)
                same(figure["data"], again.figure)
    assert next(runs, None) is None


def same(traces, figure):
    """Traces have the figure's numbers, to five digits, and its look."""
    for trace, found in zip(traces, go.Figure(figure).data, strict=True):
        look = {k: v for k, v in found.to_plotly_json().items() if k not in "xy"}
        for axis in "xy":
            numbers = np.array(trace.pop(axis), dtype=float)
            wanted = np.array(found[axis], dtype=float)
            assert np.allclose(numbers, wanted, ROUNDING, 0, equal_nan=True)
        assert trace == plain(look)


def test_the_page_begins_where_the_panel_stands(lab, data):
    figures = unpacked(data["runs"][0])
    same(figures[-1]["data"], lab.figure)
    assert figures[-1]["layout"] == plain(lab.figure["layout"])


def test_a_trace_may_come_and_go():
    nodes = [{"x": [1], "name": "a"}, None, {"x": [1, 2]}, {"x": [1, 2], "name": "b"}]
    made = changes(nodes)
    assert made == [nodes[0], None, {"x": [1, 2], "name": None}, {"name": "b"}]


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


@pytest.mark.parametrize(("experiment", "first"), [(CURVE, 1)])
def test_a_picture_is_played_on_from_the_step_that_is_shown(experiment, first):
    lab = LiveLab(experiment, interactive=False)
    lab.run(first)
    data = played(lab)
    (knob,) = data["knobs"]
    runs = unpacked_all(data["runs"])
    figures = runs[knob["at"]]
    assert data["step"] == first and len(figures) == LEAST
    assert figures[first - 1] == plain(
        experiment.picture(lab.pictures.now, None), digits=4
    )
    ends = [run[-1] for run in runs]
    assert all(one != other for one, other in pairwise(ends))
    assert len(packed(data)) < 300_000


@pytest.mark.parametrize(("interactive", "wanted"), [(False, 1), (True, 0)])
def test_headless_the_module_stands_below_the_figure(interactive, wanted, monkeypatch):
    shown = []
    monkeypatch.setattr(live_lab, "display", lambda page, raw: shown.append(page))
    lab = LiveLab(NOISY, interactive=interactive)
    lab._ipython_display_()
    assert shown == []  # nothing has run
    lab.run(3)
    lab._ipython_display_()
    assert len(shown) == wanted
    assert all('class="labkit-play"' in page["text/html"] for page in shown)
    assert all(page["text/plain"] == "" for page in shown)  # and the run only once


def test_what_stands_in_a_page_cannot_end_its_script():
    html = embedded(live_lab.PLAY, {"parts": ["</script>"]})
    (inside,) = re.findall(r'application/json">(.*?)</script>', html)
    assert json.loads(inside) == {"parts": ["</script>"]}


def test_large_figures_are_thinned_and_the_last_is_kept(lab, monkeypatch):
    whole = played(lab)["runs"][0]
    monkeypatch.setattr(PLAYED, "LARGEST", 0)
    thin = played(lab)["runs"][0]
    assert thin["steps"] == whole["steps"][::-4][::-1] and len(thin["steps"]) > 1
    assert unpacked(thin)[-1] == unpacked(whole)[-1]
