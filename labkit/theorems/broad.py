r"""What the solvers of broad learning must fulfil, on a small example.

Each function grows a model by the solver's own updates, in float64, and returns a
:class:`~labkit.theorems.Finding`. No constant is 1 and all sizes differ: l = 17
samples, k = 5 columns, then 3 and 4 more, c = 2 outputs.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labkit.broad.solvers import SOLVERS
from labkit.broad.state import DaggerState, FactorState
from labkit.theorems import Finding, drawn

SIZES = 17, 5, (3, 4), 2  # l, k, each q, c
RIDGE = 0.7
VANISHING = 1e-10  # a ridge that stands for the limit of none
SAID = (
    "$l = 17$ samples, $k = 5$ columns, then $q = 3$ and $4$ new ones, $c = 2$ outputs"
)


def growing(
    name: str,
    A: Tensor | None = None,
    blocks: Sequence[Tensor] | None = None,
    Y: Tensor | None = None,
    ridge: float = RIDGE,
) -> Iterator[tuple[Tensor, FactorState | DaggerState]]:
    """Yield all columns and the state, after the start and after every update.

    Without tensors it is the example of this module.
    """
    l, k, widths, c = SIZES  # noqa: E741
    A = drawn(l, k, seed=0) if A is None else A
    Y = drawn(l, c, seed=1) if Y is None else Y
    if blocks is None:
        blocks = [drawn(l, q, seed=2 + i) for i, q in enumerate(widths)]
    solver = SOLVERS[name]
    state = solver.start(A, Y, ridge)
    yield A, state
    for H in blocks:
        state = solver.update(state, A, H, Y)
        A = torch.cat([A, H], 1)
        yield A, state


def ridge_gradient_vanishes(name: str = "chol-1", **problem: object) -> Finding:
    r"""W is the ridge solution of all columns, $A^T (A W - Y) + \lambda W = 0$.

    The gradients after all updates are compared with 0, relative to $A^T Y$.
    ``problem`` are arguments of :func:`growing`.
    """
    Y = problem.get("Y", drawn(SIZES[0], SIZES[3], seed=1))
    ridge, found = problem.get("ridge", RIDGE), []
    for A, state in growing(name, **problem):
        gradient = A.T @ (A @ state.W - Y) + ridge * state.W
        found.append((gradient / torch.linalg.norm(A.T @ Y)).flatten())
    found = torch.cat(found)
    claim = (
        r"$W$ is the ridge solution for all columns so far: the gradient $A^\top (A W "
        r"- Y) + \lambda W$ vanishes."
    )
    example = rf"{SAID}, $\lambda = {ridge:g}$" if not problem else "the given columns"
    return Finding(claim, found, torch.zeros_like(found), example, tolerance=1e-10)


def factor_is_that_of_the_inverse(name: str = "chol-1", **problem: object) -> Finding:
    r"""F is upper triangular with $F F^T = R^{-1}$, so that $F^T R F = I$ (34)."""
    *_, (A, state) = growing(name, **problem)
    ridge = problem.get("ridge", RIDGE)
    one = torch.eye(A.shape[1]).to(A)
    F, R = state.F, A.T @ A + ridge * one
    found = torch.cat([F.T @ R @ F, F.tril(-1)])
    wanted = torch.cat([one, torch.zeros_like(F)])
    claim = (
        r"$F$ is upper triangular and $F F^\top = R^{-1}$ with $R = A^\top A + \lambda "
        r"I$, so that $F^\top R F = I$."
    )
    example = rf"{SAID}, $\lambda = {ridge:g}$" if not problem else "the given columns"
    return Finding(claim, found, wanted, example, tolerance=1e-10)


def dagger_is_the_ridge_inverse(name: str = "r-inv", **problem: object) -> Finding:
    r"""The rows kept are $(A^T A + \lambda I)^{-1} A^T$ (7), compared times R."""
    *_, (A, state) = growing(name, **problem)
    ridge = problem.get("ridge", RIDGE)
    R = A.T @ A + ridge * torch.eye(A.shape[1]).to(A)
    claim = (
        r"$A^\dagger$ is the ridge inverse of all columns, $(A^\top A + \lambda "
        r"I)\,A^\dagger = A^\top$."
    )
    example = rf"{SAID}, $\lambda = {ridge:g}$" if not problem else "the given columns"
    return Finding(claim, R @ state.A_dagger, A.T.clone(), example, tolerance=1e-10)


def greville_gives_the_generalised_inverse(name: str = "orig") -> Finding:
    r"""Greville's theorem: with independent columns, $A^+ A = I$ at a vanishing ridge.

    The columns are compared at a ridge of 1e-10, of which A^+ keeps an error of about
    that size over the smallest squared singular value.
    """
    found = []
    for A, state in growing(name, ridge=VANISHING):
        found.append((state.A_dagger @ A).flatten())
    n = SIZES[1], SIZES[1] + SIZES[2][0], SIZES[1] + sum(SIZES[2])
    wanted = torch.cat([torch.eye(k).to(found[0]).flatten() for k in n])
    claim = (
        r"At a vanishing ridge, $A^+$ is the generalised inverse of all columns so "
        r"far: $A^+ A = I$, as they are independent."
    )
    example = rf"{SAID}, $\lambda = 10^{{-10}}$"
    return Finding(claim, torch.cat(found), wanted, example, tolerance=1e-7)


def greville_weights_solve_least_squares() -> Finding:
    r"""At a vanishing ridge, the weights of Orig leave $A^T (A W - Y) = 0$ (24)."""
    found = []
    Y = drawn(SIZES[0], SIZES[3], seed=1)
    for A, state in growing("orig", ridge=VANISHING):
        found.append((A.T @ (A @ state.W - Y)).flatten())
    found = torch.cat(found)
    claim = r"At a vanishing ridge, $A^\top (A W - Y) = 0$: least squares."
    example = rf"{SAID}, $\lambda = 10^{{-10}}$"
    return Finding(claim, found, torch.zeros_like(found), example, tolerance=1e-7)


THEOREMS = {
    theorem.__name__: theorem
    for theorem in (
        ridge_gradient_vanishes,
        factor_is_that_of_the_inverse,
        dagger_is_the_ridge_inverse,
        greville_gives_the_generalised_inverse,
        greville_weights_solve_least_squares,
    )
}
