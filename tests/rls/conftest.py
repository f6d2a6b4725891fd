"""Random states, and steps, that the tests of this room share."""

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from labkit.rls import loss_mse, rls_step
from tests.draws import randn

# with and without the gradient formed, where rows are fewer than units
FORMS = pytest.mark.parametrize("limit", [None, math.inf])
RULE = {"forgetting": 0.97, "mean_weight": 0.3, "lr": 0.7, "momentum": 0.6, "l1": 1e-2}
REF_RULE = {"lam": 0.97, "k": 0.3, "eta": 0.7, "alpha": 0.6, "gamma": 1e-2}


def spd(n, seed=0):
    """A random symmetric positive definite matrix, bit-symmetric, far from identity."""
    A = randn(n, n, seed=seed)
    S = A @ A.T / n + 0.2 * torch.eye(n, dtype=torch.float64)
    return (S + S.T) / 2


class State(NamedTuple):
    """All that a step of one block changes."""

    theta: Tensor
    velocity: Tensor
    P: Tensor


def stepped(state, x_mean, gradient, **rule):
    """`rls_step` on copies."""
    after = State(*(each.clone() for each in state))
    rls_step(after.theta, after.P, x_mean, gradient, velocity=after.velocity, **rule)
    return after


def batch(rows, seed):
    """Inputs and targets of one step of `fcs()`."""
    return randn(rows, 5, seed=seed), randn(rows, 3, seed=9)


def backward(model, x, target, scale=1.0):
    """Gradients of the squared error; returns it."""
    loss = scale * loss_mse(model(x), target)
    loss.backward()
    return loss


def take(model, optimizer, x, target, scale=1.0):
    """One step; returns the loss before it."""
    optimizer.zero_grad()
    loss = backward(model, x, target, scale)
    optimizer.step()
    return loss


def in_step(model, optimizer, net, x, target, limit=None, **rule):
    """One step of RLS and of its twin; returns the factor of the clip."""
    loss = take(model, optimizer, x, target)
    want, factor = net.step(x, target, limit, **rule)
    assert math.isclose(loss.item(), want, rel_tol=1e-9)
    assert math.isclose(optimizer.gradient_norm.item(), net.norm(), rel_tol=1e-9)
    return factor


def assert_close(found, wanted, tolerance=1e-12):
    """Each of some tensors, relative and absolute."""
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def snapshot(model, optimizer):
    """A copy of every weight and of the whole state of the optimiser."""
    kept = [p.detach().clone() for p in model.parameters()]
    for state in optimizer.state.values():
        kept += [v.clone() for _, v in sorted(state.items())]
    return kept


def identical(a, b):
    """Whether two snapshots are equal to the last bit."""
    return len(a) == len(b) and all(map(torch.equal, a, b))
