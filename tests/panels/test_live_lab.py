"""The frame around one generator of rows: restarts, traces, headless and live."""

from dataclasses import dataclass
from itertools import count

import numpy as np
import pytest

from labkit.instruments import Trace
from labkit.panels import Lines, LiveLab, knob
from labkit.panels.pictures import Pictures


@dataclass(frozen=True)
class Knobs:
    start: int = knob(1, low=0, high=9)
    seed: int = knob(0, low=0, high=9)


def rows(knobs):
    yield {"step": 1, "measured": False, "warm": 1.0}
    for step in range(2, 8):
        yield {"step": step, "value": float(knobs.start * step)}


def make(**options):
    panels = (Lines(("value",), "Value", "unit"),)
    return LiveLab(Knobs(), rows, panels, name="rows", **options)


def test_run_counts_measured_rows_and_stops_at_the_end():
    lab = make(interactive=False)
    assert list(lab.run(2).index) == [1, 2, 3]
    frame = lab.run(100)
    assert list(frame.index) == list(range(1, 8))
    assert frame["value"].dropna().tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert lab.run(1).equals(frame)


def test_a_turned_knob_restarts_into_a_new_trace(tmp_path):
    lab = make(interactive=False, folder=str(tmp_path), tell=lambda row: str(row))
    lab.run(1)
    lab.controls.set(start=3, seed=4)
    frame = lab.run(1)
    assert frame["value"].dropna().tolist() == [6.0]
    assert "6.0" in lab.note.value
    lab.trace.close()
    one, two = (Trace.load(tmp_path / f"rows-{i}.jsonl") for i in (1, 2))
    assert one.header["parameters"]["start"] == 1
    assert two.header["parameters"]["start"] == 3 and two.header["seed"] == 4


@pytest.mark.parametrize("interactive", [True, False])
def test_what_is_shown(interactive):
    lab = make(interactive=interactive)
    lab.run(3)
    bundle = lab._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    kind = "widget-view" if interactive else "plotly"
    assert any(kind in key for key in bundle)
    if interactive:
        assert lab.plot.figure in lab.widget.children


def test_pictures_follow_the_step_shown_and_are_not_logged():
    def with_pictures(knobs):
        for step in range(1, 5):
            yield {"step": step, "value": 1.0, "pictures": np.full((1, 2, 4), step)}

    clock = count(step=9).__next__
    pictures = Pictures(("image",), count=2, side=(2, 2), limits=(0, 9), clock=clock)
    panels = (Lines(("value",), "Value", "unit"),)
    lab = LiveLab(Knobs(), with_pictures, panels, name="p", pictures=pictures)
    assert "pictures" not in lab.run(4)
    assert pictures.figure.data[0].z[0][0] == 4
    assert lab.widget.children[-1] is pictures.figure
    lab.stepper.back(2)
    assert pictures.figure.data[0].z[0][0] == 2
    assert pictures.figure.layout.title.text == "Step 2"
    lab.controls.set(start=2)
    assert (np.array(pictures.figure.data[0].z) < 0).all()
