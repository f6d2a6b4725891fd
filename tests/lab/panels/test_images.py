"""Images: what is drawn is what was given."""

import numpy as np

from labkit.lab.panels import image_rows


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
    assert np.isnan(z[2]).all() and np.isnan(z[:, [2, 5]]).all()  # the gaps
    names, (low, high) = (figure["layout"]["yaxis"][k] for k in ("ticktext", "range"))
    assert names == ["in", "out"] and low > high  # top row first
    empty = image_rows(None, ("in", "out"), 3, caption="Look.")
    assert empty["layout"]["height"] == figure["layout"]["height"]
