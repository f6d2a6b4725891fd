"""A hand on a picture: what it holds is moved in what the algorithms see."""

from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from labkit.lab.rls import ellipse
from labkit.lab.rtrl import influence, water
from tests.lab.test_pictures import NETWORK, TEXT, check_contours, run


def test_a_point_that_is_dragged_is_moved_in_what_the_rules_see():
    knobs = ellipse.EllipseKnobs()
    first = next(ellipse.ellipse_rows(knobs))["pictures"]
    X, y = ellipse.data(knobs)
    for place in ((2.0, -3.0), (9.0, -9.0)):  # the second is beyond the plane
        turned = ellipse.dragged(first, knobs, "points", 6, place)
        X[6] = torch.tensor(place).clamp(-5, 5)
        now = next(ellipse.ellipse_rows(replace(knobs, **turned)))["pictures"]
        assert np.array_equal(now.inputs, X)
        assert np.array_equal(now.targets, first.targets)
        check_contours(now, X, y)
    held = [t for t in ellipse.picture(now, None)["data"] if "meta" in t]
    points, start = (np.stack([t["x"], t["y"]], 1) for t in held)
    assert np.array_equal(points, X.double()) and np.allclose(start, [[1.9, 0.9]])


def test_the_start_that_is_dragged_is_that_of_both_paths():
    knobs = ellipse.EllipseKnobs()
    first = next(ellipse.ellipse_rows(knobs))["pictures"]
    turned = ellipse.dragged(first, knobs, "start", 0, (-1.0, 9.0))
    now = next(ellipse.ellipse_rows(replace(knobs, **turned)))["pictures"]
    assert turned == {"start": "-1.00 4.00"}
    assert all(np.allclose(points[0], [-1, 4]) for points in now.paths.values())
    with pytest.raises(ValueError, match=r"start must be two numbers .* got '1'"):
        ellipse.EllipseKnobs(start="1")


BAD = "0 1 1; 61 1 1; 7 1; 7 1 nan; 7 nan 1; 7 6 0; a 1 1; 7, 1, 1"


@pytest.mark.parametrize("moved", BAD.split("; "))
def test_points_moved_are_numbers_and_places_of_points(moved):
    with pytest.raises(ValueError, match=f"moved must be like .* got '{moved}'"):
        ellipse.EllipseKnobs(moved=moved)


def test_a_cell_that_is_pointed_at_shows_what_each_character_made_of_it():
    knobs = influence.InfluenceKnobs()
    _, now = run(
        influence.influence_rows, influence.InfluenceKnobs, TEXT, {16: NETWORK}, steps=9
    )
    column = now.names.index(" ")
    turned = influence.dragged(now, knobs, "cells", None, (column + 1.4, 7.6))
    assert turned == {"unit": 8, "character": " "}
    figure = influence.picture(influence.afresh(now, replace(knobs, **turned)), None)
    # A copy of the weights for each character that was read.
    h, cell, copies = torch.zeros(1, 16), NETWORK.cell, []
    for token in TEXT.tokens[:9]:
        copies.append(cell.weight.detach().clone().requires_grad_())
        x = torch.nn.functional.one_hot(token, len(TEXT.symbols)).to(h)[None]
        h = torch.func.functional_call(cell, {"weight": copies[-1]}, (x, h))
    made = torch.autograd.grad(h[0, 7], copies)
    rows = [16 + token for token in TEXT.tokens[:9]]
    wanted = [float(g[row].norm()) for g, row in zip(made, rows, strict=True)]
    assert np.allclose(influence.held(now, 8)[-9:], wanted, rtol=1e-3)
    assert not influence.held(now, 8)[:-9].any()
    strip = [t for t in figure["data"] if t.get("meta") == {"touch": "letters"}]
    shown = 10.0 ** strip[0]["z"][0, -9:] * now.exact.max()
    assert np.allclose(shown, np.maximum(wanted, now.exact.max() / 1000), rtol=1e-3)
    text = [t for trace in figure["data"] for t in trace.get("text", ())]
    assert sorted(text) == sorted(now.read.replace(" ", "␣").replace("\n", "⏎"))
    place = influence.READ - 9 + now.read.index(" ") + 1.2
    turned = influence.dragged(now, knobs, "letters", None, (place, 1))
    assert turned == {"character": " "}
    for name, far in (
        ("cells", (0.2, 1)),
        ("cells", (len(now.names) + 1, 1)),
        ("letters", (influence.READ - 9, 1)),
    ):
        with pytest.raises((LookupError, ValueError)):
            influence.dragged(now, knobs, name, None, far)


def test_bars_and_the_level_are_held_where_they_are_drawn():
    settings = SimpleNamespace(**vars(water.WaterKnobs()))
    rows = water.water_rows(settings)
    *_, now = (row["pictures"] for row in islice(rows, 12))
    held = {t["meta"]["touch"]: t for t in water._bars(now) if "meta" in t}
    assert held["bars"]["y"].tolist() == now.d.tolist() == [3.0, 1.0, 0.8, 0.5, 0.3]
    assert (held["rank"]["y"] == now.level).all()
    higher = water.dragged(now, settings, "bars", 4, (1.0, 3.52))
    assert higher == {"fifth": 3.5}
    vars(settings).update(higher)
    shown = water.afresh(now, settings)
    then = next(rows)["pictures"]
    assert shown.d[4] == then.d[4] == 3.5 and shown.level == then.level > now.level
    assert (shown.signs == now.signs).all()
    assert len(then.off) == 1  # the mean of other bars would be no mean
    assert (then.was == now.off).all() and (shown.was == now.off).all()
    for rank in range(1, 6):
        settings.rank = rank
        level = water.afresh(now, settings).level
        wanted = water.dragged(shown, settings, "rank", 2, (0.0, level + 0.01))
        assert wanted == {"rank": rank}
