r"""Leave-one-out errors, by which the estimators choose among ridges.

They are not in Zhu's paper; the numbering is ours.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from labkit.broad.nodes import CHUNK
from labkit.broad.triangular import gram, mm


def leave_one_out(
    A: Tensor, Y: Tensor, ridges: Sequence[float]
) -> tuple[Tensor, Tensor]:
    r"""Compute the leave-one-out squared error at each of many ridges.

    Every sample is predicted by a fit to all others. One eigendecomposition serves all
    ridges. With $A^T A = Q\,\mathrm{diag}(s)\,Q^T$,
    $B = A Q$ and $d = 1 / (s + \lambda)$,

    (1) $h_i = \sum_j B_{ij}^2 d_j$    (2) $E = Y - B\,\mathrm{diag}(d)\,B^T Y$
    (3) $e_i = E_i / (1 - h_i)$, the residual without sample i

    Where there are at least as many columns as samples, $A A^T = Q\,\mathrm{diag}(s)\,
    Q^T$, $1 - h = \lambda\,\mathrm{diag}(Q\,\mathrm{diag}(d)\,Q^T)$ and
    $E = \lambda\,Q\,\mathrm{diag}(d)\,Q^T Y$ are used instead.

    Parameters
    ----------
    A, Y : (l, k), (l, c) tensors, columns and targets
    ridges : sequence of r numbers > 0

    Returns
    -------
    errors : (r,) tensor, sums over samples and outputs
    norm : () tensor, |A|^2

    Notes
    -----
    The cost is about 9 m^3 operations with m = min(l, k), and 3 l k^2 more for l > k,
    l^2 k more otherwise.
    """
    l, k = A.shape  # noqa: E741
    wide = l <= k
    s, Q = torch.linalg.eigh(gram(A.T.contiguous()) if wide else gram(A))
    lam = s.new_tensor(ridges)
    d = 1 / (s.clamp_min(0)[:, None] + lam)  # (m, r)
    BY = Q.T @ (Y if wide else mm(A.T, Y))
    errors = torch.zeros_like(lam)
    rows = (Q if wide else A).split(CHUNK), Y.split(CHUNK)
    for A_i, Y_i in zip(*rows, strict=True):
        B = A_i if wide else A_i @ Q
        h = B.square() @ d  # (1)
        rest = lam * h if wide else 1 - h
        for r, ridge in enumerate(lam):
            fit = B @ (d[:, r, None] * BY)
            E = ridge * fit if wide else Y_i - fit  # (2)
            errors[r] += (E / rest[:, r, None]).square().sum()  # (3)
    return errors, s[-1]
