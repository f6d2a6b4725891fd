"""Every room walks the step that it trains with, and each tag leads to its equation."""

import ast
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any, get_type_hints

import pytest
import torch

from labkit import hessian_free, rls, rtrl
from labkit.lab.panels.lines.source import Docstrings, equations_of, tags
from labkit.lab.panels.lines.tracer import follow_lines
from tests.bpls import walks as bpls_walks
from tests.broad import walks as broad_walks
from tests.hessian_free import walks as hessian_free_walks
from tests.rls import walks as rls_walks
from tests.rtrl import walks as rtrl_walks
from tests.walks import Walk, called, code_of, generator, random

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


def flat(value: Any) -> Iterator[Any]:
    """All tensors and plain values that something holds, in order."""
    if isinstance(value, torch.Generator):
        yield value.get_state()
    elif isinstance(value, Mapping):
        for key, held in value.items():
            yield str(key)
            yield from flat(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from flat(held)
    elif dataclasses.is_dataclass(value):
        yield from flat(vars(value))
    elif not callable(value):
        yield value


def same(a: Any, b: Any) -> bool:
    """Whether two values agree to the bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b


def bits(x: torch.Tensor) -> bytes:
    return x.detach().contiguous().numpy().tobytes()


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_has_the_bits_of_a_plain_call(name):
    plain, (walk, record) = WALKS[name](), walked(name)
    wanted = [*flat(plain.call()), *flat(plain.kept())]
    found = [*flat(record.result), *flat(walk.kept())]
    assert len(wanted) == len(found) and any(
        isinstance(v, torch.Tensor | float | int) for v in wanted
    )
    assert all(map(same, wanted, found))


@pytest.mark.parametrize("name", WALKS)
def test_each_tag_on_the_way_has_its_equation_and_all_equations_are_met(name):
    walk, recording = walked(name)
    docs = Docstrings(recording.functions)
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


def test_what_a_walk_shows_is_all_that_its_docstring_numbers():
    """The lists above are complete: nothing of an update's docstring is left out."""
    shown: dict[Callable, set[str]] = {}
    for make in WALKS.values():
        for function, shows in make().shows.items():
            shown.setdefault(function, set()).update(shows.split())
    for function, found in shown.items():
        missing = equations_of(function.__doc__).keys() - found
        assert not missing, f"{function.__qualname__} never shows {missing}"


# One step: what is walked is what runs


@pytest.mark.parametrize("function", STEPS, ids=lambda f: f.__qualname__)
def test_the_function_that_is_walked_is_the_one_that_trains(function):
    assert code_of(function) in called(STEPS[function])


NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.ipynb"))


def walked_in(notebook: Path) -> list[Callable]:
    """What a notebook hands to its line steppers, found in its source."""
    cells = json.loads(notebook.read_text())["cells"]
    text = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    tree = ast.parse("\n".join(text))
    imports, assigned, handed = {}, {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imports |= {n.asname or n.name: (node.module, n.name) for n in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "LineStepper":
            handed.append(node.args[0])

    def meant(node):
        """An object, or of an instance its class."""
        if isinstance(node, ast.Name):
            if node.id not in imports:
                return meant(assigned[node.id])
            module, name = imports[node.id]
            try:
                return import_module(f"{module}.{name}")
            except ModuleNotFoundError:
                return getattr(import_module(module), name)
        if isinstance(node, ast.Attribute):
            return getattr(meant(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return meant(node.value)[ast.literal_eval(node.slice)]
        assert isinstance(node, ast.Call), ast.unparse(node)
        made = meant(node.func)
        return made if isinstance(made, type) else get_type_hints(made)["return"]

    return [meant(node) for node in handed]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_walks_is_among_the_steps_that_train(notebook):
    codes = {code_of(function) for function in STEPS}
    missing = [f for f in walked_in(notebook) if code_of(f) not in codes]
    assert not missing, f"add to STEPS in tests/<room>/walks.py: {missing}"


# Size


def held(value: Any, seen: set[int]) -> int:
    """Bytes of all that something holds; a tensor in it is a mistake."""
    if id(value) in seen or isinstance(value, CodeType):
        return 0
    seen.add(id(value))
    assert not isinstance(value, torch.Tensor)
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(held(k, seen) + held(v, seen) for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return size + sum(held(v, seen) for v in value)
    inner = [getattr(value, name) for name in getattr(type(value), "__slots__", ())]
    inner += getattr(value, "__dict__", {}).values()
    return size + sum(held(v, seen) for v in inner)


def rls_thousand():
    x, gradient, theta = random(1000, (1000, 1000), (1000, 1000), dtype=torch.float32)
    rule = {"velocity": torch.zeros_like(theta), "momentum": 0.5, "l1": 0.1}
    return partial(rls.rls_step, theta, torch.eye(1000), x, gradient, **rule)


def ok_thousand():
    cell = rtrl.RNNCell(3, 1000, generator=generator())
    made = rtrl.OK(cell, batch_size=1, rank=2, generator=generator())
    return partial(made.step, torch.ones(1, 3))


def hf_long():
    net = hessian_free.Autoencoder((64, 32, 8, 32, 64), generator=generator())
    (X,) = random((100, 64), dtype=torch.float32)
    optimizer = hessian_free.HessianFree(net, damping=0.1, maxiter=40)
    return partial(optimizer.step, X.sigmoid(), validation=X[:30].sigmoid())


@pytest.mark.parametrize(
    ("make", "megabytes"), [(rls_thousand, 0.2), (ok_thousand, 0.5), (hf_long, 5)]
)
def test_a_record_is_small_and_holds_no_tensor(make, megabytes):
    recording = recorded(Walk(make(), tuple))
    assert len(recording.lines) > 5
    assert held(recording.lines, set()) < megabytes * 1e6
