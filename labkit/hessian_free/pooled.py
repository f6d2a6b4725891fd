"""The linearisation of a batch whose rows lie on several workers.

Under ``DistributedDataParallel`` each worker has the same weights and rows of its own.
The rows of all of them are one batch, in the order of ranks. What has an entry for each
row is gathered, what has one for each weight is summed up, so that every worker holds
the same numbers, runs LSMR or CG on them as one process would, and decides alike. A
product A d gathers the residuals of all rows; a product A'U sums up P numbers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.collectives import mean_over, sum_over
from labkit.hessian_free.vectors import Blocks

if TYPE_CHECKING:  # a torch without torch.distributed has none
    from torch.distributed import ProcessGroup


class Workers:
    """The workers of a step and how many rows each of them has; one read.

    Parameters
    ----------
    group : ProcessGroup, each of whose ranks must make this call
    inputs : tensor, the rows of this worker
    """

    def __init__(self, group: "ProcessGroup", inputs: Tensor):
        self.group, self.rank = group, dist.get_rank(group)
        mine = torch.tensor([len(inputs)], device=inputs.device)
        self.counts = torch.cat(self._gathered(mine)).tolist()

    @property
    def n(self) -> int:
        """Rows of all workers."""
        return sum(self.counts)

    @property
    def share(self) -> float:
        """Which share of the rows this worker has."""
        return self.counts[self.rank] / self.n

    def gather(self, x: Tensor) -> Tensor:
        """Return the rows of all workers, from a tensor of those of each."""
        most = max(self.counts)
        padded = x.new_zeros(most, *x.shape[1:])
        padded[: len(x)] = x
        parts = zip(self._gathered(padded), self.counts, strict=True)
        return torch.cat([part[:n] for part, n in parts])

    def mine(self, x: Tensor) -> Tensor:
        """Return this worker's rows of a tensor of all."""
        return x.split(self.counts)[self.rank]

    def first(self, x: Tensor) -> Tensor:
        """Return the tensor that rank 0 has."""
        x = x.contiguous()
        dist.broadcast(x, dist.get_global_rank(self.group, 0), group=self.group)
        return x

    def _gathered(self, x: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return parts


@dataclass(frozen=True, eq=False, repr=False)
class Pooled:
    """What :func:`labkit.hessian_free.linearise` returns, for the rows of all workers.

    Each rank must make the same calls in the same order.
    """

    point: object  # that of this worker's rows
    workers: Workers

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Where it is linearised."""
        return self.point.weights

    @property
    def n(self) -> int:
        """Number of examples of all workers."""
        return self.workers.n

    @cached_property
    def residual(self) -> Tensor:
        """R, of all rows."""
        return self._all(self.point.residual)

    def loss(self) -> Tensor:
        """Return f, the mean over examples, ()."""
        return self._mean([self.point.loss()])[0]

    def forward_map(self, d: Blocks) -> Tensor:
        """Return A d: tuple like the weights -> like R."""
        return self._all(self.point.forward_map(d))

    def transpose_map(self, U: Tensor) -> tuple[Tensor, ...]:
        """Return A'U: like R -> tuple like the weights."""
        mine = self.workers.mine(U) * self.workers.share**0.5
        return tuple(sum_over(self.point.transpose_map(mine), self.workers.group))

    def sum_squares(self, U: Tensor) -> tuple[Tensor, ...]:
        """See :meth:`labkit.hessian_free.linearise.LinearisedLayers.sum_squares`."""
        squares = self.point.sum_squares(self.workers.mine(U).contiguous())
        return tuple(sum_over(squares, self.workers.group))

    def gradient_moments(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """See ``LinearisedLayers.gradient_moments``."""
        gradient, squares = self.point.gradient_moments()
        gradient = tuple(self._mean(gradient))
        return gradient, sum_over([squares], self.workers.group)[0]

    def agreed(self, x: Tensor) -> Tensor:
        """Return what rank 0 has, of random numbers that each worker draws."""
        return self.workers.first(x)

    def _all(self, x):
        """Gather rows, whose factor 1 / sqrt(n) is then that of all rows."""
        return self.workers.gather(x * self.workers.share**0.5)

    def _mean(self, tensors):
        weight = self.workers.counts[self.workers.rank]
        return mean_over(list(tensors), self.workers.group, weight=weight)
