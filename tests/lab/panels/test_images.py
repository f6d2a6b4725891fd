"""Matrices and images: what is drawn is what was given, headless and live."""

import asyncio
import json
from functools import partial

import numpy as np
import plotly.graph_objects as go
import pytest

from labkit.lab.panels import heat_maps
from labkit.lab.panels.figures.images import Pictures, Scene
from tests.lab.panels.conftest import confirm, in_loop


def test_finished_maps_stand_side_by_side_each_with_its_colours_and_in_words():
    maps = {"A": np.eye(2), "B": 9 * np.eye(3)}
    figure = heat_maps(maps, "column", "row", caption="They differ.")
    assert [np.shape(heat.z) for heat in go.Figure(figure).data] == [(2, 2), (3, 3)]
    first, second = (heat.colorbar.x for heat in go.Figure(figure).data)
    assert first < 0.5 < second
    axes = (figure["layout"][name] for name in ("yaxis", "yaxis2"))
    titles = [axis["title"]["text"] for axis in axes]
    assert titles == ["row", ""]
    alt = "A: row against column. B: column. They differ."
    assert figure["layout"]["meta"]["alt"] == alt


# Pictures


def make(**options):
    options = {"limits": (0, 60)} | options
    return Pictures(("in", "out"), count=3, side=(2, 4), **options)


def title(pictures):
    """What the page shows above the images."""
    return json.loads(pictures.widget.figure)["layout"]["title"]["text"]


def images(offset=0.0):
    return np.arange(48.0).reshape(2, 3, 8) + offset


def test_every_image_stands_in_its_place():
    pictures = make(interactive=False)
    pictures.draw(images(), "step 7")
    figure = pictures.figure
    z = np.array(figure["data"][0]["z"], dtype=float)
    assert z.shape == (5, 14)
    for row in range(2):
        for column in range(3):
            tile = z[3 * row : 3 * row + 2, 5 * column : 5 * column + 4]
            assert np.array_equal(tile, images()[row, column].reshape(2, 4))
    assert (z[2] == figure["data"][0]["zmin"]).all() and (z[:, [4, 9]] < 0).all()
    assert list(figure["layout"]["yaxis"]["ticktext"]) == ["in", "out"]
    low, high = figure["layout"]["yaxis"]["range"]
    assert low > high  # top row first
    assert figure["layout"]["title"]["text"] == "step 7"


def test_redraws_are_held_back_and_the_last_is_not_lost():
    now = [0.0]
    pictures = make(clock=lambda: now[0])
    pictures.draw(images(), "1")
    pictures.draw(images(1), "2")
    assert title(pictures) == "1"
    confirm(pictures)
    assert title(pictures) == "1"
    pictures.update()
    assert title(pictures) == "2"


def test_values_beyond_the_limits_are_cut_and_none_is_nan():
    pictures = make(interactive=False, limits=(10, 20))
    pictures.draw(images())
    z = np.array(pictures.figure["data"][0]["z"])
    assert z.max() == 20 and z[z > pictures.figure["data"][0]["zmin"]].min() == 10
    assert np.isfinite(z).all()


@in_loop
async def test_an_owed_redraw_comes_by_itself():
    pictures = make()
    pictures.draw(images(), "1")
    pictures.draw(images(1), "2")
    while title(pictures) != "2":
        await asyncio.sleep(0.01)


def test_clearing_leaves_nothing():
    pictures = make()
    pictures.draw(images(), "1")
    confirm(pictures)
    pictures.clear()
    pictures.update()
    assert (np.array(pictures.figure["data"][0]["z"]) < 0).all()
    assert not title(pictures).strip()


def test_a_scene_keeps_the_end_of_the_run_before():
    seen = lambda now, before: {"layout": {"meta": [now, before]}}  # noqa: E731
    scene, shown = Scene(seen, interactive=False), []
    for change in (scene.clear, partial(scene.draw, 3), scene.clear, scene.clear):
        change()
        shown.append(tuple(scene.figure["layout"]["meta"]))
    assert shown == [(None, None), (3, None), (None, 3), (None, 3)]


def test_refuses():
    with pytest.raises(ValueError, match=r"images must have shape \(2, 3, 8\), got"):
        make(interactive=False).draw(np.zeros((2, 3, 9)))
    with pytest.raises(ValueError, match="labels must be a tuple of names, got 'in'"):
        Pictures("in", count=1, side=(1, 1))
    with pytest.raises(ValueError, match="count and side must be >= 1, got 0"):
        Pictures(("in",), count=0, side=(1, 1))
