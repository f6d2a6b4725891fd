"""When a step must not be taken: a gradient or a P that cannot be right."""

from collections.abc import Sequence

import torch
from torch import Tensor

from labkit.rls.blocks import BlockStep


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


def healthy(P: Tensor, h: Tensor, *, forgetting: float, P0_scale: float) -> Tensor:
    r"""Whether P can still be trusted, as a () bool tensor on P's device.

    $h \ge \lambda$ holds exactly as long as P is positive semidefinite along the mean
    input. With $\lambda < 1$ P also grows, like $\lambda^{-s}$ where nothing excites
    it; beyond 1/eps times its start the digits of what it has learned are gone.
    """
    sound = h >= forgetting  # False for nan
    if forgetting < 1:
        bound = P0_scale * len(P) / torch.finfo(P.dtype).eps
        sound = sound & (P.diagonal().sum() <= bound)
    return sound & h.isfinite()


def is_healthy(each: BlockStep) -> Tensor:
    """:func:`healthy` of one block before its step."""
    limits = each.chosen("forgetting", "P0_scale")
    return healthy(each.state.get("P"), each.h, **limits)


def check_finite(steps: Sequence[BlockStep], norm: Tensor):
    """Raise NumericalError for the first block whose gradient is not finite."""
    if norm.isfinite():
        return
    for each in steps:
        size = each.squared_norm().sqrt()
        if not size.isfinite():
            advice = "nothing was changed; lower lr or clip by max_grad_norm"
            what = "the gradient's norm"
            name = each.block.name
            raise NumericalError(name, each.number, what, float(size), advice)


def check_healthy(steps: Sequence[BlockStep]):
    """Raise NumericalError for the first block whose P cannot be trusted."""
    for each in steps:
        if is_healthy(each):
            continue
        forgetting, value = each.options["forgetting"], each.h
        what = f"h, which must be at least forgetting = {forgetting},"
        if value >= forgetting and value.isfinite():
            what = "the trace of P, wound up by forgetting < 1,"
            value = each.state["P"].trace()
        advice = "start P again by on_failure='reset', or take forgetting=1"
        name = each.block.name
        raise NumericalError(name, each.number, what, float(value), advice)
