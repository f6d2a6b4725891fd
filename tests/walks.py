"""What the steps of all rooms have in common that are recorded line by line."""

import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, NamedTuple

import torch

from tests.draws import seeded


class Walk(NamedTuple):
    """One real step, made anew at each call of its maker."""

    call: Callable[[], Any]
    kept: Callable[[], Any]  # all that the step may change
    shows: Mapping[Callable, str] = {}  # tags met in a function and what it calls
    follow: tuple[str, ...] | None = None


def code_of(function) -> CodeType:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__


def called(run: Callable[[], Any]) -> set[CodeType]:
    """Code of all functions that begin while something runs."""
    seen = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: event == "call" and seen.add(frame.f_code))
    try:
        run()
    finally:
        sys.setprofile(before)
    return seen


def random(*shapes, dtype=torch.float64):
    generator = seeded()
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
