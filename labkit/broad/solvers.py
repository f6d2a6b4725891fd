"""The seven solvers by name.

>>> import torch
>>> A, H, Y = torch.eye(3)[:, :2], torch.eye(3)[:, 2:], torch.ones(3, 1)
>>> state = SOLVERS["chol-1"].start(A, Y, ridge=1.0)
>>> state = SOLVERS["chol-1"].update(state, A, H, Y)
>>> state.W.T
tensor([[0.5000, 0.5000, 0.5000]])
"""

from collections.abc import Callable
from typing import NamedTuple

from labkit.broad import greville, ridge


class Solver(NamedTuple):
    """How to start and how to grow; see :mod:`labkit.broad.state` for states."""

    start: Callable  # (A, Y, ridge, capacity=None) -> state
    update: Callable  # (state, A, H, Y) -> state
    exact: bool  # whether it is the ridge solution at every ridge


SOLVERS = {
    "d-rdg": Solver(ridge.direct_start, ridge.direct_update, True),
    "orig": Solver(greville.dagger_start, greville.orig_update, False),
    "exg-e": Solver(ridge.chol1_start, greville.exg_e_update, False),
    "chol-1": Solver(ridge.chol1_start, ridge.chol1_update, True),
    "chol-2": Solver(ridge.chol1_start, ridge.chol2_update, True),
    "r-inv": Solver(greville.dagger_start, greville.r_inv_update, True),
    "bordered": Solver(ridge.bordered_start, ridge.bordered_update, True),
}
