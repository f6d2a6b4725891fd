"""H, D and F of every cell against torch.func, at non-zero states (float64, 1e-12)."""

import pytest
import torch
from torch.func import functional_call, jacrev

from labkit.rtrl import CellStep, LSTMCell, RHNCell, RNNCell

from .conftest import make_cell, randn


def close(a, b, tol=1e-12):
    return torch.allclose(a, b, rtol=tol, atol=tol)


def test_jacobians(kind):
    cell = make_cell(kind, 3, 4)
    x, s = randn(2, 3), randn(2, cell.state_size, seed=1)
    step = cell.step(x, s)
    assert isinstance(step, CellStep)
    assert close(step.state, cell(x, s))
    assert torch.equal(step.h, step.state[:, -4:])
    new_state = lambda w, x, s: functional_call(cell, {"weight": w}, (x, s))  # noqa: E731
    for i in range(2):
        of_W, of_s = jacrev(new_state, (0, 2))(cell.weight.detach(), x[i], s[i])
        assert close(step.H[i], of_s)
        P, K, n = step.D.shape[1:]
        F = torch.zeros(P, n, cell.augmented_size, K, n, dtype=torch.float64)
        by_h = step.h_hat[i, :, None, None]
        F.diagonal(dim1=1, dim2=4).add_(by_h * step.D[i, :, None])
        assert close(F.view_as(of_W), of_W)


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


def test_forward_agrees_with_torch_modules():
    """The plain cell and the LSTM equal torch's own, weights rearranged."""
    x, h, c = randn(2, 3), randn(2, 4, seed=1), randn(2, 4, seed=2)
    rnn, lstm = make_cell("rnn", 3, 4), make_cell("lstm", 3, 4)
    i, f, o, g = lstm.weight.detach().split(4, dim=1)
    in_order = torch.cat([i, f, g, o], 1)  # of torch's gates
    theirs = torch.nn.RNNCell(3, 4).double(), torch.nn.LSTMCell(3, 4).double()
    for each, W in zip(theirs, (rnn.weight.detach(), in_order), strict=True):
        values = {"weight_hh": W[:4].T, "weight_ih": W[4:7].T, "bias_hh": W[7]}
        each.load_state_dict(values | {"bias_ih": 0 * W[7]})
    assert close(rnn(x, h), theirs[0](x, h))
    h_new, c_new = theirs[1](x, (h, c))
    assert close(lstm(x, torch.cat([c, h], 1)), torch.cat([c_new, h_new], 1))


@pytest.mark.parametrize(("cell", "K"), [(RNNCell, 1), (RHNCell, 2), (LSTMCell, 4)])
def test_shapes_and_initialisation(cell, K):
    g = torch.Generator().manual_seed(0)
    c = cell(5, 40, generator=g)
    assert c.weight.shape == (46, K * 40)
    assert float(c.weight.detach().std()) == pytest.approx(0.01, rel=0.1)
    again = cell(5, 40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(c.weight, again.weight)
    assert cell(5, 4, dtype=torch.float64).weight.dtype == torch.float64


@pytest.mark.parametrize("size", [0, -3, 2.0])
def test_refuses_bad_sizes(size):
    with pytest.raises(ValueError, match="hidden_size must be an integer >= 1, got"):
        RNNCell(3, size)
