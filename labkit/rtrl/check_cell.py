"""A check of a cell's derivatives by automatic differentiation."""

from copy import deepcopy

import torch
from torch.func import functional_call, jacrev

from labkit.check import check_kind
from labkit.rtrl.cells import Cell


def check_cell(cell: Cell, *, tolerance: float = 1e-8) -> None:
    r"""Raise ValueError if a cell's step is not the derivative of its ``forward``.

    On random weights and two sequences in float64, the new state, $\hat h$, D and H of
    a copy are compared with those of ``torch.func`` for each sequence alone, and Lemma
    1 with all of d state / d W. The message says which of them is wrong, and where. It
    takes S m K n numbers: check a small cell.

    Parameters
    ----------
    cell : Cell, left as it is
    tolerance : float, largest difference, relative to the largest entry

    Examples
    --------
    >>> from labkit.rtrl import GRUCell
    >>> check_cell(GRUCell(2, 3))
    """
    check_kind("cell", cell, Cell, "a labkit.rtrl cell")
    cell = deepcopy(cell).double().cpu()
    generator = torch.Generator().manual_seed(0)
    m, n, P, K = cell.augmented_size, cell.hidden_size, cell.parts, cell.blocks
    W = torch.randn(cell.weight.shape, generator=generator).double() / m**0.5
    cell.weight.data = W
    xs = torch.randn(2, cell.input_size, generator=generator).double()
    states = torch.randn(2, cell.state_size, generator=generator).double()

    def forward(W, state, x):
        return functional_call(cell, {"weight": W}, (x[None], state[None]))[0]

    def compare(name, found, wanted, hint):
        if found.shape != wanted.shape:
            raise ValueError(
                f"{name} is wrong: it must be {tuple(wanted.shape)} per sequence, "
                f"got {tuple(found.shape)}"
            )
        off = (found - wanted).abs().nan_to_num(torch.inf)
        size = wanted.nan_to_num(0, 0, 0).abs().max().clamp_min(1)
        if not off.max() <= tolerance * size:
            index = [int(i) for i in (off == off.max()).nonzero()[0]]
            raise ValueError(
                f"{name} is wrong: at {index} it is {float(found[*index]):.6g}, "
                f"and should be {float(wanted[*index]):.6g} ({hint})"
            )

    new = cell.linearise(xs, states)
    for i, (x, state) in enumerate(zip(xs, states, strict=True)):
        of_W, of_state = jacrev(forward, (0, 1))(W, state, x)
        of_W = of_W.view(P, n, m, K, n)
        D = of_W.diagonal(dim1=1, dim2=4)[:, -1]  # a unit's bias moves its z by 1
        h_hat = torch.cat([state[-n:], x, x.new_ones(1)])
        F = torch.zeros_like(of_W)
        F.diagonal(dim1=1, dim2=4).copy_(h_hat[:, None, None] * D[:, None])
        wanted = forward(W, state, x)
        compare("state", new.state[i], wanted, "forward gives another, alone")
        compare("h_hat", new.h_hat[i], h_hat, "not [h, x, 1]")
        hint = "a unit must read its own z = h_hat W (Lemma 1)"
        compare("d state / d W", of_W, F, hint)
        compare("D", new.D[i], D, "[part, block, unit] of d state / d z")
        hint = "the direct path, or units read others' old state"
        compare("H", cell.step(xs, states).H[i], of_state, hint)
