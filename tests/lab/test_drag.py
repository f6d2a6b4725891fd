"""A hand on a picture: what it holds is moved in what the algorithms see."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from labkit.lab.rls import ellipse
from labkit.lab.rtrl import water
from tests.lab.test_pictures import check_contours


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


def test_bars_and_the_level_are_held_where_they_are_drawn():
    def drawn(knobs):
        *_, row = islice(water.water_rows(knobs), 12)
        return row["pictures"]

    knobs = water.WaterKnobs()
    now = drawn(knobs)
    held = {t["meta"]["touch"]: t for t in water._bars(now) if "meta" in t}
    assert held["bars"]["y"].tolist() == now.d.tolist() == [3.0, 1.0, 0.8, 0.5, 0.3]
    assert (held["rank"]["y"] == now.level).all()
    higher = water.dragged(now, knobs, "bars", 4, (1.0, 3.52))
    assert higher == {"fifth": 3.5}
    knobs = replace(knobs, **higher)
    then = drawn(knobs)
    assert then.d[4] == 3.5 and then.level > now.level
    assert (then.signs == now.signs).all() and len(then.off) == 12
    for rank in range(1, 6):
        level = drawn(replace(knobs, rank=rank)).level
        wanted = water.dragged(then, knobs, "rank", 2, (0.0, level + 0.01))
        assert wanted == {"rank": rank}
