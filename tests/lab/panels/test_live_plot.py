"""The figure that follows a trace: what it draws, in grey too, and how often."""

import base64
import json
import math

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings, strategies as st

from labkit.instruments import Trace
from labkit.lab.panels import Lines, LivePlot
from labkit.lab.panels.figures.drawing import MAX_POINTS, decimate
from labkit.lab.panels.figures.theme import GHOST

LOSS = {"loss": "training loss"}
PANELS = [
    Lines(LOSS, "Loss", "loss [nats]", log=True, y_range=(0.1, 10)),
    Lines(("s1", "level"), "Spectrum", "value [1]"),
]
BOTH = pytest.mark.parametrize("interactive", [True, False])


def filled(steps=3):
    trace = Trace()
    for step in range(steps):
        trace.log(step, loss=1.0 / (step + 1), s1=3.0, level=2.0)
    return trace


def drawn(trace):
    return go.Figure(LivePlot(trace, PANELS, interactive=False).figure)


def sent(plot):
    """The loss that the page has."""
    plot.widget.flush()
    y = json.loads(plot.widget.figure)["data"][0]["y"]
    return np.frombuffer(base64.b64decode(y["bdata"]), dtype=y["dtype"]).tolist()


def test_a_page_sees_what_is_logged_and_a_later_trace_alone():
    plot = LivePlot(trace := filled(), PANELS)
    trace.log(50, loss=0.25)
    assert sent(plot) == [1, 1 / 2, 1 / 3, 0.25]
    plot.attach(filled(5))
    trace.log(51, loss=0.25)
    assert len(sent(plot)) == 5 and trace._subscribers == {}


def test_an_empty_trace_gives_the_whole_layout():
    figure = drawn(Trace())
    names = [c.name for c in figure.data]
    assert names == ["training loss", "s1", "level"]
    # A curve alone has its panel's title.
    assert [c.name for c in figure.data if c.showlegend] == names[1:]
    x, y = figure.layout.xaxis, figure.layout.yaxis
    assert (x.title.text, y.title.text) == ("step", "loss [nats]")
    assert (y.type, y.range) == ("log", (-1, 1))
    texts = [note.text for note in figure.layout.annotations]
    assert texts == ["<b>Loss</b>", "<b>Spectrum</b>"]


def test_a_row_without_the_column_is_no_point_and_a_nan_is_a_gap():
    trace = Trace()
    trace.log(0, loss=1.0)
    trace.log(1, other=1.0)
    trace.log(2, loss=math.nan)
    trace.log(3, loss="text")
    curve = drawn(trace).data[0]
    assert curve.x.tolist() == [0, 2, 3]
    assert np.isnan(curve.y).tolist() == [False, True, True]


@settings(max_examples=40)
@given(
    n=st.integers(1, 300),
    limit=st.integers(4, 40),
    seed=st.integers(0, 99),
    gap=st.booleans(),
)
def test_thinning_keeps_ends_and_extremes(n, limit, seed, gap):
    y = np.random.default_rng(seed).normal(size=n)
    if gap and n > 5:
        y[n // 3 : n // 2] = np.nan
    kept = decimate(y, limit)
    assert len(kept) <= limit and (np.diff(kept) > 0).all()
    assert kept[0] == 0 and kept[-1] == n - 1
    assert np.nanmax(y[kept]) == np.nanmax(y)
    assert np.nanmin(y[kept]) == np.nanmin(y)


def test_a_long_run_is_thinned_and_its_figure_below_a_megabyte():
    plot = LivePlot(filled(10_000), PANELS)
    x = plot.figure["data"][0]["x"]
    assert len(x) <= MAX_POINTS and x[0] == 0 and x[-1] == 9_999
    assert len(plot.widget.figure) < 1e6


def test_what_is_no_panel_is_refused():
    with pytest.raises(ValueError, match="at least one panel"):
        LivePlot(Trace(), [])
    with pytest.raises(ValueError, match="got 'loss'"):
        Lines("loss", "Loss", "nats")


@BOTH
def test_a_mark_stands_in_all_panels_until_another_trace(interactive):
    plot = LivePlot(filled(), PANELS, interactive=interactive)
    for step, text, before in ((2, "k = 0.1", None), (3, "k = 0.2", 2)):
        plot.mark(step, text, instead_of=before)  # the same knob, moved on
        shapes = plot.figure["layout"]["shapes"]
        noted = {(each["x0"], each["label"]["text"], each["xref"]) for each in shapes}
        assert noted == {(step, text, "x"), (step, text, "x2")}
    plot.attach(filled())
    assert plot.figure["layout"]["shapes"] == []


def losses(*values):
    trace = Trace(parameters={"rank": values[0]})
    for step, value in enumerate(values):
        trace.log(step, loss=value)
    return trace


@BOTH
def test_a_run_stays_in_grey_until_another_takes_its_place(interactive):
    plot = LivePlot(losses(3, 2), PANELS[:1], interactive=interactive)
    for trace in (losses(5, 4), Trace(), losses(7, 6)):  # nothing run between
        plot.attach(trace)
    grey = [c for c in plot.figure["data"] if c["line"]["color"] == GHOST]
    assert [c["y"].tolist() for c in grey] == [[5, 4]]
    assert "Grey: the run before (rank 5)." in plot.figure["layout"]["meta"]["caption"]
