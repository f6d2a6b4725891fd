"""A property of a step: how its error is measured, and when it holds."""

import math

import pytest
import torch

from labkit.theorems import Property

THREE = torch.tensor([3.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("found", "options", "error"),
    [
        (THREE, {}, 0.0),
        (2 * THREE, {}, 1.0),
        (2 * THREE, {"size": 10.0}, 0.5),
        (THREE[:1], {}, math.inf),
        (THREE[None], {}, math.inf),
    ],
)
def test_an_error_is_measured_against_the_size_of_what_is_wanted(found, options, error):
    judged = Property("It is so.", found, THREE, **options)
    assert judged.error == error and judged.holds == (error == 0)


def test_an_error_beside_zero_is_absolute():
    judged = Property("It is 0.", 1e-11 * THREE, 0 * THREE)
    assert judged.error == pytest.approx(5e-11) and judged.holds


def test_nan_never_holds():
    assert not Property("It is so.", math.nan * THREE, THREE, tolerance=math.inf).holds
