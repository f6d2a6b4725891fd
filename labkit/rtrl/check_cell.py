"""A check of a cell's derivatives by automatic differentiation."""

from copy import deepcopy

import torch
from torch import Tensor
from torch.func import functional_call, jacrev

from labkit.check import POSITIVE, check_options, described
from labkit.rtrl.cells import Cell


def check_cell(cell: Cell, *, tolerance: float = 1e-8) -> None:
    r"""Raise ValueError if a cell's step is not the derivative of its ``forward``.

    On random weights, inputs and states in float64, the new state, $\hat h$, D and H of
    a copy are compared with ``torch.func``, and Lemma 1 with all of d state / d W. The
    message says which of them is wrong, and where. It takes S m K n numbers: check a
    small cell.

    Parameters
    ----------
    cell : Cell, left as it is
    tolerance : float, largest difference, relative to the largest entry

    Examples
    --------
    >>> from labkit.rtrl import GRUCell
    >>> check_cell(GRUCell(2, 3))
    """
    if not isinstance(cell, Cell):
        raise TypeError(f"cell must be a labkit.rtrl cell, got {described(cell)}")
    check_options({"tolerance": tolerance}, {"tolerance": POSITIVE})
    cell = deepcopy(cell).double()
    like = {"device": cell.weight.device, "dtype": torch.float64}
    g = torch.Generator(like["device"]).manual_seed(0)
    m, n = cell.augmented_size, cell.hidden_size
    with torch.no_grad():
        cell.weight.normal_(0, m**-0.5, generator=g)
    x = torch.randn(2, cell.input_size, generator=g, **like)
    state = torch.randn(2, cell.state_size, generator=g, **like)
    new = cell.linearise(x, state)

    def hold(name: str, got: Tensor, wanted: Tensor, hint: str = ""):
        _hold(name, got, wanted, tolerance, hint)

    hold("state", new.state, cell(x, state).detach(), "forward gives another")
    ones = x.new_ones(2, 1)
    hold("h_hat", new.h_hat, torch.cat([state[:, -n:], x, ones], 1), "not [h, x, 1]")
    for i in range(2):
        of_W, of_s = _jacobians(cell, x[i], state[i])
        of_W = of_W.view(cell.parts, n, m, cell.blocks, n)
        own = of_W.diagonal(dim1=1, dim2=4)  # (P, m, K, n)
        D = own[:, -1]  # the bias of a unit moves its z by 1
        F = torch.zeros_like(of_W)
        F.diagonal(dim1=1, dim2=4).copy_(new.h_hat[i, :, None, None] * D[:, None])
        hint = "new_state must read z = h_hat W, and each unit its own (Lemma 1)"
        hold("d state / d W", of_W, F, hint)
        hold("D", new.D[i], D, "[part, block, unit] of d state / d z")
        hint = "D is right: the direct path, or units that read others' old state"
        hold("H", cell.step(x, state).H[i], of_s, hint)
    if new.direct is not None and not cell.has_direct_path:
        raise ValueError("has_direct_path is False, but linearise gives a direct path")


def _jacobians(cell: Cell, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return d state / d W (S, m, K n) and d state / d old state (S, S)."""

    def new(W: Tensor, state: Tensor):
        return functional_call(cell, {"weight": W}, (x[None], state[None]))[0]

    return jacrev(new, (0, 1))(cell.weight.detach(), state)


def _hold(name: str, got: Tensor, wanted: Tensor, tolerance: float, hint: str):
    if got.shape != wanted.shape:
        raise ValueError(
            f"{name} is wrong: it must be {tuple(wanted.shape)} per sequence, "
            f"got {tuple(got.shape)}"
        )
    off = (got - wanted).abs().nan_to_num(torch.inf)
    if off.max() > tolerance * max(1.0, float(wanted.abs().max())):
        where = [int(i) for i in (off == off.max()).nonzero()[0]]
        raise ValueError(
            f"{name} is wrong: at {where} it is {float(got[*where]):.6g}, "
            f"and should be {float(wanted[*where]):.6g} ({hint})"
        )
