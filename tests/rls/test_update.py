"""The pure functions of the update against their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from labkit.rls import (
    LayerState,
    clip_factor,
    gain,
    loss_mse,
    rls_step,
    update_inverse_,
)

from . import reference as ref
from .conftest import REF_RULE, RULE, randn, spd

rules = st.fixed_dictionaries(
    {
        "forgetting": st.floats(0.5, 1.0),
        "ratio": st.floats(0.01, 10.0),
        "steps": st.integers(1, 30),
    }
)


@given(rules, st.integers(1, 8), st.integers(0, 2**31))
def test_inverse_is_that_of_the_accumulated_autocorrelation(rule, n, seed):
    P = spd(n, seed=seed)
    A = torch.linalg.inv(P)
    k, lam, T = rule["ratio"], rule["forgetting"], rule["steps"]
    for s in range(6):
        x = randn(n, seed=seed + s + 1)
        u, h = gain(P, x, **rule)
        assert h > lam
        update_inverse_(P, u, h, **rule)
        A = lam * A + k * T * torch.outer(x, x)  # (35), (82)
        assert torch.equal(P, P.T)
        torch.testing.assert_close(P @ A, torch.eye(n).to(P), rtol=0, atol=1e-8)
        torch.testing.assert_close(P @ x, u / h, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("T", [1, 4])
def test_step_equals_the_reference(T):
    N, n = 3, 5
    state = LayerState(randn(N, n, seed=1), randn(N, n, seed=2), spd(n, seed=3))
    before = [t.clone() for t in state]
    x, G = randn(n, seed=4), randn(N, n, seed=5)
    part = ref.Part(state.theta.numpy().T.copy(), bias=False)
    part.P, part.omega = state.P.numpy(), state.velocity.numpy().T
    part.rows, part.grad, part.T = [x.numpy()], G.numpy().T, T
    after = rls_step(state, x, G, **RULE, steps=T)
    part.step(**REF_RULE)
    np.testing.assert_allclose(after.theta.T, part.theta, rtol=0, atol=1e-11)
    np.testing.assert_allclose(after.velocity.T, part.omega, rtol=0, atol=1e-11)
    np.testing.assert_allclose(after.P, part.P, rtol=0, atol=1e-11)
    assert all(map(torch.equal, state, before))


def least_squares(steps, **rule):
    """A linear layer on one sample a step, residual form; states and samples."""
    state = LayerState(
        randn(2, 4, seed=1), torch.zeros(2, 4).double(), torch.eye(4).double()
    )
    start, xs, ys = state.theta, randn(steps, 4, seed=2), randn(steps, 2, seed=3)
    for x, y in zip(xs, ys, strict=True):
        state = rls_step(state, x, torch.outer(state.theta @ x - y, x), **rule)
    return state.theta, start, xs, ys


def test_one_sample_a_step_is_ridge_regression_towards_the_start():
    theta, start, X, Y = least_squares(25, ratio=1.0)
    A = torch.eye(4).double() + X.T @ X
    want = torch.linalg.solve(A, start.T + X.T @ Y).T
    torch.testing.assert_close(theta, want, rtol=0, atol=1e-11)


def test_forgetting_weighs_old_samples_less():
    lam, s = 0.9, 25
    theta, start, X, Y = least_squares(s, ratio=1.0, forgetting=lam)
    w = lam ** torch.arange(s - 1, -1, -1).double()[:, None]
    A = lam**s * torch.eye(4).double() + X.T @ (w * X)
    want = torch.linalg.solve(A, lam**s * start.T + X.T @ (w * Y)).T
    torch.testing.assert_close(theta, want, rtol=0, atol=1e-10)


@given(st.floats(0.02, 50.0), st.floats(0.01, 5.0))
def test_ratio_eta_and_start_of_P_are_two_numbers_not_three(k, eta):
    zero, eye = torch.zeros(3, 4).double(), torch.eye(4).double()
    a = LayerState(randn(3, 4, seed=1), zero, eye)
    b = LayerState(a.theta, zero, k * eye)
    for s in range(5):
        x, G = randn(4, seed=10 + s), randn(3, 4, seed=20 + s)
        common = {"momentum": 0.5, "steps": 2}
        a = rls_step(a, x, G, ratio=k, eta=eta, **common)
        b = rls_step(b, x, G, ratio=1.0, eta=eta / k, **common)
        torch.testing.assert_close(a.theta, b.theta, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(k * a.P, b.P, rtol=1e-9, atol=1e-9 * k)


def test_centred_inputs_leave_gradient_descent():
    k, eta = 0.3, 0.7
    state = LayerState(
        randn(3, 5, seed=1), torch.zeros(3, 5).double(), torch.eye(5).double()
    )
    x = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0]).double()
    for s in range(1, 6):
        G = randn(3, 5, seed=s)
        after = rls_step(state, x, G, ratio=k, eta=eta)
        h = (1 + k * s) / (1 + k * (s - 1))
        move = after.theta - state.theta
        torch.testing.assert_close(move[:, :4], -eta / h * G[:, :4])
        torch.testing.assert_close(move[:, 4], -eta / (1 + k * s) * G[:, 4])
        want = torch.diag(torch.tensor([1, 1, 1, 1, 1 / (1 + k * s)]).double())
        torch.testing.assert_close(after.P, want)
        state = after


def test_a_permutation_of_the_inputs_permutes_P_and_the_columns():
    order = torch.tensor([2, 0, 3, 1, 4])
    state = LayerState(randn(3, 5, seed=1), randn(3, 5, seed=2), spd(5, seed=3))
    x, G = randn(5, seed=4), randn(3, 5, seed=5)
    plain = rls_step(state, x, G, **RULE, steps=3)
    moved = LayerState(
        state.theta[:, order], state.velocity[:, order], state.P[order][:, order]
    )
    moved = rls_step(moved, x[order], G[:, order], **RULE, steps=3)
    torch.testing.assert_close(moved.theta, plain.theta[:, order])
    torch.testing.assert_close(moved.velocity, plain.velocity[:, order])
    torch.testing.assert_close(moved.P, plain.P[order][:, order])


def test_loss_is_half_the_sum_over_outputs_and_time_averaged_over_the_batch():
    Z, target = randn(5, 4, 3, seed=1), randn(5, 4, 3, seed=2)
    want, dZ = ref.squared_error(Z.numpy(), target.numpy())
    Z.requires_grad_()
    loss = loss_mse(Z, target)
    loss.backward()
    assert math.isclose(loss.item(), want, rel_tol=1e-12)
    np.testing.assert_allclose(Z.grad, dZ, rtol=1e-12)
    turned = loss_mse(Z.transpose(0, 1), target.transpose(0, 1), batch_dim=1)
    assert math.isclose(turned.item(), want, rel_tol=1e-12)
    mean = nn.functional.mse_loss(Z, target)
    assert math.isclose(loss.item(), mean.item() * 4 * 3 / 2, rel_tol=1e-12)


def test_loss_refuses_what_would_broadcast():
    with pytest.raises(ValueError, match=r"\(4, 3\) and targets \(4,\)"):
        loss_mse(torch.zeros(4, 3), torch.zeros(4))


@given(st.floats(0, 1e6), st.one_of(st.just(math.inf), st.floats(1e-6, 1e6)))
def test_clip_is_that_of_torch(norm, limit):
    p = nn.Parameter(torch.zeros(2).double())
    p.grad = torch.tensor([0.6, 0.8]).double() * norm
    factor = clip_factor(p.grad.norm(), limit)
    want = p.grad * factor
    nn.utils.clip_grad_norm_([p], limit)
    torch.testing.assert_close(p.grad, want, rtol=1e-12, atol=0)


def test_no_limit_is_no_clip():
    assert clip_factor(torch.tensor(1e9), None) == 1.0
