"""The frame around one generator of rows: restarts, traces, headless and live."""

import asyncio
from dataclasses import dataclass, replace

import pytest

from labkit.instruments import Trace
from labkit.lab.panels import Experiment, Lines, LiveLab, knob
from tests.lab.panels.conftest import in_loop


@dataclass(frozen=True)
class Knobs:
    start: int = knob(1, low=0, high=9)
    seed: int = knob(0, low=0, high=9)
    gain: float = knob(1.0, low=0.0, high=9.0, restart=False)
    label_noise: float = knob(0.0, low=0.0, high=1.0, restart=False)


def rows(settings, last=8):
    yield {"step": 1, "measured": False, "warm": 1.0}
    for step in range(2, last):
        value = settings.start * step * settings.gain
        yield {"step": step, "value": value, "pictures": {"step": step}}


PANELS = (Lines(("warm",), "Warm", "unit"), Lines(("value",), "Value", "unit"))
ROWS = Experiment("rows", Knobs, rows, PANELS, "Look.", lambda row: f"told {row}")
BOTH = pytest.mark.parametrize("interactive", [True, False])


def make(*problem, **options):
    return LiveLab(ROWS, *problem, **options)


def test_run_counts_measured_rows_and_stops_at_the_end():
    lab = make(interactive=False)
    assert list(lab.run(2).index) == [1, 2, 3]
    frame = lab.run(100)
    assert list(frame.index) == list(range(1, 8)) and "pictures" not in frame
    assert frame["value"].dropna().tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert lab.run(1).equals(frame)
    lab = make(4, knobs=Knobs(start=2), interactive=False)
    assert lab.run(9)["value"].dropna().tolist() == [4.0, 6.0]
    for steps in ("ten", -1, 2.5, None):  # as papermill hands them on
        with pytest.raises(ValueError, match=r"steps must be an integer >= 0, got "):
            lab.run(steps)


def test_a_turned_knob_restarts_into_a_new_trace(tmp_path):
    lab = make(interactive=False, folder=str(tmp_path))
    lab.run(1)
    lab.controls.set(start=3, seed=4)
    assert lab.turned.value == "start and seed restart the run"
    frame = lab.run(1)
    assert frame["value"].dropna().tolist() == [6.0]
    assert "6.0" in lab.note.value
    lab.trace.close()
    one, two = (Trace.load(tmp_path / f"rows-{i}.jsonl") for i in (1, 2))
    assert one.header["parameters"]["start"] == 1
    assert two.header["parameters"]["start"] == 3 and two.header["seed"] == 4
    lab.stepper.reset()
    assert lab.turned.value == "" and lab.note.value == "Press Run, or Step."


def test_a_panel_opens_with_what_is_there_before_the_first_step():
    def opening(settings, last):
        return {"gain": settings.gain, "last": last}

    picture = lambda *both: {"data": [*both], "layout": {}}  # noqa: E731
    lab = LiveLab(replace(ROWS, picture=picture, opening=opening), 4)
    opened = {"gain": 1.0, "last": 4}
    assert lab.scene.figure["data"] == [opened, None]
    lab.controls.set(gain=2.0)  # the run begins with it, and so does what is shown
    opened["gain"] = 2.0
    assert lab.scene.figure["data"] == [opened, None]
    lab.stepper.reset()  # what nothing has moved leaves no grey behind
    assert lab.scene.figure["data"] == [opened, None]
    lab.run(1)
    assert lab.scene.figure["data"] == [{"step": 2}, None]
    lab.stepper.reset()
    assert lab.scene.figure["data"] == [opened, {"step": 2}]


@BOTH
def test_a_live_knob_holds_from_the_next_step_on(interactive, tmp_path):
    lab = make(interactive=interactive, folder=str(tmp_path))
    lab.run(1)
    lab.controls.set(gain=3.0)
    lab.controls.set(label_noise=0.25)
    assert lab.turned.value == "gain = 3, label noise = 0.25 from step 3 on"
    assert lab.plot._marks == {3: "gain = 3, label noise = 0.25"}
    frame = lab.run(2)
    assert list(frame.index) == [1, 2, 3, 4]  # nothing begun anew, nothing lost
    assert frame["value"].tolist()[1:] == [2.0, 9.0, 12.0]
    assert frame["turned"].dropna().to_dict() == {3: "gain = 3, label noise = 0.25"}
    assert lab.note.value.startswith("told")
    lab.controls.set(gain=2.0, start=2)  # a knob that restarts is among them
    assert lab.turned.value == "start restarts the run"
    assert lab.run(1)["value"].dropna().tolist() == [8.0]


def test_a_live_knob_before_the_first_step_and_after_the_last():
    lab = make(interactive=False)
    lab.controls.set(gain=2.0)
    assert lab.turned.value == "gain = 2 from step 1 on"
    frame = lab.run(100)
    assert frame["value"].dropna().tolist() == [4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    lab.controls.set(gain=3.0)
    assert lab.turned.value == "gain restarts the run, which had ended"
    assert lab.run(1)["value"].dropna().tolist() == [3.0 * 2]
    assert lab.trace.header["parameters"]["gain"] == 3.0


@BOTH
@in_loop
async def test_a_run_that_has_ended_runs_anew_where_someone_looks_on(interactive):
    lab = make(interactive=interactive)
    lab.run(100)
    lab.controls.set(gain=2.0)
    assert lab.stepper.running == interactive
    while lab.stepper.running:
        await asyncio.sleep(0)
    assert len(lab.trace.rows) == (7 if interactive else 0)
