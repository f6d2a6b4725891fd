import numpy as np
import plotly.graph_objects as go

from labkit.instruments import Trace
from labkit.lab.panels import Lines, LivePlot, curves
from labkit.lab.panels.figures.theme import COLOURS


def test_a_label_has_one_colour_in_all_panels():
    figure = curves(
        {"A": {"x": ([1, 2], [1, 2])}, "B": {"y": ([1, 2], [1, 2])}}, ("s", "m"), "u"
    )
    assert [c.line.color for c in go.Figure(figure).data] == list(COLOURS[:2])
    assert figure["layout"]["xaxis2"]["title"]["text"] == "m"
    assert [c.showlegend for c in go.Figure(figure).data] == [True, True]


def test_names_stand_at_the_ends_where_all_curves_reach_the_right_edge():
    whole = {"one": ([1, 10], [1.0, 2.0]), "two": ([1, 9], [1.0, 3.0])}
    figure = curves({"A": whole}, "s", "m", width=720)
    *drawn, names = go.Figure(figure).data
    assert not any(c.showlegend for c in drawn)
    assert names.mode == "text" and list(names.x) == [10, 9]
    assert np.allclose(names.y, [2, 3])
    early = whole | {"two": ([1, 5], [1.0, 3.0])}
    figure = curves({"A": early}, "s", "m", width=720)
    assert [c.showlegend for c in go.Figure(figure).data] == [True, True]


def test_reach_is_judged_on_the_axis_as_drawn():
    lines = {"one": ([1, 1000], [1.0, 2.0]), "two": ([1, 300], [1.0, 3.0])}
    assert curves({"A": lines}, "s", "m", log_x=True)["data"][-1]["mode"] == "text"
    assert curves({"A": lines}, "s", "m")["data"][-1]["mode"] != "text"


def test_finished_curves_look_as_live_ones_do():
    names = "abcdefgh"
    live = LivePlot(Trace(), [Lines(tuple(names), "A", "m")], interactive=False)
    finished = curves({"A": {name: ([1], [2.0]) for name in names}}, "step", "m")
    finished = finished["data"]
    for one, other in zip(live.figure["data"][:8], finished[:8], strict=True):
        assert one["line"] == other["line"] and one["marker"] == other["marker"]
    # Colours come a second time, but with another dash and an open marker.
    first, again = go.Figure(finished[0:8:7]).data
    assert first.line.color == again.line.color
    assert first.line.dash != again.line.dash
    assert again.marker.symbol == f"{first.marker.symbol}-open"


def test_standard_deviations_are_bars_and_theory_has_no_markers():
    figure = curves(
        {"A": {"m": ([1, 2], [3, 4], [0.1, 0.2]), "t": ([1, 2], [3, 4])}},
        "s",
        "m",
        lines=("t",),
    )
    assert figure["data"][0]["error_y"]["array"] == [0.1, 0.2]
    assert [c.mode for c in go.Figure(figure).data[:2]] == ["lines+markers", "lines"]
