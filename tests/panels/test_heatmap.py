"""A matrix as colours: what is drawn is what was given."""

import json

import numpy as np
import plotly.graph_objects as go
import pytest

from labkit.panels import HeatMap, heat_maps


def make(**options):
    options = {"limits": (0, 10)} | options
    return HeatMap(np.arange(6.0).reshape(2, 3), "First", "size", **options)


@pytest.mark.parametrize("interactive", [True, False])
def test_draws_what_it_is_given(interactive):
    heat = make(interactive=interactive)
    assert isinstance(heat.figure, go.FigureWidget) == interactive
    assert np.array_equal(heat.figure.data[0].z, [[0, 1, 2], [3, 4, 5]])
    heat.draw([[9, 8, 7], [6, 5, 4]], title="Second", corner=1)
    assert np.array_equal(heat.figure.data[0].z, [[9, 8, 7], [6, 5, 4]])
    assert heat.figure.layout.title.text == "Second"
    heat.draw([[1, 1, 1], [1, 1, 1]])
    assert heat.figure.layout.title.text == "Second"


def test_the_colours_keep_their_meaning():
    heat = make(interactive=False, limits=(-3, 5))
    heat.draw(1000 * np.ones((2, 3)))
    assert (heat.figure.data[0].zmin, heat.figure.data[0].zmax) == (-3, 5)


def test_the_corner_outlines_the_first_columns():
    heat = make(interactive=False)
    edge = heat.figure.data[1]
    assert len(edge.x) == 0
    heat.draw(np.zeros((2, 3)), corner=2)
    assert list(edge.x) == [1.5, 1.5, 2.5] and list(edge.y) == [-0.5, 1.5, 1.5]
    heat.draw(np.zeros((2, 3)))
    assert len(edge.x) == 0


def test_the_first_row_is_on_top():
    low, high = make(interactive=False).figure.layout.yaxis.range
    assert low > high


def test_shows_its_data_outside_a_notebook():
    heat = make(interactive=False)
    heat.draw([[np.nan, 1, 2], [3, 4, 5]])
    [bundle] = [heat._repr_mimebundle_()]
    data = bundle["application/vnd.plotly.v1+json"]["data"][0]
    assert data["type"] == "heatmap"
    assert "NaN" not in json.dumps(bundle)
    assert heat.figure.data[0].z[0, 0] is None


def test_finished_maps_stand_side_by_side_each_with_its_colours_and_in_words():
    maps = {"A": np.eye(2), "B": 9 * np.eye(3)}
    figure = heat_maps(maps, "column", "row", caption="They differ.")
    assert [np.shape(heat.z) for heat in figure.data] == [(2, 2), (3, 3)]
    first, second = (heat.colorbar.x for heat in figure.data)
    assert first < 0.5 < second
    titles = [axis.title.text for axis in (figure.layout.yaxis, figure.layout.yaxis2)]
    assert titles == ["row", ""]
    alt = "A: row against column. B: row against column. They differ."
    assert figure.layout.meta["alt"] == alt
