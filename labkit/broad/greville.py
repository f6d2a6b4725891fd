r"""Solvers that update a ridge inverse or follow Greville: R-Inv, Orig and Exg-E.

R-Inv and Orig differ by the one term ridge D^T D of (68), which Orig and Exg-E leave
out. Orig and Exg-E give the ridge solution only in the limit of a vanishing ridge; they
overshoot more, the better the old columns explain the new ones.

All start with ``start(A, Y, ridge, capacity=None)`` and grow with
``update(state, A, H, Y)``, where A is the input before the update.

Parameters
----------
A, H, Y : (l, k), (l, q), (l, c) tensors, $A$, $H$, $Y$: input, new columns, labels
A_dagger : (k, l) tensor, $A^\dagger$, the ridge inverse (7); a step updates it in place
B : (q, l) tensor, $B$, its new rows, in the memory below it: at first C^T
C, D : (l, q), (k, q) tensors, $C$, $D$: H - A D and A_dagger H
F, G, T : (k, k), (q, q), (k, q) tensors, $F$, $G$, $T$; ``out`` receives T
AY, HY : (k, c), (q, c) tensors, $A^T Y$, $H^T Y$
W : (k, c) tensor, $W$; a step returns that of k + q nodes
ridge : float, $\lambda$
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from labkit.broad.factor import Blocks, check_factored, cholesky, inverse_cholesky_
from labkit.broad.ridge import grown, room_of_T, with_ridge
from labkit.broad.state import (
    DaggerState,
    FactorState,
    check_room,
    check_start,
    check_update,
    naming_safe_ridge,
    room_for,
    squared_norm,
    zeros,
)
from labkit.broad.triangular import gram, mm, mm_upper, spans, upper_mm, upper_t_mm


def dagger_start(
    A: Tensor, Y: Tensor, ridge: float, capacity: int | None = None
) -> DaggerState:
    r"""Compute the ridge inverse and the ridge solution (Algorithms 2 and 9).

    (7) $A^\dagger = (A^T A + \lambda I)^{-1} A^T$    (6) $W = A^\dagger Y$

    For Orig they replace (8) and (2), the generalised inverse as a limit.
    """
    check_start(A, Y, ridge, capacity)
    k = A.shape[1]
    room = k if capacity is None else check_room(k, capacity)
    buffer = zeros(A, room, len(A))  # all finite, as a saved state has to be
    with naming_safe_ridge(squared_norm, A):
        L = cholesky(with_ridge(gram(A), ridge))
    A_dagger = buffer[:k]
    A_dagger.copy_(A.T)
    solve_(L, A_dagger)  # (7)
    W = mm(A_dagger, Y)  # (6)
    return DaggerState(buffer, W, ridge, L.diagonal().amin().square(), capacity)


def r_inv_update(state: DaggerState, A: Tensor, H: Tensor, Y: Tensor) -> DaggerState:
    """Add the columns H (l, q); see :func:`r_inv_step`."""
    return _dagger_update(r_inv_step, state, A, H, Y)


def r_inv_step(
    A_dagger: Tensor,
    B: Tensor,
    W: Tensor,
    A: Tensor,
    H: Tensor,
    Y: Tensor,
    ridge: float,
) -> tuple[Tensor, Tensor]:
    r"""Perform one update of R-Inv (Algorithm 10); return W and the smallest pivot ().

    (67) $D = A^\dagger H$    (52) $C = H - A D$
    (68) $B = (C^T C + \lambda (D^T D + I))^{-1} C^T$
    (64) $A^\dagger \leftarrow [A^\dagger - D B; B]$
    (66) $W \leftarrow [W - D B Y; B Y]$

    The cost is 3 l q (2 k + q) + k q^2 operations.
    """
    D = mm(A_dagger, H)  # (67)
    torch.addmm(H.T, D.T, A.T, alpha=-1, out=B)  # (52), transposed
    K = with_ridge(gram(B.T).add_(gram(D), alpha=ridge), ridge)  # (68)
    L = cholesky(K, offset=len(D))  # (68)
    solve_(L, B)  # (68)
    A_dagger.addmm_(D, B, alpha=-1)  # (64)
    BY = mm(B, Y)  # (66)
    W = torch.cat([W - D @ BY, BY])  # (66)
    return W, L.diagonal().amin().square()


def orig_update(state: DaggerState, A: Tensor, H: Tensor, Y: Tensor) -> DaggerState:
    """Add the columns H (l, q); see :func:`orig_step`."""
    return _dagger_update(orig_step, state, A, H, Y)


def orig_step(
    A_dagger: Tensor,
    B: Tensor,
    W: Tensor,
    A: Tensor,
    H: Tensor,
    Y: Tensor,
    ridge: float,
    tolerance: float = 0.0,
) -> tuple[Tensor, Tensor]:
    r"""Perform one update of the original BLS (Algorithm 3), Greville's recursion.

    (23) $D = A^+ H$    (22) $C = H - A D$
    (21a) $B = (C^T C + \lambda I)^{-1} C^T$ where $C \ne 0$
    (21b) $B = (I + D^T D)^{-1} D^T A^+$ where $C = 0$
    (20) $A^+ \leftarrow [A^+ - D B; B]$    (24) $W \leftarrow [W - D B Y; B Y]$

    Arguments and results are those of :func:`r_inv_step`. In (21a) the generalised
    inverse of C is approximated by the ridge inverse, as in the paper's footnote. C
    counts as 0 if its largest entry is at most ``tolerance``, which in floating point
    never happens at 0. The cost is 3 l q (2 k + q) operations.

    Parameters
    ----------
    A_dagger : (k, l) tensor, $A^+$
    """
    D = mm(A_dagger, H)  # (23)
    torch.addmm(H.T, D.T, A.T, alpha=-1, out=B)  # (22), transposed
    K = with_ridge(gram(B.T), ridge)  # (21a)
    L, info = torch.linalg.cholesky_ex(K)  # (21a)
    vanished = torch.linalg.vector_norm(B, float("inf")) <= tolerance
    if vanished | (info > 0):  # the host waits here, before A^+ changes
        if not vanished:
            check_factored([(K, info)], offset=len(D))
        L = cholesky(with_ridge(gram(D), 1.0), offset=len(D))  # (21b)
        torch.mm(D.T, A_dagger, out=B)  # (21b)
    solve_(L, B)  # (21a), (21b)
    A_dagger.addmm_(D, B, alpha=-1)  # (20)
    BY = mm(B, Y)  # (24)
    W = torch.cat([W - D @ BY, BY])  # (24)
    return W, L.diagonal().amin().square()


def _dagger_update(
    step: Callable, state: DaggerState, A: Tensor, H: Tensor, Y: Tensor
) -> DaggerState:
    check_update(state, A, H, Y, DaggerState)
    k, q = A.shape[1], H.shape[1]
    buffer = room_for(state, q)
    with naming_safe_ridge(squared_norm, A, H):
        W, pivot = step(buffer[:k], buffer[k : k + q], state.W, A, H, Y, state.ridge)
    return DaggerState(buffer, W, state.ridge, pivot, state.capacity)


def exg_e_update(state: FactorState, A: Tensor, H: Tensor, Y: Tensor) -> FactorState:
    """Add the columns H (l, q); see :func:`exg_e_step`."""
    check_update(state, A, H, Y, FactorState)
    buffer, out = room_of_T(state, A.shape[1], H.shape[1])
    F, AY, W, HY = state.F, state.AY, state.W, mm(H.T, Y)
    with naming_safe_ridge(squared_norm, A, H):
        T, G, W, blocks = exg_e_step(F, AY, W, A, H, HY, state.ridge, out)
        check_factored(blocks, offset=len(F))
    return grown(state, buffer, T, G, torch.cat([AY, HY]), W)


def exg_e_step(
    F: Tensor,
    AY: Tensor,
    W: Tensor,
    A: Tensor,
    H: Tensor,
    HY: Tensor,
    ridge: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Blocks]:
    r"""Perform one update of the existing efficient BLS (Algorithm 5), Orig by factors.

    (30) $D = F F^T A^T H$    (22) $C = H - A D$
    (32a) $G = (C^T C + \lambda I)^{-1/2}$, upper    (32b) $T = -D G$
    (33) $E = T^T (A^T Y) + G^T (H^T Y)$, $W \leftarrow [W + T E; G E]$

    It returns T, G, W and the blocks for `check_factored`. The cost is l q (4 k + q) +
    2 k^2 q + k q^2 + 2/3 q^3 operations and l q numbers for C.
    """
    D = upper_mm(F, upper_t_mm(F, mm(A.T, H)))  # (30)
    C = torch.addmm(H.T, D.T, A.T, alpha=-1).T  # (22)
    G, blocks = inverse_cholesky_(with_ridge(gram(C), ridge))  # (32a)
    T = torch.neg(mm_upper(D, G), out=out)  # (32b)
    E = T.T @ AY + G.T @ HY  # (33)
    W = torch.cat([W + T @ E, G @ E])  # (33)
    return T, G, W, blocks


def exg_e_update_from(
    state: FactorState, passes: Callable[[], Iterable[tuple[Tensor, Tensor, Tensor]]]
) -> FactorState:
    r"""Perform :func:`exg_e_update` without columns in memory, by two passes.

    It is :func:`exg_e_step` with A^T H and then C^T C summed over chunks i of samples:

    (30) $D = F F^T \sum_i A_i^T H_i$    (22) $K = \sum_i C_i^T C_i$ of $C = H - A D$
    (32a) $G = (K + \lambda I)^{-1/2}$, upper    (32b) $T = -D G$
    (33) $E = T^T (A^T Y) + G^T (H^T Y)$, $W \leftarrow [W + T E; G E]$

    The cost is that of :func:`exg_e_step`, and the columns are made twice.

    Parameters
    ----------
    passes : callable, without arguments
        Gives chunks (A, H, Y) of the samples, (l_i, k), (l_i, q) and (l_i, c), the same
        at every call.
    """
    F, AY, W = state.F, state.AY, state.W
    P = HY = 0
    for A, H, Y in passes():
        P, HY = P + mm(A.T, H), HY + mm(H.T, Y)
    buffer, out = room_of_T(state, *P.shape)
    D = upper_mm(F, upper_t_mm(F, P))  # (30)
    K = P.new_zeros(P.shape[1], P.shape[1])
    for A, H, _ in passes():
        K += gram(torch.addmm(H.T, D.T, A.T, alpha=-1).T)  # (22)
    G, blocks = inverse_cholesky_(with_ridge(K, state.ridge))  # (32a)
    check_factored(blocks, offset=len(F))
    T = torch.neg(mm_upper(D, G), out=out)  # (32b)
    E = T.T @ AY + G.T @ HY  # (33)
    W = torch.cat([W + T @ E, G @ E])  # (33)
    return grown(state, buffer, T, G, torch.cat([AY, HY]), W)


def solve_(L: Tensor, B: Tensor) -> None:
    """Compute (L L^T)^-1 B in place for wide B (q, l), by block rows; 2 l q^2."""
    blocks = list(spans(len(L), L.device))
    for i, j in blocks:
        B[i:j] = torch.linalg.solve_triangular(L[i:j, i:j], B[i:j], upper=False)
        B[j:].addmm_(L[j:, i:j], B[i:j], alpha=-1)
    for i, j in reversed(blocks):
        B[i:j] = torch.linalg.solve_triangular(L[i:j, i:j].T, B[i:j], upper=True)
        B[:i].addmm_(L[i:j, :i].T, B[i:j], alpha=-1)
