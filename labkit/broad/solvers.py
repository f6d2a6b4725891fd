"""The seven solvers by name, and the operations that each of them costs.

>>> import torch
>>> A, H, Y = torch.eye(3)[:, :2], torch.eye(3)[:, 2:], torch.ones(3, 1)
>>> state = SOLVERS["chol-1"].start(A, Y, ridge=1.0)
>>> state = SOLVERS["chol-1"].update(state, A, H, Y)
>>> state.W.T
tensor([[0.5000, 0.5000, 0.5000]])

Operations are counted by formula: an m x n times n x p product counts 2 m n p;
symmetric results and triangular factors count half, and an inverse Cholesky factor of
q x q counts 2 q^3 / 3. What block rows compute of the skipped half is not counted. The
operations for W with c outputs are included.
"""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple

from torch import Tensor

from labkit.broad import greville, ridge
from labkit.broad.state import (
    BorderedState,
    DaggerState,
    DirectState,
    FactorState,
    State,
    check_start,
    check_update,
    naming_safe_ridge,
)
from labkit.precision import outside_modes


class Solver(NamedTuple):
    """The start and the update of a solver, which check what they are given.

    A lost pivot raises :class:`~labkit.broad.NotPositiveDefinite` with the ridge that
    would be safe. :mod:`labkit.broad.state` has the states.
    """

    start: Callable  # (A, Y, ridge) -> state
    update: Callable  # (state, A, H, Y) -> state
    exact: bool  # whether it is the ridge solution at every ridge


def _solver(start: Callable, update: Callable, kind: type, exact: bool) -> Solver:
    """Return the solver that checks the arguments of both steps."""

    @wraps(start)
    @outside_modes()
    def checked_start(A: Tensor, Y: Tensor, ridge: float) -> State:
        check_start(A, Y, ridge)
        with naming_safe_ridge(A):
            return start(A, Y, ridge)

    @wraps(update)
    @outside_modes()
    def checked_update(state: State, A: Tensor, H: Tensor, Y: Tensor) -> State:
        check_update(state, A, H, Y, kind)
        with naming_safe_ridge(A, H):
            return update(state, A, H, Y)

    return Solver(checked_start, checked_update, exact)


SOLVERS = {
    name: _solver(start, update, kind, exact)
    for name, start, update, kind, exact in (
        ("d-rdg", ridge.direct_start, ridge.direct_update, DirectState, True),
        ("orig", greville.dagger_start, greville.orig_update, DaggerState, False),
        ("exg-e", ridge.chol1_start, greville.exg_e_update, FactorState, False),
        ("chol-1", ridge.chol1_start, ridge.chol1_update, FactorState, True),
        ("chol-2", ridge.chol1_start, ridge.chol2_update, FactorState, True),
        ("r-inv", greville.dagger_start, greville.r_inv_update, DaggerState, True),
        ("bordered", ridge.bordered_start, ridge.bordered_update, BorderedState, True),
    )
}

# The purposes for which operations are counted, in the order of the steps.
TERMS = ("cross", "residual", "square", "factor", "dagger", "weights")


def start_operations(solver: str, l: int, k: int, c: int) -> float:  # noqa: E741
    """Return the number of operations of the start from A (l, k) and Y (l, c)."""
    return sum(start_terms(solver, l, k, c).values())


def update_operations(solver: str, l: int, k: int, q: int, c: int) -> float:  # noqa: E741
    """Return the number of operations of one update from k to k + q columns."""
    return sum(update_terms(solver, l, k, q, c).values())


def start_terms(solver: str, l: int, k: int, c: int) -> dict[str, float]:  # noqa: E741
    """Return the operations of the start by `TERMS`; see :func:`update_terms`."""
    terms = dict.fromkeys(TERMS, 0.0) | {"square": l * k**2, "weights": 2 * l * k * c}
    if solver in ("orig", "r-inv"):
        return terms | {"factor": k**3 / 3, "dagger": 2 * l * k**2}
    terms["weights"] += 2 * k**2 * c
    terms["factor"] = k**3 / 3 if solver in ("d-rdg", "bordered") else 2 * k**3 / 3
    return terms


def update_terms(solver: str, l: int, k: int, q: int, c: int) -> dict[str, float]:  # noqa: E741
    """Return the operations of one update, by their purpose in `TERMS`.

    ``cross``: A^T H or A_dagger H; ``residual``: C = H - A D; ``square``: H^T H or
    C^T C, and V^T V or D^T D; ``factor``: products with F (or solves with L), G or the
    inverse, and T; ``dagger``: B and A_dagger - D B; ``weights``: the new W.
    """
    if solver == "d-rdg":
        terms = start_terms(solver, l, k + q, c)
        return terms | {"weights": terms["weights"] - 2 * l * k * c}
    cross, own = 2 * l * k * q, k * q**2  # own: V^T V or D^T D
    terms = dict.fromkeys(TERMS, 0.0) | {"cross": cross, "square": l * q**2}
    if solver not in ("chol-1", "bordered"):
        terms["residual"] = cross
    if solver not in ("orig", "exg-e"):
        terms["square"] += own
    if solver in ("orig", "r-inv"):
        terms |= {"factor": q**3 / 3, "dagger": 2 * l * q**2 + cross}
        terms["weights"] = 2 * (l + k) * q * c
    elif solver == "bordered":
        terms["factor"] = k**2 * q + q**3 / 3
        terms["weights"] = 2 * (l + k) * q * c + (k + q) ** 2 * c
    else:
        terms["factor"] = 2 * k**2 * q + k * q**2 + 2 * q**3 / 3
        terms["weights"] = 2 * l * q * c + 4 * k * q * c + 2 * q**2 * c
    return terms
