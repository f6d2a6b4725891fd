r"""The inverse LDL^T factorisation shared by blocks of columns (Zhu, appendix E-D).

Each worker has a block of the columns of R's upper triangle, which become its columns
of L. In step i the owner of column i sends the part m of it above the diagonal and d to
all workers on its right, and each of these sends what it has of row i to all on *its*
right. Here the workers take turns in one process, and :func:`column_step` is what one
of them does with what it has been sent. That is a message or two for each column; see
:mod:`labkit.scale` for broad learning on several processes with three for each update.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from labkit.broad.factor import check_pivots, check_square
from labkit.precision import outside_modes


@outside_modes()
def block_inverse_ldl(R: Tensor, edges: Sequence[int]) -> tuple[Tensor, Tensor]:
    r"""Compute the inverse LDL^T factors of R by blocks of columns (Algorithm 13).

    With m and s the part of column i above the diagonal and the pivot, as in Algorithm
    12, and :func:`column_step` for what the workers do with them:

    (222) $L_{:i,i} = m, \; L_{ii} = 1$    (223a) $d = 1 / s$

    The cost is 2 k^3 / 3 operations. With p equal blocks the workers send
    k^2 (p - 1) (2 p - 1) / (12 p) numbers each of columns and of rows, up to terms in
    k.

    Parameters
    ----------
    R : (k, k) tensor, symmetric positive definite
    edges : sequence of int, 0 to k
        Worker w has the columns from ``edges[w]`` to ``edges[w + 1]``.

    Returns
    -------
    L, d : (k, k), (k,) tensors, as those of :func:`~labkit.broad.inverse_ldl`

    Raises
    ------
    NotPositiveDefinite
        A pivot was lost.
    ValueError
        The edges do not ascend from 0 to k.

    Examples
    --------
    >>> L, d = block_inverse_ldl(torch.tensor([[4.0, 2.0], [2.0, 5.0]]), [0, 1, 2])
    >>> L.tolist(), d.tolist()
    ([[1.0, -0.5], [0.0, 1.0]], [0.25, 0.25])
    """
    check_square(R)
    bounds, k = list(pairwise(edges)), len(R)
    ascending = all(first < last for first, last in bounds)
    if not bounds or not ascending or (edges[0], edges[-1]) != (0, k):
        raise ValueError(f"edges must ascend from 0 to {k}, got {list(edges)}")
    blocks = [R[:last, first:last].clone() for first, last in bounds]
    for owner, (first, last) in enumerate(bounds):
        for i in range(first, last):
            m, s = blocks[owner][:i, i - first].clone(), blocks[owner][i, i - first]
            check_pivots([s], i)
            d, v = 1 / s, R.new_empty(0)  # (223a)
            for B, (start, _) in zip(blocks[owner:], bounds[owner:], strict=True):
                v = torch.cat([v, B[i, max(i + 1 - start, 0) :]])
                column_step(B, i, start, m, d, v)
            blocks[owner][i, i - first] = d  # (223a)
    L = R.new_zeros(k, k)
    for B, (first, last) in zip(blocks, bounds, strict=True):
        L[:last, first:last] = B
    d = L.diagonal().clone()
    L.fill_diagonal_(1)  # (222)
    return L.triu_(), d


def column_step(B: Tensor, i: int, start: int, m: Tensor, d: Tensor, v: Tensor) -> None:
    r"""Perform what one worker does in step i of Algorithm 13, on its columns in place.

    (a) $r = -d\,v$    (223b) $S \leftarrow S + v^T r$
    (223c) $M \leftarrow M + m r, \; M_i = r$

    Parameters
    ----------
    B : (end, k_w) tensor, its columns ``start`` to ``end`` of the upper triangle
    m, d : (i,), () tensors, what the owner of column i sends
    v : (end - i - 1,) tensor
        Row i from column i + 1 on: what the workers on its left send, then its own.
    """
    own = slice(max(i + 1 - start, 0), None)
    r = -d * B[i, own]  # (a)
    B[i + 1 :, own].addr_(v, r)  # (223b)
    B[:i, own].addr_(m, r)  # (223c)
    B[i, own] = r  # (223c)
