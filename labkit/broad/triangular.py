"""Products and solves that use the zeros of a triangle, by block rows.

torch has no triangular product and turns ``H.T @ H`` into a full one. Block rows skip
most of the zeros (a share of about block / k of the skipped half is computed all the
same), work on strided views of a larger buffer without copying it, and are plain
matrix products on every device.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

# Rows of a block: large enough for the rate of a full product, small against k.
BLOCK = {"cpu": 160}
BLOCK_ELSEWHERE = 1024


def spans(n: int, device: torch.device) -> Iterator[tuple[int, int]]:
    """Cut 0..n into nearly equal blocks of the size that suits the device."""
    count = max(1, round(n / BLOCK.get(device.type, BLOCK_ELSEWHERE)))
    edges = [n * i // count for i in range(count + 1)]
    return pairwise(edges)


def gram(H: Tensor) -> Tensor:
    """H^T H for H (l, q), symmetric to the bit; q^2 l operations and a few blocks."""
    S = H.new_empty(H.shape[1], H.shape[1])
    for i, j in spans(H.shape[1], H.device):
        torch.mm(H[:, i:j].T, H[:, i:], out=S[i:j, i:])
    return mirror(S)


def mirror(S: Tensor) -> Tensor:
    """Copy the upper triangle of S (q, q) onto the lower, in place."""
    for i, j in spans(len(S), S.device):
        S[j:, i:j] = S[i:j, j:].T
        S[i:j, i:j] = S[i:j, i:j].triu() + S[i:j, i:j].triu(1).T
    return S


def upper_mm(F: Tensor, X: Tensor, out: Tensor | None = None) -> Tensor:
    """F X for upper triangular F (k, k) and X (k, q); k^2 q operations."""
    out = torch.empty_like(X) if out is None else out
    for i, j in spans(len(F), F.device):
        torch.mm(F[i:j, i:], X[i:], out=out[i:j])
    return out


def upper_t_mm(F: Tensor, X: Tensor) -> Tensor:
    """F^T X for upper triangular F (k, k) and X (k, q); k^2 q operations."""
    out = torch.empty_like(X)
    for i, j in spans(len(F), F.device):
        torch.mm(F[:j, i:j].T, X[:j], out=out[i:j])
    return out


def mm_upper(X: Tensor, G: Tensor) -> Tensor:
    """X G for X (k, q) and upper triangular G (q, q); k q^2 operations."""
    out = torch.empty_like(X)
    for i, j in spans(len(G), G.device):
        torch.mm(X[:, :j], G[:j, i:j], out=out[:, i:j])
    return out


def lower_solve(L: Tensor, X: Tensor) -> Tensor:
    """L^-1 X for lower triangular L (k, k) and X (k, q); k^2 q operations."""
    X = X.clone()
    for i, j in spans(len(L), L.device):
        X[i:j].addmm_(L[i:j, :i], X[:i], alpha=-1)
        X[i:j] = torch.linalg.solve_triangular(L[i:j, i:j], X[i:j], upper=False)
    return X


def lower_t_solve(L: Tensor, X: Tensor) -> Tensor:
    """L^-T X for lower triangular L (k, k) and X (k, q); k^2 q operations."""
    X = X.clone()
    for i, j in reversed(list(spans(len(L), L.device))):
        X[i:j].addmm_(L[j:, i:j].T, X[j:], alpha=-1)
        X[i:j] = torch.linalg.solve_triangular(L[i:j, i:j].T, X[i:j], upper=True)
    return X
