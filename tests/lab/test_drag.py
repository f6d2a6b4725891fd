"""A hand on a picture: what it holds is moved in what the algorithms see."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from labkit.lab.books import rls, rtrl


def test_the_start_that_is_dragged_is_that_of_both_paths():
    knobs = rls.EllipseKnobs()
    first = next(rls.ellipse_rows(knobs))["pictures"]
    turned = rls.dragged(first, knobs, "start", 0, (-1.0, 9.0))
    now = next(rls.ellipse_rows(replace(knobs, **turned)))["pictures"]
    assert turned == {"start": "-1.00 4.00"}
    assert all(np.allclose(points[0], [-1, 4]) for points in now.paths.values())
    with pytest.raises(ValueError, match=r"start must be two numbers .* got '1'"):
        rls.EllipseKnobs(start="1")


def test_bars_are_held_where_they_are_drawn():
    def drawn(knobs):
        *_, row = islice(rtrl.water_rows(knobs), 12)
        return row["pictures"]

    knobs = rtrl.WaterKnobs()
    now = drawn(knobs)
    held = {t["meta"]["touch"]: t for t in rtrl._bars(now) if "meta" in t}
    assert held["bars"]["y"].tolist() == now.d.tolist() == [3.0, 1.0, 0.8, 0.5, 0.3]
    higher = rtrl.dragged(now, knobs, "bars", 4, (1.0, 3.52))
    assert higher == {"fifth": 3.5}
    then = drawn(replace(knobs, **higher))
    assert then.d[4] == 3.5 and then.level > now.level
