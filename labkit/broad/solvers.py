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
from typing import NamedTuple

from labkit.broad import greville, ridge


class Solver(NamedTuple):
    """The start and the update of a solver; :mod:`labkit.broad.state` has states."""

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


def rows_operations(solver: str, n: int, k: int) -> float:
    """Return the operations of adding n samples at once to a model of k columns."""
    turned = 0 if solver == "bordered" else 2 * k**3 / 3
    return 2 * (k + n) * k**2 - 2 * k**3 / 3 + turned


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
