r"""Inverse factorisations without a square root, and without a division.

They follow Zhu's paper, appendices E and F, and work in place and right-looking as
:mod:`labkit.broad.factor` does. A panel's own columns are computed one by one and all
columns right of it by products, so that few kernels are launched for a column and none
waits. Algorithm 13, which shares such columns among workers, is in
:mod:`labkit.broad.sweep`.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from labkit.broad.factor import (
    add_product,
    bordered,
    check_blocks,
    check_pivots,
    check_square,
)
from labkit.broad.triangular import mm_upper, upper_mm, upper_t_mm
from labkit.check import check_tensor
from labkit.precision import outside_modes

PANEL = 64  # columns of a panel: few against k, but enough for efficient products


@outside_modes()
def inverse_ldl(R: Tensor) -> tuple[Tensor, Tensor]:
    """Compute unit upper L (k, k) and d (k,) with R^-1 = L diag(d) L^T (206).

    No square root is taken. The cost is 2 k^3 / 3 operations, by panels.

    Examples
    --------
    >>> L, d = inverse_ldl(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> L.tolist(), d.tolist()
    ([[1.0, -0.5], [0.0, 1.0]], [0.25, 0.25])
    """
    check_square(R)
    return inverse_ldl_(R.clone())


def inverse_ldl_(R: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
    """Compute :func:`inverse_ldl` in the memory of R, and return L and d."""
    for _ in ldl_sweep(R, offset=offset):
        pass
    d = R.diagonal().clone()
    R.fill_diagonal_(1)
    return R.triu_(), d


def ldl_sweep(R: Tensor, panel: int = PANEL, offset: int = 0) -> Iterator[int]:
    r"""Compute the inverse LDL^T in place, by panels; the diagonal receives d.

    With $L_p, d$ of the panel's diagonal block (:func:`small_inverse_ldl`), V the rest
    of its rows and m its columns of M:

    (a) $U = L_p^T V, \; r = -d\,U$    (223b) $S \leftarrow S + U^T r$
    (222) $m \leftarrow m L_p$    (223c) $M \leftarrow M + m r, \; M_p = L_p r$

    With panels of one column, where $L_p$ is 1, these are (222) to (223c) of Algorithm
    12; by blocks they follow from (209). The number of finished columns is yielded
    after every panel, and the pivots are checked at the end, counted from ``offset``.
    """
    k, pivots = len(R), []
    for i in range(0, k, panel):
        j = min(k, i + panel)
        L, d, s = small_inverse_ldl(whole(R[i:j, i:j]))
        pivots.append(s)
        U = L.T @ R[i:j, j:]  # (a)
        r = -d[:, None] * U  # (a)
        add_product(R[j:, j:], U, r)  # (223b)
        R[:i, i:j] = R[:i, i:j] @ L  # (222)
        R[:i, j:].addmm_(R[:i, i:j], r)  # (223c)
        torch.mm(L, r, out=R[i:j, j:])  # (223c)
        R[i:j, i:j] = L
        R[i:j, i:j].diagonal().copy_(d)
        yield j
    check_pivots(pivots, offset)


def small_inverse_ldl(B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Compute L, d and the pivots s of a full symmetric B (b, b) in place, by columns.

    With m the part of column i above the diagonal, s the pivot and v the row right of
    it, M the rows above and S those below (Algorithm 12):

    (222) $L_{:i,i} = m$, final as it stands    (223a) $d = 1 / s$
    (223b) $S \leftarrow S - v^T v / s$    (223c) $M \leftarrow M - m v / s, \;
    M_i = -v / s$

    M and S are updated by one product of column i with v / s: three kernels a column.
    """
    for i in range(len(B)):
        r = B[i, i + 1 :] / B[i, i]
        B[:, i + 1 :].addr_(B[:, i], r, alpha=-1)  # (223b), (223c)
        torch.neg(r, out=B[i, i + 1 :])  # (223c)
    s = B.diagonal().clone()
    B.fill_diagonal_(1)
    return B.triu_(), 1 / s, s  # (222), (223a)


@outside_modes()
def extend_inverse_ldl(
    L: Tensor, d: Tensor, P: Tensor, S: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Compute L and d of [[R, P], [P^T, S]] from those of R, by the block form (209).

    With $L_s, d_s$ the factors of the Schur complement, numbering ours:

    (a) $V = L^T P$    (b) $S - V^T diag(d) V \to L_s, d_s$
    (c) $T = -L\,diag(d)\,V L_s$
    (209) $L \leftarrow [[L, T], [0, L_s]], \; d \leftarrow [d, d_s]$

    L (k, k), d (k,), P (k, q), S (q, q); cost 2 k^2 q + 2 k q^2 + 2 q^3 / 3 operations.
    """
    check_blocks(L, P, S)
    check_tensor("d", d, like=L, shape=(len(L),), graph=False)
    V = upper_t_mm(L, P)  # (a)
    r = d[:, None] * V  # (c)
    L_s, d_s = inverse_ldl_(S - V.T @ r, offset=len(L))  # (b)
    T = upper_mm(L, mm_upper(r, L_s).neg_())  # (c)
    return bordered(L, T, L_s), torch.cat([d, d_s])  # (209)


@outside_modes()
def division_free_inverse_ldl(
    R: Tensor, *, scale: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Compute U, delta and beta with $R^{-1} = U diag(\delta) U^T / \beta$ (230).

    Only additions, products and shifts are used; the division by beta is left to the
    caller. With ``scale``, powers of two keep beta in [0.5, 1). Without it, beta is
    about squared at every column, and an OverflowError names the column where it leaves
    the range of the dtype. The cost is k^3 operations, by panels.

    Returns
    -------
    U, delta, beta : (k, k), (k,), () tensors, $U$, $\delta$, $\beta$
    """
    check_square(R)
    return division_free_inverse_ldl_(R.clone(), scale=scale)


def division_free_inverse_ldl_(
    R: Tensor, offset: int = 0, *, scale: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute :func:`division_free_inverse_ldl` in the memory of R."""
    delta, beta = torch.ones_like(R[0]), R.new_ones(())
    for _ in division_free_sweep(R, delta, beta, offset=offset, scale=scale):
        pass
    return R.triu_(), delta, beta


def division_free_sweep(
    R: Tensor,
    delta: Tensor,
    beta: Tensor,
    panel: int = PANEL,
    offset: int = 0,
    *,
    scale: bool = True,
) -> Iterator[int]:
    r"""Compute the division-free inverse LDL^T in place, by panels, as in (231).

    R, delta (k,) and beta () are overwritten; beta starts at 1. S and M are stored
    times beta. With $U_p, \delta_p, \beta_p$ of the panel's stored diagonal block
    (:func:`small_division_free`), V the rest of its rows and m its columns of M,
    numbering ours:

    (a) $U = U_p^T V, \; r = -\delta_p U$    (b) $S \leftarrow \beta_p S + U^T r$
    (c) $m \leftarrow m U_p$    (d) $M \leftarrow \beta_p M + m r, \;
    M_p = \beta U_p r$
    (e) $U_{pp} = \beta U_p, \; \delta \leftarrow [\beta_p \delta, \delta_p], \;
    \beta \leftarrow \beta \beta_p$

    The number of finished columns is yielded after every panel, and the pivots are
    checked at the end, counted from ``offset``.
    """
    k, pivots = len(R), []
    for i in range(0, k, panel):
        j = min(k, i + panel)
        B = whole(R[i:j, i:j])
        U_p, delta_p, beta_p, a = small_division_free(B, beta, scale=scale)
        pivots.append(a)
        U = U_p.T @ R[i:j, j:]  # (a)
        r = -delta_p[:, None] * U  # (a)
        add_product(R[j:, j:].mul_(beta_p), U, r)  # (b)
        R[:i, i:j] = R[:i, i:j] @ U_p  # (c)
        R[:i, j:].mul_(beta_p).addmm_(R[:i, i:j], r)  # (d)
        U_p *= beta  # (d), (e)
        torch.mm(U_p, r, out=R[i:j, j:])  # (d)
        R[i:j, i:j] = U_p  # (e)
        delta[:i] *= beta_p  # (e)
        delta[i:j] = delta_p  # (e)
        beta *= beta_p  # (e)
        yield j
    check_pivots(pivots, offset, scaled=scale)


@outside_modes()
def extend_division_free_inverse_ldl(
    U: Tensor, delta: Tensor, beta: Tensor, P: Tensor, S: Tensor, *, scale: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Compute U, delta, beta of [[R, P], [P^T, S]] from those of R, as in (231).

    With $U_s, \delta_s, \beta_s$ of beta times the Schur complement, numbering ours:

    (a) $V = U^T P$    (b) $\beta S - V^T diag(\delta) V \to U_s, \delta_s, \beta_s$
    (c) $T = -U\,diag(\delta)\,V U_s$
    (231) $U \leftarrow [[U, T], [0, \beta U_s]], \; \delta \leftarrow
    [\beta_s \delta, \delta_s], \; \beta \leftarrow \beta \beta_s$

    With ``scale``, delta and beta are multiplied by the power of two that brings beta
    back to [0.5, 1). U (k, k), delta (k,), beta (), P (k, q), S (q, q); cost
    2 k^2 q + 2 k q^2 + q^3 operations.
    """
    check_blocks(U, P, S)
    check_tensor("delta", delta, like=U, shape=(len(U),), graph=False)
    check_tensor("beta", beta, like=U, shape=(), graph=False)
    V = upper_t_mm(U, P)  # (a)
    r = delta[:, None] * V  # (c)
    Q = beta * S - V.T @ r  # (b)
    U_s, delta_s, beta_s = division_free_inverse_ldl_(Q, len(U), scale=scale)  # (b)
    T = upper_mm(U, mm_upper(r, U_s).neg_())  # (c)
    grown = bordered(U, T, beta * U_s)  # (231)
    delta = torch.cat([beta_s * delta, delta_s])  # (231)
    beta = beta * beta_s  # (231)
    if scale:
        beta, e = torch.frexp(beta)
        delta = torch.ldexp(delta, -e)
    return grown, delta, beta


def small_division_free(
    B: Tensor, beta: Tensor, *, scale: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Compute U, delta, beta and pivots of a full symmetric B (b, b) in place.

    This is Algorithm 14, (280) to (284), column by column. With a the stored pivot, v
    the row right of it and m the column above it; beta starts at 1, and for the scaling
    at ``beta``; numbering ours:

    (1) $t = 2^{-e}$ so that $\beta a t \in [1/2, 1)$, $a \leftarrow t a$
    (2) $S \leftarrow a S - t v^T v$    (3) $M \leftarrow a M - t m v$
    (4) $M_i = -t \beta v, \; U_{ii} = \beta$
    (5) $\delta \leftarrow [a \delta, t]$    (6) $\beta \leftarrow \beta a$

    (2) and (3) are one product; (4) to (6), products of the a so far, are computed at
    the end. The paper's text does not show where it puts the powers of two of (1);
    these have every property that it states. Every a after the first is in (1/2, 2).
    """
    ones = B.new_ones(1)
    t, shifts, factors = ones[0], [], []
    for i in range(len(B)):
        a = B[i, i]
        if scale:
            beta, e = torch.frexp(beta * a)  # (1)
            t = torch.ldexp(ones[0], -e)  # (1)
        a = t * a  # (1)
        v = t * B[i, i + 1 :]
        B[:, i + 1 :].mul_(a).addr_(B[:, i], v, alpha=-1)  # (2), (3)
        torch.neg(v, out=B[i, i + 1 :])  # (4)
        shifts.append(t)
        factors.append(a)
    pivots, factors = B.diagonal().clone(), torch.stack(factors)
    betas = torch.cat([ones, factors]).cumprod(0)  # (6)
    B.fill_diagonal_(1)
    later = torch.cat([factors[1:], ones]).flip(0).cumprod(0).flip(0)
    delta = torch.stack(shifts) * later  # (5)
    return B.triu_() * betas[:-1, None], delta, betas[-1], pivots  # (4)


def whole(S: Tensor) -> Tensor:
    """Return a full symmetric copy of S (q, q) from its upper triangle."""
    return S.triu() + S.triu(1).T
