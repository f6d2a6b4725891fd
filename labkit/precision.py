"""The precision of labkit's arithmetic: that of its tensors."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def outside_autocast() -> Iterator[None]:
    """Compute in the dtypes of the tensors, in a caller's autocast region, too.

    Half precision would leave three digits of the sums that these methods invert. Torch
    has a public way out of autocast for one device, and this one for all.
    """
    within = torch._C._is_any_autocast_enabled()
    with torch._C._DisableAutocast() if within else nullcontext():
        yield
