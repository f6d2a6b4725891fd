"""The precision of labkit's arithmetic: that of its tensors."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor


@contextmanager
def outside_modes() -> Iterator[None]:
    """Compute as outside of a caller's autocast and inference regions.

    Half precision would leave three digits of the sums that these methods invert, and
    what an inference region makes, no later step could change. Torch has a public way
    out of autocast for one device, and this one for all.
    """
    autocast, grad = torch._C._is_any_autocast_enabled(), torch.is_grad_enabled()
    compiling = torch.compiler.is_compiling()  # where torch cannot answer the next one
    inference = not compiling and torch.is_inference_mode_enabled()
    with (
        torch._C._DisableAutocast() if autocast else nullcontext(),
        torch.inference_mode(False) if inference else nullcontext(),
        torch.set_grad_enabled(grad),  # which leaving inference would turn on
    ):
        yield


def wide(x: Tensor) -> torch.dtype:
    """Return a tensor's dtype or float32, as sums in half precision lose digits."""
    return torch.promote_types(x.dtype, torch.float32)
