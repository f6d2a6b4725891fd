"""Best-fitting k and angles, against their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from labkit.instruments import angle, best_ratio
from tests.draws import randn


@pytest.mark.parametrize("shape", [(3, 8), (50, 4), (1, 5)])
def test_best_ratio_minimises_the_frobenius_distance(shape):
    X = randn(*shape) + 0.5
    ratio, residual = best_ratio(X)
    x, S = X.numpy().mean(0), X.numpy().T @ X.numpy() / len(X)

    def distance(k):
        return np.linalg.norm(k * np.outer(x, x) - S)

    best = distance(float(ratio))
    assert best <= min(distance(float(ratio) * f) for f in (0.999, 1.001)) + 1e-12
    assert float(residual) == pytest.approx(best / np.linalg.norm(S), abs=1e-7)


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 20), shift=st.floats(-2, 2))
def test_best_ratio_is_never_below_one(seed, rows, shift):
    ratio, _ = best_ratio(randn(rows, 6, seed=seed) + shift)
    assert float(ratio) >= 1 - 1e-9


def test_equal_rows_fit_exactly_and_a_zero_mean_has_no_ratio():
    ratio, residual = best_ratio(torch.ones(4, 3))
    assert float(ratio) == pytest.approx(1) and float(residual) == pytest.approx(0)
    assert math.isnan(best_ratio(torch.tensor([[1.0], [-1.0]]))[0])


@pytest.mark.parametrize("degrees", [0.0, 1e-6, 1.0, 89.0, 90.0, 179.0, 180.0])
def test_angle_keeps_its_digits(degrees):
    t = math.radians(degrees)
    a = torch.tensor([3.0, 0.0], dtype=torch.float64)
    b = 7 * torch.tensor([math.cos(t), math.sin(t)], dtype=torch.float64)
    assert float(angle(a, b)) == pytest.approx(degrees, rel=1e-9, abs=1e-12)


def test_angle_whatever_the_lengths_of_zero_and_of_other_shapes():
    a, b = torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0])
    expected = math.degrees(math.acos(24 / 25))
    for scale in (1e-40, 1e-30, 1e-3, 1.0, 1e30):
        assert float(angle(scale * a, b)) == pytest.approx(expected, rel=1e-4)
    assert math.isnan(angle(torch.zeros(2), torch.ones(2)))
