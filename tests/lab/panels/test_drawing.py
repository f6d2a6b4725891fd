import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings, strategies as st

from labkit.instruments import Trace
from labkit.lab.panels import Lines, LivePlot
from labkit.lab.panels.figures.drawing import LINE, fit, places, room, spread


@settings(max_examples=100, deadline=None)
@given(
    heights=st.lists(st.floats(-10, 10), min_size=1, max_size=5), gap=st.floats(0.1, 5)
)
def test_spread_names_keep_their_order_and_their_middle_and_never_touch(heights, gap):
    moved = spread(heights, gap)
    order = np.argsort(heights, kind="stable")
    assert (np.diff(moved[order]) >= gap - 1e-9).all()
    assert moved.mean() == pytest.approx(np.mean(heights), abs=1e-9)
    if (np.diff(np.sort(heights)) > gap).all():  # they stay
        assert moved == pytest.approx(heights, abs=1e-9)


def test_names_stand_at_the_last_point_that_there_is():
    curves = [
        (np.arange(3.0), np.array([0.0, 50.0, np.nan])),
        (np.arange(2.0), np.array([9.0, 100.0])),
        (np.array([]), np.array([])),
    ]
    x, y = places(curves, pixels=100)
    assert x[:2].tolist() == [1, 1] and y[:2].tolist() == [50, 100]
    assert np.isnan([x[2], y[2]]).all()


def test_on_a_logarithmic_axis_names_are_apart_in_pixels():
    curves = [(np.arange(2.0), np.array([1e-8, y])) for y in (1.0, 1.1, 0.0)]
    _, y = places(curves, pixels=200, log=True)
    decades = np.log10(1.1e8)
    assert np.log10(y[1] / y[0]) * 200 / decades == pytest.approx(LINE)
    assert y[2] == pytest.approx(1e-8)  # zero cannot be drawn


def test_an_axis_with_given_ends_says_how_high_a_pixel_is():
    curves = [(np.arange(2.0), np.array([1e-30, y])) for y in (1.0, 1.1)]
    _, y = places(curves, pixels=140, log=True, limits=(1e-10, 1.0))
    assert np.log10(y[1] / y[0]) == pytest.approx(10 * LINE / 140)


def panel(*labels):
    return Lines({f"c{i}": label for i, label in enumerate(labels)}, "A", "y")


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (("train", "test"), True),
        (("train",), False),
        (("on the training images", "on the test images"), False),
        (("a", "b", "c", "d", "e"), False),
    ],
)
def test_short_names_replace_the_legend(labels, named):
    assert fit(labels, 2) == named
    panels = [panel(*labels), panel("other")]
    figure = LivePlot(Trace(), panels, interactive=False).figure
    curves = [c for c in go.Figure(figure).data if c.mode != "text"]
    assert len(go.Figure(figure).data) - len(curves) == named
    legend = [c.showlegend for c in curves[:-1]]
    assert legend == [not named and len(labels) > 1] * len(labels)


def test_names_have_room_beside_their_panel():
    wide, narrow = (
        LivePlot(Trace(), [panel(*labels), panel("other")], interactive=False).figure
        for labels in (("one", "two"), ("one",))
    )
    narrow, wide = (f["layout"]["xaxis"]["domain"] for f in (narrow, wide))
    freed = narrow[1] - wide[1]
    assert freed * (700 - 90) == pytest.approx(room(("one", "two")))


def test_names_move_with_the_curves():
    trace = Trace()
    plot = LivePlot(trace, [panel("one", "two")])
    trace.log(0, c0=1.0, c1=2.0)
    plot.update()
    assert plot.figure["data"][-1]["x"].tolist() == [0, 0]
    trace.log(1, c0=5.0)
    plot.update()
    assert plot.figure["data"][-1]["x"].tolist() == [1, 0]
    assert plot.figure["data"][-1]["y"].tolist() == [5, 2]


def test_panels_with_the_same_names_share_one_legend_below():
    long = panel(*(f"{letter} on the training images" for letter in "abcde"))
    figure = LivePlot(Trace(), [long, long], interactive=False).figure
    assert [c.showlegend for c in go.Figure(figure).data] == [True] * 5 + [False] * 5
    assert figure["layout"]["legend"]["yref"] == "container"
    assert figure["layout"]["margin"]["b"] > 50


def test_six_names_stand_at_the_right_and_not_in_a_legend():
    many, few = panel(*"abcdef"), panel("train", "test")
    figure = LivePlot(Trace(), [many, many], interactive=False).figure
    *drawn, names = go.Figure(figure).data
    assert not any(c.showlegend for c in drawn)
    assert names.mode == "text" and names.xaxis == "x2" and len(names.text) == 6
    figure = LivePlot(Trace(), [many, few], interactive=False).figure
    texts = [c for c in go.Figure(figure).data if c.mode == "text"]
    assert [len(names.text) for names in texts] == [6, 2]


def test_names_aside_form_one_column_within_the_panel():
    curves = [(np.arange(n), np.linspace(9, 0, n)) for n in (3, 9, 5, 9)]
    x, y = places(curves, pixels=90, aside=True)
    assert x.tolist() == [8] * 4
    assert sorted(y) == pytest.approx([0, 1.4, 2.8, 4.2])
