"""Broad learning that keeps no column: Chol-1, Chol-2 and Exg-E from sums over images.

The columns are made again, for a few images at a time, wherever they are read, and the
factor is extended in memory for all of its columns that is set aside once. The
equations are those of :mod:`labkit.broad.ridge` and :mod:`labkit.broad.greville`.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labkit.broad.factor import inverse_cholesky_
from labkit.broad.nodes import Nodes
from labkit.broad.ridge import with_ridge
from labkit.broad.triangular import gram, mm, mm_upper, upper_mm, upper_t_mm

Rows = Iterable[tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Streamed:
    """Upper triangular F with F F^T = (A^T A + ridge I)^-1, in room for all columns."""

    buffer: Tensor  # (room, room), F^T in its leading block
    AY: Tensor  # (k, c) A^T Y
    W: Tensor  # (k, c)
    ridge: float

    @property
    def F(self) -> Tensor:
        """The factor F (k, k), a view."""
        return self.buffer[: len(self.W), : len(self.W)].T


def chunks(
    nodes: Nodes,
    k: int,
    Z: Tensor,
    Y: Tensor,
    rows: int,
    making: AbstractContextManager,
) -> Rows:
    """Yield, by rows, the first k columns, the later ones, and Y."""
    old, new = nodes.between(0, k), nodes.between(k, nodes.columns)
    for z, y in zip(Z.split(rows), Y.split(rows), strict=True):
        with making:
            A, H = old.expand(z), new.expand(z)
        yield A, H, y


def sums_over(rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Return P = A^T H, H^T H and H^T Y of one pass; A may have no columns."""
    rows = iter(rows)
    A, H, Y = next(rows)
    P, S, HY = mm(A.T, H), gram(H), mm(H.T, Y)
    for A, H, Y in rows:
        P.T.addmm_(H.T, A)
        S += gram(H)
        HY.T.addmm_(Y.T, H)
    return P, S, HY


def start(rows: Rows, ridge: float, room: int) -> Streamed:
    """Start as :func:`labkit.broad.ridge.chol1_start` does, in one pass."""
    _, S, HY = sums_over(rows)
    # NumPy takes the memory of zeros when it is written to
    k, buffer = len(S), torch.from_numpy(np.zeros((room, room)))
    F = buffer[:k, :k].T.copy_(inverse_cholesky_(with_ridge(S, ridge)))  # (34)
    W = upper_mm(F, upper_t_mm(F, HY))  # (49)
    return Streamed(buffer, HY, W, ridge)


def chol1_update(state: Streamed, passes: Callable[[], Rows]) -> Streamed:
    """Update as :func:`labkit.broad.ridge.chol1_update` does, in one pass."""
    P, S, HY = sums_over(passes())
    V = upper_t_mm(state.F, P)  # (a)
    S = with_ridge(S, state.ridge) - gram(V)
    G = inverse_cholesky_(S, offset=len(V))  # (42a)
    T = upper_mm(state.F, mm_upper(V, G).neg_())  # (42b)
    E = T.T @ state.AY + G.T @ HY  # (50)
    return grown(state, T, G, HY, E)


def chol2_update(state: Streamed, passes: Callable[[], Rows]) -> Streamed:
    """Update as :func:`labkit.broad.ridge.chol2_update` does, in two passes."""
    D, HY, CC, CY = residual_sums(state, passes)
    S = with_ridge(CC.add_(gram(D), alpha=state.ridge), state.ridge)  # (57)
    G = inverse_cholesky_(S, offset=len(D))  # (57)
    T = mm_upper(D, G).neg_()  # (59)
    return grown(state, T, G, HY, G.T @ CY)  # (61)


def exg_e_update(state: Streamed, passes: Callable[[], Rows]) -> Streamed:
    """Update as :func:`labkit.broad.greville.exg_e_update` does, in two passes."""
    D, HY, CC, _ = residual_sums(state, passes)
    G = inverse_cholesky_(with_ridge(CC, state.ridge), offset=len(D))  # (32a)
    T = mm_upper(D, G).neg_()  # (32b)
    E = T.T @ state.AY + G.T @ HY  # (33)
    return grown(state, T, G, HY, E)


UPDATES = {"chol-1": chol1_update, "chol-2": chol2_update, "exg-e": exg_e_update}


def residual_sums(
    state: Streamed, passes: Callable[[], Rows]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return D and H^T Y of one pass, and C^T C and C^T Y of C = H - A D of another."""
    F, P, HY, CY = state.F, 0, 0, 0
    for A, H, Y in passes():
        P, HY = P + mm(A.T, H), HY + mm(H.T, Y)
    D = upper_mm(F, upper_t_mm(F, P))  # (51), (30)
    CC = D.new_zeros(D.shape[1], D.shape[1])
    for A, H, Y in passes():
        C = torch.addmm(H.T, D.T, A.T, alpha=-1).T  # (52), (22)
        CC += gram(C)
        CY = CY + mm(C.T, Y)
    return D, HY, CC, CY


def grown(state: Streamed, T: Tensor, G: Tensor, HY: Tensor, E: Tensor) -> Streamed:
    """Return the state with F extended by T and G, in the same memory."""
    k, AY = len(T), torch.cat([state.AY, HY])
    W = torch.cat([state.W + T @ E, G @ E])  # (50), (61), (33)
    state.buffer[k : len(W), :k] = T.T  # (41)
    state.buffer[k : len(W), k : len(W)] = G.T  # (41)
    return Streamed(state.buffer, AY, W, state.ridge)
