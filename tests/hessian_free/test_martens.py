"""One step of Martens' HF."""

import math

import pytest
import torch

from labkit.hessian_free import MartensHF, squared_error
from labkit.hessian_free.linearise import weights_of
from labkit.theorems.hessian_free import joined, per_example_gradients

from .conftest import gauss_newton, rand, relative, small_net


def test_the_gradient_is_that_of_all_rows_whatever_the_slices(monkeypatch):
    net, X = small_net(), rand(20, 5)
    monkeypatch.setattr("labkit.hessian_free.martens.ROWS", 7)
    f, g, squares = MartensHF(net)._gradient(weights_of(net), X, None)
    G = per_example_gradients(net, X, X)
    assert math.isclose(2 * f, squared_error(net, X), rel_tol=1e-12)
    assert relative(joined(g), G.mean(0)) < 1e-12
    assert relative(joined(squares), G.square().mean(0)) < 1e-12


def test_a_converged_step_is_the_damped_gauss_newton_step():
    """Gradient of all rows, curvature of the chunk, lambda unsquared."""
    net, X = small_net(), rand(20, 5)
    chunk = X[:8]
    w = joined(weights_of(net)).clone()
    _, g, _ = gauss_newton(net, X, 1.0)
    _, _, A = gauss_newton(net, chunk, 1.0)
    B = A.T @ A + 4.0 * torch.eye(len(g)).to(A)
    optimizer = MartensHF(net, damping=4.0, tolerance=0.0)
    step = optimizer.step(X, chunk=chunk)
    p = torch.linalg.solve(B, -g)
    moved = (joined(weights_of(net)) - w) / step.step_length
    assert step.best == step.iterations  # nothing to go back over
    assert relative(moved, p) < 1e-8
    predicted = p @ g + 0.5 * (A @ p).square().sum()
    assert math.isclose(step.predicted, predicted, rel_tol=1e-8)
    start = [optimizer.state[q]["warm"] for q in net.parameters()]
    assert relative(joined(start), 0.95 * p) < 1e-8
    assert step.damping_next == pytest.approx(4.0 * 2 / 3 if step.rho > 0.75 else 4.0)


def test_goes_back_to_the_iterate_of_lowest_loss_but_starts_from_the_last():
    """With almost no damping the last iterates overshoot."""
    for seed in range(30):
        net, X = small_net(seed=seed), rand(20, 5, seed=seed)
        optimizer = MartensHF(net, damping=1e-6, tolerance=0.0, maxiter=60)
        step = optimizer.step(X)
        if step.best < step.iterations:
            break
    assert step.best < step.iterations
    losses = dict(step.merit)
    assert losses[step.best] == min(losses.values())
    start = joined([optimizer.state[q]["warm"] for q in net.parameters()])
    moved = joined(weights_of(net)) - joined(weights_of(small_net(seed=seed)))
    assert not math.isclose(
        start.norm(), 0.95 * moved.norm() / step.step_length, rel_tol=1e-6
    )
