"""Products with the Jacobians of every cell; `check_cell` compares H, D and F."""

import pytest
import torch
from torch.func import functional_call

from .conftest import CELLS, make_cell, randn


def close(a, b, tol=1e-12):
    return torch.allclose(a, b, rtol=tol, atol=tol)


def test_jvp_equals_the_jacobian(kind):
    cell = make_cell(kind, 3, 4)
    x, s = randn(2, 3), randn(2, cell.state_size, seed=1)
    v = randn(2, 3, cell.state_size, seed=2)
    full = cell.step(x, s)
    new, Hv = cell.jvp(x, s, v)
    assert close(Hv, torch.einsum("bij,brj->bri", full.H, v))
    assert torch.equal(new.state, full.state) and torch.equal(new.D, full.D)


def test_vjp_is_the_transpose(kind):
    cell = make_cell(kind, 3, 4)
    x, s = randn(2, 3), randn(2, cell.state_size, seed=1)
    delta = randn(2, cell.state_size, seed=2)
    new = cell.linearise(x, s)
    dz, old = cell.vjp(new, delta)
    assert close(old, torch.einsum("bi,bij->bj", delta, cell.jacobian(new)))
    w = cell.weight.detach().clone().requires_grad_()
    (functional_call(cell, {"weight": w}, (x, s)) * delta).sum().backward()
    assert close(new.h_hat.T @ dz, w.grad)


def test_shapes_and_initialisation(kind):
    cells = [
        CELLS[kind](5, 40, generator=torch.Generator().manual_seed(0)) for _ in "ab"
    ]
    assert cells[0].weight.shape == (46, cells[0].blocks * 40)
    assert float(cells[0].weight.detach().std()) == pytest.approx(0.01, rel=0.1)
    assert torch.equal(cells[0].weight, cells[1].weight)
    with pytest.raises(ValueError, match="hidden_size must be an integer >= 1, got 0"):
        CELLS[kind](3, 0)
    with pytest.raises(ValueError, match=r"x must have shape \(..., 5\), got \(2, 4\)"):
        cells[0].step(torch.ones(2, 4), cells[0].initial_state(2))
