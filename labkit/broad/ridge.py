r"""The ridge solvers of Zhu's paper by factors (D-Rdg, Chol-1, Chol-2), and bordered.

All start with ``start(A, Y, ridge)`` and grow with ``update(state, A, H, Y)``, where A
is the input before the update. R = A^T A + ridge I (35), and its new blocks are P and S
(40). Arguments are checked by :data:`labkit.broad.SOLVERS`, not here.

Parameters
----------
A, H, Y : (l, k), (l, q), (l, c) tensors, $A$, $H$, $Y$: input, new columns, labels
F : (k, k) tensor, $F$, upper triangular with F F^T = R^-1 (34)
AY, HY : (k, c), (q, c) tensors, $A^T Y$, $H^T Y$
P : (k, q) tensor, $P$ = A^T H
S : (q, q) tensor, $S$ = H^T H + ridge I
ridge : float, $\lambda$
W : (k, c) tensor, $W$; an update returns that of k + q nodes
T, G : (k, q), (q, q) tensors, $T$, $G$, the new columns of F
"""

from dataclasses import replace

import torch
from torch import Tensor

from labkit.broad.factor import bordered, cholesky, inverse_cholesky_
from labkit.broad.state import BorderedState, DirectState, FactorState
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


def direct_start(A: Tensor, Y: Tensor, ridge: float) -> DirectState:
    r"""Compute the ridge solution from scratch.

    (35) $R = A^T A + \lambda I$    (6) $W = R^{-1} A^T Y$

    The paper inverts R (7); a Cholesky solve is a more accurate reference.
    """
    AY = mm(A.T, Y)
    L = cholesky(with_ridge(gram(A), ridge))  # (35)
    W = torch.cholesky_solve(AY, L)  # (6)
    return DirectState(AY, W, ridge, L.diagonal().amin().square())


def direct_update(state: DirectState, A: Tensor, H: Tensor, Y: Tensor) -> DirectState:
    r"""Compute the ridge solution of [A | H] from scratch, without joining the two.

    (35) $R = [A | H]^T [A | H] + \lambda I$    (6) $W = R^{-1} [A | H]^T Y$
    """
    P, AY = mm(A.T, H), torch.cat([state.AY, H.T @ Y])
    R = torch.cat([torch.cat([gram(A), P], 1), torch.cat([P.T, gram(H)], 1)])  # (35)
    L = cholesky(with_ridge(R, state.ridge))  # (35)
    W = torch.cholesky_solve(AY, L)  # (6)
    return DirectState(AY, W, state.ridge, L.diagonal().amin().square())


# Chol-1


def chol1_start(A: Tensor, Y: Tensor, ridge: float) -> FactorState:
    r"""Compute the inverse Cholesky factor of R and the ridge solution (Algorithm 6).

    (34) $F F^T = R^{-1}$    (49) $W = F (F^T (A^T Y))$
    """
    AY = mm(A.T, Y)
    F = inverse_cholesky_(with_ridge(gram(A), ridge))  # (34)
    W = upper_mm(F, upper_t_mm(F, AY))  # (49)
    return FactorState(F, AY, W, ridge, smallest_pivot(F))


def chol1_update(state: FactorState, A: Tensor, H: Tensor, Y: Tensor) -> FactorState:
    r"""Add the columns H by Chol-1 (Algorithm 7).

    (40) $P = A^T H, \; S = H^T H + \lambda I$    (a) $V = F^T P$
    (42a) $G = (S - V^T V)^{-1/2}$, upper, $G G^T = (\cdot)^{-1}$
    (42b) $T = -F V G$    (41) $F \leftarrow [[F, T], [0, G]]$
    (50) $E = T^T (A^T Y) + G^T (H^T Y)$, $W \leftarrow [W + T E; G E]$

    Rounding in (42a) may cost the Schur complement a pivot. The cost is
    l q (2 k + q) + 2 k^2 q + 2 k q^2 + 2/3 q^3 + 2 (l + 2 k + q) q c operations.
    """
    F, AY, W = state.F, state.AY, state.W
    P, S, HY = mm(A.T, H), with_ridge(gram(H), state.ridge), mm(H.T, Y)  # (40)
    V = upper_t_mm(F, P)  # (a)
    G = inverse_cholesky_(S - gram(V), offset=len(F))  # (42a)
    T = upper_mm(F, mm_upper(V, G).neg_())  # (42b)
    F = bordered(F, T, G)  # (41)
    E = T.T @ AY + G.T @ HY  # (50)
    W = torch.cat([W + T @ E, G @ E])  # (50)
    return FactorState(F, torch.cat([AY, HY]), W, state.ridge, smallest_pivot(G))


# Chol-2


def chol2_update(state: FactorState, A: Tensor, H: Tensor, Y: Tensor) -> FactorState:
    r"""Add the columns H by Chol-2 (Algorithm 8), with a sum of positive terms.

    (51) $D = F F^T A^T H$    (52) $C = H - A D$
    (57) $G = (C^T C + \lambda (D^T D + I))^{-1/2}$, upper    (59) $T = -D G$
    (41) $F \leftarrow [[F, T], [0, G]]$
    (61) $E = G^T (C^T Y)$, $W \leftarrow [W + T E; G E]$

    The matrix of (57), a form of the Schur complement, is the ridge objective at the
    computed D, and D minimises it: an error in D enters squared and can only enlarge
    the matrix, so that pivots are not lost. The cost is l q (4 k + q) + 2 k^2 q +
    2 k q^2 + 2/3 q^3 operations and l q numbers for C.
    """
    F, W, ridge = state.F, state.W, state.ridge
    D = upper_mm(F, upper_t_mm(F, mm(A.T, H)))  # (51)
    C = torch.addmm(H.T, D.T, A.T, alpha=-1).T  # (52)
    S = with_ridge(gram(C).add_(gram(D), alpha=ridge), ridge)  # (57)
    G = inverse_cholesky_(S, offset=len(F))  # (57)
    T = mm_upper(D, G).neg_()  # (59)
    F = bordered(F, T, G)  # (41)
    E = G.T @ mm(C.T, Y)  # (61)
    W = torch.cat([W + T @ E, G @ E])  # (61)
    AY = torch.cat([state.AY, H.T @ Y])
    return FactorState(F, AY, W, ridge, smallest_pivot(G))


# Bordered Cholesky, for comparison


def bordered_start(A: Tensor, Y: Tensor, ridge: float) -> BorderedState:
    r"""Compute the Cholesky factor of R, and W by triangular solves; not in the paper.

    (1) $L L^T = R$    (2) $z = L^{-1} A^T Y$    (3) $W = L^{-T} z$
    """
    L = cholesky(with_ridge(gram(A), ridge))  # (1)
    z = lower_solve(L, mm(A.T, Y))  # (2)
    W = lower_t_solve(L, z)  # (3)
    return BorderedState(L, z, W, ridge, L.diagonal().amin().square())


def bordered_update(
    state: BorderedState, A: Tensor, H: Tensor, Y: Tensor
) -> BorderedState:
    r"""Add the columns H to the Cholesky factor; numbering ours.

    (1) $V = L^{-1} P$    (2) $L_s L_s^T = S - V^T V$    (3) $L \leftarrow [[L, 0],
    [V^T, L_s]]$    (4) $z \leftarrow [z; L_s^{-1} (H^T Y - V^T z)]$
    (5) $W = L^{-T} z$

    The cost is l q (2 k + q) + k^2 q + k q^2 + q^3 / 3 + (k + q)^2 c operations.
    """
    L, z = state.L, state.z
    V = lower_solve(L, mm(A.T, H))  # (1)
    S = with_ridge(gram(H), state.ridge)
    L_s = cholesky(S - gram(V), offset=len(L))  # (2)
    L = bordered(L.T, V, L_s.T).T  # (3)
    z = torch.cat([z, lower_solve(L_s, mm(H.T, Y) - V.T @ z)])  # (4)
    W = lower_t_solve(L, z)  # (5)
    return BorderedState(L, z, W, state.ridge, L_s.diagonal().amin().square())


# Removing columns


def truncated(
    state: FactorState | BorderedState, k: int
) -> FactorState | BorderedState:
    r"""Return the state of the first k columns, from the leading block of F (or L).

    (49) $W = F (F^T (A^T Y))$
    """
    if isinstance(state, BorderedState):
        L, z = state.L[:k, :k].clone(), state.z[:k]
        W, pivot = lower_t_solve(L, z), L.diagonal().amin().square()
        return replace(state, L=L, z=z, W=W, pivot=pivot)
    F, AY = state.F[:k, :k].clone(), state.AY[:k]
    W = upper_mm(F, upper_t_mm(F, AY))  # (49)
    return replace(state, F=F, AY=AY, W=W, pivot=smallest_pivot(F))
