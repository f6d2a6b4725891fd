"""The states that solvers carry from one update to the next, and their memory.

Every state has ``W`` (k, c), ``ridge`` and ``pivot`` (), the smallest pivot of its last
factorisation. ``capacity`` is None or the number of columns that were set aside. With a
capacity, an update writes into the same memory, nothing of size k is copied, and the
state that was updated must not be used any more. Without it, every state has its own
memory, at the price of a copy.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labkit.broad.factor import FLOATS, NotPositiveDefinite
from labkit.check import (
    check_finite,
    check_options,
    check_tensor,
    described,
    integer,
    number,
    optional,
)

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

    buffer: Tensor  # (room, room), F^T in its leading block: F grows by rows of it
    AY: Tensor  # (k, c) A^T Y
    W: Tensor  # (k, c)
    ridge: float
    pivot: Tensor  # ()
    capacity: int | None = None

    @property
    def F(self) -> Tensor:
        """The factor F (k, k), a view."""
        return self.buffer[: len(self.W), : len(self.W)].T


@dataclass(frozen=True)
class BorderedState:
    """Lower triangular L with L L^T = A^T A + ridge I."""

    buffer: Tensor  # (room, room), L in its leading block
    z: Tensor  # (k, c) L^-1 A^T Y
    W: Tensor  # (k, c)
    ridge: float
    pivot: Tensor  # ()
    capacity: int | None = None

    @property
    def L(self) -> Tensor:
        """The factor L (k, k), a view."""
        return self.buffer[: len(self.W), : len(self.W)]


@dataclass(frozen=True)
class DaggerState:
    """The ridge inverse A_dagger, or its approximation by Greville's update."""

    buffer: Tensor  # (room, l), A_dagger in its first rows
    W: Tensor  # (k, c)
    ridge: float
    pivot: Tensor  # ()
    capacity: int | None = None

    @property
    def A_dagger(self) -> Tensor:
        """The ridge inverse (k, l), a view."""
        return self.buffer[: len(self.W)]


State = DirectState | FactorState | BorderedState | DaggerState


def square_room(like: Tensor, k: int, capacity: int | None) -> Tensor:
    """Return zeros (room, room) with room for k columns or for the whole capacity."""
    room = k if capacity is None else check_room(k, capacity)
    return zeros(like, room, room)


def zeros(like: Tensor, *shape: int) -> Tensor:
    """Return zeros, on a CPU NumPy's, which take memory only when written to."""
    if like.device.type == "cpu":
        return torch.from_numpy(np.zeros(shape, like.detach()[:0].numpy().dtype))
    return like.new_zeros(shape)


def room_for(state: State, q: int) -> Tensor:
    """Return the state's memory with room for q more columns, or a larger copy."""
    k = len(state.W)
    if state.capacity is not None:
        check_room(k + q, state.capacity)
        return state.buffer
    width = state.buffer.shape[1]
    across = width if isinstance(state, DaggerState) else k + q
    larger = state.buffer.new_zeros(k + q, across)
    larger[:k, :width] = state.buffer
    return larger


def check_room(columns: int, capacity: int) -> int:
    """Return the capacity, or raise a ValueError if the columns exceed it."""
    if columns > capacity:
        raise ValueError(f"{columns} columns exceed the capacity of {capacity}")
    return capacity


RIDGE = number("> 0 and at most 1e18", lambda v: 0 < v <= 1e18)  # torch's integers


def check_start(
    A: Tensor, Y: Tensor, ridge: float, capacity: int | None = None
) -> None:
    """Raise an error if no solver can start from these arguments."""
    check_tensor("A", A, dtype=FLOATS, graph=False)
    check_tensor("Y", Y, like=A, graph=False)
    if A.ndim != 2 or Y.ndim != 2 or len(A) != len(Y):
        raise ValueError(
            f"A (l, k) and Y (l, c) must have the same rows, got shapes "
            f"{tuple(A.shape)} and {tuple(Y.shape)}"
        )
    if not A.numel() or not Y.numel():
        raise ValueError(
            f"A and Y must have a row and a column or more, got shapes "
            f"{tuple(A.shape)} and {tuple(Y.shape)}"
        )
    check_finite("Y", Y)
    check_options({"ridge": ridge}, {"ridge": RIDGE})
    check_options({"capacity": capacity}, {"capacity": optional(integer(1, MOST))})


def check_update(state: State, A: Tensor, H: Tensor, Y: Tensor, kind: type) -> None:
    """Raise an error if an update does not fit its state; torch might broadcast it."""
    if not isinstance(state, kind):
        raise TypeError(
            f"this solver needs a state {kind.__name__}, as its start returns, got "
            f"{described(state)}"
        )
    for name, value in {"A": A, "H": H, "Y": Y}.items():
        check_tensor(name, value, like=state.W, graph=False)
    k, c = state.W.shape
    l = len(Y) if Y.ndim else -1  # noqa: E741
    if (
        A.shape != (l, k)
        or Y.shape != (l, c)
        or H.ndim != 2
        or len(H) != l
        or not H.numel()
    ):
        raise ValueError(
            f"A, H, Y must be (l, {k}), (l, q), (l, {c}) as the start was, got shapes "
            f"{tuple(A.shape)}, {tuple(H.shape)}, {tuple(Y.shape)}"
        )
    check_finite("Y", Y)


def squared_norm(*blocks: Tensor, steps: int = 5) -> Tensor:
    """Estimate |[A, H, ...]|_2^2 from below, by power iteration over the samples.

    Blocks are (l, k_i); the cost is 4 l k (steps + 1) operations.
    """
    u = sum(block.sum(1) for block in blocks)
    for _ in range(steps):
        u = u / torch.linalg.vector_norm(u)
        u = sum(block @ (block.T @ u) for block in blocks)
    return torch.linalg.vector_norm(u)


def largest_eigenvalue(S: Tensor, steps: int = 5) -> Tensor:
    """Estimate |S|_2 of a Gram matrix S (q, q) from below, by power iteration."""
    u = S.sum(1)
    for _ in range(steps):
        u = S @ (u / torch.linalg.vector_norm(u))
    return torch.linalg.vector_norm(u)


def safe_ridge(norm: Tensor) -> float:
    """Return the smallest ridge that keeps the pivots: 10 eps |A|^2; norm is |A|^2.

    The factor was measured for columns that are numerically dependent; many updates
    need more, and a well-conditioned A needs less.
    """
    return 10 * torch.finfo(norm.dtype).eps * float(norm)


@contextmanager
def naming_safe_ridge(norm: Callable, *blocks: Tensor) -> Iterator[None]:
    """Add to the error of a lost pivot the ridge that is safe for the columns.

    ``norm(*blocks)``, called only then, is their |A|^2.
    """
    try:
        yield
    except NotPositiveDefinite as lost:
        safe = safe_ridge(norm(*blocks))
        raise NotPositiveDefinite(lost.index, lost.pivot, safe) from None
