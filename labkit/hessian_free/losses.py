r"""The losses as least squares, and checks of a step's rows and targets.

A convex loss needs the square root of its curvature and a residual.

A loss $\ell(z, t)$ of one example's outputs z has the generalised Gauss-Newton matrix
$\frac1n \sum_i J_i^T H_i J_i$, $H_i = \nabla^2_z \ell$ (Schraudolph, Neural Computation
14, 2002). With $H = L L^T$ it is $A^T A$ for $A = (L_i^T J_i / \sqrt n)_i$, and

.. math:: b = -R, \quad R = (r_i / \sqrt n)_i, \quad L r = \nabla_z \ell

gives $A^T b = -\nabla f$. So this too is a least-squares problem, though $|R|^2$ is not
the loss.

Softmax has $H = \mathrm{diag}(p) - p p^T$, with p the probabilities of the outputs and
y those of the target:

(1) $L = \mathrm{diag}(\sqrt p) - p \sqrt p^T, \qquad r = (p - y) / \sqrt p$

Here $L L^T = H$ since $\sqrt p^T \sqrt p = 1$, and $L r = p - y$ since
$\sqrt p^T r = 1^T (p - y) = 0$; for the same reason r is the shortest solution,
$L^+ (p - y)$. It is long if the model is sure of a wrong class, but that costs nothing:
LSMR's iterates depend on $A^T A$ and $A^T b$ only. They are those of the augmented
right-hand side $(0, -\nabla f / \lambda)$ of the damped system, which needs no r but
divides by lambda. If p is below the rounding unit eps of its dtype, eps stands for it
in $\sqrt p$ of (1): $L r = p - y$ still holds, $L L^T$ grows by at most eps, and each
entry has $|r| < 1 / \sqrt{eps}$.

The logistic loss has a probability for each output and $H = p (1 - p)$:
(2) $L = \sqrt{p (1 - p)}$, $r = (p - y) / L$.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.func import grad, vjp
from torch.nn.modules.batchnorm import _BatchNorm

from labkit.check import (
    BELOW_ONE,
    check_kind,
    check_options,
    check_tensor,
    described,
    integer,
)
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


@dataclass(frozen=True)
class CrossEntropy:
    r"""Cross-entropy of a softmax, with the options of ``torch.nn.CrossEntropyLoss``.

    Without options it is the loss named "softmax". It is summed over a row's positions
    and averaged over rows, so that a row's loss depends on this row alone: torch's with
    ``reduction="sum"``, divided by the number of rows, whatever is ignored or weighted.

    Parameters
    ----------
    weight : sequence of float >= 0, optional, of each class
    ignore_index : int, optional
        The class index of targets that have no loss; torch's default is -100, here none
        is ignored if this is not given.
    label_smoothing : float in [0, 1)
        The share of a target that is spread over all classes.

    Examples
    --------
    >>> loss = CrossEntropy(ignore_index=-100, label_smoothing=0.1)
    >>> loss.value(torch.zeros(2, 4), torch.tensor([1, -100]))
    tensor([1.3863, 0.0000])
    """

    weight: tuple[float, ...] | None = None
    ignore_index: int | None = None
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_options(
            {"label_smoothing": self.label_smoothing}, {"label_smoothing": BELOW_ONE}
        )
        if self.ignore_index is not None:
            check_options(
                {"ignore_index": self.ignore_index},
                {"ignore_index": integer(-math.inf)},
            )
        if self.weight is not None:
            weight = tuple(map(float, self.weight))
            if not weight or not all(0 <= w < math.inf for w in weight):
                raise ValueError(f"weight must be >= 0 and finite, got {weight}")
            object.__setattr__(self, "weight", weight)

    @property
    def name(self) -> str:
        """The name of the loss in messages."""
        return "softmax"

    def value(self, Z: Tensor, T: Tensor) -> Tensor:
        """Return the loss of each row: (n, ..., classes), targets -> (n,)."""
        ce = -(self._targets(Z, T) * Z.log_softmax(-1)).sum(-1)
        return ce.reshape(len(Z), -1).sum(1)

    def root(self, Z: Tensor, T: Tensor) -> tuple[Tensor, Callable]:
        r"""Return r and L of (1); with options, of targets y that sum up to q, of

        (3) $L = \sqrt q\,(\mathrm{diag}(\sqrt p) - p \sqrt p^T), \qquad
        r = (q p - y) / \sqrt{q p}$, and 0 where q is 0.
        """
        p, y = Z.softmax(-1), self._targets(Z, T)
        s = p.clamp_min(torch.finfo(p.dtype).eps).sqrt()
        if self == SOFTMAX:
            r = (p - y) / s  # (1)
        else:
            q = y.sum(-1, keepdim=True)
            s = q.sqrt() * s  # (3)
            r = (q * p - y) / s.where(q > 0, 1.0)  # (3)

        def L(U):
            return torch.addcmul(s * U, p, (s * U).sum(-1, True), value=-1)  # (1)

        return r, L

    def _targets(self, Z, T):
        """Return targets as class weights, with NaN for an index without a class."""
        y, classes = T, Z.shape[-1]
        if not T.is_floating_point():
            every = torch.arange(classes, device=T.device)
            inside = (T >= 0) & (T < classes)
            y = (T[..., None] == every).to(Z).masked_fill(~inside[..., None], torch.nan)
        if self.label_smoothing:
            y = (1 - self.label_smoothing) * y + self.label_smoothing / classes
        if self.weight is not None:
            y = y * _class_weights(self.weight, Z.dtype, Z.device)
        if self.ignore_index is not None and not T.is_floating_point():
            y = y.masked_fill((T == self.ignore_index)[..., None], 0.0)
        return y


@cache
def _class_weights(weight, dtype, device) -> Tensor:
    return torch.tensor(weight, dtype=dtype, device=device)


def _logistic_value(Z, T):
    each = nn.functional.softplus(Z) - T * Z
    return each.reshape(len(Z), -1).sum(1)


def _logistic_root(Z, T):
    p = Z.sigmoid()
    s = (p * (-Z).sigmoid()).clamp_min(torch.finfo(p.dtype).eps).sqrt()
    return (p - T) / s, lambda U: s * U  # (2)


SQUARED = Loss("squared", None, None)  # linearise has its maps, without L
SOFTMAX = CrossEntropy()
LOGISTIC = Loss("logistic", _logistic_value, _logistic_root)
LossLike = str | Loss | CrossEntropy
LOSSES = {loss.name: loss for loss in (SQUARED, SOFTMAX, LOGISTIC)}


def as_loss(loss: LossLike, model: nn.Module) -> Loss | CrossEntropy:
    """Return a loss by its name; raise an error if the model ends in its own layer."""
    check_kind("model", model, nn.Module, "an nn.Module")
    if not isinstance(loss, Loss | CrossEntropy):
        if not isinstance(loss, str) or loss not in LOSSES:
            known = ", ".join(LOSSES)
            raise ValueError(
                f"loss must be one of {known}, a CrossEntropy or a Loss, got {loss!r}"
            )
        loss = LOSSES[loss]
    if isinstance(loss, CrossEntropy) or loss == LOGISTIC:
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


def check_like(
    loss: Loss | CrossEntropy, outputs: Tensor, targets: Tensor | None
) -> None:
    """Raise an error if the targets' shape or dtype is wrong, without a read."""
    if not isinstance(outputs, Tensor):
        kind = type(outputs).__name__
        raise TypeError(
            f"the model must return a tensor, got {kind}; wrap it in a module that "
            "takes what the loss is of"
        )
    if targets is None:
        return
    if not isinstance(targets, Tensor):
        raise TypeError(f"targets must be a tensor, got {described(targets)}")
    of_classes = isinstance(loss, CrossEntropy)
    if of_classes and outputs.ndim < 2:
        shape = tuple(outputs.shape)
        raise ValueError(f"the outputs must be (n, ..., classes), got shape {shape}")
    shape = outputs.shape
    if of_classes and loss.weight is not None and len(loss.weight) != shape[-1]:
        raise ValueError(
            f"weight must have one for each of the {shape[-1]} classes, got "
            f"{len(loss.weight)}"
        )
    if of_classes and not targets.is_floating_point():
        whole = targets.dtype in (torch.int64, torch.int32, torch.uint8)
        if targets.shape != shape[:-1] or not whole:
            raise ValueError(
                f"targets must be class indices of shape {tuple(shape[:-1])}, or "
                f"probabilities of the outputs' shape {tuple(shape)}, got "
                f"{targets.dtype} of shape {tuple(targets.shape)}"
            )
    elif of_classes or loss in LOSSES.values():
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


def check_targets(loss: Loss | CrossEntropy, outputs: Tensor, targets: Tensor) -> None:
    """Raise an error for targets out of range, or for a :class:`Loss` that is wrong.

    The host reads the device once.
    """
    of_classes = isinstance(loss, CrossEntropy)
    if not of_classes and loss not in LOSSES.values():
        return check_loss(loss, outputs, targets)
    if loss == SQUARED or not targets.numel():
        return None
    classes = outputs.shape[-1]
    index = not targets.is_floating_point()
    if index and of_classes and loss.ignore_index is not None:
        targets = targets.masked_fill(targets == loss.ignore_index, 0)
    low, high = targets.aminmax()
    sums = low if index or loss == LOGISTIC else (targets.sum(-1) - 1).abs().amax()
    low, high, sums = torch.stack((low, high, sums)).tolist()
    if not (low >= 0 and high <= (classes - 1 if index else 1)):
        words = f"class indices in 0..{classes - 1}" if index else "in [0, 1]"
        raise ValueError(
            f"targets of loss {loss.name!r} must be {words}, but span {low:g}..{high:g}"
        )
    if not index and of_classes and sums > 1e-3:
        raise ValueError(
            f"targets must sum to one over the classes, but miss it by {sums:.3g}"
        )


@torch.no_grad()
def check_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> None:
    """Check the functions of a :class:`Loss` against autograd on two rows.

    Raises
    ------
    ValueError
        If one of these fails: each row has a loss that depends on this row alone; L
        is linear; L r is the gradient; L L' is the curvature.
    """
    check_kind("loss", loss, Loss | CrossEntropy, "a Loss")
    check_tensor("outputs", outputs)
    check_tensor("targets", targets, dtype=getattr(targets, "dtype", None))
    check_like(loss, outputs, targets)
    if not outputs.numel():
        raise ValueError(f"outputs must not be empty, got {tuple(outputs.shape)}")
    Z, T = outputs[:2].detach().clone(), targets[:2]
    value = lambda z: loss.value(z, T)  # noqa: E731
    n, each = len(Z), value(Z)
    if not isinstance(each, Tensor) or each.shape != (n,):
        got = tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__
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
            each[:1],
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


def check_rows(
    model: nn.Module, inputs: object, targets: object = None, name: str = "inputs"
) -> None:
    """Raise an error if this is no batch for the model, by shapes and dtypes alone."""
    roles = [(name, inputs)]
    if targets is not None and targets is not inputs:
        roles.append((f"targets of {name}", targets))
    for role, x in roles:
        if not isinstance(x, Tensor):
            kind = type(x).__name__
            what = "see torch.as_tensor"
            if callable(x) or x is None:
                what = "a step takes the batch, step(inputs, targets), and no closure"
            raise TypeError(f"{role} must be a tensor, got {kind}; {what}")
        check_tensor(role, x, dtype=x.dtype)
    if not inputs.ndim or not len(inputs):
        raise ValueError(f"{name} must have rows, got shape {tuple(inputs.shape)}")
    if isinstance(model, Autoencoder):
        W, m = model.weights[0], model.widths[0]
        for role, x in roles:
            if x.shape != (len(inputs), m):
                shape = tuple(x.shape)
                raise ValueError(f"{role} must have shape (n, {m}), got {shape}")
            _check_dtype(role, x, W)
    elif not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {described(model)}")
    for module in model.modules():
        mixes = module.training or getattr(module, "running_mean", None) is None
        if isinstance(module, _BatchNorm) and mixes:
            raise ValueError(
                f"{type(module).__name__} in training mode makes a row's output depend "
                "on the other rows, which Gauss-Newton products exclude; call "
                "model.eval(), or use GroupNorm"
            )


@torch.no_grad()
def check_pair(
    model: nn.Module,
    loss: Loss | CrossEntropy,
    name: str,
    inputs: Tensor,
    targets: object = None,
) -> None:
    """Raise an error for rows and targets that do not fit; try the first row."""
    check_rows(model, inputs, targets, name)
    targets = inputs if targets is None else targets
    outputs = inputs[:1]  # of an Autoencoder of this shape
    if not isinstance(model, Autoencoder):
        outputs = tried(lambda: model(inputs[:1]), model, inputs)
    if isinstance(outputs, Tensor):
        outputs = outputs.expand(len(inputs), *outputs.shape[1:])
    check_like(loss, outputs, targets)
    check_targets(loss, outputs, targets)


def tried(forward: Callable, model: nn.Module, inputs: Tensor) -> object:
    """Return the result of a first forward pass, and explain its errors.

    A model that draws random numbers in its forward pass, as dropout does, or changes a
    buffer, as running averages do, is a different function each time, which is a
    ValueError. The state of the generator and the buffers are restored.
    """
    of_state = (inputs.device,) if inputs.is_cuda else ()
    random = torch.cuda if of_state else torch.random
    before = random.get_rng_state(*of_state)
    held = [(name, t, t._version, t.clone()) for name, t in model.named_buffers()]
    try:
        outputs = forward()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ValueError(
            f"the model does not take inputs of shape {tuple(inputs.shape)}, "
            f"{inputs.dtype}, on {inputs.device}: {error}"
        ) from error
    finally:
        changed = [(name, t, old) for name, t, v, old in held if t._version != v]
        for _, t, old in changed:
            t.copy_(old)
        drawn = not torch.equal(before, random.get_rng_state(*of_state))
        if drawn:
            random.set_rng_state(before, *of_state)
    if changed:
        raise ValueError(
            f"the model changes its buffer {changed[0][0]} in its forward pass, so its "
            "loss may be another function each time; call model.eval()"
        )
    if drawn:
        raise ValueError(
            "the model draws random numbers in its forward pass (dropout in training "
            "mode?), so its loss is another function each time; call model.eval()"
        )
    return outputs


def _check_dtype(role, x, like, whose="the weights'"):
    if x.dtype != like.dtype:
        raise TypeError(f"{role} must have {whose} dtype {like.dtype}, got {x.dtype}")
