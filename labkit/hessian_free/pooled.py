"""The linearisation of a batch whose rows lie on several workers.

Under ``DistributedDataParallel`` each worker has the same weights and rows of its own.
The rows of all workers are one batch, in the order of ranks. Tensors with an entry for
each row are gathered, and those with one for each weight are summed, so that every
worker has the same numbers, runs LSMR or CG on them as one process would, and makes the
same decisions. A product A d gathers the residuals of all rows; A'U sums P numbers.
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
    """The workers of a step and the number of rows of each, read once.

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
        """The number of rows of all workers."""
        return sum(self.counts)

    @property
    def share(self) -> float:
        """The share of the rows that this worker has."""
        return self.counts[self.rank] / self.n

    def gather(self, x: Tensor) -> Tensor:
        """Return the rows of all workers, given a tensor of this worker's rows."""
        most = max(self.counts)
        padded = x.new_zeros(most, *x.shape[1:])
        padded[: len(x)] = x
        parts = zip(self._gathered(padded), self.counts, strict=True)
        return torch.cat([part[:n] for part, n in parts])

    def mine(self, x: Tensor) -> Tensor:
        """Return this worker's rows of a tensor of all rows."""
        return x.split(self.counts)[self.rank]

    def first(self, x: Tensor) -> Tensor:
        """Return the tensor of rank 0."""
        x = x.contiguous()
        dist.broadcast(x, dist.get_global_rank(self.group, 0), group=self.group)
        return x

    def _gathered(self, x: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return parts


@dataclass(frozen=True, eq=False, repr=False)
class Pooled:
    """The result of :func:`labkit.hessian_free.linearise` for the rows of all workers.

    Each rank must make the same calls in the same order.
    """

    point: object  # the linearisation of this worker's rows
    workers: Workers

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """The weights at which the model is linearised."""
        return self.point.weights

    @property
    def n(self) -> int:
        """The number of examples of all workers."""
        return self.workers.n

    @cached_property
    def residual(self) -> Tensor:
        """The residual R of all rows."""
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
        """Return the sums of squares, as ``LinearisedLayers.sum_squares``."""
        squares = self.point.sum_squares(self.workers.mine(U).contiguous())
        return tuple(sum_over(squares, self.workers.group))

    def gradient_moments(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the moments, as ``LinearisedLayers.gradient_moments``."""
        gradient, squares = self.point.gradient_moments()
        gradient = tuple(self._mean(gradient))
        return gradient, sum_over([squares], self.workers.group)[0]

    def agreed(self, x: Tensor) -> Tensor:
        """Return the random numbers of rank 0 in place of each worker's own."""
        return self.workers.first(x)

    def _all(self, x):
        """Gather rows, scaled so that their factor is 1 / sqrt(n) of all rows."""
        return self.workers.gather(x * self.workers.share**0.5)

    def _mean(self, tensors):
        weight = self.workers.counts[self.workers.rank]
        return mean_over(list(tensors), self.workers.group, weight=weight)
