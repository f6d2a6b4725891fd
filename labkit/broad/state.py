"""The states that solvers carry from one update to the next, and their checks.

Every state has ``W`` (k, c), ``ridge`` and ``pivot`` (), the smallest pivot of its last
factorisation. An update returns a new state and leaves the old one as it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.broad.factor import FLOATS, NotPositiveDefinite
from labkit.check import check_finite, check_options, check_tensor, described, number

MOST = 10**6  # columns: R would have 8 TB


@dataclass(frozen=True)
class DirectState:
    """The state of D-Rdg, the solver that keeps no intermediate result."""

    AY: Tensor  # (k, c) A^T Y
    W: Tensor  # (k, c)
    ridge: float
    pivot: Tensor  # ()


@dataclass(frozen=True)
class FactorState:
    """Upper triangular F with F F^T = (A^T A + ridge I)^-1, or an approximation."""

    F: Tensor  # (k, k)
    AY: Tensor  # (k, c) A^T Y
    W: Tensor  # (k, c)
    ridge: float
    pivot: Tensor  # ()


@dataclass(frozen=True)
class BorderedState:
    """Lower triangular L with L L^T = A^T A + ridge I."""

    L: Tensor  # (k, k)
    z: Tensor  # (k, c) L^-1 A^T Y
    W: Tensor  # (k, c)
    ridge: float
    pivot: Tensor  # ()


@dataclass(frozen=True)
class DaggerState:
    """The ridge inverse A_dagger, or its approximation by Greville's update."""

    A_dagger: Tensor  # (k, l)
    W: Tensor  # (k, c)
    ridge: float
    pivot: Tensor  # ()


State = DirectState | FactorState | BorderedState | DaggerState
RIDGE = number("> 0 and at most 1e18", lambda v: 0 < v <= 1e18)  # torch's integers


def check_start(A: Tensor, Y: Tensor, ridge: float) -> None:
    """Raise an error if no solver can start from these arguments."""
    check_tensor("A", A, dtype=FLOATS, shape=("l", "k"), graph=False)
    check_tensor("Y", Y, like=A, shape=(len(A), "c"), graph=False)
    if not A.numel() or not Y.numel():
        raise ValueError(
            f"A and Y must have a row and a column or more, got shapes "
            f"{tuple(A.shape)} and {tuple(Y.shape)}"
        )
    check_finite("Y", Y)
    check_options({"ridge": ridge}, {"ridge": RIDGE})


def check_update(state: State, A: Tensor, H: Tensor, Y: Tensor, kind: type) -> None:
    """Raise an error if an update does not fit its state; torch might broadcast it."""
    if not isinstance(state, kind):
        raise TypeError(
            f"this solver needs a state {kind.__name__}, as its start returns, got "
            f"{described(state)}"
        )
    (k, c), W = state.W.shape, state.W
    check_tensor("Y", Y, like=W, shape=("l", c), graph=False)
    check_tensor("A", A, like=W, shape=(len(Y), k), graph=False)
    check_tensor("H", H, like=W, shape=(len(Y), "q"), graph=False)
    if not H.numel():
        raise ValueError(f"H must have a column or more, got shape {tuple(H.shape)}")
    check_finite("Y", Y)


def squared_norm(*blocks: Tensor, steps: int = 5) -> Tensor:
    """Estimate |[A, H, ...]|_2^2 from below, by power iteration over the samples.

    Blocks are (l, k_i); the cost is 4 l k (steps + 1) operations.
    """
    # Weighted by their place, since rows that are centred sum to 0.
    u = sum(block @ block.new_ones(block.shape[1]).cumsum(0) for block in blocks)
    for _ in range(steps):
        u = u / torch.linalg.vector_norm(u)
        u = sum(block @ (block.T @ u) for block in blocks)
    return torch.linalg.vector_norm(u)


def safe_ridge(norm: Tensor) -> float:
    """Return the smallest ridge that keeps the pivots: 10 eps |A|^2; norm is |A|^2.

    The factor was measured for columns that are numerically dependent; many updates
    need more, and a well-conditioned A needs less.
    """
    return 10 * torch.finfo(norm.dtype).eps * float(norm)


@contextmanager
def naming_safe_ridge(*blocks: Tensor) -> Iterator[None]:
    """Add to the error of a lost pivot the ridge that is safe for the columns."""
    try:
        yield
    except NotPositiveDefinite as lost:
        safe = safe_ridge(squared_norm(*blocks))
        raise NotPositiveDefinite(lost.index, lost.pivot, safe) from None
