"""Detect steps that must not be taken: overflow, or an invalid gradient or P.

``torch.amp.GradScaler`` unscales the gradients that exist, but not the inputs and
derivatives that RLS keeps instead of a gradient. An optimiser with
``_step_supports_amp_scaling`` unscales by itself, and RLS does so if it keeps them.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from labkit.rls.blocks import Block, BlockStep, joint_norm

# The number of a step that is never reached, where none has failed. It is not inf: a
# saved state with a number that is not finite is taken for a damaged one.
NEVER = 2.0**100


class NumericalError(ArithmeticError):
    """An invalid value in a layer at a step (from 1); nothing was changed."""

    def __init__(
        self, layer: str, step: int, quantity: str, value: float | None, advice: str
    ):
        shown = "" if value is None else f" is {value:.6g}"
        super().__init__(f"layer {layer!r}, step {step}: {quantity}{shown}; {advice}")
        self.layer, self.step = layer, step
        self.quantity, self.value = quantity, value


def healthy(steps: Sequence[BlockStep], h: Tensor) -> Tensor:
    r"""Return whether each P can be trusted, judged by all h: (blocks,) bool.

    $h \ge \lambda$ holds exactly as long as P is positive semidefinite along the mean
    input. With $\lambda < 1$ P also grows, like $\lambda^{-s}$ in directions without
    inputs. If it grows beyond 1/eps times its start, what it has learned is lost to
    rounding.
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


def check_finite(steps: Sequence[BlockStep], norm: Tensor) -> None:
    """Raise NumericalError for the first block whose gradient is not finite."""
    if norm.isfinite():
        return
    advice = "nothing was changed; lower lr or clip by max_grad_norm"
    for each in steps:
        size = float(joint_norm([each.gradient]))
        if not abs(size) < torch.inf:
            name, what = each.block.name, "the gradient's norm"
            raise NumericalError(name, each.number, what, size, advice)


def check_healthy(steps: Sequence[BlockStep], sound: Sequence[Tensor]) -> None:
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


def count(steps: Sequence[BlockStep]) -> None:
    """Count one step of each block, and store its h."""
    if steps:
        torch._foreach_copy_([each.state["h"] for each in steps], [s.h for s in steps])
        torch._foreach_add_([each.state["step"] for each in steps], 1)


def note(steps: Sequence[BlockStep], fine: Tensor) -> None:
    """Store the number of each block's first step that was not ``fine``, or `NEVER`.

    This happens on the device, after the steps have been counted.
    """
    states = [each.state for each in steps]
    for each, state in zip(steps, states, strict=True):
        if "failed_at" not in state:
            state["failed_at"] = each.h.new_full((), NEVER)
    failed = torch.stack([state["step"] for state in states]).masked_fill_(fine, NEVER)
    torch._foreach_minimum_([state["failed_at"] for state in states], list(failed))


def check_noted(states: Mapping[str, Mapping]) -> None:
    """Raise NumericalError for the first stored failure; waits once for the device."""
    noted = {k: each["failed_at"] for k, each in states.items() if "failed_at" in each}
    first = torch.stack(list(noted.values())).tolist() if noted else []
    step, name = min(zip(first, noted, strict=True), default=(NEVER, ""))
    if step < NEVER:
        what = "h is not finite or below forgetting, or a gradient is not finite"
        advice = "the block was left as it was"
        raise NumericalError(name, int(step), what, None, advice)


def scaled(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a GradScaler calls this step and leaves the unscaling to it."""
    return hasattr(optimizer, "found_inf")


def unscale(optimizer: torch.optim.Optimizer, blocks: Sequence[Block]) -> bool:
    """Unscale gradients and kept factors; return False if the step must be skipped.

    RuntimeError if ``scaler.unscale_`` was called before and missed kept factors.
    """
    kept = [block for block in blocks if block.residuals]
    scale = optimizer.grad_scale
    if scale is None and kept:
        del optimizer.grad_scale, optimizer.found_inf
        raise RuntimeError(
            f"scaler.unscale_(optimizer) cannot unscale layer {kept[0].name!r}, whose "
            "gradient is not formed under max_grad_norm; leave it out: "
            "scaler.step(optimizer) unscales and clips, or take max_grad_norm=None"
        )
    if bool(optimizer.found_inf):
        return False
    if scale is not None:
        each = [p for group in optimizer.param_groups for p in group["params"]]
        unchanged = [block for block in blocks if not block.touched()]
        torch._foreach_div_([p.grad for p in each if p.grad is not None], scale)
        for block in kept:
            block.residuals = [(X, dZ / scale) for X, dZ in block.residuals]
        for block in unchanged:
            block.note_gradient()
    return True
