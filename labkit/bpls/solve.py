r"""Solve least squares for all neurons of a layer at once (Tomic et al. 2024, (6)).

Samples are rows here and columns in the paper: its $A_l$ is our ``A`` transposed.
Equation (6) as printed inverts $A^T A$, which is singular if a pixel is constant, a
column is doubled or the hidden layer is wider than the layer below it; even the paper's
linear toy has a 3 x 3 matrix of rank 2. Three methods replace it.

``torch.linalg.lstsq`` is not used: its default CPU driver has returned a zero solution
for inputs with a constant zero column, and its only CUDA driver assumes full rank.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from labkit.check import NOT_NEGATIVE, check_options, check_tensor, one_of, optional
from labkit.precision import outside_modes

RIDGE = 1e-4  # relative; gives the same accuracy in float32 and in float64
SMALL = 1 << 16  # entries of A up to which the SVD of A is cheap
DTYPES = (torch.float32, torch.float64)
METHODS = ("cholesky", "eigh", "svd")
RANGES = {
    "ridge": optional(NOT_NEGATIVE),
    "rcond": optional(NOT_NEGATIVE),
    "method": optional(one_of(METHODS)),
}


class Solve(NamedTuple):
    """Rank and condition of a solved matrix; both have the batch shape of A."""

    rank: Tensor  # int64, directions of A that were kept
    condition: Tensor  # largest over smallest kept singular value, ridge included


@outside_modes()
def solve_layer(
    A: Tensor,
    B: Tensor,
    *,
    ridge: float | None = None,
    rcond: float | None = None,
    method: str | None = None,
) -> tuple[Tensor, Solve]:
    r"""Compute the weights of a layer as the least-squares solution of A W = B.

    With $G = A^T A$ ((6) with samples as rows), $K$ columns and relative ridge $\rho$,

    (6) $W = (G + \lambda I)^{-1} A^T B$,  $\lambda = \rho\,\mathrm{tr}(G) / K$.

    For $\rho = 0$ this is the minimum-norm solution $A^+ B$.

    Parameters
    ----------
    A : (..., D, K) tensor, values below the layer, one row per sample
    B : (..., D, J) tensor, targets; leading dimensions broadcast against those of A
    ridge : float >= 0, optional
        $\rho$, relative. The default is 1e-4, or 0 if ``method`` is "eigh" or "svd".
    rcond : float, optional
        Singular values of A below ``rcond`` times the largest count as zero ("eigh",
        "svd"). "eigh" has only their squares and defaults to 1e-6 in float64 and 1e-3
        in float32; "svd" defaults to the root of the dtype's epsilon.
    method : {"cholesky", "eigh", "svd"}, optional
        Factorise by Cholesky of G + lambda I, by eigenvectors of G, or by singular
        vectors of A. The default is "cholesky" with a ridge; without one it is "svd"
        for an A of at most 65,536 entries, else "eigh".

    Returns
    -------
    W : (..., K, J) tensor
    info : Solve
        For "cholesky" the rank is the number of columns that stand out of those before
        them by more than the ridge, and the condition is an estimate.

    Raises
    ------
    ValueError, TypeError
        An unknown method; a negative ridge; "cholesky" with none; A and B that do not
        fit, such as B of shape (D,) for (D, 1).
    torch.linalg.LinAlgError
        A, or A^T A, is not finite.

    Notes
    -----
    Cost in multiply-adds: at most D K^2 for G (`gram`), D K J for the right side, then
    K^3 / 6 ("cholesky") or some 5 K^3 ("eigh"); some 3 D K^2 in all for "svd", which
    alone is accurate to the dtype for an ill-conditioned A. A zero A gives W = 0.

    Examples
    --------
    >>> A = torch.tensor([[0.0, 1, 1], [0, 2, 2]], dtype=torch.float64)
    >>> W, info = solve_layer(A, A[:, 1:2], ridge=0)
    >>> W.squeeze().round(decimals=8).abs().tolist(), int(info.rank)
    ([0.0, 0.5, 0.5], 1)
    """
    check_options({"ridge": ridge, "rcond": rcond, "method": method}, RANGES)
    check_tensor("A", A, shape=("...", "D", "K"), dtype=DTYPES)
    check_tensor("B", B, shape=("...", A.shape[-2], "J"), like=A)
    if ridge is None:
        ridge = RIDGE if method in (None, "cholesky") else 0.0
    if method is None:
        small = A.shape[-2] * A.shape[-1] <= SMALL
        method = "cholesky" if ridge else "svd" if small else "eigh"
    if method == "eigh":
        return cut_eigh(gram(A), cross(A, B), ridge, rcond)
    if method == "svd":
        return cut_svd(A, B, ridge, rcond)
    if not ridge:
        raise ValueError(
            "the Cholesky factor of a singular matrix needs a ridge > 0, got 0; for "
            'the minimum-norm solution use method="eigh" or "svd"'
        )
    return ridge_cholesky(A, B, ridge)


class Factor(NamedTuple):
    """The factored matrix A^T A + lambda I, for any number of right sides."""

    L: Tensor  # (..., K, K) lower Cholesky factor
    lam: Tensor  # (...,) lambda
    norm: Tensor  # (...,) Frobenius norm of the matrix

    def solve(self, C: Tensor) -> Tensor:
        """Compute (A^T A + lambda I)^{-1} C for C (..., K, J) in K^2 J operations."""
        return torch.cholesky_solve(C, self.L)

    def info(self) -> Solve:
        """Estimate rank and condition from the diagonal of the factor.

        A pivot L_ii^2 - lambda is the part of column i outside the span of the columns
        before it, as far as the ridge allows to see. The largest eigenvalue lies
        between norm / sqrt(K) and norm; the smallest is at most the smallest pivot. The
        root of norm over smallest pivot estimates the condition.
        """
        pivots = self.L.diagonal(dim1=-2, dim2=-1).square()
        rank = (pivots > 2 * self.lam[..., None]).sum(-1)
        return Solve(rank, (self.norm / pivots.amin(-1)).sqrt())


def factor(A: Tensor, ridge: float) -> Factor:
    """Factor A^T A + lambda I with a relative ridge > 0."""
    G = gram(A)
    scale = G.diagonal(dim1=-2, dim2=-1).mean(-1)
    lam = ridge * torch.where(scale > 0, scale, 1)  # a zero A has the solution 0
    G.diagonal(dim1=-2, dim2=-1).add_(lam[..., None])
    L, failed = torch.linalg.cholesky_ex(G)
    if not ((failed == 0) & scale.isfinite()).all():  # the host waits once
        finite(scale)
        L = lifted(G, lam)
    return Factor(L, lam, torch.linalg.matrix_norm(G))


def lifted(G: Tensor, lam: Tensor) -> Tensor:
    """Compute the lower Cholesky factor of G with eigenvalues raised to rounding."""
    w, V = torch.linalg.eigh(G)
    floor = torch.maximum(lam, torch.finfo(w.dtype).eps * w[..., -1])
    w = torch.maximum(w, floor[..., None])
    R = torch.linalg.qr(w.sqrt()[..., None] * V.mT).R
    return (R * R.diagonal(dim1=-2, dim2=-1).sign()[..., None]).mT


def gram(A: Tensor) -> Tensor:
    """Compute A^T A from its diagonal blocks and those above them only.

    torch has no symmetric product. Four block rows save 3 / 8 of the plain product's
    work; more of them are too thin to be faster.
    """
    K = A.shape[-1]
    if K < 4 * 64:
        return A.mT @ A
    G = A.new_empty(*A.shape[:-2], K, K)
    rows = -(-K // 4)
    for i in range(0, K, rows):
        block = A[..., i : i + rows].mT @ A[..., i:]
        G[..., i : i + rows, i:] = block
        G[..., i:, i : i + rows] = block.mT
    return G


def cross(A: Tensor, B: Tensor) -> Tensor:
    """Compute A^T B with the thin factor on the left, faster in row-major memory."""
    return (B.mT @ A).mT


def ridge_cholesky(A: Tensor, B: Tensor, ridge: float) -> tuple[Tensor, Solve]:
    r"""Solve by Cholesky: (6) $W = (A^T A + \lambda I)^{-1} A^T B$ with lambda > 0."""
    regular = factor(A, ridge)
    W = regular.solve(cross(A, B))  # (6)
    return W, regular.info()


def cut_eigh(
    G: Tensor, C: Tensor, ridge: float, rcond: float | None
) -> tuple[Tensor, Solve]:
    r"""Solve on the eigenvectors V of $G = A^T A$ whose values w are kept.

    (6) $W = V\,\mathrm{diag}(w + \lambda)^{-1} V^T C$ with $C = A^T B$
    """
    rcond = (1e-6 if G.dtype == torch.float64 else 1e-3) if rcond is None else rcond
    w, V = torch.linalg.eigh(G)
    w = finite(w).clamp_min(0)
    keep = (w > rcond**2 * w[..., -1:]) & (w > 0)
    shifted = w + ridge * w.mean(-1, keepdim=True)  # the trace is the sum of w
    filtered = torch.where(keep, 1 / torch.where(keep, shifted, 1), 0)
    W = V @ (filtered[..., None] * (V.mT @ C))  # (6)
    return W, kept_info(shifted.sqrt(), keep)


def cut_svd(
    A: Tensor, B: Tensor, ridge: float, rcond: float | None
) -> tuple[Tensor, Solve]:
    r"""Solve on the singular vectors of $A = U\,\mathrm{diag}(s)\,V^T$ that are kept.

    (6) $W = V\,\mathrm{diag}(s / (s^2 + \lambda))\,U^T B$
    """
    rcond = torch.finfo(A.dtype).eps ** 0.5 if rcond is None else rcond
    U, s, Vh = torch.linalg.svd(A, full_matrices=False)
    keep = (s > rcond * s[..., :1]) & (s > 0)
    trace = finite(s.square().sum(-1, keepdim=True))
    shifted = s.square() + ridge * trace / A.shape[-1]
    filtered = torch.where(keep, s / torch.where(keep, shifted, 1), 0)
    W = Vh.mT @ (filtered[..., None] * (U.mT @ B))  # (6)
    return W, kept_info(shifted.sqrt(), keep)


def finite(values: Tensor) -> Tensor:
    """Return values that the sums of squares give, or raise a LinAlgError."""
    if not values.isfinite().all():
        raise torch.linalg.LinAlgError("A, or A^T A, is not finite")
    return values


def kept_info(s: Tensor, keep: Tensor) -> Solve:
    """Return rank and condition from singular values, with condition 1 at rank 0."""
    smallest = torch.where(keep, s, torch.inf).amin(-1)
    condition = torch.where(keep.any(-1), s.amax(-1) / smallest, 1)
    return Solve(keep.sum(-1), condition)
