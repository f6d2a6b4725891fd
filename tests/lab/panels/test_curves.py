"""Finished curves: one legend, one colour a name, as live ones have."""

import plotly.graph_objects as go
import pytest

from labkit.instruments import Trace
from labkit.lab.panels import Lines, LivePlot, curves


def test_one_legend_names_every_label_once_in_one_colour():
    both = {"one": ([1, 2], [1.0, 2.0]), "two": ([1, 2], [1.0, 3.0])}
    more = both | {"three": ([1], [2])}
    figure = go.Figure(curves({"A": both, "B": more}, ("s", "t"), "m"))
    drawn = figure.data
    assert [c.name for c in drawn if c.showlegend] == ["one", "two", "three"]
    assert [c.name for c in drawn] == ["one", "two", "one", "two", "three"]
    colours = [c.line.color for c in drawn]
    assert colours[:2] == colours[2:4] and len(set(colours)) == 3
    layout = figure.layout
    assert (layout.xaxis.title.text, layout.xaxis2.title.text) == ("s", "t")
    # One title for all stands at the first.
    assert (layout.yaxis.title.text, layout.yaxis2.title.text) == ("m", "")
    with pytest.raises(ValueError, match="'one' must have as many y as x"):
        curves({"A": {"one": ([1, 2], [1])}}, "s", "m")


def test_a_long_title_is_broken_and_has_room_above_its_panel():
    drawn = {"one": ([1, 2], [1.0, 2.0])}
    short, long = (
        curves({title: drawn, "B": drawn}, "s", "m")["layout"]
        for title in ("A", "a title that is much too long for half a page")
    )
    assert "<br>" in long["annotations"][0]["text"]
    assert long["margin"]["t"] > short["margin"]["t"]
    assert long["annotations"][0]["xref"] == "x domain"  # it goes where its panel goes


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
    looks = {(c["line"]["dash"], c["marker"]["symbol"]) for c in finished}
    assert len(looks) == 8  # not by colour alone


def test_standard_deviations_are_bars_and_theory_has_no_markers():
    both = {"m": ([1, 2], [3, 4], [0.1, 0.2]), "t": ([1, 2], [3, 4])}
    figure = curves({"A": both}, "s", "m", lines=("t",))
    assert figure["data"][0]["error_y"]["array"].tolist() == [0.1, 0.2]
    assert [c["mode"] for c in figure["data"]] == ["lines+markers", "lines"]
