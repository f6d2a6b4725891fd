import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from labkit.instruments import (
    Trace,
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
    assert gradient_cosine(e, g).shape == ()
    estimates, exact = randn(5, 2, 3), randn(2, 3, seed=1)
    together = gradient_cosine(estimates, exact)
    assert together.shape == (5,)
    close(together, torch.stack([gradient_cosine(e, exact) for e in estimates]))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, a=st.floats(1e-150, 1e150), b=st.floats(1e-150, 1e150))
def test_cosine_does_not_know_scale(seed, a, b):
    x, y = randn(7, seed=seed), randn(7, seed=seed + 1)
    cosine = gradient_cosine(x, y)
    assert -1 <= cosine <= 1
    close(gradient_cosine(a * x, b * y), cosine)


def test_a_zero_vector_gives_nan_or_inf():
    zero, one = torch.zeros(3), torch.ones(3)
    assert math.isnan(gradient_cosine(zero, one))
    assert math.isnan(gradient_cosine(one, zero))
    both = gradient_cosine(torch.stack([zero, one]), one)
    assert both.isnan().tolist() == [True, False]
    assert math.isinf(relative_variance(torch.ones(2, 3), zero))
    assert math.isnan(relative_variance(torch.zeros(2, 3), zero))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_relative_variance_over_all_signs_is_the_closed_form(seed):
    # g + diag(s) d over every sign pattern s: mean g, squared error |d|^2 exactly.
    g, d = randn(3, seed=seed), randn(3, seed=seed + 1)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3).double()
    estimates = g + signs * d
    ratio = d.square().sum() / g.square().sum()
    close(relative_variance(estimates, g), ratio)
    close(gradient_variance(estimates), d.square().sum() * 8 / (8 - 1))


@settings(max_examples=30, deadline=None)
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
