"""What the steps of all rooms have in common that are recorded line by line."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch


class Walk(NamedTuple):
    """One real step, made anew at each call of its maker."""

    call: Callable[[], Any]
    kept: Callable[[], Any]  # all that the step may change
    shows: Mapping[Callable, str] = {}  # tags met in a function and what it calls
    follow: tuple[str, ...] | None = None


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random(*shapes, dtype=torch.float64):
    g = generator()
    return [torch.randn(shape, generator=g, dtype=dtype) for shape in shapes]
