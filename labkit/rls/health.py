"""When a step must not be taken: a gradient or a P that cannot be right."""

import torch
from torch import Tensor

from labkit.rls.pending import Pending


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


def check_finite(pending: list[Pending], norm: Tensor):
    """Raise NumericalError for the first block whose gradient is not finite."""
    if norm.isfinite():
        return
    for each in pending:
        size = each.squared_norm().sqrt()
        if not size.isfinite():
            step, name = int(each.state["step"]) + 1, each.block.name
            advice = "nothing was changed; lower eta or clip by max_grad_norm"
            what = "the gradient's norm"
            raise NumericalError(name, step, what, float(size), advice)


def check_healthy(pending: list[Pending]):
    """Raise NumericalError for the first block whose P cannot be trusted."""
    for each in pending:
        group, P, h = each.options, each.state.get("P"), each.h
        limits = {key: group[key] for key in ("forgetting", "initial")}
        if healthy(P, h, **limits):
            continue
        step, name = int(each.state["step"]) + 1, each.block.name
        advice = "start P again by on_failure='reset', or take forgetting=1"
        if h >= group["forgetting"] and h.isfinite():
            what, h = "the trace of P, wound up by forgetting < 1,", P.trace()
        else:
            what = f"h, which must be at least forgetting = {group['forgetting']},"
        raise NumericalError(name, step, what, float(h), advice)
