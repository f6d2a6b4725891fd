r"""Inverse factorisations of a symmetric positive definite R (k, k).

Zhu, *Two Ridge Solutions for the Incremental Broad Learning System on Added Nodes*,
section III-A and appendices D to F. Three forms of the same triangle:

======================  ================================  ============
inverse Cholesky (101)  R^-1 = F F^T                      F upper
inverse LDL^T (206)     R^-1 = L diag(d) L^T              L unit upper
division free (230)     R^-1 = U diag(delta) U^T / beta   U upper
======================  ================================  ============

The ``*_sweep`` generators work inside the upper triangle of the matrix they are given
and yield the number of finished columns: the leading block is then final, the block
right of it holds M, the trailing block the Schur complement S. What lies below the
diagonal is neither read nor of use. The other functions copy R, whose upper triangle
alone they read, and raise NotPositiveDefinite, or a ValueError if it is not square.

The paper's own formulas for the sweeps survive in its text only as numbers and words;
their reading here is proved by tests/broad/test_factor.py.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from labkit.broad.triangular import gram, mm_upper, spans, upper_mm, upper_t_mm

# Columns of a panel: wide enough for the rate of a full product, narrow against k.
PANEL = {"cpu": 96}
PANEL_ELSEWHERE = 512


class NotPositiveDefinite(ArithmeticError):
    """A pivot of a factorisation was not positive.

    Attributes
    ----------
    index : int, column of the lost pivot, from 0, among all columns
    pivot : float, its value
    safe_ridge : float or None, smallest ridge that is safe for this data, where known
    """

    def __init__(self, index: int, pivot: float, safe_ridge: float | None = None):
        self.index, self.pivot, self.safe_ridge = index, pivot, safe_ridge
        text = f"pivot {index} is {pivot:.3g}, but must be positive"
        if safe_ridge is not None:
            text += f"; the smallest safe ridge here is about {safe_ridge:.1e}"
        super().__init__(text)

    def __reduce__(self):
        return type(self), (self.index, self.pivot, self.safe_ridge)


def small_inverse_cholesky(S: Tensor, offset: int = 0) -> Tensor:
    r"""G with $G G^T = S^{-1}$, by inverting the Cholesky factor (103) of S (q, q).

    LAPACK's Cholesky factorisation and one triangular inverse, 4 q^3 / 3 operations:
    for a panel. Reads the whole of S. A lost pivot is counted from ``offset``.
    """
    L = cholesky(S, offset)
    return torch.linalg.solve_triangular(L, torch.eye(len(S)).to(S), upper=False).T


def cholesky(S: Tensor, offset: int = 0) -> Tensor:
    """Lower Cholesky factor of S (q, q); a lost pivot is named, as in S's own order."""
    L, info = torch.linalg.cholesky_ex(S)
    lost = int(info)  # the one place where the host must know
    if lost:
        i = lost - 1
        v = torch.linalg.solve_triangular(L[:i, :i], S[:i, i:lost], upper=False)
        raise NotPositiveDefinite(offset + i, float(S[i, i] - v.square().sum()))
    return L


def inverse_cholesky(R: Tensor, *, method: str = "panels", panel: int | None = None):
    """Upper triangular F with F F^T = R^-1 (101).

    Parameters
    ----------
    R : (k, k) tensor, symmetric positive definite; cost 2 k^3 / 3 operations
    method : ``"panels"`` for :func:`panel_sweep`, ``"columns"``: :func:`column_growth`
    panel : int, optional, columns of a panel; what suits the device if not given

    Examples
    --------
    >>> R = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
    >>> inverse_cholesky(R)
    tensor([[ 0.5000, -0.2500],
            [ 0.0000,  0.5000]])
    """
    check_square(R)
    if method not in ("panels", "columns"):
        raise ValueError(f"method must be 'panels' or 'columns', got {method!r}")
    if panel is not None and panel < 1:
        raise ValueError(f"panel must be >= 1, got {panel}")
    F = R.clone()
    if method == "panels":
        return inverse_cholesky_(F, panel)
    for _ in column_growth(F):
        pass
    return F.triu_()


def inverse_cholesky_(R: Tensor, panel: int | None = None, offset: int = 0) -> Tensor:
    """:func:`inverse_cholesky` by panels in the memory of R; unchecked.

    A lost pivot is counted from ``offset``.
    """
    for _ in panel_sweep(R, panel, offset):
        pass
    return R.triu_()


def column_growth(R: Tensor) -> Iterator[int]:
    r"""Inverse Cholesky factor column by column, in place (appendix D-A).

    With p and $\rho$ the new column of R above and on the diagonal, $w = F^T p$:

    (107a) $g = (\rho - w^T w)^{-1/2}$    (107b) $t = -g F w$

    Matrix-vector work: k steps of 2 i^2 operations. Yields after every column.
    """
    for i in range(len(R)):
        F, p = R[:i, :i].triu(), R[:i, i]
        w = F.T @ p
        s = R[i, i] - w @ w
        check_pivot(s, i)
        g = s.rsqrt()  # (107a)
        R[:i, i] = -g * (F @ w)  # (107b)
        R[i, i] = g
        yield i + 1


def panel_sweep(R: Tensor, panel: int | None = None, offset: int = 0) -> Iterator[int]:
    r"""Inverse Cholesky factor in place, right-looking, by panels (appendix D-B).

    Before a panel the upper triangle holds F, right of it $M = -F F^T P$ and the Schur
    complement S. With $S_p$ the panel's diagonal block, V the rest of its rows and m
    its columns of M:

    (124c) $G = S_p^{-1/2}$ (upper)    (a) $U = G^T V$
    (124a) $S \leftarrow S - U^T U$    (124d) $m \leftarrow m G$
    (124b) $M \leftarrow [M - m U; -G U]$

    With panels of one column these are (124a) to (124d) of Algorithm 11, where G is
    $1 / \sqrt{s}$; (a) is ours. One multiply-add a column for every entry right of the
    panel: 2 k^3 / 3 operations in all. Yields after every panel.
    """
    k, panel = len(R), panel or PANEL.get(R.device.type, PANEL_ELSEWHERE)
    for i in range(0, k, panel):
        j = min(k, i + panel)
        S_p = R[i:j, i:j]
        G = small_inverse_cholesky(S_p.triu() + S_p.triu(1).T, offset + i)  # (124c)
        U = G.T @ R[i:j, j:]  # (a)
        subtract_gram(R[j:, j:], U)  # (124a)
        R[:i, i:j] = R[:i, i:j] @ G  # (124d)
        R[:i, j:].addmm_(R[:i, i:j], U, alpha=-1)  # (124b)
        R[i:j, i:j] = G  # (124d)
        torch.mm(G, U.neg_(), out=R[i:j, j:])  # (124b)
        yield j


def subtract_gram(S: Tensor, U: Tensor) -> None:
    """S -= U^T U in the upper triangle of S (q, q), by block rows."""
    for i, j in spans(len(S), S.device):
        S[i:j, i:].addmm_(U[:, i:j].T, U[:, i:], alpha=-1)


def extend_inverse_cholesky(F: Tensor, P: Tensor, S: Tensor) -> Tensor:
    r"""Factor of [[R, P], [P^T, S]] from the factor F of R (section III-A).

    (a) $V = F^T P$    (42a) $G = (S - V^T V)^{-1/2}$ (upper)    (42b) $T = -F V G$
    (41) $F \leftarrow [[F, T], [0, G]]$

    F (k, k), P (k, q), S (q, q); cost 2 k^2 q + 2 k q^2 + 2 q^3 / 3 operations.
    """
    k, q = P.shape
    if F.shape != (k, k) or S.shape != (q, q):
        raise ValueError(
            f"F, P, S must be (k, k), (k, q), (q, q), got {tuple(F.shape)}, "
            f"{tuple(P.shape)}, {tuple(S.shape)}"
        )
    V = upper_t_mm(F, P)  # (a)
    G = inverse_cholesky_(S - gram(V), offset=k)  # (42a)
    T = upper_mm(F, mm_upper(V, G).neg_())  # (42b)
    top = torch.cat([F, T], 1)  # (41)
    return torch.cat([top, torch.cat([F.new_zeros(q, k), G], 1)])  # (41)


def inverse_ldl(R: Tensor) -> tuple[Tensor, Tensor]:
    """Unit upper L (k, k) and d (k,) with R^-1 = L diag(d) L^T (206); no square root.

    Cost k^3 operations in k steps of rank one: the half of S below the diagonal is
    computed along.

    Examples
    --------
    >>> L, d = inverse_ldl(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> L.tolist(), d.tolist()
    ([[1.0, -0.5], [0.0, 1.0]], [0.25, 0.25])
    """
    check_square(R)
    L = R.clone()
    for _ in ldl_sweep(L):
        pass
    d = L.diagonal().clone()
    L.fill_diagonal_(1)
    return L.triu_(), d


def ldl_sweep(R: Tensor) -> Iterator[int]:
    r"""Inverse LDL^T in place (Algorithm 12): the diagonal receives d.

    With m the part of column i above the diagonal, s the pivot and v the row right of
    it:

    (222) $L_{:i,i} = m$, final as it stands    (223a) $d = 1 / s$    (a) $r = -d v$
    (223b) $S \leftarrow S + v^T r$    (223c) $M \leftarrow M + m r, \; M_i = r$

    The letter is ours. Yields after every column.
    """
    for i in range(len(R)):
        m, v = R[:i, i], R[i, i + 1 :].clone()  # (222)
        check_pivot(R[i, i], i)
        d = 1 / R[i, i]  # (223a)
        r = -d * v  # (a)
        R[i + 1 :, i + 1 :].addr_(v, r)  # (223b)
        R[:i, i + 1 :].addr_(m, r)  # (223c)
        R[i, i + 1 :] = r  # (223c)
        R[i, i] = d  # (223a)
        yield i + 1


def division_free_inverse_ldl(R: Tensor, *, scale: bool = True):
    r"""U, delta and beta with $R^{-1} = U diag(\delta) U^T / \beta$ (230).

    Additions, products and shifts only: the division by beta is left to the reader. To
    ``scale`` is to multiply by powers of two so that beta stays in [0.5, 1); without,
    beta is about squared at every column, and where it leaves the range of the dtype an
    OverflowError names the column. Cost 2 k^3 operations.

    Returns
    -------
    U, delta, beta : (k, k), (k,), () tensors, $U$, $\delta$, $\beta$
    """
    check_square(R)
    U, delta = R.clone(), torch.ones_like(R[0])
    beta = U.new_ones(())
    for _ in division_free_sweep(U, delta, beta, scale=scale):
        pass
    return U.triu_(), delta, beta


def division_free_sweep(R, delta, beta, *, scale: bool = True) -> Iterator[int]:
    r"""Division-free inverse LDL^T in place (Algorithm 14, (280) to (284)).

    R, delta (k,) and beta () are overwritten; beta starts at 1. S and M are stored
    times beta. With a the stored pivot, v the row right of it, m the column above it,
    numbering ours:

    (1) $t = 2^{-e}$ so that $\beta a t \in [1/2, 1)$, $a \leftarrow t a$
    (2) $S \leftarrow a S - t v^T v$    (3) $M \leftarrow a M - t m v$
    (4) $M_i = -t \beta v, \; U_{ii} = \beta$
    (5) $\delta \leftarrow [a \delta, t]$    (6) $\beta \leftarrow \beta a$

    Where the paper puts the powers of two of (1) could not be read in its text; these
    keep each of its verbal promises. Every a after the first is in (1/2, 2). Yields
    after every column.
    """
    for i in range(len(R)):
        a, m, v = R[i, i].clone(), R[:i, i], R[i, i + 1 :].clone()
        if not (scale or a.isfinite()):
            raise OverflowError(
                f"without scaling, {R.dtype} is left at column {i}; use scale=True"
            )
        check_pivot(a, i)
        t = torch.ones_like(a)
        if scale:
            t = torch.ldexp(t, -torch.frexp(beta * a).exponent)  # (1)
        a = t * a  # (1)
        R[i + 1 :, i + 1 :].mul_(a).addr_(v, -t * v)  # (2)
        R[:i, i + 1 :].mul_(a).addr_(m, -t * v)  # (3)
        R[i, i + 1 :] = -t * beta * v  # (4)
        R[i, i] = beta  # (4)
        delta[:i] *= a  # (5)
        delta[i] = t  # (5)
        beta *= a  # (6)
        yield i + 1


def factor_error(F: Tensor, R: Tensor) -> Tensor:
    """Largest entry of |F^T R F - I| for an inverse factor F of R; 4 k^3 operations.

    In float64 about 0.04 eps |R| / ridge for a model's matrix R = A^T A + ridge I.
    """
    error = F.T @ (R @ F)
    error.diagonal().sub_(1)
    return error.abs().amax()


def check_square(R: Tensor) -> None:
    """Refuse what cannot be factorised."""
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not R.numel():
        raise ValueError(f"R must be a square matrix, got shape {tuple(R.shape)}")


def check_pivot(s: Tensor, i: int) -> None:
    """Refuse a pivot that is not positive; the host waits for it."""
    if not float(s) > 0:
        raise NotPositiveDefinite(i, float(s))
