"""Rows of small images: tiling, throttling, headless and live."""

import asyncio

import numpy as np
import plotly.graph_objects as go
import pytest

from labkit.panels.pictures import MIN_INTERVAL, Pictures


def make(**options):
    options = {"limits": (0, 60)} | options
    return Pictures(("in", "out"), count=3, side=(2, 4), **options)


def images(offset=0.0):
    return np.arange(48.0).reshape(2, 3, 8) + offset


def test_every_image_stands_in_its_place():
    pictures = make(interactive=False)
    pictures.draw(images(), "step 7")
    figure = pictures.figure
    assert not isinstance(figure, go.FigureWidget)
    z = np.array(figure.data[0].z, dtype=float)
    assert z.shape == (5, 14)
    for row in range(2):
        for column in range(3):
            tile = z[3 * row : 3 * row + 2, 5 * column : 5 * column + 4]
            assert np.array_equal(tile, images()[row, column].reshape(2, 4))
    assert (z[2] == figure.data[0].zmin).all() and (z[:, [4, 9]] < 0).all()
    assert list(figure.layout.yaxis.ticktext) == ["in", "out"]
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]  # top row first
    assert figure.layout.title.text == "step 7"


def test_redraws_are_held_back_and_the_last_is_not_lost():
    now = [0.0]
    pictures = make(clock=lambda: now[0])
    pictures.draw(images(), "1")
    pictures.draw(images(1), "2")
    assert pictures.figure.layout.title.text == "1"
    pictures.update()
    assert pictures.figure.layout.title.text == "2"
    now[0] += MIN_INTERVAL
    pictures.draw(images(2), "3")
    assert pictures.figure.data[0].z[0][0] == 2


def test_values_beyond_the_limits_are_cut_and_none_is_nan():
    pictures = make(interactive=False, limits=(10, 20))
    pictures.draw(images())
    z = np.array(pictures.figure.data[0].z)
    assert z.max() == 20 and z[z > pictures.figure.data[0].zmin].min() == 10
    assert np.isfinite(z).all()


def test_an_owed_redraw_comes_by_itself():
    async def drawn():
        pictures = make(clock=lambda: 0.0)
        pictures.draw(images(), "1")
        pictures.draw(images(1), "2")
        await asyncio.sleep(MIN_INTERVAL + 0.1)
        return pictures.figure.layout.title.text

    assert asyncio.run(drawn()) == "2"


def test_clearing_leaves_nothing():
    pictures = make()
    pictures.draw(images(), "1")
    pictures.clear()
    assert (np.array(pictures.figure.data[0].z) < 0).all()
    assert not pictures.figure.layout.title.text


@pytest.mark.parametrize("interactive", [True, False])
def test_what_is_shown(interactive):
    bundle = make(interactive=interactive)._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    kind = "widget-view" if interactive else "plotly"
    assert any(kind in key for key in bundle)


def test_refuses():
    with pytest.raises(ValueError, match=r"images must have shape \(2, 3, 8\), got"):
        make(interactive=False).draw(np.zeros((2, 3, 9)))
    with pytest.raises(ValueError, match="labels must be a tuple of names, got 'in'"):
        Pictures("in", count=1, side=(1, 1))
    with pytest.raises(ValueError, match="count and side must be >= 1, got 0"):
        Pictures(("in",), count=0, side=(1, 1))
