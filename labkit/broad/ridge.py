r"""The ridge solvers of Zhu's paper by factors (D-Rdg, Chol-1, Chol-2), and bordered.

All start with ``start(A, Y, ridge, capacity=None)`` and grow with
``update(state, A, H, Y)``, where A is the input before the update. R = A^T A + ridge I
(35), and its new blocks are P and S (40).

Parameters
----------
A, H, Y : (l, k), (l, q), (l, c) tensors, $A$, $H$, $Y$: input, new columns, labels
F : (k, k) tensor, $F$, upper triangular with F F^T = R^-1 (34)
AY, HY : (k, c), (q, c) tensors, $A^T Y$, $H^T Y$
P : (k, q) tensor, $P$ = A^T H
S : (q, q) tensor, $S$ = H^T H + ridge I
ridge : float, $\lambda$
W : (k, c) tensor, $W$; a step returns that of k + q nodes
T, G : (k, q), (q, q) tensors, $T$, $G$, the new columns of F; ``out`` receives T
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.broad.factor import Blocks, check_factored, cholesky, inverse_cholesky_
from labkit.broad.state import (
    BorderedState,
    DirectState,
    FactorState,
    check_start,
    check_update,
    naming_safe_ridge,
    room_for,
    square_room,
    squared_norm,
)
from labkit.broad.triangular import (
    gram,
    lower_solve,
    lower_t_solve,
    mm,
    mm_upper,
    upper_mm,
    upper_t_mm,
)


def with_ridge(S: Tensor, ridge: float) -> Tensor:
    """Add the ridge to the diagonal of S in place, and return S."""
    S.diagonal().add_(ridge)
    return S


def smallest_pivot(G: Tensor) -> Tensor:
    """Return the smallest pivot of the factorisation that gave inverse factor G."""
    return G.diagonal().amax().square().reciprocal()


# D-Rdg


def direct_start(
    A: Tensor, Y: Tensor, ridge: float, capacity: int | None = None
) -> DirectState:
    r"""Compute the ridge solution from scratch; the ``capacity`` has no effect.

    (35) $R = A^T A + \lambda I$    (6) $W = R^{-1} A^T Y$

    The paper inverts R (7); a Cholesky solve is a more accurate reference.
    """
    check_start(A, Y, ridge, capacity)
    return _direct(gram(A), mm(A.T, Y), ridge, A)


def direct_update(state: DirectState, A: Tensor, H: Tensor, Y: Tensor) -> DirectState:
    r"""Compute the ridge solution of [A | H] from scratch, without joining the two.

    (35) $R = [A | H]^T [A | H] + \lambda I$    (6) $W = R^{-1} [A | H]^T Y$
    """
    check_update(state, A, H, Y, DirectState)
    R = torch.cat([gram(A), mm(A.T, H)], 1)
    R = torch.cat([R, torch.cat([R[:, A.shape[1] :].T, gram(H)], 1)])
    return _direct(R, torch.cat([state.AY, H.T @ Y]), state.ridge, A, H)


def _direct(R: Tensor, AY: Tensor, ridge: float, *blocks) -> DirectState:
    with naming_safe_ridge(squared_norm, *blocks):
        L = cholesky(with_ridge(R, ridge))  # (35)
    W = torch.cholesky_solve(AY, L)  # (6)
    return DirectState(AY, W, ridge, L.diagonal().amin().square())


# Chol-1


class Sums(NamedTuple):
    """The sums over the samples that Chol-1 needs."""

    P: Tensor | None  # (k, q) A^T H; not used at the start
    S: Tensor  # (q, q) H^T H, without the ridge
    HY: Tensor  # (q, c) H^T Y


def sums_over(chunks: Iterable[tuple[Tensor, Tensor, Tensor]]) -> Sums:
    """Compute the sums in one pass over chunks (A, H, Y); A may have no columns."""
    chunks = iter(chunks)
    A, H, Y = next(chunks)
    total = Sums(mm(A.T, H), gram(H), mm(H.T, Y))
    for A, H, Y in chunks:
        total.P.T.addmm_(H.T, A)
        total.S.add_(gram(H))
        total.HY.T.addmm_(Y.T, H)
    return total


def chol1_start(
    A: Tensor, Y: Tensor, ridge: float, capacity: int | None = None
) -> FactorState:
    r"""Compute the inverse Cholesky factor of R and the ridge solution (Algorithm 6).

    (34) $F F^T = R^{-1}$    (49) $W = F (F^T (A^T Y))$
    """
    check_start(A, Y, ridge, capacity)
    with naming_safe_ridge(squared_norm, A):
        return chol1_start_from(Sums(None, gram(A), mm(A.T, Y)), ridge, capacity)


def chol1_start_from(
    sums: Sums, ridge: float, capacity: int | None = None
) -> FactorState:
    r"""Perform :func:`chol1_start` from sums over the samples; overwrite ``sums.S``.

    (34) $F F^T = R^{-1}$    (49) $W = F (F^T (A^T Y))$
    """
    k = len(sums.S)
    buffer = square_room(sums.S, k, capacity)
    F = buffer[:k, :k].T
    whole, blocks = inverse_cholesky_(with_ridge(sums.S, ridge))  # (34)
    F.copy_(whole)
    check_factored(blocks)
    W = upper_mm(F, upper_t_mm(F, sums.HY))  # (49)
    return FactorState(buffer, sums.HY, W, ridge, smallest_pivot(F), capacity)


def chol1_update(state: FactorState, A: Tensor, H: Tensor, Y: Tensor) -> FactorState:
    """Add the columns H (l, q); see :func:`chol1_step`."""
    check_update(state, A, H, Y, FactorState)
    with naming_safe_ridge(squared_norm, A, H):
        return chol1_update_from(state, Sums(mm(A.T, H), gram(H), mm(H.T, Y)))


def chol1_update_from(state: FactorState, sums: Sums) -> FactorState:
    """Perform :func:`chol1_update` from sums over samples; overwrite ``sums.S``."""
    P, S, HY = sums
    buffer, out = room_of_T(state, *P.shape)
    S = with_ridge(S, state.ridge)
    T, G, W, blocks = chol1_step(state.F, state.AY, state.W, P, S, HY, out)
    check_factored(blocks, offset=len(state.W))
    return grown(state, buffer, T, G, torch.cat([state.AY, HY]), W)


def chol1_step(
    F: Tensor,
    AY: Tensor,
    W: Tensor,
    P: Tensor,
    S: Tensor,
    HY: Tensor,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Blocks]:
    r"""Perform one update of Chol-1 (Algorithm 7).

    (a) $V = F^T P$    (42a) $G = (S - V^T V)^{-1/2}$, upper, $G G^T = (\cdot)^{-1}$
    (42b) $T = -F V G$    (41) is left to :func:`grown`
    (50) $E = T^T (A^T Y) + G^T (H^T Y)$, $W \leftarrow [W + T E; G E]$

    It returns T, G, W and the blocks for `check_factored`, which alone show whether
    rounding in (42a) has cost the Schur complement a pivot. The cost is 2 k^2 q +
    2 k q^2 + 2/3 q^3 + 4 k q c operations; the caller's P and S cost l q (2 k + q).
    """
    V = upper_t_mm(F, P)  # (a)
    G, blocks = inverse_cholesky_(S - gram(V))  # (42a)
    T = upper_mm(F, mm_upper(V, G).neg_(), out)  # (42b)
    E = T.T @ AY + G.T @ HY  # (50)
    W = torch.cat([W + T @ E, G @ E])  # (50)
    return T, G, W, blocks


# Chol-2


def chol2_update(state: FactorState, A: Tensor, H: Tensor, Y: Tensor) -> FactorState:
    """Add the columns H (l, q); see :func:`chol2_step`."""
    check_update(state, A, H, Y, FactorState)
    buffer, out = room_of_T(state, A.shape[1], H.shape[1])
    with naming_safe_ridge(squared_norm, A, H):
        T, G, W, blocks = chol2_step(state.F, state.W, A, H, Y, state.ridge, out)
        check_factored(blocks, offset=len(state.W))
    return grown(state, buffer, T, G, torch.cat([state.AY, H.T @ Y]), W)


def chol2_step(
    F: Tensor,
    W: Tensor,
    A: Tensor,
    H: Tensor,
    Y: Tensor,
    ridge: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Blocks]:
    r"""Perform one update of Chol-2 (Algorithm 8), with a sum of positive terms.

    (51) $D = F F^T A^T H$    (52) $C = H - A D$
    (57) $G = (C^T C + \lambda (D^T D + I))^{-1/2}$, upper    (59) $T = -D G$
    (61) $E = G^T (C^T Y)$, $W \leftarrow [W + T E; G E]$

    The matrix of (57), a form of the Schur complement, is the ridge objective at the
    computed D, and D minimises it: an error in D enters squared and can only enlarge
    the matrix, so that pivots are not lost.

    It returns T, G, W and the blocks for `check_factored`. The cost is l q (4 k + q) +
    2 k^2 q + 2 k q^2 + 2/3 q^3 operations and l q numbers for C.
    """
    D = upper_mm(F, upper_t_mm(F, mm(A.T, H)))  # (51)
    C = torch.addmm(H.T, D.T, A.T, alpha=-1).T  # (52)
    S = with_ridge(gram(C).add_(gram(D), alpha=ridge), ridge)  # (57)
    G, blocks = inverse_cholesky_(S)  # (57)
    T = torch.neg(mm_upper(D, G), out=out)  # (59)
    E = G.T @ mm(C.T, Y)  # (61)
    W = torch.cat([W + T @ E, G @ E])  # (61)
    return T, G, W, blocks


def chol2_update_from(
    state: FactorState,
    passes: Callable[[], Iterable[tuple[Tensor, Tensor, Tensor]]],
) -> FactorState:
    r"""Perform :func:`chol2_update` without columns in memory, by two passes.

    It is :func:`chol2_step` with A^T H and then C^T C and C^T Y summed over chunks i:

    (51) $D = F F^T \sum_i A_i^T H_i$    (52) $K = \sum_i C_i^T C_i$ of $C = H - A D$
    (57) $G = (K + \lambda (D^T D + I))^{-1/2}$, upper    (59) $T = -D G$
    (61) $E = G^T \sum_i C_i^T Y_i$, $W \leftarrow [W + T E; G E]$

    The cost is that of :func:`chol2_step`, and the columns are made twice.

    Parameters
    ----------
    passes : callable, without arguments
        Gives chunks (A, H, Y) of the samples, (l_i, k), (l_i, q) and (l_i, c), the same
        at every call.
    """
    F, W = state.F, state.W
    P = HY = CY = 0
    for A, H, Y in passes():
        P, HY = P + mm(A.T, H), HY + mm(H.T, Y)
    buffer, out = room_of_T(state, *P.shape)
    D = upper_mm(F, upper_t_mm(F, P))  # (51)
    K = P.new_zeros(P.shape[1], P.shape[1])
    for A, H, Y in passes():
        C = torch.addmm(H.T, D.T, A.T, alpha=-1).T  # (52)
        K += gram(C)  # (52)
        CY = CY + mm(C.T, Y)  # (61)
    S = with_ridge(K.add_(gram(D), alpha=state.ridge), state.ridge)  # (57)
    G, blocks = inverse_cholesky_(S)  # (57)
    check_factored(blocks, offset=len(W))
    T = torch.neg(mm_upper(D, G), out=out)  # (59)
    E = G.T @ CY  # (61)
    W = torch.cat([W + T @ E, G @ E])  # (61)
    return grown(state, buffer, T, G, torch.cat([state.AY, HY]), W)


# Bordered Cholesky, for comparison


def bordered_start(
    A: Tensor, Y: Tensor, ridge: float, capacity: int | None = None
) -> BorderedState:
    r"""Compute the Cholesky factor of R, and W by triangular solves; not in the paper.

    (1) $L L^T = R$    (2) $z = L^{-1} A^T Y$    (3) $W = L^{-T} z$
    """
    check_start(A, Y, ridge, capacity)
    k = A.shape[1]
    buffer = square_room(A, k, capacity)
    L = buffer[:k, :k]
    with naming_safe_ridge(squared_norm, A):
        L.copy_(cholesky(with_ridge(gram(A), ridge)))  # (1)
    z = lower_solve(L, mm(A.T, Y))  # (2)
    W = lower_t_solve(L, z)  # (3)
    return BorderedState(buffer, z, W, ridge, L.diagonal().amin().square(), capacity)


def bordered_update(
    state: BorderedState, A: Tensor, H: Tensor, Y: Tensor
) -> BorderedState:
    r"""Add the columns H (l, q) to the Cholesky factor; numbering ours.

    (1) $V = L^{-1} P$    (2) $L_s L_s^T = S - V^T V$    (3) $L \leftarrow [[L, 0],
    [V^T, L_s]]$    (4) $z \leftarrow [z; L_s^{-1} (H^T Y - V^T z)]$
    (5) $W = L^{-T} z$

    The cost is l q (2 k + q) + k^2 q + k q^2 + q^3 / 3 + (k + q)^2 c operations.
    """
    check_update(state, A, H, Y, BorderedState)
    k, q = A.shape[1], H.shape[1]
    buffer = room_for(state, q)
    V = lower_solve(state.L, mm(A.T, H))  # (1)
    with naming_safe_ridge(squared_norm, A, H):
        L_s = cholesky(with_ridge(gram(H), state.ridge) - gram(V), offset=k)  # (2)
    buffer[k : k + q, :k] = V.T  # (3)
    buffer[k : k + q, k : k + q] = L_s  # (3)
    z = torch.cat([state.z, lower_solve(L_s, mm(H.T, Y) - V.T @ state.z)])  # (4)
    W = lower_t_solve(buffer[: k + q, : k + q], z)  # (5)
    pivot = L_s.diagonal().amin().square()
    return BorderedState(buffer, z, W, state.ridge, pivot, state.capacity)


# Removing and adding columns


def truncated(
    state: FactorState | BorderedState, k: int
) -> FactorState | BorderedState:
    r"""Return the state of the first k columns, from the leading block of F (or L).

    (49) $W = F (F^T (A^T Y))$
    """
    buffer = state.buffer if state.capacity else state.buffer[:k, :k].clone()
    if isinstance(state, BorderedState):
        L, z = state.L[:k, :k], state.z[:k]
        W, pivot = lower_t_solve(L, z), L.diagonal().amin().square()
        return replace(state, buffer=buffer, z=z, W=W, pivot=pivot)
    F, AY = state.F[:k, :k], state.AY[:k]
    W = upper_mm(F, upper_t_mm(F, AY))  # (49)
    return replace(state, buffer=buffer, AY=AY, W=W, pivot=smallest_pivot(F))


def room_of_T(state: FactorState, k: int, q: int) -> tuple[Tensor, Tensor]:
    """Return memory with room for q more columns, and the view of it that T fills."""
    buffer = room_for(state, q)
    return buffer, buffer.T[:k, k : k + q]


def grown(
    state: FactorState, buffer: Tensor, T: Tensor, G: Tensor, AY: Tensor, W: Tensor
) -> FactorState:
    r"""Return the state with F extended by T and G; the buffer already holds T.

    (41) $F \leftarrow [[F, T], [0, G]]$
    """
    k = len(T)
    buffer[k : len(W), k : len(W)] = G.T  # (41)
    return FactorState(buffer, AY, W, state.ridge, smallest_pivot(G), state.capacity)
