r"""Define activations, their inverses and the clamp between them.

Equation (5) of the paper asks a hidden layer for values that its activation may never
take: a sigmoid cannot give 1.3. The inverse activation is not defined there, and the
paper does not say what to do. A clamp is therefore part of the method, and its width
decides the result: with a softmax hidden layer on MNIST, 1e-2 reaches about 90 % and
1e-6 about 55 %.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.check import check_options, number, optional
from labkit.errors import DivergedError

CLAMP = 1e-2
RANGES = {"clamp": optional(number("in (0, 0.5)", lambda value: 0 < value < 0.5))}


class Activation(NamedTuple):
    """An activation function of the pre-activations Z (..., D, N)."""

    name: str
    value: Callable[[Tensor], Tensor]  # a(Z)
    slope: Callable | None  # (Z, a(Z)) -> a'(Z); None: not entry by entry
    inverse: Callable | None  # None: not injective
    bounds: Callable  # clamp width -> (least, greatest) target, None: no bound


def elu_inverse(p: Tensor) -> Tensor:
    """Return p where it is positive, else log(1 + p)."""
    return torch.where(p > 0, p, torch.log1p(p.clamp_max(0)))


def softplus_inverse(p: Tensor) -> Tensor:
    """Return log(exp(p) - 1) without overflow for large p."""
    return p + torch.log(-torch.expm1(-p))


def softminus_inverse(p: Tensor) -> Tensor:
    """Return p - log(1 - exp(p)) for p < 0, without a loss of digits near 0."""
    return p - torch.log(-torch.expm1(p))


# fmt: off
_TABLE = (
    Activation("identity", lambda z: z, lambda z, h: torch.ones_like(h),
               lambda p: p, lambda e: (None, None)),
    Activation("sigmoid", torch.sigmoid, lambda z, h: h * (1 - h),
               torch.logit, lambda e: (e, 1 - e)),
    Activation("tanh", torch.tanh, lambda z, h: 1 - h.square(),
               torch.atanh, lambda e: (e - 1, 1 - e)),
    Activation("softplus", F.softplus, lambda z, h: torch.sigmoid(z),
               softplus_inverse, lambda e: (e, None)),
    # z - softplus(z), the logarithm of the sigmoid; the paper gives the name only
    Activation("softminus", F.logsigmoid, lambda z, h: -torch.expm1(h),
               softminus_inverse, lambda e: (None, -e)),
    Activation("elu", F.elu, lambda z, h: torch.where(z > 0, 1, h + 1),
               elu_inverse, lambda e: (e - 1, None)),
    # over the neurons of a sample; the inverse is free up to a constant per sample,
    # which equal weights reproduce exactly, so it is taken as 0
    Activation("softmax", lambda z: torch.softmax(z, -1), None,
               torch.log, lambda e: (e, 1.0)),
    Activation("relu", torch.relu, lambda z, h: (z > 0).to(h.dtype),
               None, lambda e: (0.0, None)),
)
# fmt: on
ACTIVATIONS = {a.name: a for a in _TABLE}


def activation(name: str | Activation) -> Activation:
    """Return an activation by its name, or the activation itself.

    ValueError for an unknown name.

    The names are those of `ACTIVATIONS`: "identity", "sigmoid", "tanh", "softplus",
    "softminus" (z - softplus(z), the logarithm of the sigmoid), "elu", "softmax" over
    the neurons of a sample, and "relu", which has no inverse.

    Examples
    --------
    >>> sigmoid = activation("sigmoid")
    >>> sigmoid.inverse(sigmoid.value(torch.tensor(2.0)))
    tensor(2.0000)
    """
    if isinstance(name, Activation):
        return name
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"unknown activation {name!r}; there are: {known}")
    return ACTIVATIONS[name]


def per_layer(
    names: str | Activation | Sequence[str | Activation], layers: int
) -> list[Activation]:
    """Return one activation for each hidden layer, from one for all or a sequence.

    Raises
    ------
    ValueError
        An unknown name, or another number of activations than of layers.
    """
    if isinstance(names, str | Activation) or not hasattr(names, "__len__"):
        names = [names] * layers
    if len(names) != layers:
        raise ValueError(
            f"{layers} hidden layers need as many activations, got {len(names)}"
        )
    return [activation(name) for name in names]


def invertible(a: Activation) -> Activation:
    """Return the activation; ValueError if it has no inverse."""
    if a.inverse is None:
        known = ", ".join(n for n, b in ACTIVATIONS.items() if b.inverse is not None)
        raise ValueError(
            f"the activation {a.name!r} has no inverse, so no target can be sent "
            f"back through it; use one of {known}"
        )
    return a


def clamp_targets(T: Tensor, a: Activation, clamp: float | None) -> Tensor:
    """Clamp targets (..., D, N) into the range of a, ``clamp`` away from its ends.

    With None the targets do not change. Softmax targets are clamped entry by entry to
    [clamp, 1], and not renormalised. ValueError for a clamp that is not in (0, 0.5).
    """
    check_options({"clamp": clamp}, RANGES)
    low, high = (None, None) if clamp is None else a.bounds(clamp)
    return T if low is None and high is None else T.clamp(low, high)


def check_inverse(B: Tensor, C: Tensor, a: Activation) -> None:
    """Raise an error if one of the targets sent back, B = a^{-1}(C), is not finite.

    Raises
    ------
    ValueError
        If a target has no inverse: there was no clamp, or one too narrow for the dtype.
    DivergedError
        If a target is not finite itself: the walks diverged.
    """
    undefined = ~torch.isfinite(B)
    if undefined.any():
        bad = C[undefined]
        count = f"{bad.numel():,} of {B.numel():,} targets"
        if not torch.isfinite(bad).all():
            raise DivergedError(f"{count} are not finite")
        raise ValueError(
            f"{count} have no inverse under {a.name!r}, for instance {bad[0]:.4g}; "
            "clamp them, say clamp=1e-2"
        )
