"""The inverse LDL^T factorisation by blocks of columns, as Zhu distributes it.

Appendices E-C and E-D: the nodes are cut into one block per worker, worker w holds its
columns of the upper triangle of R, and Algorithm 13 runs column by column. Its messages
go from a worker to another on its right:

=========  ===========================================================================
nodes      (229): A_w, once to every worker on the right
columns    the part m of column i above the diagonal and d, from the column's owner
rows       each worker's entries of row i right of the diagonal, from the owner on
=========  ===========================================================================
"""

from itertools import pairwise

import torch
import torch.distributed as dist

from labkit.broad.factor import NotPositiveDefinite
from labkit.broad.ridge import with_ridge
from labkit.broad.triangular import gram, mm


def block_inverse_ldl(A, edges, ridge, mesh):
    """Columns of L (k, k_w) and d (k_w,) of this worker, R^-1 = L diag(d) L^T (206).

    Worker w has the nodes A (l, k_w) from edges[w] to edges[w + 1]. A lost pivot is
    raised by its owner and all on its right; those on its left have finished.
    """
    group = mesh.get_group()
    check_edges(edges, A.shape[1], group.rank(), group.size())
    B = block_of_gram(A, edges, ridge, group)
    block_sweep(B, edges, group)
    start, end = edges[group.rank()], edges[group.rank() + 1]
    L = B.new_zeros(edges[-1], end - start)
    L[:end] = B.triu(-start)
    d = B[start:].diagonal().clone()
    L[start:end].fill_diagonal_(1)
    return L, d


def block_of_gram(A, edges, ridge, group):
    """Columns of the upper triangle of R in this worker, (edges[w + 1], k_w) (229)."""
    w, blocks = group.rank(), []
    for i, (start, end) in enumerate(pairwise(edges[: w + 1])):
        A_i = A.new_empty(len(A), end - start)
        dist.recv(A_i, group=group, group_src=i)
        blocks.append(mm(A_i.T, A))
    send_right(A, group)
    return torch.cat([*blocks, with_ridge(gram(A), ridge)])


def block_sweep(B, edges, group):
    """Algorithm 13 in place: B (edges[w + 1], k_w) receives columns of L and d.

    The letters are those of ``labkit.broad.ldl.small_inverse_ldl``.
    """
    w = group.rank()
    start = edges[w]
    for owner, (first, last) in enumerate(pairwise(edges[: w + 2])):
        for i in range(first, last):
            column = B.new_empty(i + 1)
            if owner == w:
                column[:i], column[i] = B[:i, i - start], 1 / B[i, i - start]  # (223a)
                send_right(column, group)
            else:
                dist.recv(column, group=group, group_src=owner)
            m, d = column[:i], column[i]
            if not 1 / d > 0:
                raise NotPositiveDefinite(i, float(1 / d))
            own = slice(max(i + 1 - start, 0), None)
            v = row_up_to_here(B[i, own].contiguous(), i, owner, edges, group)
            r = -d * B[i, own]  # (a)
            B[i + 1 :, own].addr_(v, r)  # (223b)
            B[:i, own].addr_(m, r)  # (223c)
            B[i, own] = r  # (223c)
            if owner == w:
                B[i, i - start] = d  # (223a)


def row_up_to_here(part, i, owner, edges, group):
    """Row i from column i + 1 to this worker's last: others' parts, then its own."""
    parts = []
    for u in range(owner, group.rank()):
        width = edges[u + 1] - max(i + 1, edges[u])
        if width:
            parts.append(part.new_empty(width))
            dist.recv(parts[-1], group=group, group_src=u)
    if len(part):
        send_right(part, group)
    return torch.cat([*parts, part])


def send_right(x, group):
    for j in range(group.rank() + 1, group.size()):
        dist.send(x.contiguous(), group=group, group_dst=j)


def messages(edges, l):  # noqa: E741
    """Messages of all workers and numbers in them, by what they carry.

    With p equal blocks of k nodes in all: l k (p - 1) / 2 numbers of nodes, and
    k^2 (p - 1) (2 p - 1) / (12 p) of columns and of rows, up to terms in k.

    >>> messages([0, 2, 5], l=10)
    {'nodes': (1, 20), 'columns': (2, 3), 'rows': (1, 1)}
    """
    sent = {"nodes": [], "columns": [], "rows": []}
    for w, (start, end) in enumerate(pairwise(edges)):
        right = len(edges) - 2 - w
        sent["nodes"] += right * [l * (end - start)]
        sent["columns"] += [i + 1 for i in range(start, end) for _ in range(right)]
        widths = (end - max(start, i + 1) for i in range(end))
        sent["rows"] += [n for n in widths if n for _ in range(right)]
    return {kind: (len(sizes), sum(sizes)) for kind, sizes in sent.items()}


def check_edges(edges, width, w, p):
    """Refuse blocks that are not one per worker, or not this worker's."""
    if len(edges) != p + 1 or edges[0] != 0 or any(a >= b for a, b in pairwise(edges)):
        raise ValueError(
            f"edges must ascend from 0 and be {p + 1} for {p} workers, got {edges}"
        )
    if width != edges[w + 1] - edges[w]:
        raise ValueError(
            f"worker {w} has nodes {edges[w]} to {edges[w + 1]}, but A has {width}"
        )
