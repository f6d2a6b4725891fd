"""Every room walks the step that it trains with, and each tag leads to its equation."""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import pytest
import torch

from labkit.lab.panels.lines.source import Docstrings, tags
from labkit.lab.panels.lines.tracer import follow_lines
from tests.bpls import walks as bpls_walks
from tests.broad import walks as broad_walks
from tests.hessian_free import walks as hessian_free_walks
from tests.rls import walks as rls_walks
from tests.rtrl import walks as rtrl_walks
from tests.walks import Walk, called, code_of

ROOMS = (rls_walks, bpls_walks, hessian_free_walks, broad_walks, rtrl_walks)
WALKS = {name: make for room in ROOMS for name, make in room.WALKS.items()}
STEPS = {function: run for room in ROOMS for function, run in room.STEPS.items()}


def recorded(walk: Walk):
    """Record a walk; a partial's function is what is walked."""
    if isinstance(walk.call, partial):
        call = walk.call
        return follow_lines(call.func, *call.args, follow=walk.follow, **call.keywords)
    return follow_lines(walk.call, follow=walk.follow)


@cache
def walked(name: str):
    """Return a walk and its record."""
    walk = WALKS[name]()
    return walk, recorded(walk)


def bits(value: Any) -> Iterator[Any]:
    """All that something holds, in order: tensors to the bit, plain values as text."""
    if isinstance(value, torch.Generator):
        value = value.get_state()
    if isinstance(value, torch.Tensor):
        yield value.dtype, value.shape, value.detach().contiguous().numpy().tobytes()
    elif isinstance(value, Mapping):
        yield from bits(list(value.items()))
    elif isinstance(value, list | tuple):
        for held in value:
            yield from bits(held)
    elif dataclasses.is_dataclass(value):
        yield from bits(vars(value))
    elif not callable(value):
        yield repr(value)


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_has_the_bits_of_a_plain_call(name):
    plain, (walk, record) = WALKS[name](), walked(name)
    wanted = [*bits(plain.call()), *bits(plain.kept())]
    assert [*bits(record.result), *bits(walk.kept())] == wanted
    assert {*wanted} - {"None"}


@pytest.mark.parametrize("name", WALKS)
def test_each_tag_on_the_way_has_its_equation_and_all_equations_are_met(name):
    walk, recording = walked(name)
    docs = Docstrings(recording.docs)
    assert recording.lines
    empty = {
        (r.code.co_qualname, r.line, tag)
        for r in recording.lines
        for tag, latex in docs.equations(r).items()
        if not latex
    }
    assert not empty, f"tags without an equation: {sorted(empty)}"
    for function, shows in walk.shows.items():
        code = code_of(function)
        below = [r for r in recording.lines if code in {c for c, _ in r.path}]
        assert below, f"{function.__qualname__} is not on the way"
        met = {t for r in below for t in tags(r.code.co_filename, r.line)}
        assert set(shows.split()) <= met, f"{function.__qualname__}: {met}"


# One step: what is walked is what runs


@pytest.mark.parametrize("function", STEPS, ids=lambda f: f.__qualname__)
def test_the_function_that_is_walked_is_the_one_that_trains(function):
    assert code_of(function) in called(lambda: STEPS[function]("cpu")())
