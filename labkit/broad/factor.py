r"""Inverse factorisations of a symmetric positive definite R (k, k).

Zhu, *Two Ridge Solutions for the Incremental Broad Learning System on Added Nodes*,
section III-A and appendices D to F. Three forms of the same triangle, the second and
the third in :mod:`labkit.broad.ldl`:

======================  ================================  ============
inverse Cholesky (101)  R^-1 = F F^T                      F upper
inverse LDL^T (206)     R^-1 = L diag(d) L^T              L unit upper
division free (230)     R^-1 = U diag(delta) U^T / beta   U upper
======================  ================================  ============

The ``*_sweep`` generators work inside the upper triangle of the matrix they are given
and yield the number of finished columns: the leading block is then final, the block
right of it holds M, and the trailing block holds the Schur complement S. Entries below
the diagonal are not read, and have no meaning afterwards. The other functions copy R,
read only its upper triangle, and raise NotPositiveDefinite, or a ValueError if it is
not square. The pivots are checked once, at the end, so that the host waits for a device
once.

The text of the paper that was available gives the formulas of the sweeps only as
numbers and words; tests/broad/test_factor.py checks their reconstruction.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from labkit.broad.triangular import gram, mm_upper, spans, upper_mm, upper_t_mm
from labkit.check import COUNT, check_options, check_tensor, one_of, optional
from labkit.precision import outside_modes

FLOATS = torch.float32, torch.float64  # dtypes that can be factorised

# Columns of a panel: enough for the rate of a full product, but few against k.
PANEL = {"cpu": 96}
PANEL_ELSEWHERE = 512


class NotPositiveDefinite(ArithmeticError):
    """The error that a pivot of a factorisation was not positive.

    Attributes
    ----------
    index : int, column of the lost pivot, from 0, among all columns
    pivot : float, its value
    safe_ridge : float or None, smallest ridge that is safe for this data, where known
    """

    def __init__(
        self, index: int, pivot: float, safe_ridge: float | None = None
    ) -> None:
        self.index, self.pivot, self.safe_ridge = index, pivot, safe_ridge
        text = f"pivot {index} is {pivot:.3g}, but must be positive and finite"
        if 0 < pivot < math.inf:
            text = f"pivot {index}, {pivot:.3g}, is lost to rounding"
        if not math.isfinite(pivot + (safe_ridge or 0.0)):
            text += "; values are not finite, or too large for their dtype when squared"
        elif safe_ridge is not None:
            text += f"; the smallest safe ridge here is about {safe_ridge:.1e}"
        super().__init__(text)

    def __reduce__(self) -> tuple:
        return type(self), (self.index, self.pivot, self.safe_ridge)


def small_inverse_cholesky(S: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute G with $G G^T = S^{-1}$ by inverting the Cholesky factor (103) of S.

    LAPACK's Cholesky factorisation and one triangular inverse of S (q, q), a panel's
    block, cost 4 q^3 / 3 operations. Only the upper triangle of S is read. G comes with
    the ``info`` of `cholesky_ex`, unchecked; see :func:`check_factored`.
    """
    U, info = torch.linalg.cholesky_ex(S, upper=True)
    one = torch.eye(len(S), dtype=S.dtype, device=S.device)
    return torch.linalg.solve_triangular(U, one, upper=True), info


def cholesky(S: Tensor, offset: int = 0) -> Tensor:
    """Compute the lower Cholesky factor of S (q, q), or name the lost pivot."""
    L, info = torch.linalg.cholesky_ex(S)
    check_factored([(S.T, info)], offset)
    return L


def check_factored(blocks: list[tuple[Tensor, Tensor]], offset: int = 0) -> None:
    """Raise NotPositiveDefinite for the first lost pivot; the host waits once.

    ``blocks`` are the diagonal blocks in order, upper triangles at least, each with the
    ``info`` of ``cholesky_ex``. ``offset`` is the first column of the first block.
    """
    # An infinite pivot would pass: LAPACK only looks for nan and what is not positive.
    infos = [
        torch.where(S.diagonal().amax().isinf(), S.diagonal().argmax() + 1, info)
        for S, info in blocks
    ]
    infos = torch.stack(infos).tolist()
    for (S, _), lost in zip(blocks, infos, strict=True):
        if lost:
            i = lost - 1
            U, _ = torch.linalg.cholesky_ex(S[:i, :i], upper=True)
            v = torch.linalg.solve_triangular(U.T, S[:i, i:lost], upper=False)
            raise NotPositiveDefinite(offset + i, float(S[i, i] - v.square().sum()))
        offset += len(S)


@outside_modes()
def inverse_cholesky(
    R: Tensor, *, method: str = "panels", panel: int | None = None
) -> Tensor:
    """Compute the upper triangular F with F F^T = R^-1 (101).

    Parameters
    ----------
    R : (k, k) tensor, symmetric positive definite; cost 2 k^3 / 3 operations
    method : ``"panels"`` for :func:`panel_sweep`, ``"columns"``: :func:`column_growth`
    panel : int, optional, columns of a panel; the default depends on the device

    Examples
    --------
    >>> R = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
    >>> inverse_cholesky(R)
    tensor([[ 0.5000, -0.2500],
            [ 0.0000,  0.5000]])
    """
    check_square(R)
    check_options({"method": method}, {"method": one_of(("panels", "columns"))})
    check_options({"panel": panel}, {"panel": optional(COUNT)})
    F = R.clone()
    for _ in panel_sweep(F, panel) if method == "panels" else column_growth(F):
        pass
    return F.triu_()


def inverse_cholesky_(R: Tensor, offset: int = 0) -> Tensor:
    """Compute :func:`inverse_cholesky` in the memory of R, and return it.

    A lost pivot is counted from ``offset``, the number of columns before those of R.
    """
    for _ in panel_sweep(R, offset=offset):
        pass
    return R.triu_()


def column_growth(R: Tensor) -> Iterator[int]:
    r"""Compute the inverse Cholesky factor in place, column by column (appendix D-A).

    With p and $\rho$ the new column of R above and on the diagonal, $w = F^T p$:

    (107a) $g = (\rho - w^T w)^{-1/2}$    (107b) $t = -g F w$

    These are k matrix-vector steps of 2 i^2 operations; it yields after every column.
    """
    pivots = []
    for i in range(len(R)):
        F, p = R[:i, :i].triu(), R[:i, i]
        w = F.T @ p
        s = R[i, i] - w @ w
        pivots.append(s)
        g = s.rsqrt()  # (107a)
        R[:i, i] = -g * (F @ w)  # (107b)
        R[i, i] = g
        yield i + 1
    check_pivots(pivots)


def panel_sweep(R: Tensor, panel: int | None = None, offset: int = 0) -> Iterator[int]:
    r"""Compute the inverse Cholesky factor in place by panels (appendix D-B).

    The sweep is right-looking: before a panel the upper triangle holds F, $M = -F F^T
    P$ right of it, and the Schur complement S. With $S_p$ the panel's diagonal block, V
    the rest of its rows and m its columns of M:

    (124c) $G = S_p^{-1/2}$ (upper)    (a) $U = G^T V$
    (124a) $S \leftarrow S - U^T U$    (124d) $m \leftarrow m G$
    (124b) $M \leftarrow [M - m U; -G U]$

    With panels of one column these are (124a) to (124d) of Algorithm 11, where G is
    $1 / \sqrt{s}$; (a) is ours. Every column takes one multiply-add for every entry
    right of the panel, 2 k^3 / 3 operations in all. It yields after every panel, and
    checks the pivots at the end, where it counts them from ``offset``.
    """
    k, panel = len(R), panel or PANEL.get(R.device.type, PANEL_ELSEWHERE)
    blocks = []
    for i in range(0, k, panel):
        j = min(k, i + panel)
        S_p = R[i:j, i:j].triu()
        G, info = small_inverse_cholesky(S_p)  # (124c)
        blocks.append((S_p, info))
        U = G.T @ R[i:j, j:]  # (a)
        add_product(R[j:, j:], U, U, alpha=-1)  # (124a)
        R[:i, i:j] = R[:i, i:j] @ G  # (124d)
        R[:i, j:].addmm_(R[:i, i:j], U, alpha=-1)  # (124b)
        R[i:j, i:j] = G  # (124d)
        torch.mm(G, U.neg_(), out=R[i:j, j:])  # (124b)
        yield j
    check_factored(blocks, offset)


def add_product(S: Tensor, U: Tensor, r: Tensor, alpha: float = 1) -> None:
    """Add alpha U^T r to the upper triangle of S (q, q), by block rows."""
    for i, j in spans(len(S), S.device):
        S[i:j, i:].addmm_(U[:, i:j].T, r[:, i:], alpha=alpha)


@outside_modes()
def extend_inverse_cholesky(F: Tensor, P: Tensor, S: Tensor) -> Tensor:
    r"""Compute the factor of [[R, P], [P^T, S]] from the factor F of R (section III-A).

    (a) $V = F^T P$    (42a) $G = (S - V^T V)^{-1/2}$ (upper)    (42b) $T = -F V G$
    (41) $F \leftarrow [[F, T], [0, G]]$

    F (k, k), P (k, q), S (q, q); cost 2 k^2 q + 2 k q^2 + 2 q^3 / 3 operations.
    """
    check_blocks(F, P, S)
    V = upper_t_mm(F, P)  # (a)
    G = inverse_cholesky_(S - gram(V), offset=len(F))  # (42a)
    T = upper_mm(F, mm_upper(V, G).neg_())  # (42b)
    return bordered(F, T, G)  # (41)


def bordered(F: Tensor, T: Tensor, G: Tensor) -> Tensor:
    """Return [[F, T], [0, G]] for F (k, k), T (k, q) and G (q, q), or columns of these.

    It is laid out by columns, as T is, so that new columns follow old ones in memory.
    """
    (k, n), m = F.shape, G.shape[1]
    grown = F.new_empty(n + m, k + len(G))
    grown[:n, :k], grown[:n, k:] = F.T, 0
    grown[n:, :k], grown[n:, k:] = T.T, G.T
    return grown.T


def factor_error(F: Tensor, R: Tensor) -> Tensor:
    """Return the largest entry of |F^T R F - I| for F F^T = R^-1; 4 k^3 operations.

    In float64 it is about 0.04 eps |R| / ridge for a model's R = A^T A + ridge I.
    """
    error = F.T @ (R @ F)
    error.diagonal().sub_(1)
    return error.abs().amax()


def check_square(R: Tensor) -> None:
    """Raise an error if R is not a nonempty square matrix of floats."""
    check_tensor("R", R, dtype=FLOATS, graph=False)
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not R.numel():
        raise ValueError(f"R must be a square matrix, got shape {tuple(R.shape)}")


def check_blocks(F: Tensor, P: Tensor, S: Tensor) -> None:
    """Raise an error if P and S do not extend a matrix whose factor is F."""
    check_tensor("F", F, dtype=FLOATS, shape=("k", "k"), graph=False)
    check_tensor("P", P, like=F, shape=(len(F), "q"), graph=False)
    check_tensor("S", S, like=F, shape=(P.shape[1], P.shape[1]), graph=False)
    if not S.numel():
        raise ValueError(f"P must have a column or more, got shape {tuple(P.shape)}")


def check_pivots(pivots: list[Tensor], offset: int = 0, *, scaled: bool = True) -> None:
    """Raise NotPositiveDefinite if a pivot is not positive; the host waits once.

    ``pivots`` are numbers or rows of them, counted from ``offset``. If they are not
    ``scaled``, a pivot that is not finite raises an OverflowError.
    """
    found = torch.hstack(pivots)
    for i, s in enumerate(found.tolist(), offset):
        if not (scaled or math.isfinite(s)):
            raise OverflowError(
                f"without scaling, {found.dtype} is left at column {i}; use scale=True"
            )
        if not 0 < s < math.inf:
            raise NotPositiveDefinite(i, s)
