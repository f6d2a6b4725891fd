"""The precision of labkit's arithmetic: that of its tensors."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def outside_modes() -> Iterator[None]:
    """Compute as outside of a caller's autocast and inference regions.

    Half precision would leave three digits of the sums that these methods invert, and
    what an inference region makes, no later step could change. Torch has a public way
    out of autocast for one device, and this one for all.
    """
    autocast = torch._C._is_any_autocast_enabled()
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    with (
        torch._C._DisableAutocast() if autocast else nullcontext(),
        torch.inference_mode(False) if inference else nullcontext(),
        torch.set_grad_enabled(grad),  # which leaving inference would turn on
    ):
        yield
