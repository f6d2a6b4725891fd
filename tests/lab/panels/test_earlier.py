"""What a live figure keeps of an earlier run, and what it folds for want of data."""

import math

import plotly.graph_objects as go
import pytest

from labkit.instruments import Trace
from labkit.lab.panels import Lines, LivePlot
from labkit.lab.panels.figures.theme import GHOST
from labkit.lab.panels.live.live_plot import ENOUGH

LOSS = Lines({"loss": "training loss"}, "Loss", "loss [nats]")


def ghosts(figure):
    """The grey curves of an earlier run."""
    return [c.y.tolist() for c in go.Figure(figure).data if c.name == "an earlier run"]


def losses(*values):
    trace = Trace(parameters={"rank": values[0], "seed": 0})
    for step, value in enumerate(values):
        trace.log(step, loss=value)
    return trace


@pytest.mark.parametrize("interactive", [True, False])
def test_a_run_stays_in_grey_until_another_or_a_pin_takes_its_place(interactive):
    plot = LivePlot(losses(3, 2), [LOSS], interactive=interactive)
    assert ghosts(plot.figure) == []
    plot.attach(losses(5, 4))
    assert ghosts(plot.figure) == [[3, 2]]
    assert "Grey: the run before (rank 3)." in plot.figure["layout"]["meta"]["caption"]
    plot.attach(Trace())
    plot.attach(losses(7, 6))  # nothing had been run between
    assert ghosts(plot.figure) == [[5, 4]]
    plot.pin()
    assert ghosts(plot.figure) == [[7, 6]]
    plot.attach(losses(9, 8))
    plot.attach(losses(1, 0))
    assert ghosts(plot.figure) == [[7, 6]]
    said = "Grey: the run that is pinned (rank 7)."
    assert said in plot.figure["layout"]["meta"]["caption"]
    plot.pin(False)
    plot.attach(losses(2, 2))
    assert ghosts(plot.figure) == [[1, 0]]
    (drawn,) = (c for c in go.Figure(plot.figure).data if c.name == "training loss")
    assert drawn.y.tolist() == [2, 2] and drawn.line.color != GHOST


def test_a_panel_without_data_folds_says_so_and_comes_back():
    panels = [Lines((name,), name.capitalize(), "1") for name in "abc"]
    trace = Trace()
    plot = LivePlot(trace, panels, first=2)

    def seen():
        notes = plot.figure["layout"]["annotations"]
        return [note["text"].strip("</b>") for note in notes]

    trace.log(0, a=1.0, b=math.nan, c=2.0)
    plot.update()
    assert seen() == ["A", "B"]  # too early to say
    for step in range(1, ENOUGH):
        trace.log(step, a=1.0, c=2.0)
    plot.update()
    assert seen() == ["A", "C"]
    folded = "Folded, for this run has no numbers of it: B."
    assert folded in plot.figure["layout"]["meta"]["caption"]
    assert len(plot.figure["data"][1]["x"]) == ENOUGH
    plot.unfold()
    assert seen() == ["A", "C"]
    trace.log(99, b=3.0)
    plot.update()
    assert seen() == ["A", "B", "C"]
    assert "Folded" not in plot.figure["layout"]["meta"]["caption"]
    plot.unfold(False)
    assert seen() == ["A", "B"]
    other = Trace()
    for step in range(ENOUGH):
        other.log(step, d=1.0)
    plot.attach(other)
    assert seen() == ["A", "B"]  # all without: none is folded
