"""The pure functions of the update against their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.testing import assert_close

from labkit.rls import Residuals, loss_mse
from labkit.theorems.rls import THEOREMS, inverse_of_autocorrelation

from . import reference as ref
from .conftest import REF_RULE, RULE, State, randn, spd, stepped

ranges = {"forgetting": st.floats(0.5, 1.0), "mean_weight": st.floats(0.01, 10.0)}
rules = st.fixed_dictionaries(ranges | {"steps": st.integers(1, 30)})


@given(rules, st.integers(1, 8), st.integers(0, 2**31))
def test_inverse_is_that_of_the_accumulated_autocorrelation(rule, n, seed):
    assert (found := inverse_of_autocorrelation(n, seed, 6, **rule)).holds, found


@pytest.mark.parametrize("theorem", THEOREMS.values(), ids=lambda t: t.__name__)
def test_theorem(theorem):
    assert (found := theorem()).holds, found


def start(N=3, n=5):
    return State(randn(N, n, seed=1), randn(N, n, seed=2), spd(n, seed=3))


@pytest.mark.parametrize("T", [1, 4])
def test_step_equals_the_reference(T):
    state, x, G = start(), randn(5, seed=4), randn(3, 5, seed=5)
    part = ref.Part(state.theta.numpy().T.copy())
    part.P, part.omega = state.P.numpy(), state.velocity.numpy().T
    part.rows, part.grad, part.T = [x.numpy()], G.numpy().T, T
    after = stepped(state, x, G, **RULE, steps=T)
    part.step(**REF_RULE)
    pairs = (after.theta.T, part.theta), (after.velocity.T, part.omega)
    for found, wanted in (*pairs, (after.P, part.P)):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_forms_of_the_arguments_are_one_step(momentum):
    """Residuals for the gradient, a clip, a rate in a tensor."""
    rule = RULE | {"momentum": momentum, "steps": 2}
    parts = Residuals(randn(7, 3, seed=5), randn(7, 4, seed=6), randn(3, seed=7))
    plain = stepped(start(), randn(5, seed=4), 0.3 * parts.formed(), **rule)
    clip, lr = torch.tensor([0.3, 0.7], dtype=torch.float64)
    rule |= {"clip": clip, "lr": lr}
    found = stepped(start(), randn(5, seed=4), parts, **rule)
    assert_close(found, plain, rtol=1e-12, atol=1e-12)
    assert_close(parts.norm(), parts.formed().norm())


def at_rest(N, n):
    return State(randn(N, n, seed=1), torch.zeros(N, n).double(), torch.eye(n).double())


@pytest.mark.parametrize("lam", [1.0, 0.9])
def test_one_sample_a_step_is_ridge_regression_towards_the_start(lam):
    """Forgetting weighs old samples, and the start, less."""
    s, state = 25, at_rest(2, 4)
    start, X, Y = state.theta, randn(s, 4, seed=2), randn(s, 2, seed=3)
    for x, y in zip(X, Y, strict=True):
        G = torch.outer(state.theta @ x - y, x)
        state = stepped(state, x, G, mean_weight=1.0, forgetting=lam)
    w = lam ** torch.arange(s - 1, -1, -1).double()[:, None]
    A = lam**s * torch.eye(4).double() + X.T @ (w * X)
    want = torch.linalg.solve(A, lam**s * start.T + X.T @ (w * Y)).T
    assert_close(state.theta, want, rtol=0, atol=1e-11 if lam == 1 else 1e-10)


@given(st.floats(0.02, 50.0), st.floats(0.01, 5.0))
def test_k_eta_and_the_start_of_P_are_two_numbers_not_three(k, eta):
    a = at_rest(3, 4)
    b = a._replace(P=k * a.P)
    for s in range(5):
        x, G = randn(4, seed=10 + s), randn(3, 4, seed=20 + s)
        common = {"momentum": 0.5, "steps": 2}
        a = stepped(a, x, G, mean_weight=k, lr=eta, **common)
        b = stepped(b, x, G, mean_weight=1.0, lr=eta / k, **common)
        assert_close(a.theta, b.theta, rtol=1e-9, atol=1e-9)
        assert_close(k * a.P, b.P, rtol=1e-9, atol=1e-9 * k)


def test_centred_inputs_leave_gradient_descent():
    k, eta = 0.3, 0.7
    state = at_rest(3, 5)
    x = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0]).double()
    for s in range(1, 6):
        G = randn(3, 5, seed=s)
        after = stepped(state, x, G, mean_weight=k, lr=eta)
        h = (1 + k * s) / (1 + k * (s - 1))
        move = after.theta - state.theta
        assert_close(move[:, :4], -eta / h * G[:, :4])
        assert_close(move[:, 4], -eta / (1 + k * s) * G[:, 4])
        want = torch.diag(torch.tensor([1, 1, 1, 1, 1 / (1 + k * s)]).double())
        assert_close(after.P, want)
        state = after


def test_loss_is_half_the_sum_over_outputs_and_time_averaged_over_the_batch():
    Z, target = randn(5, 4, 3, seed=1), randn(5, 4, 3, seed=2)
    want = ref.squared_error(Z, target).item()
    Z.requires_grad_()
    loss = loss_mse(Z, target)
    loss.backward()
    assert math.isclose(loss.item(), want, rel_tol=1e-12)
    assert_close(Z.grad, (Z.detach() - target) / 5, rtol=1e-12, atol=0)
    turned = loss_mse(Z.transpose(0, 1), target.transpose(0, 1), batch_dim=1)
    assert math.isclose(turned.item(), want, rel_tol=1e-12)
    with torch.autocast("cpu", torch.float16):
        assert loss_mse(600 * Z.half(), 600 * target.half()).isfinite()
