"""When a step must not be taken: a gradient or a P that cannot be right."""

import torch
from torch import Tensor


class NumericalError(ArithmeticError):
    """A step was refused because a value in it cannot be right.

    Attributes
    ----------
    layer, step, quantity, value : where, when (from 1), what, and how large.
    """

    def __init__(self, layer, step, quantity, value, advice):
        super().__init__(
            f"layer {layer!r}, step {step}: {quantity} is {value:.6g}; {advice}"
        )
        self.layer, self.step = layer, step
        self.quantity, self.value = quantity, value


def healthy(P: Tensor, h: Tensor, *, forgetting: float, initial: float) -> Tensor:
    r"""Whether P can still be trusted, as a () bool tensor on P's device.

    $h \ge \lambda$ holds exactly as long as P is positive semidefinite along the mean
    input. With $\lambda < 1$ P also grows, like $\lambda^{-s}$ where nothing excites
    it; beyond 1/eps times its start the digits of what it has learned are gone.
    """
    sound = h >= forgetting  # False for nan
    if forgetting < 1:
        bound = initial * len(P) / torch.finfo(P.dtype).eps
        sound = sound & (P.diagonal().sum() <= bound)
    return sound & h.isfinite()


def unhealthy(layer, step, P: Tensor | None, h, forgetting) -> NumericalError:
    """The error for a P that :func:`healthy` refuses."""
    advice = "start P again by on_failure='reset', or take forgetting=1"
    if not h >= forgetting:
        quantity = f"h, which must be at least forgetting = {forgetting},"
        return NumericalError(layer, step, quantity, float(h), advice)
    trace = float(P.diagonal().sum())
    quantity = "the trace of P, wound up by forgetting < 1,"
    return NumericalError(layer, step, quantity, trace, advice)
