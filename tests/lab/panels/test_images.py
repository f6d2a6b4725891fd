"""Matrices and images: what is drawn is what was given."""

import numpy as np
import plotly.graph_objects as go

from labkit.lab.panels import heat_maps, image_rows


def test_finished_maps_stand_side_by_side_each_with_its_colours_and_in_words():
    maps = {"A": np.eye(2), "B": 9 * np.eye(3)}
    figure = go.Figure(heat_maps(maps, "column", "row", caption="They differ."))
    assert [np.shape(heat.z) for heat in figure.data] == [(2, 2), (3, 3)]
    first, second = (heat.colorbar.x for heat in figure.data)
    assert first < 0.5 < second
    titles = [figure.layout[name].title.text for name in ("yaxis", "yaxis2")]
    assert titles == ["row", ""]
    alt = "A: row against column. B: column. They differ."
    assert figure.layout.meta["alt"] == alt


def test_every_image_stands_in_its_place_and_is_cut_to_white_and_black():
    images = np.linspace(-0.5, 1.5, 24).reshape(2, 3, 4)
    figure = image_rows(images, ("in", "out"), 3, caption="Look.")
    z = figure["data"][0]["z"]
    assert z.shape == (5, 8)
    for row in range(2):
        for column in range(3):
            tile = z[3 * row : 3 * row + 2, 3 * column : 3 * column + 2]
            wanted = images[row, column].reshape(2, 2).clip(0, 1)
            assert np.array_equal(tile, wanted)
    assert (z[2] < 0).all() and (z[:, [2, 5]] < 0).all()  # the gaps
    names, (low, high) = (figure["layout"]["yaxis"][k] for k in ("ticktext", "range"))
    assert names == ["in", "out"] and low > high  # top row first
    empty = image_rows(None, ("in", "out"), 3, caption="Look.")
    assert empty["layout"]["height"] == figure["layout"]["height"]
