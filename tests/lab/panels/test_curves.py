"""Finished curves: one legend, one colour a name."""

import plotly.graph_objects as go
import pytest

from labkit.lab.panels import curves


def test_one_legend_names_every_label_once_in_one_colour():
    both = {"one": ([1, 2], [1.0, 2.0]), "two": ([1, 2], [1.0, 3.0], [0.1, 0.2])}
    more = both | {"three": ([1], [2])}
    figure = go.Figure(curves({"A": both, "B": more}, ("s", "t"), "m", lines=("two",)))
    drawn = figure.data
    assert [c.name for c in drawn if c.showlegend] == ["one", "two", "three"]
    assert [c.name for c in drawn] == ["one", "two", "one", "two", "three"]
    colours = [c.line.color for c in drawn]
    assert colours[:2] == colours[2:4] and len(set(colours)) == 3
    assert drawn[1].error_y.array.tolist() == [0.1, 0.2]
    assert [c.mode for c in drawn[:2]] == ["lines+markers", "lines"]  # theory has none
    with pytest.raises(ValueError, match="'one' must have as many y as x"):
        curves({"A": {"one": ([1, 2], [1])}}, "s", "m")


def test_eight_curves_are_told_apart_not_by_colour_alone():
    figure = curves({"A": {name: ([1], [2.0]) for name in "abcdefgh"}}, "step", "m")
    looks = [(c["line"], c["marker"]) for c in figure["data"]]
    # Colours come a second time, but with another dash and an open marker.
    (first, mark), (again, mark_again) = looks[0], looks[7]
    assert first["color"] == again["color"] and first["dash"] != again["dash"]
    assert mark_again["symbol"] == f"{mark['symbol']}-open"
    assert len({(line["dash"], mark["symbol"]) for line, mark in looks}) == 8
