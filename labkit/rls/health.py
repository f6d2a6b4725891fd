"""When a step must not be taken: a gradient or a P that cannot be right."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from labkit.rls.blocks import BlockStep


class NumericalError(ArithmeticError):
    """At a step (from 1) a value in a layer cannot be right; nothing was changed."""

    def __init__(self, layer, step, quantity, value, advice):
        told = f"layer {layer!r}, step {step}: {quantity} is {value:.6g}; {advice}"
        super().__init__(told)
        self.layer, self.step = layer, step
        self.quantity, self.value = quantity, value


def healthy(P: Tensor, h: Tensor, options: Mapping) -> Tensor:
    r"""Whether P can still be trusted, as a () bool tensor on P's device.

    $h \ge \lambda$ holds exactly as long as P is positive semidefinite along the mean
    input. With $\lambda < 1$ P also grows, like $\lambda^{-s}$ where nothing excites
    it; beyond 1/eps times its start the digits of what it has learned are gone.
    """
    sound = h >= options["forgetting"]  # False for nan
    if options["forgetting"] < 1:
        bound = options["P0_scale"] * len(P) / torch.finfo(P.dtype).eps
        sound = sound & (P.diagonal().sum() <= bound)
    return sound & h.isfinite()


def check_finite(steps: Sequence[BlockStep], norm: Tensor):
    """Raise NumericalError for the first block whose gradient is not finite."""
    if norm.isfinite():
        return
    advice = "nothing was changed; lower lr or clip by max_grad_norm"
    for each in steps:
        size = float(each.squared_norm().sqrt())
        if not abs(size) < torch.inf:
            name, what = each.block.name, "the gradient's norm"
            raise NumericalError(name, each.number, what, size, advice)


def check_healthy(steps: Sequence[BlockStep], sound: Sequence[Tensor]):
    """Raise NumericalError for the first block whose P is not sound."""
    for each, trusted in zip(steps, sound, strict=True):
        if trusted:
            continue
        forgetting, value = each.options["forgetting"], float(each.h)
        what = f"h, which must be at least forgetting = {forgetting},"
        if forgetting <= value < torch.inf:
            what = "the trace of P, wound up by forgetting < 1,"
            value = float(each.state["P"].trace())
        advice = "start P again by on_failure='reset', or take forgetting=1"
        raise NumericalError(each.block.name, each.number, what, value, advice)
