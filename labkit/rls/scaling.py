"""The loss's scale of ``torch.amp.GradScaler``, in all that a backward pass has left.

The scaler unscales gradients that are there; inputs and derivatives that stand for one
it knows nothing of. It leaves its scale to an optimiser that says
``_step_supports_amp_scaling``, and so does one that keeps them.
"""

from collections.abc import Sequence

import torch

from labkit.rls.blocks import Block


def scaled(optimizer) -> bool:
    """Whether a GradScaler calls this step and leaves the scale to it."""
    return hasattr(optimizer, "found_inf")


def unscale(optimizer, blocks: Sequence[Block]) -> bool:
    """Take the scale out of gradients and kept factors; False: this step is skipped.

    RuntimeError if ``scaler.unscale_`` has been there already, and saw a part only.
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
        torch._foreach_div_([p.grad for p in each if p.grad is not None], scale)
        for block in kept:
            block.residuals = [(X, dZ / scale) for X, dZ in block.residuals]
    return True
