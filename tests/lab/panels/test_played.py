"""Recorded pictures: what the page plays is what the panel's rows say."""

import base64
import gzip
import json
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from labkit.lab.panels import LiveLab
from labkit.lab.panels.figures.captions import jsonable
from labkit.lab.panels.figures.planes import path, planes, put
from labkit.lab.panels.figures.shown import embedded
from labkit.lab.panels.live import played as module
from labkit.lab.panels.live.live_lab import LEAST, MOST
from labkit.lab.panels.live.played import packed, played
from tests.lab.panels.test_live_lab import ROWS, Knobs

ENDS = [((0, 200), (-9, 9))]


def noisy(settings):
    """A row that trains before, then an unknown number of measured ones."""
    torch.manual_seed(settings.seed)
    yield {"step": 1, "measured": False, "warm": 1.0}
    points = []
    for step in range(2, 200):
        points.append([step, float(torch.randn(())) * settings.gain + settings.start])
        if settings.start > 5 and step > 8:
            raise ArithmeticError("no number")
        yield {"step": step, "pictures": np.array(points)}


def drawn(now, _before):
    figure = planes(["Value"], ["step"], ["value"], ENDS, caption="It goes on.")
    if now is not None:
        marks = len(now) < 4  # a trace changes its kind
        put(figure, 0, [path(now, "#000000", "value", marks=marks)])
    return figure


NOISY = replace(
    ROWS,
    rows=noisy,
    panels=(),
    status=None,
    picture=drawn,
    playable={"gain": (2.0,), "start": (1, 6)},
)


def record(lab, steps):
    return played(lab.experiment, lab.problem, lab.controls.value, steps, steps + 1)


@pytest.fixture
def lab():
    made = LiveLab(NOISY, interactive=False)
    made.run(10)
    return made


def test_each_run_shows_at_each_step_what_the_panel_shows(lab):
    text = packed(record(lab, 10))
    data = json.loads(gzip.decompress(base64.b64decode(text)))
    knobs = [{"name": "gain", "title": "gain", "values": [1.0, 2.0], "at": 0}]
    knobs.append({"name": "start", "title": "start", "values": [1, 6], "at": 0})
    assert data["knobs"] == knobs and data["step"] == 11
    parts = [json.loads(part) for part in data["parts"]]
    chosen = product((1.0, 2.0), (1, 6))
    for (gain, start), run in zip(chosen, data["runs"], strict=True):
        again = LiveLab(NOISY, knobs=Knobs(gain=gain, start=start), interactive=False)
        # one that fails ends there
        assert run["steps"] == list(range(2, 9 if start == 6 else 12))
        for numbers in run["frames"]:
            again.run(1)
            wanted = json.loads(json.dumps(jsonable(again.figure, "f4")))
            assert [parts[n] for n in numbers] == [wanted["layout"], *wanted["data"]]


def test_recording_leaves_the_panel_and_the_random_numbers(lab):
    torch.manual_seed(3)
    before, rows = torch.get_rng_state(), lab.trace.rows
    record(lab, 10)
    assert torch.equal(torch.get_rng_state(), before)
    assert lab.trace.rows == rows
    lab.run(1)  # its generator and its trace go on


def held_by(page):
    """The data in a page."""
    (inside,) = re.findall(r'application/json">(.*?)</script>', page)
    return json.loads(inside)


@pytest.mark.parametrize(("ran", "kept"), [(1, LEAST), (30, 30), (100, MOST)])
def test_headless_a_picture_that_has_run_is_played_below(ran, kept, monkeypatch):
    shown = []
    monkeypatch.setattr(module, "display", lambda page, raw: shown.append(page))
    monkeypatch.setattr(module, "packed", lambda data: data)
    lab = LiveLab(NOISY, interactive=False)
    lab._ipython_display_()
    assert shown == []  # nothing has run
    lab.run(ran)
    lab._ipython_display_()
    (page,) = shown
    data = held_by(page["text/html"])
    assert len(data["runs"][0]["steps"]) == kept and data["step"] == ran + 1
    assert 'class="labkit-play"' in page["text/html"] and page["text/plain"] == ""


def test_what_stands_in_a_page_cannot_end_its_script():
    data = {"parts": ["</script>"]}
    assert held_by(embedded(module.PLAY, data)) == data
