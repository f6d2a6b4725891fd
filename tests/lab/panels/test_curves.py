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


def test_one_legend_names_every_label_once():
    both = {"one": ([1, 2], [1.0, 2.0]), "two": ([1, 2], [1.0, 3.0])}
    figure = curves({"A": both, "B": both | {"three": ([1], [2])}}, "s", "m")
    drawn = go.Figure(figure).data
    assert [c.name for c in drawn if c.showlegend] == ["one", "two", "three"]
    assert [c.name for c in drawn] == ["one", "two", "one", "two", "three"]
    assert figure["layout"]["legend"]["orientation"] == "h"
    titles = [axis["title"]["text"] for axis in axes(figure, "y")]
    assert titles == ["m", ""]  # one for all stands at the first


def axes(figure, letter):
    layout = figure["layout"]
    return [layout[key] for key in layout if key.startswith(f"{letter}axis")]


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


def test_standard_deviations_are_bars_and_theory_has_no_markers():
    figure = curves(
        {"A": {"m": ([1, 2], [3, 4], [0.1, 0.2]), "t": ([1, 2], [3, 4])}},
        "s",
        "m",
        lines=("t",),
    )
    assert figure["data"][0]["error_y"]["array"].tolist() == [0.1, 0.2]
    assert [c.mode for c in go.Figure(figure).data[:2]] == ["lines+markers", "lines"]
