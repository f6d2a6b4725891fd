"""When a step must not be taken: a gradient or a P that cannot be right."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from labkit.rls.blocks import BlockStep, joint_norm


class NumericalError(ArithmeticError):
    """At a step (from 1) a value in a layer cannot be right; nothing was changed."""

    def __init__(self, layer, step, quantity, value, advice):
        told = "" if value is None else f" is {value:.6g}"
        super().__init__(f"layer {layer!r}, step {step}: {quantity}{told}; {advice}")
        self.layer, self.step = layer, step
        self.quantity, self.value = quantity, value


def healthy(steps: Sequence[BlockStep], h: Tensor) -> Tensor:
    r"""Whether each P can still be trusted, by the h of all: (blocks,) bool.

    $h \ge \lambda$ holds exactly as long as P is positive semidefinite along the mean
    input. With $\lambda < 1$ P also grows, like $\lambda^{-s}$ where nothing excites
    it; beyond 1/eps times its start the digits of what it has learned are gone.
    """
    least = [each.options["forgetting"] for each in steps]
    finite = h.nan_to_num(nan=0.0, posinf=0.0)  # or 0, below every lambda
    if len(set(least)) == 1:
        sound = finite >= least[0]
    else:
        pairs = zip(finite, least, strict=True)
        sound = torch.stack([each >= low for each, low in pairs])
    for each, low, trusted in zip(steps, least, sound, strict=True):
        if low < 1:
            P = each.state["P"]
            bound = each.options["P0_scale"] * len(P) / torch.finfo(P.dtype).eps
            trusted &= P.diagonal().sum() <= bound
    return sound


def check_finite(steps: Sequence[BlockStep], norm: Tensor):
    """Raise NumericalError for the first block whose gradient is not finite."""
    if norm.isfinite():
        return
    advice = "nothing was changed; lower lr or clip by max_grad_norm"
    for each in steps:
        size = float(joint_norm([each.gradient]))
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


def count(steps: Sequence[BlockStep]):
    """Count a step of each block, and keep its h."""
    if steps:
        torch._foreach_copy_([each.state["h"] for each in steps], [s.h for s in steps])
        torch._foreach_add_([each.state["step"] for each in steps], 1)


def note(steps: Sequence[BlockStep], fine: Tensor):
    """Keep the number of the first step that was not ``fine``, else inf, of each block.

    On the device, after the steps have been counted.
    """
    states = [each.state for each in steps]
    for each, state in zip(steps, states, strict=True):
        if "failed_at" not in state:
            state["failed_at"] = each.h.new_full((), torch.inf)
    failed = torch.stack([state["step"] for state in states]).masked_fill_(
        fine, torch.inf
    )
    torch._foreach_minimum_([state["failed_at"] for state in states], list(failed))


def check_noted(states: Mapping[str, Mapping]):
    """Raise NumericalError for the first failure that was noted; one wait."""
    noted = {k: each["failed_at"] for k, each in states.items() if "failed_at" in each}
    first = torch.stack(list(noted.values())).tolist() if noted else []
    step, name = min(zip(first, noted, strict=True), default=(torch.inf, ""))
    if step < torch.inf:
        what = "h is not finite or below forgetting, or a gradient is not finite"
        advice = "the block was left as it was"
        raise NumericalError(name, int(step), what, None, advice)
