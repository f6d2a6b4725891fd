"""The linearisation of a batch whose rows lie on several workers.

The rows of all workers are one batch. Each worker keeps its own rows of R and of A d,
scaled by 1 / sqrt(n) of all; what has the shape of the weights, and each number, is a
sum over the workers and the same on all of them, so that they make the same decisions.
Each must make the same calls in the same order.
"""

from dataclasses import dataclass

from torch import Tensor

from labkit.hessian_free.losses import Point
from labkit.hessian_free.vectors import Blocks, scaled


@dataclass(frozen=True, eq=False, repr=False)
class Pooled:
    """The result of :func:`labkit.hessian_free.linearise` for the rows of all workers.

    Attributes
    ----------
    point : Point, the linearisation of this worker's rows
    workers : see :func:`labkit.scale.workers`
    n : int, the number of examples of all workers
    """

    point: Point
    workers: object
    n: int

    @property
    def weights(self) -> Blocks:
        """The weights at which the model is linearised."""
        return self.point.weights

    @property
    def share(self) -> float:
        """The share of the rows that this worker has."""
        return self.point.n / self.n

    @property
    def residual(self) -> Tensor:
        """The residual R of this worker's rows."""
        return self.point.residual * self.share**0.5

    def loss(self) -> Tensor:
        """Return f, the mean over examples, ()."""
        return self.workers.sum([self.share * self.point.loss()])[0]

    def dot(self, U: Tensor, V: Tensor) -> Tensor:
        """Return the inner product of two vectors like R of all rows, ()."""
        return self.workers.sum([self.point.dot(U, V)])[0]

    def forward_map(self, d: Blocks) -> Tensor:
        """Return A d: tuple like the weights -> like R."""
        return self.point.forward_map(d) * self.share**0.5

    def transpose_map(self, U: Tensor) -> Blocks:
        """Return A'U: like R -> tuple like the weights."""
        return tuple(self.workers.sum(self.point.transpose_map(U * self.share**0.5)))

    def sum_squares(self, U: Tensor) -> Blocks:
        """Return the sums of squares, as ``LinearisedLayers.sum_squares``."""
        return tuple(self.workers.sum(self.point.sum_squares(U)))

    def gradient_moments(self) -> tuple[Blocks, Tensor]:
        """Return the moments, as ``LinearisedLayers.gradient_moments``."""
        gradient, squares = self.point.gradient_moments()
        gradient = scaled(gradient, self.share)
        *gradient, squares = self.workers.sum([*gradient, squares])
        return tuple(gradient), squares
