r"""Solvers that update a ridge inverse or follow Greville: R-Inv, Orig and Exg-E.

R-Inv and Orig differ by the one term ridge D^T D of (68), which Orig and Exg-E leave
out. Orig and Exg-E give the ridge solution only in the limit of a vanishing ridge; they
overshoot more, the better the old columns explain the new ones.

All start with ``start(A, Y, ridge)`` and grow with ``update(state, A, H, Y)``, where A
is the input before the update. Arguments are checked by :data:`labkit.broad.SOLVERS`,
not here.

Parameters
----------
A, H, Y : (l, k), (l, q), (l, c) tensors, $A$, $H$, $Y$: input, new columns, labels
A_dagger : (k, l) tensor, $A^\dagger$, the ridge inverse (7)
B : (q, l) tensor, $B$, its new rows
C, D : (l, q), (k, q) tensors, $C$, $D$: H - A D and A_dagger H
F, G, T : (k, k), (q, q), (k, q) tensors, $F$, $G$, $T$
AY, HY : (k, c), (q, c) tensors, $A^T Y$, $H^T Y$
W : (k, c) tensor, $W$; an update returns that of k + q nodes
ridge : float, $\lambda$
"""

from dataclasses import replace

import torch
from torch import Tensor

from labkit.broad.factor import (
    bordered,
    cholesky,
    inverse_cholesky_,
)
from labkit.broad.ridge import smallest_pivot, with_ridge
from labkit.broad.state import DaggerState, FactorState
from labkit.broad.triangular import gram, mm, mm_upper, spans, upper_mm, upper_t_mm


def dagger_start(A: Tensor, Y: Tensor, ridge: float) -> DaggerState:
    r"""Compute the ridge inverse and the ridge solution (Algorithms 2 and 9).

    (7) $A^\dagger = (A^T A + \lambda I)^{-1} A^T$    (6) $W = A^\dagger Y$

    For Orig they replace (8) and (2), the generalised inverse as a limit.
    """
    L = cholesky(with_ridge(gram(A), ridge))
    A_dagger = solved(L, A.T)  # (7)
    W = mm(A_dagger, Y)  # (6)
    return DaggerState(A_dagger, W, ridge, L.diagonal().amin().square())


def r_inv_update(state: DaggerState, A: Tensor, H: Tensor, Y: Tensor) -> DaggerState:
    r"""Add the columns H by R-Inv (Algorithm 10).

    (67) $D = A^\dagger H$    (52) $C = H - A D$
    (68) $B = (C^T C + \lambda (D^T D + I))^{-1} C^T$
    (64) $A^\dagger \leftarrow [A^\dagger - D B; B]$
    (66) $W \leftarrow [W - D B Y; B Y]$

    The cost is 3 l q (2 k + q) + k q^2 operations.
    """
    A_dagger, W, ridge = state.A_dagger, state.W, state.ridge
    D = mm(A_dagger, H)  # (67)
    C = torch.addmm(H.T, D.T, A.T, alpha=-1).T  # (52)
    K = with_ridge(gram(C).add_(gram(D), alpha=ridge), ridge)  # (68)
    L = cholesky(K, offset=len(D))  # (68)
    B = solved(L, C.T)  # (68)
    A_dagger = torch.cat([torch.addmm(A_dagger, D, B, alpha=-1), B])  # (64)
    BY = mm(B, Y)  # (66)
    W = torch.cat([W - D @ BY, BY])  # (66)
    return DaggerState(A_dagger, W, ridge, L.diagonal().amin().square())


def r_inv_69_update(state: DaggerState, A: Tensor, H: Tensor, Y: Tensor) -> DaggerState:
    r"""Add the columns H by R-Inv with (69) in place of (68), which is equal on paper.

    (69) $B = (H^T C + \lambda I)^{-1} C^T$

    In floating point $H^T C$ need not be symmetric or positive, so that no solver has
    it: it is here to be compared. $H^T C$ costs l q^2 operations more than $C^T C$,
    and $D^T D$ is spared, k q^2.
    """
    D = mm(state.A_dagger, H)  # (67)
    C = torch.addmm(H.T, D.T, A.T, alpha=-1).T  # (52)
    L = cholesky(with_ridge(mm(H.T, C), state.ridge), offset=len(D))  # (69)
    B = solved(L, C.T)  # (69)
    A_dagger = torch.cat([state.A_dagger - D @ B, B])  # (64)
    return replace(state, A_dagger=A_dagger, W=A_dagger @ Y)  # (6)


def orig_update(state: DaggerState, A: Tensor, H: Tensor, Y: Tensor) -> DaggerState:
    r"""Add the columns H as the original BLS does (Algorithm 3): Greville's recursion.

    (23) $D = A^+ H$    (22) $C = H - A D$
    (21a) $B = (C^T C + \lambda I)^{-1} C^T$ where $C \ne 0$
    (21b) $B = (I + D^T D)^{-1} D^T A^+$ where $C = 0$
    (20) $A^+ \leftarrow [A^+ - D B; B]$    (24) $W \leftarrow [W - D B Y; B Y]$

    In (21a) the generalised inverse of C is approximated by the ridge inverse, as in
    the paper's footnote. In floating point C is hardly ever 0. The cost is
    3 l q (2 k + q) operations.

    Parameters
    ----------
    A_dagger : (k, l) tensor, $A^+$
    """
    A_dagger, W, ridge = state.A_dagger, state.W, state.ridge
    D = mm(A_dagger, H)  # (23)
    C = torch.addmm(H.T, D.T, A.T, alpha=-1).T  # (22)
    if C.any():
        L = cholesky(with_ridge(gram(C), ridge), offset=len(D))  # (21a)
        B = solved(L, C.T)  # (21a)
    else:
        L = cholesky(with_ridge(gram(D), 1.0), offset=len(D))  # (21b)
        B = solved(L, D.T @ A_dagger)  # (21b)
    A_dagger = torch.cat([torch.addmm(A_dagger, D, B, alpha=-1), B])  # (20)
    BY = mm(B, Y)  # (24)
    W = torch.cat([W - D @ BY, BY])  # (24)
    return DaggerState(A_dagger, W, ridge, L.diagonal().amin().square())


def exg_e_update(state: FactorState, A: Tensor, H: Tensor, Y: Tensor) -> FactorState:
    r"""Add the columns H by the existing efficient BLS (Algorithm 5): Orig by factors.

    (30) $D = F F^T A^T H$    (22) $C = H - A D$
    (32a) $G = (C^T C + \lambda I)^{-1/2}$, upper    (32b) $T = -D G$
    (41) $F \leftarrow [[F, T], [0, G]]$
    (33) $E = T^T (A^T Y) + G^T (H^T Y)$, $W \leftarrow [W + T E; G E]$

    The cost is l q (4 k + q) + 2 k^2 q + k q^2 + 2/3 q^3 operations and l q numbers
    for C.
    """
    F, AY, W, HY = state.F, state.AY, state.W, mm(H.T, Y)
    D = upper_mm(F, upper_t_mm(F, mm(A.T, H)))  # (30)
    C = torch.addmm(H.T, D.T, A.T, alpha=-1).T  # (22)
    G = inverse_cholesky_(with_ridge(gram(C), state.ridge), offset=len(F))  # (32a)
    T = mm_upper(D, G).neg_()  # (32b)
    F = bordered(F, T, G)  # (41)
    E = T.T @ AY + G.T @ HY  # (33)
    W = torch.cat([W + T @ E, G @ E])  # (33)
    return FactorState(F, torch.cat([AY, HY]), W, state.ridge, smallest_pivot(G))


def solved(L: Tensor, B: Tensor) -> Tensor:
    """Compute (L L^T)^-1 B for wide B (q, l), by block rows; 2 l q^2 operations."""
    B = B.clone(memory_format=torch.contiguous_format)
    blocks = list(spans(len(L), L.device))
    for i, j in blocks:
        B[i:j] = torch.linalg.solve_triangular(L[i:j, i:j], B[i:j], upper=False)
        B[j:].addmm_(L[j:, i:j], B[i:j], alpha=-1)
    for i, j in reversed(blocks):
        B[i:j] = torch.linalg.solve_triangular(L[i:j, i:j].T, B[i:j], upper=True)
        B[:i].addmm_(L[i:j, :i].T, B[i:j], alpha=-1)
    return B
