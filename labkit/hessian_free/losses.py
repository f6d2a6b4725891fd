r"""Convex losses as least squares: the square root of their curvature and a residual.

A loss $\ell(z, t)$ of one example's outputs z has the generalised Gauss-Newton matrix
$\frac1n \sum_i J_i^T H_i J_i$, $H_i = \nabla^2_z \ell$ (Schraudolph, Neural Computation
14, 2002). With $H = L L^T$ it is $A^T A$ for $A = (L_i^T J_i / \sqrt n)_i$, and

.. math:: b = -R, \quad R = (r_i / \sqrt n)_i, \quad L r = \nabla_z \ell

gives $A^T b = -\nabla f$: again a least-squares problem, though $|R|^2$ is no loss.

Softmax, p the probabilities and y the target's: $H = \mathrm{diag}(p) - p p^T$ and

(1) $L = \mathrm{diag}(\sqrt p) - p \sqrt p^T, \qquad r = (p - y) / \sqrt p$

for $L L^T = H$ since $\sqrt p^T \sqrt p = 1$, and $L r = p - y$ since
$\sqrt p^T r = 1^T (p - y) = 0$, by which r is the shortest solution, $L^+ (p - y)$.
Nothing here is lost by b being a long vector where an example is sure of a wrong class:
LSMR's iterates depend on $A^T A$ and $A^T b$ only. They are those of the augmented
right-hand side $(0, -\nabla f / \lambda)$ of the damped system, which needs no r but
divides by lambda. Below the rounding unit eps of its type, p is taken for eps in
$\sqrt p$ of (1): $L r = p - y$ still holds, $L L^T$ grows by at most eps, and
$|r| < 1 / \sqrt{eps}$ an entry.

Logistic, an output each, $H = p (1 - p)$: (2) $L = \sqrt{p (1 - p)}$,
$r = (p - y) / L$.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import grad, vjp

from labkit.hessian_free.autoencoder import Autoencoder

HEADS = (nn.Softmax, nn.Sigmoid)


@dataclass(frozen=True)
class Loss:
    r"""A loss of one's own for Hessian-free: a convex function of each row of outputs.

    Attributes
    ----------
    name : str, for messages
    value : callable
        (outputs (n, ...), targets) -> (n,), the loss of each example, of its row alone.
    root : callable
        (outputs, targets) -> r (n, ...) and L, a function linear in its argument:
        U, like r, -> L U, like the outputs, with
        $L r = \nabla_z \ell$ and $L L^T = \nabla^2_z \ell$. L' comes by autograd.

    Both are of torch operations; each step checks them against autograd on two rows,
    see :func:`check_loss`.

    Examples
    --------
    >>> def root(Z, T):  # of counts: exp(z) - t z
    ...     s = (Z / 2).exp()
    ...     return (Z.exp() - T) / s, lambda U: s * U
    >>> poisson = Loss("poisson", lambda Z, T: (Z.exp() - T * Z).sum(1), root)
    >>> check_loss(poisson, torch.randn(2, 3), torch.ones(2, 3))
    """

    name: str
    value: Callable
    root: Callable


def _softmax_value(Z, T):
    ce = -(_distribution(Z, T) * Z.log_softmax(-1)).sum(-1)
    return ce.reshape(len(Z), -1).sum(1)


def _softmax_root(Z, T):
    p = Z.softmax(-1)
    s = p.clamp_min(torch.finfo(p.dtype).eps).sqrt()
    r = (p - _distribution(Z, T)) / s  # (1)
    return r, lambda U: torch.addcmul(s * U, p, (s * U).sum(-1, True), value=-1)  # (1)


def _distribution(Z, T):
    """Targets as probabilities; NaN where an index is of no class."""
    if T.is_floating_point():
        return T
    classes = torch.arange(Z.shape[-1], device=T.device)
    inside = (T >= 0) & (T < len(classes))
    return (T[..., None] == classes).to(Z).masked_fill(~inside[..., None], torch.nan)


def _logistic_value(Z, T):
    each = nn.functional.softplus(Z) - T * Z
    return each.reshape(len(Z), -1).sum(1)


def _logistic_root(Z, T):
    p = Z.sigmoid()
    s = (p * (-Z).sigmoid()).clamp_min(torch.finfo(p.dtype).eps).sqrt()
    return (p - T) / s, lambda U: s * U  # (2)


SQUARED = Loss("squared", None, None)  # whose maps linearise writes without L
SOFTMAX = Loss("softmax", _softmax_value, _softmax_root)
LOGISTIC = Loss("logistic", _logistic_value, _logistic_root)
LOSSES = {loss.name: loss for loss in (SQUARED, SOFTMAX, LOGISTIC)}


@dataclass(frozen=True, eq=False, repr=False)
class LinearisedLoss:
    r"""A = L' J / sqrt(n) and R = r / sqrt(n) of a loss that is not the squared one.

    J / sqrt(n) are the maps of ``derivative``, its residual the outputs / sqrt(n); r
    and L are those of ``rule``. A'A is the generalised Gauss-Newton matrix, A'R the
    gradient.
    """

    derivative: object  # LinearisedLayers or LinearisedModule
    rule: Loss
    targets: Tensor

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """The point."""
        return self.derivative.weights

    @property
    def n(self) -> int:
        """Examples."""
        return self.derivative.n

    @cached_property
    def outputs(self) -> Tensor:
        """What the loss is of, (n, ...)."""
        Z = self.derivative.residual * math.sqrt(self.n)
        check_like(self.rule, Z, self.targets)
        return Z

    @cached_property
    def _root(self):
        """r / sqrt(n), L, and L' by one ``vjp``."""
        with torch.no_grad():
            r, L = self.rule.root(self.outputs, self.targets)
            transpose = vjp(L, torch.zeros_like(r))[1]
            return r / math.sqrt(len(r)), L, transpose

    @property
    def residual(self) -> Tensor:
        """R, like r."""
        return self._root[0]

    def loss(self) -> Tensor:
        """f, the mean over examples, ()."""
        return self.rule.value(self.outputs, self.targets).mean()

    def forward_map(self, d) -> Tensor:
        """A d: tuple like the weights -> like r."""
        return self._root[2](self.derivative.forward_map(d))[0]

    def transpose_map(self, U: Tensor) -> tuple[Tensor, ...]:
        """A'U: like r -> tuple like the weights."""
        return self.derivative.transpose_map(self._root[1](U))

    def sum_squares(self, U: Tensor) -> tuple[Tensor, ...]:
        r"""$\sum_i (J_i^T L_i u_i)^2$, see ``LinearisedLayers``."""
        return self.derivative.sum_squares(self._root[1](U))

    def gradient_moments(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """grad f and the sum of squared gradients, as of ``LinearisedLayers``."""
        return self.derivative.gradient_moments(self._root[1](self.residual))


def as_loss(loss: str | Loss, model: nn.Module) -> Loss:
    """A loss by its name; refused where the model's last layer is the loss's own."""
    if not isinstance(loss, Loss):
        if not isinstance(loss, str) or loss not in LOSSES:
            known = ", ".join(LOSSES)
            raise ValueError(f"loss must be one of {known} or a Loss, got {loss!r}")
        loss = LOSSES[loss]
    if loss in (SOFTMAX, LOGISTIC):
        last = model[-1] if isinstance(model, nn.Sequential) and len(model) else None
        name = type(last).__name__ if isinstance(last, HEADS) else None
        if isinstance(model, Autoencoder) and model.activations[-1] != "linear":
            name = model.activations[-1]
        if name:
            raise ValueError(
                f"loss {loss.name!r} takes outputs before the last nonlinearity, which "
                f"it has itself, but the model ends in {name}: leave that out"
            )
    return loss


def check_like(loss: Loss, outputs: Tensor, targets: Tensor | None) -> None:
    """Refuse targets whose shape or type is not the loss's; reads no number."""
    if not isinstance(outputs, Tensor):
        kind = type(outputs).__name__
        raise TypeError(
            f"the model must return a tensor, got {kind}; wrap it in a module that "
            "takes what the loss is of"
        )
    if targets is None:
        return
    if loss == SOFTMAX and outputs.ndim < 2:
        shape = tuple(outputs.shape)
        raise ValueError(f"the outputs must be (n, ..., classes), got shape {shape}")
    shape, of_classes = outputs.shape, loss == SOFTMAX
    if of_classes and not targets.is_floating_point():
        whole = targets.dtype in (torch.int64, torch.int32, torch.uint8)
        if targets.shape != shape[:-1] or not whole:
            raise ValueError(
                f"targets must be class indices of shape {tuple(shape[:-1])}, or "
                f"probabilities of the outputs' shape {tuple(shape)}, got "
                f"{targets.dtype} of shape {tuple(targets.shape)}"
            )
    elif loss in LOSSES.values():
        if targets.shape != shape:  # else one would be spread over the other
            or_classes = f", or class indices {tuple(shape[:-1])}" if of_classes else ""
            raise ValueError(
                f"targets must have the outputs' shape {tuple(shape)}{or_classes}, "
                f"got {tuple(targets.shape)}"
            )
        if targets.dtype != outputs.dtype:
            raise TypeError(
                f"targets must have the outputs' dtype {outputs.dtype}, "
                f"got {targets.dtype}"
            )
    elif len(targets) != len(outputs):
        raise ValueError(f"targets must have {len(outputs)} rows, got {len(targets)}")


def check_targets(loss: Loss, outputs: Tensor, targets: Tensor) -> None:
    """Refuse targets out of the loss's range, or an own loss that is none; one read."""
    if loss not in LOSSES.values():
        return check_loss(loss, outputs, targets)
    if loss == SQUARED or not targets.numel():
        return None
    low, high = targets.aminmax()
    classes = outputs.shape[-1]
    index = not targets.is_floating_point()
    sums = low if index or loss == LOGISTIC else (targets.sum(-1) - 1).abs().amax()
    low, high, sums = torch.stack((low, high, sums)).tolist()
    if not (low >= 0 and high <= (classes - 1 if index else 1)):
        words = f"class indices in 0..{classes - 1}" if index else "in [0, 1]"
        raise ValueError(
            f"targets of loss {loss.name!r} must be {words}, but span {low:g}..{high:g}"
        )
    if not index and loss == SOFTMAX and sums > 1e-3:
        raise ValueError(
            f"targets must sum to one over the classes, but miss it by {sums:.3g}"
        )


@torch.no_grad()
def check_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> None:
    """Hold the functions of a :class:`Loss` against autograd, on two rows; one read.

    Raises
    ------
    ValueError
        With the identity that fails: a loss a row, of this row alone; L linear;
        L r the gradient; L L' the curvature.
    """
    Z, T = outputs[:2].detach().clone(), targets[:2]
    value = lambda z: loss.value(z, T)  # noqa: E731
    n, found = len(Z), value(Z)
    if not isinstance(found, Tensor) or found.shape != (n,):
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(
            f"loss {loss.name!r}: value must give a loss a row, of shape ({n},), "
            f"got {got}"
        )
    r, L = loss.root(Z, T)
    if L(r).shape != Z.shape:
        raise ValueError(
            f"loss {loss.name!r}: L U must have the outputs' shape {tuple(Z.shape)}, "
            f"got {tuple(L(r).shape)}"
        )
    slope = grad(lambda z: value(z).sum())
    v = torch.linspace(-1, 1, Z.numel()).to(Z).reshape(Z.shape) + 0.3
    pairs = {
        "value of a row must depend on this row alone": (
            loss.value(Z[:1], T[:1]),
            found[:1],
        ),
        "L must be linear, L(2 r) = 2 L(r)": (L(2 * r), 2 * L(r)),
        "L r must be the gradient of value": (L(r), slope(Z)),
        "L L' must be the second derivative of value": (
            L(vjp(L, torch.zeros_like(r))[1](v)[0]),
            vjp(slope, Z)[1](v)[0],
        ),
    }
    gaps = [
        ((a - b).abs().amax(), a.abs().amax(), b.abs().amax())
        for a, b in pairs.values()
    ]
    tolerance = torch.finfo(Z.dtype).eps ** 0.5
    rows = torch.stack([torch.stack(gap) for gap in gaps]).tolist()
    for words, (gap, one, two) in zip(pairs, rows, strict=True):
        if not gap <= 10 * tolerance * max(one, two, tolerance):
            raise ValueError(
                f"loss {loss.name!r}: {words}, but they differ by {gap:.3g} "
                f"(sizes {one:.3g} and {two:.3g})"
            )
