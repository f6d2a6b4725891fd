r"""The placement of nodes and samples on workers, and the exchanges between workers.

A mesh (:class:`torch.distributed.device_mesh.DeviceMesh`) has a dimension called
``"nodes"``, one called ``"samples"``, or both. Along ``"nodes"``, node i in the order
of growth lives on worker i mod p. So shares differ by one node at most whatever the
sizes of the updates, every update finds work for all, and no node ever moves. (With the
contiguous blocks of DTensor's ``Shard`` an appended column would change the owner of
old ones, and ``torch.cat`` of DTensors gathers the whole matrix on every worker.)

Every exchange is one call of ``torch.distributed``, which all workers of the dimension
must make. A dimension that the mesh does not have exchanges nothing. A dimension with a
single worker makes the same calls as any other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from labkit.collectives import sum_over

if TYPE_CHECKING:  # a torch without torch.distributed has neither
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

DIMENSIONS = ("samples", "nodes")


@dataclass(frozen=True)
class Place:
    """The place of a worker on the mesh: of 7 nodes on 3 workers, worker 1 has 1 and 4.

    Examples
    --------
    >>> place = Place(p=3, rank=1)
    >>> list(range(7))[place.own(0)], place.count(7), list(range(7, 11))[place.own(7)]
    ([1, 4], 2, [7, 10])
    """

    p: int = 1  # workers that share the nodes
    rank: int = 0  # of this worker among them
    nodes: "ProcessGroup | None" = None
    samples: "ProcessGroup | None" = None

    @classmethod
    def on(cls, mesh: "DeviceMesh") -> "Place":
        """Return the place of this worker on the mesh."""
        names = check_mesh(mesh)
        samples = mesh.get_group("samples") if "samples" in names else None
        if "nodes" not in names:
            return cls(samples=samples)
        nodes = mesh.get_group("nodes")
        return cls(nodes.size(), nodes.rank(), nodes, samples)

    def count(self, k: int) -> int:
        """Return how many of the first k nodes live on this worker."""
        return (k - self.rank + self.p - 1) // self.p

    def own(self, k: int) -> slice:
        """Return which of the nodes k, k + 1, ... live on this worker."""
        return slice((self.rank - k) % self.p, None, self.p)

    def rows(self, q: int) -> slice:
        """Return this worker's rows of an upper triangle (q, q), of equal areas."""
        i, j = (1 - (1 - (self.rank + e) / self.p) ** 0.5 for e in (0, 1))
        return slice(round(q * i), round(q * j))

    def gathered(self, P: Tensor, k: int) -> Tensor:
        """Return P (k, q) in the order of growth from the rows of all; one all-gather.

        Shares are padded to the same ceil(k / p) rows.
        """
        if self.nodes is None or k == 0:
            return P
        n, q = -(-k // self.p), P.shape[1]
        whole = P.new_empty(self.p, q, n)  # transposed, as products of few columns are
        mine = _padded(P, n).T.contiguous()
        _all_gather()(whole.view(-1, n), mine, group=self.nodes)
        return whole.permute(1, 2, 0).reshape(q, n * self.p)[:, :k].T

    def summed(self, X: Tensor) -> Tensor:
        """Sum X in place over the workers that share the nodes; one all-reduce."""
        if self.nodes is not None:
            dist.all_reduce(X, group=self.nodes)
        return X

    def scattered(self, T: Tensor, U: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return this worker's part of two sums over workers; one reduce-scatter.

        T (k, q) has nodes k to k + q as columns, of which the worker gets its own, and
        U (k, c) has nodes 0 to k as rows. For the exchange, shares are padded to the
        same ceil(q / p) columns and ceil(k / p) rows.
        """
        if self.nodes is None or k == 0:
            return T[:, self.own(k)], U
        q, c = T.shape[1], U.shape[1]
        m, n = -(-q // self.p), -(-k // self.p)
        parts = []
        for other in (Place(self.p, rank) for rank in range(self.p)):
            parts.append(_padded(T.T[other.own(k)], m).flatten())
            parts.append(_padded(U[other.own(0)], n).flatten())
        mine = T.new_empty(m * k + n * c)
        _reduce_scatter()(mine, torch.cat(parts), group=self.nodes)
        T, U = mine[: m * k].view(m, k), mine[m * k :].view(n, c)
        return T[: self.count(k + q) - self.count(k)].T, U[: self.count(k)]

    def summed_over_samples(self, *sums: Tensor) -> tuple[Tensor, ...]:
        """Return the sums over the samples of all workers; one all-reduce."""
        return sums if self.samples is None else tuple(sum_over(sums, self.samples))

    def largest_over_samples(self, *x: Tensor) -> tuple[Tensor, ...]:
        """Return the largest value of any worker, entry by entry; one all-reduce."""
        if self.samples is None:
            return x
        largest = torch.stack(x)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.samples)
        return largest.unbind()

    def first_of(self, x: Tensor) -> Tensor:
        """Return the first worker's x, broadcast along every dimension."""
        for group in (self.samples, self.nodes):
            if group is not None:
                dist.broadcast(x, group=group, group_src=0)
        return x

    def united(self, values: np.ndarray) -> np.ndarray:
        """Return the sorted distinct values of the workers that share the samples."""
        everyone = [values]
        if self.samples is not None:
            everyone *= self.samples.size()
            dist.all_gather_object(everyone, values, group=self.samples)
        return np.unique(np.concatenate(everyone))


ALONE = Place()  # a single worker, which exchanges nothing


def _padded(X: Tensor, rows: int) -> Tensor:
    """Return X, padded with rows of zeros to ``rows`` rows."""
    missing = rows - len(X)
    return torch.cat([X, X.new_zeros(missing, X.shape[1])]) if missing else X


def _all_gather() -> Callable:
    """Return the all-gather of tensors by its name in this version of torch."""
    name = "all_gather_single"  # since torch 2.13, which warns of the old name
    return getattr(dist, name, None) or dist.all_gather_into_tensor


def _reduce_scatter() -> Callable:
    """Return the reduce-scatter of tensors by its name in this version of torch."""
    name = "reduce_scatter_single"  # since torch 2.13, which warns of the old name
    return getattr(dist, name, None) or dist.reduce_scatter_tensor


def check_mesh(mesh: Any) -> tuple[str, ...]:
    """Return the names of the mesh's dimensions, or raise a ValueError."""
    if not dist.is_available():
        raise ValueError(f"this torch has no torch.distributed for mesh={mesh!r}")
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(mesh, DeviceMesh):
        raise ValueError(f"mesh must be a DeviceMesh, got {mesh!r}")
    names = mesh.mesh_dim_names
    if not names or not set(names) <= set(DIMENSIONS):
        raise ValueError(
            f"mesh needs mesh_dim_names out of {DIMENSIONS}, got {names!r}: "
            f"init_device_mesh('cpu', (2,), mesh_dim_names=('nodes',))"
        )
    return names
