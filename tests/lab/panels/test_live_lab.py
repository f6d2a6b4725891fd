"""The frame around one generator of rows: restarts, traces, headless and live."""

import asyncio
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pytest

from labkit.instruments import Trace
from labkit.lab.panels import Experiment, Lines, LiveLab, knob
from labkit.lab.panels.figures.images import Pictures
from tests.lab.panels.conftest import in_loop


@dataclass(frozen=True)
class Knobs:
    start: int = knob(1, low=0, high=9)
    seed: int = knob(0, low=0, high=9)
    gain: float = knob(1.0, low=0.0, high=9.0, restart=False)
    label_noise: float = knob(0.0, low=0.0, high=1.0, restart=False)


def rows(settings, last=8):
    start = settings.start
    yield {"step": 1, "measured": False, "warm": 1.0}
    for step in range(2, last):
        yield {"step": step, "value": start * step * settings.gain}


PANELS = (Lines(("warm",), "Warm", "unit"), Lines(("value",), "Value", "unit"))
ROWS = Experiment("rows", Knobs, rows, PANELS, "Look.", lambda row: f"told {row}")


def make(*problem, **options):
    return LiveLab(ROWS, *problem, **options)


def test_an_experiment_takes_a_problem_and_start_values():
    lab = make(4, knobs=Knobs(start=2), interactive=False)
    assert lab.run(9)["value"].dropna().tolist() == [4.0, 6.0]
    assert "Look." in lab.plot.figure["layout"]["meta"]["alt"]


def test_run_counts_measured_rows_and_stops_at_the_end():
    lab = make(interactive=False)
    assert list(lab.run(2).index) == [1, 2, 3]
    frame = lab.run(100)
    assert list(frame.index) == list(range(1, 8))
    assert frame["value"].dropna().tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert lab.run(1).equals(frame)


@pytest.mark.parametrize("steps", ["ten", -1, 2.5, None])
def test_steps_that_are_no_number_are_refused(steps):
    """As papermill hands them on, which knows no bounds."""
    with pytest.raises(ValueError, match=r"steps must be an integer >= 0, got "):
        make(interactive=False).run(steps)


def test_a_turned_knob_restarts_into_a_new_trace(tmp_path):
    lab = make(interactive=False, folder=str(tmp_path))
    lab.run(1)
    lab.controls.set(start=3, seed=4)
    frame = lab.run(1)
    assert frame["value"].dropna().tolist() == [6.0]
    assert "6.0" in lab.note.value
    lab.trace.close()
    one, two = (Trace.load(tmp_path / f"rows-{i}.jsonl") for i in (1, 2))
    assert one.header["parameters"]["start"] == 1
    assert two.header["parameters"]["start"] == 3 and two.header["seed"] == 4


def test_a_panel_opens_with_what_is_there_before_the_first_step():
    opened = []

    def opening(settings, last):
        opened.append((settings.gain, last))
        return {"gain": settings.gain}

    def picture(now, before):
        return {"data": [now, before], "layout": {}}

    def shown(settings, last):
        for row in rows(settings, last):
            yield row | {"pictures": {"step": row["step"]}}

    pictured = replace(ROWS, rows=shown, picture=picture, opening=opening, panels=())
    lab = LiveLab(pictured, 4)
    assert lab.pictures.figure["data"] == [{"gain": 1.0}, None]
    lab.controls.set(gain=2.0)  # the run begins with it, and so does what is shown
    lab.stepper.reset()
    assert lab.pictures.figure["data"] == [{"gain": 2.0}, None]
    lab.run(1)
    lab.stepper.reset()
    assert lab.pictures.figure["data"] == [{"gain": 2.0}, {"step": 2}]
    assert set(opened) == {(1.0, 4), (2.0, 4)}


@pytest.mark.parametrize("interactive", [True, False])
def test_a_live_knob_holds_from_the_next_step_on(interactive, tmp_path):
    lab = make(interactive=interactive, folder=str(tmp_path))
    marks = []
    lab.plot.mark = lambda x, text, _: marks.append((x, text))
    lab.run(1)
    lab.controls.set(gain=3.0)
    lab.controls.set(label_noise=0.25)
    assert lab.turned.value == "gain = 3, label noise = 0.25 from step 3 on"
    assert marks == [(3, "gain 3"), (3, "gain 3, label noise 0.25")]
    frame = lab.run(2)
    assert list(frame.index) == [1, 2, 3, 4]  # nothing begun anew, nothing lost
    assert frame["value"].tolist()[1:] == [2.0, 9.0, 12.0]
    assert frame["turned"].dropna().to_dict() == {3: "gain = 3, label noise = 0.25"}
    assert lab.turned.value.endswith("from step 3 on")
    assert lab.note.value.startswith("told")
    lab.trace.close()
    (file,) = tmp_path.iterdir()
    assert Trace.load(file).rows == lab.trace.rows


def test_a_live_and_a_restarting_knob_together_restart():
    lab = make(interactive=False)
    lab.run(2)
    lab.controls.set(gain=3.0)
    lab.controls.set(start=2, seed=1, gain=2.0)
    assert lab.turned.value == "start and seed restart the run"
    frame = lab.run(1)
    assert frame["value"].dropna().tolist() == [8.0] and "turned" not in frame
    assert lab.trace.header["parameters"]["gain"] == 2.0
    lab.controls.set(seed=2)
    assert lab.turned.value == "seed restarts the run"
    lab.run(1)
    assert lab.note.value
    lab.stepper.reset()
    assert lab.turned.value == "" and lab.note.value == "Press Run, or Step."


def test_a_live_knob_before_the_first_step_and_after_the_last():
    lab = make(interactive=False)
    lab.controls.set(gain=2.0)
    assert lab.turned.value == "gain = 2 from step 1 on"
    frame = lab.run(100)
    assert frame["value"].dropna().tolist() == [4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    assert frame["turned"].dropna().to_dict() == {1: "gain = 2"}
    lab.controls.set(gain=3.0)
    assert lab.turned.value == "gain restarts the run, which had ended"
    assert not lab.stepper.running
    assert lab.run(1)["value"].dropna().tolist() == [3.0 * 2]
    assert lab.trace.header["parameters"]["gain"] == 3.0


@pytest.mark.parametrize("interactive", [True, False])
@in_loop
async def test_a_run_that_has_ended_runs_anew_where_someone_looks_on(interactive):
    lab = make(interactive=interactive)
    lab.run(100)
    lab.controls.set(gain=2.0)
    assert lab.stepper.running == interactive
    while lab.stepper.running:
        await asyncio.sleep(0)
    assert len(lab.trace.frame()) == (7 if interactive else 0)


@in_loop
async def test_a_running_lab_goes_on_under_a_live_knob():
    lab = make()
    task = lab.stepper.start()
    while lab.stepper.position < 3:
        await asyncio.sleep(0)
    lab.controls.widgets["gain"].value = 3.0
    assert lab.stepper.running
    await task
    frame = lab.trace.frame()
    assert list(frame.index) == list(range(1, 8))
    assert frame["value"].tolist()[1:] == [2.0, 3.0, 12.0, 15.0, 18.0, 21.0]


def test_a_run_of_turns_of_one_knob_leaves_one_mark(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(
        "labkit.lab.panels.live.live_lab.time.monotonic", lambda: now[0]
    )
    lab = make(interactive=False)
    lab.run(1)
    for gain in (2.0, 3.0, 4.0):  # an arrow key held down, while the run goes on
        lab.controls.set(gain=gain)
        frame = lab.run(1)
        now[0] += 0.3
    assert lab.plot._marks == {5: "gain 4"}
    turned = {3: "gain = 2", 4: "gain = 3", 5: "gain = 4"}
    assert frame["turned"].dropna().to_dict() == turned
    lab.controls.set(label_noise=0.5)
    now[0] += 5
    lab.run(1)
    lab.controls.set(label_noise=0.25)
    assert list(lab.plot._marks) == [5, 6, 7]


def test_pictures_follow_the_step_and_are_not_logged():
    def with_pictures(settings):
        for step in range(1, 5):
            yield {"step": step, "value": 1.0, "pictures": np.full((1, 2, 4), step)}

    clock = count(step=9).__next__
    pictures = Pictures(("image",), count=2, side=(2, 2), limits=(0, 9), clock=clock)
    lab = LiveLab(replace(ROWS, rows=with_pictures), pictures=pictures)
    assert "pictures" not in lab.run(4)
    assert pictures.figure["data"][0]["z"][0][0] == 4
    _, figures = lab.widget.children
    assert figures.children[-3:-1] == (pictures.widget, lab.plot.widget)
    assert pictures.figure["layout"]["title"]["text"] == "Step 4"
    lab.controls.set(start=2)
    assert (np.array(pictures.figure["data"][0]["z"]) < 0).all()
