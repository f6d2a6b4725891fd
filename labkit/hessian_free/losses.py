r"""Softmax cross-entropy as a least-squares problem.

A convex loss needs the square root of its curvature and a residual. A loss
$\ell(z, t)$ of one example's outputs z has the generalised Gauss-Newton matrix
$\frac1n \sum_i J_i^T H_i J_i$, $H_i = \nabla^2_z \ell$ (Schraudolph, Neural Computation
14, 2002). With $H = L L^T$ it is $A^T A$ for $A = (L_i^T J_i / \sqrt n)_i$, and

.. math:: b = -R, \quad R = (r_i / \sqrt n)_i, \quad L r = \nabla_z \ell

gives $A^T b = -\nabla f$. So this too is a least-squares problem, though $|R|^2$ is not
the loss.

Softmax has $H = \mathrm{diag}(p) - p p^T$, with p the probabilities of the outputs and
y those of the target, which are 0 and 1:

(1) $L = \mathrm{diag}(\sqrt p) - p \sqrt p^T, \qquad r = (p - y) / \sqrt p$

Here $L L^T = H$ since $\sqrt p^T \sqrt p = 1$, and $L r = p - y$ since
$\sqrt p^T r = 1^T (p - y) = 0$; for the same reason r is the shortest solution,
$L^+ (p - y)$. It is long if the model is sure of a wrong class, but that costs nothing:
LSMR's iterates depend on $A^T A$ and $A^T b$ only. They are those of the augmented
right-hand side $(0, -\nabla f / \lambda)$ of the damped system, which needs no r but
divides by lambda. If p is below the rounding unit eps of its dtype, eps stands for it
in $\sqrt p$ of (1): $L r = p - y$ still holds, $L L^T$ grows by at most eps, and each
entry has $|r| < 1 / \sqrt{eps}$.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from labkit.hessian_free.vectors import Blocks

LOSSES = "squared", "softmax"


def cross_entropy(Z: Tensor, T: Tensor) -> Tensor:
    """Return the mean loss, (): outputs (n, classes), class indices (n,)."""
    return nn.functional.cross_entropy(Z, T.long(), reduction="none").mean()


class Point:
    """The base class of linearisations, for what needs the residual R alone."""

    workers = None

    @property
    def n(self) -> int:
        """The number of examples."""
        return len(self.residual)

    def loss(self) -> Tensor:
        """Return f = |R|^2 / 2, ()."""
        return 0.5 * self.residual.square().sum()

    def dot(self, U: Tensor, V: Tensor) -> Tensor:
        """Return the inner product of two vectors like R, ()."""
        return (U * V).sum()


@dataclass(frozen=True, eq=False, repr=False)
class LinearisedSoftmax(Point):
    r"""The maps A = L' J / sqrt(n) and R = r / sqrt(n) of softmax cross-entropy.

    ``derivative`` has the maps of J / sqrt(n), and the outputs / sqrt(n) as its
    residual. A'A is the generalised Gauss-Newton matrix, A'R the gradient.
    """

    derivative: Point  # LinearisedLayers or LinearisedModule
    targets: Tensor

    @property
    def weights(self) -> Blocks:
        """The weights at which the model is linearised."""
        return self.derivative.weights

    @cached_property
    def outputs(self) -> Tensor:
        """The outputs of the model, (n, classes)."""
        return self.derivative.residual * math.sqrt(self.derivative.n)

    @cached_property
    def _p(self) -> Tensor:
        return self.outputs.softmax(1)

    @cached_property
    def _root(self) -> Tensor:
        return self._p.clamp_min(torch.finfo(self._p.dtype).eps).sqrt()

    @cached_property
    def residual(self) -> Tensor:
        """The residual R, (n, classes)."""
        y = torch.zeros_like(self._p).scatter_(1, self.targets.long()[:, None], 1.0)
        r = (self._p - y) / self._root  # (1)
        return r / math.sqrt(len(r))

    def loss(self) -> Tensor:
        """Return f, the mean over examples, ()."""
        return cross_entropy(self.outputs, self.targets)

    def _L(self, U: Tensor) -> Tensor:
        s = self._root * U
        return torch.addcmul(s, self._p, s.sum(1, keepdim=True), value=-1)  # (1)

    def forward_map(self, d: Blocks) -> Tensor:
        """Return A d: tuple like the weights -> (n, classes)."""
        Jd, s = self.derivative.forward_map(d), self._root
        return s * Jd - s * (self._p * Jd).sum(1, keepdim=True)  # (1), L'

    def transpose_map(self, U: Tensor) -> Blocks:
        """Return A'U: (n, classes) -> tuple like the weights."""
        return self.derivative.transpose_map(self._L(U))

    def sum_squares(self, U: Tensor) -> Blocks:
        r"""Return $\sum_i (J_i^T L_i u_i)^2$ of each entry, like the weights."""
        return self.derivative.sum_squares(self._L(U))

    def gradient_moments(self) -> tuple[Blocks, Tensor]:
        """Return the moments, as :meth:`LinearisedLayers.gradient_moments`."""
        return self.derivative.gradient_moments(self._L(self.residual))
