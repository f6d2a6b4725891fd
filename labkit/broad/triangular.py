"""Products and solves by blocks that skip the zeros of a triangular matrix.

torch has no triangular product and computes ``H.T @ H`` in full. Here blocks skip
most of the zeros (of the skipped half, a share of about block / k is computed all the
same), work on strided views of a larger buffer without copying it, and are plain
matrix products on every device.

Results with many rows and few columns are computed as their transposes and returned as
views of them: BLAS takes a tenth less time this way, and blocks that update all later
columns (right-looking) take a sixth less than blocks that gather from all earlier ones.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch.linalg import solve_triangular

# Columns of a block: large enough for the rate of a full product, small against k.
BLOCK = {"cpu": 160}
BLOCK_ELSEWHERE = 1024


def spans(n: int, device: torch.device) -> Iterator[tuple[int, int]]:
    """Split 0..n into nearly equal blocks of the size that suits the device."""
    count = max(1, round(n / BLOCK.get(device.type, BLOCK_ELSEWHERE)))
    edges = [n * i // count for i in range(count + 1)]
    return pairwise(edges)


def mm(X: Tensor, Y: Tensor) -> Tensor:
    """Compute X Y, which has few columns, as a view of the transpose of Y^T X^T."""
    return (Y.T @ X.T).T


def gram(H: Tensor) -> Tensor:
    """Compute H^T H for H (l, q) in q^2 l operations.

    It is symmetric to the bit on the CPU, elsewhere up to rounding near the diagonal.
    """
    if H.device.type == "cpu":  # NumPy knows this product: BLAS syrk
        X = H.detach().numpy()
        return torch.from_numpy(X.T @ X)
    S = H.new_empty(H.shape[1], H.shape[1])
    for i, j in spans(H.shape[1], H.device):
        torch.mm(H[:, i:j].T, H[:, i:], out=S[i:j, i:])
        S[j:, i:j] = S[i:j, j:].T
    return S


def upper_mm(
    F: Tensor, X: Tensor, out: Tensor | None = None, *, every: int = 1
) -> Tensor:
    """Compute F X for upper triangular F (k, k) and X (k, q) in k^2 q operations.

    With ``every`` = p, F (k, n) holds every p-th column of such a triangle, beginning
    at any of the first p, and X is (n, q); the cost is then k n q operations.
    """
    out = X.new_zeros(X.shape[1], len(F)) if out is None else out.zero_().T
    for i, j in spans(F.shape[1], F.device):
        top = j * every  # rows below are zeros
        out[:, :top].addmm_(X[i:j].T, F[:top, i:j].T)
    return out.T


def upper_t_mm(F: Tensor, X: Tensor, *, every: int = 1) -> Tensor:
    """Compute F^T X for X (k, q), with F and ``every`` as in :func:`upper_mm`.

    The cost is k^2 q operations.
    """
    out = X.new_zeros(X.shape[1], F.shape[1])
    for i, j in spans(len(F), F.device):
        left = i // every  # columns before are zeros in these rows
        out[:, left:].addmm_(X[i:j].T, F[i:j, left:])
    return out.T


def mm_upper(X: Tensor, G: Tensor) -> Tensor:
    """Compute X G for X (k, q) and upper triangular G (q, q); k q^2 operations."""
    out = torch.empty_like(X.T)
    for i, j in spans(len(G), G.device):
        torch.mm(G[:j, i:j].T, X[:, :j].T, out=out[i:j])
    return out.T


def lower_solve(L: Tensor, X: Tensor) -> Tensor:
    """Compute L^-1 X for lower triangular L (k, k), X (k, q); k^2 q operations."""
    out = X.T.clone(memory_format=torch.contiguous_format)
    for i, j in spans(len(L), L.device):
        x = solve_triangular(L[i:j, i:j].T, out[:, i:j], upper=True, left=False)
        out[:, i:j] = x
        out[:, j:].addmm_(x, L[j:, i:j].T, alpha=-1)
    return out.T


def lower_t_solve(L: Tensor, X: Tensor) -> Tensor:
    """Compute L^-T X for lower triangular L (k, k), X (k, q); k^2 q operations."""
    out = X.T.clone(memory_format=torch.contiguous_format)
    for i, j in reversed(list(spans(len(L), L.device))):
        x = solve_triangular(L[i:j, i:j], out[:, i:j], upper=False, left=False)
        out[:, i:j] = x
        out[:, :i].addmm_(x, L[i:j, :i], alpha=-1)
    return out.T
