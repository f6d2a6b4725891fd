import base64
import json
import math

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings, strategies as st
from ipywidgets.embed import dependency_state

from labkit.instruments import Trace
from labkit.lab.panels import Bars, Lines, LivePlot
from labkit.lab.panels.figures.captions import as_json
from labkit.lab.panels.figures.drawing import MAX_POINTS, decimate
from labkit.lab.panels.figures.kinds import KEPT, MIXED
from labkit.lab.panels.figures.theme import GHOST, axis
from tests.lab.panels.conftest import confirm

LOSS = {"loss": "training loss"}
PANELS = [
    Lines(LOSS, "Loss", "loss [nats]", log=True, y_range=(0.1, 10)),
    Bars(("s1", "s2", "s3"), "Spectrum", "value [1]", level="level"),
]
BOTH = pytest.mark.parametrize("interactive", [True, False])


class Clock:
    """The time, which goes on by ``tick`` with every look at it."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


def row(trace, step, **more):
    trace.log(step, loss=1.0 / (step + 1), s1=3.0, s2=2.0, s3=1.0, level=2.0, **more)


def filled(steps=3):
    trace = Trace()
    for step in range(steps):
        row(trace, step)
    return trace


def live(steps=0, panels=PANELS, tick=0.0, **options):
    """A plot with its trace and its clock."""
    trace, clock = filled(steps), Clock(tick)
    return LivePlot(trace, panels, clock=clock, **options), trace, clock


def plain(trace, panels=PANELS):
    return LivePlot(trace, panels, interactive=False).figure


def count(plot):
    """How many points of the loss are drawn."""
    return len(plot.figure["data"][0]["x"])


def data(figure):
    return [(c["x"].tolist(), c["y"].tolist()) for c in figure["data"]]


def test_headless_and_interactive_show_the_same():
    trace = filled()
    figures = (
        LivePlot(trace, PANELS, interactive=interactive, title="Lab").figure
        for interactive in (True, False)
    )
    one, other = (json.loads(as_json(figure)) for figure in figures)
    assert one == other
    row(trace, 3)
    follower = LivePlot(trace, PANELS)
    follower.update()
    assert data(follower.figure) == data(LivePlot(trace, PANELS).figure)


def test_a_page_that_opens_later_sees_what_is_drawn():
    trace = filled()
    plot = LivePlot(trace, PANELS, title="Lab", width=700)
    row(trace, 50)
    plot.update()
    state = json.loads(plot.widget.get_state()["figure"])
    assert state["layout"]["width"] == 700
    assert state["layout"]["title"]["text"] == "Lab"
    assert state["layout"]["yaxis"]["type"] == "log"
    sent = state["data"][0]["y"]
    y = np.frombuffer(base64.b64decode(sent["bdata"]), dtype=sent["dtype"])
    assert y.tolist() == [1, 1 / 2, 1 / 3, 1 / 51]


def test_an_empty_trace_gives_the_whole_layout():
    figure = plain(Trace())
    names = [c["name"] for c in figure["data"]]
    assert names == ["training loss", "kept", "mixed", "level"]
    legend = [c["name"] for c in figure["data"] if c["showlegend"]]
    assert legend == names[1:]  # a curve alone has its panel's title
    assert all(len(c["x"]) == 0 for c in figure["data"])
    assert figure["layout"]["xaxis"]["title"]["text"] == "step"
    assert figure["layout"]["yaxis"]["title"]["text"] == "loss [nats]"
    assert figure["layout"]["yaxis"]["range"] == [-1, 1]
    texts = [note["text"] for note in figure["layout"]["annotations"]]
    assert texts == ["<b>Loss</b>", "<b>Spectrum</b>"]


def test_bars_reaching_the_level_are_kept_and_those_below_mixed():
    kept, mixed, level = go.Figure(plain(filled())).data[1:]
    assert (kept.x.tolist(), kept.y.tolist()) == ([1, 2], [3, 2])
    assert (mixed.x.tolist(), mixed.y.tolist()) == ([3], [1])
    assert set(level.y) == {2} and level.mode == "lines"
    assert kept.marker.color == KEPT != mixed.marker.color == MIXED
    assert mixed.marker.pattern.shape == "/"  # not by colour alone


def test_bars_come_from_the_newest_row_that_has_some():
    trace = filled()
    trace.log(3, s2=math.nan, s3=0.5)
    trace.log(4, loss=1.0)
    kept, mixed, level = go.Figure(plain(trace)).data[1:]
    assert (kept.x.tolist(), kept.y.tolist()) == ([3], [0.5])
    assert len(mixed.x) == len(level.x) == 0


def test_a_row_without_the_column_is_no_point_and_a_nan_is_a_gap():
    trace = Trace()
    trace.log(0, loss=1.0)
    trace.log(1, other=1.0)
    trace.log(2, loss=math.nan)
    trace.log(3, loss="text")
    curve = go.Figure(plain(trace)).data[0]
    assert curve.x.tolist() == [0, 2, 3]
    assert np.isnan(curve.y).tolist() == [False, True, True]


def test_redraws_at_most_ten_times_a_second():
    plot, trace, clock = live()
    drawn = []
    trace.subscribe(lambda row: drawn.append(plot.widget.version))
    for step in range(1000):
        clock.now = step / 1000
        row(trace, step)
        confirm(plot)
    assert 8 <= len(set(drawn)) <= 11
    plot.update()
    assert count(plot) == 1000


def test_headless_hears_no_row():
    plot, trace, _ = live(interactive=False)
    assert trace._subscribers == {}
    row(trace, 0)
    plot.update()
    assert count(plot) == 1


@BOTH
def test_attach_follows_the_new_trace_only(interactive):
    (plot, old, clock), new = live(3, interactive=interactive), filled(5)
    plot.attach(new)
    assert count(plot) == 5
    clock.now = 10
    row(old, 3)
    assert count(plot) == 5
    row(new, 5)
    assert count(plot) == 6


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 300),
    limit=st.integers(4, 40),
    seed=st.integers(0, 99),
    gap=st.booleans(),
)
def test_thinning_keeps_ends_and_extremes(n, limit, seed, gap):
    y = np.random.default_rng(seed).normal(size=n)
    if gap and n > 5:
        y[n // 3 : n // 2] = np.nan
    kept = decimate(y, limit)
    assert len(kept) <= max(limit, 0) and (np.diff(kept) > 0).all()
    if n:
        assert kept[0] == 0 and kept[-1] == n - 1
        assert np.nanmax(y[kept]) == np.nanmax(y)
        assert np.nanmin(y[kept]) == np.nanmin(y)


def test_long_curves_are_thinned_and_short_ones_whole():
    trace = Trace()
    for step in range(MAX_POINTS + 1000):
        trace.log(step, loss=float(step))
    x = plain(trace)["data"][0]["x"]
    assert len(x) <= MAX_POINTS and x[0] == 0 and x[-1] == MAX_POINTS + 999
    assert decimate(np.zeros(MAX_POINTS)).size == MAX_POINTS


def test_colour_dash_and_marker_tell_curves_apart():
    panel = Lines(("a", "b", "c"), "", "")
    curves = go.Figure(plain(Trace(), [panel])).data
    looks = [(c.line.color, c.line.dash, c.marker.symbol) for c in curves]
    for codes in zip(*looks, strict=True):
        assert len(set(codes)) == 3


def test_what_is_no_panel_is_refused():
    for error, message, panels, columns in (
        (ValueError, "at least one panel", [], 2),
        (TypeError, "Lines or Bars, got dict", [{}], 2),
        (ValueError, "got 'loss'", [Lines("loss", "Loss", "nats")], 2),
        (ValueError, "columns must be >= 1", PANELS, 0),
    ):
        with pytest.raises(error, match=message):
            LivePlot(Trace(), panels, columns=columns)
    with pytest.raises(ValueError, match="limits > 0"):
        axis("", log=True, limits=(0, 1))


def test_events_are_marks_and_every_one_is_drawn():
    trace = Trace()
    for step in range(30):
        trace.log(step, value=1.0, event=1.0 if step % 2 else math.nan)
    panel = Lines({"value": "value", "event": "event"}, "A", "b", marks=("event",))
    value, event = go.Figure(plain(trace, [panel])).data
    assert (value.mode, event.mode) == ("lines+markers", "markers")
    assert value.marker.maxdisplayed == 12 and not event.marker.maxdisplayed


def noted(plot):
    """What is marked: the lines' places, and their texts."""
    shapes = go.Figure(plot.figure).layout.shapes
    return [line.x0 for line in shapes], [line.label.text for line in shapes]


@BOTH
def test_a_mark_stands_in_panels_of_lines_until_another_trace(interactive):
    panels = [*PANELS, Lines(("s1",), "S", "1")]
    plot, _, _ = live(5, panels, interactive=interactive)
    plot.mark(2, "k = 0.1")
    assert noted(plot) == ([2, 2], ["k = 0.1", "k = 0.1"])
    assert [line["xref"] for line in plot.figure["layout"]["shapes"]] == ["x", "x3"]
    plot.mark(2, "k = 0.2")  # the same knob, moved on
    plot.mark(3, "k = 0.3")
    assert noted(plot)[1][:2] == ["k = 0.2", "k = 0.3"]
    plot.mark(4, "k = 0.4", instead_of=3)
    assert noted(plot)[1][:2] == ["k = 0.2", "k = 0.4"]
    plot.attach(filled())
    assert noted(plot) == ([], [])


def ghosts(plot):
    """The values of what is drawn in grey."""
    drawn = (c for c in plot.figure["data"] if c.get("line", {}).get("color") == GHOST)
    return [c["y"].tolist() for c in drawn]


def losses(*values):
    trace = Trace(parameters={"rank": values[0]})
    for step, value in enumerate(values):
        trace.log(step, loss=value)
    return trace


@BOTH
def test_a_run_stays_in_grey_until_another_takes_its_place(interactive):
    plot = LivePlot(losses(3, 2), PANELS[:1], interactive=interactive)
    assert ghosts(plot) == []
    plot.attach(losses(5, 4))
    assert ghosts(plot) == [[3, 2]]
    assert "Grey: the run before (rank 3)." in plot.figure["layout"]["meta"]["caption"]
    plot.attach(Trace())
    plot.attach(losses(7, 6))  # nothing had been run between
    assert ghosts(plot) == [[5, 4]]


def test_the_state_of_a_long_run_is_below_a_megabyte():
    state = dependency_state(live(10_000)[0].widget, drop_defaults=False)
    assert len(json.dumps(state)) < 1e6
