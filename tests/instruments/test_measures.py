"""Gradients' errors, fitted inputs and costs, against their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from labkit.instruments import (
    Cost,
    Trace,
    angle,
    best_ratio,
    cost,
    gradient_cosine,
    gradient_variance,
    relative_variance,
)
from tests.draws import randn

SEEDS = st.integers(0, 2**31)
close = torch.testing.assert_close


def test_cosine_on_hand_values_and_of_repeats():
    g = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert gradient_cosine(g, g).item() == pytest.approx(1)
    assert gradient_cosine(-g, g).item() == pytest.approx(-1)
    e = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert gradient_cosine(e, g).item() == pytest.approx(0.6)
    estimates, exact = randn(5, 2, 3), randn(2, 3, seed=1)
    together = gradient_cosine(estimates, exact)
    assert together.shape == (5,)
    close(together, torch.stack([gradient_cosine(e, exact) for e in estimates]))


@settings(max_examples=30)
@given(seed=SEEDS, a=st.floats(1e-150, 1e150), b=st.floats(1e-150, 1e150))
def test_cosine_does_not_know_scale(seed, a, b):
    x, y = randn(7, seed=seed), randn(7, seed=seed + 1)
    cosine = gradient_cosine(x, y)
    assert -1 <= cosine <= 1
    close(gradient_cosine(a * x, b * y), cosine)


def test_many_entries_in_half_precision():
    x = torch.ones(100_000).half()
    assert gradient_cosine(x, x).item() == pytest.approx(1)
    assert angle(x, -x).item() == pytest.approx(180)
    assert relative_variance(-x[None], x) == 4


def test_a_zero_vector_gives_nan_or_inf():
    zero, one = torch.zeros(3), torch.ones(3)
    assert math.isnan(gradient_cosine(one, zero))
    both = gradient_cosine(torch.stack([zero, one]), one)
    assert both.isnan().tolist() == [True, False]
    assert math.isinf(relative_variance(torch.ones(2, 3), zero))
    assert math.isnan(relative_variance(torch.zeros(2, 3), zero))


@settings(max_examples=30)
@given(seed=SEEDS)
def test_relative_variance_over_all_signs_is_the_closed_form(seed):
    # g + diag(s) d over every sign pattern s: mean g, squared error |d|^2 exactly.
    g, d = randn(3, seed=seed), randn(3, seed=seed + 1)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3).double()
    estimates = g + signs * d
    ratio = d.square().sum() / g.square().sum()
    close(relative_variance(estimates, g), ratio)
    close(gradient_variance(estimates), d.square().sum() * 8 / (8 - 1))


@settings(max_examples=30)
@given(seed=SEEDS)
def test_error_is_variance_plus_squared_bias(seed):
    estimates, exact = randn(6, 2, 2, seed=seed), randn(2, 2, seed=seed + 1)
    bias = (estimates.mean(0) - exact).square().sum()
    expected = (gradient_variance(estimates) * 5 / 6 + bias) / exact.square().sum()
    close(relative_variance(estimates, exact), expected)


def test_instruments_touch_neither_inputs_nor_the_global_generator():
    estimates = randn(4, 3).requires_grad_()
    exact = randn(3, seed=1).requires_grad_()
    before = [t.detach().clone() for t in (estimates, exact)]
    state = torch.get_rng_state()
    results = [
        gradient_cosine(estimates, exact),
        relative_variance(estimates, exact),
        gradient_variance(estimates),
    ]
    Trace().log(0, loss=results[1], weight=exact[0])
    assert torch.equal(torch.get_rng_state(), state)
    for tensor, old in zip((estimates, exact), before, strict=True):
        assert torch.equal(tensor, old) and tensor.grad is None
    assert not any(result.requires_grad for result in results)


# Inputs


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
    ratio, residual = best_ratio(torch.full((4, 3), 300.0).half())
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


# The cost of a step, from a learner's formula


def count(n, m, K, P, r):
    return 2 * r * m * K * n * n, r * (m + P * n)


def test_a_formula_is_put_into_numbers():
    assert cost(count, hidden=8, inputs=3) == Cost(2 * 12 * 2 * 64, 4 * (12 + 8))
    lstm = cost(count, hidden=8, inputs=3, blocks=4, parts=2, rank=5)
    assert lstm == Cost(5 * 2 * 12 * 4 * 64, 4 * 5 * (12 + 16))
    one = cost(count, hidden=16, inputs=4, rank=2)
    many = cost(count, hidden=16, inputs=4, rank=2, batch=8, dtype_bytes=8)
    assert (many.flops, many.bytes) == (8 * one.flops, 16 * one.bytes)
