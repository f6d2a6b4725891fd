"""In the source of the five rooms: tags have equations, and equations have tags.

A tag must have an equation in a docstring that the line stepper looks at, and an
equation that a docstring numbers must be on a line of what it documents, or of what
that calls.
"""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import labkit
from labkit.lab.panels.lines.source import equations_of, tags_of_line

PACKAGE = Path(labkit.__file__).parent
ROOMS = ("rls", "bpls", "hessian_free", "broad", "rtrl")


class Source(NamedTuple):
    """A function, class or module of a room, as it is written."""

    name: str  # dotted, of a module its file
    kind: type
    module: str
    docs: tuple[str, ...]  # its own docstring, its class's, its module's
    tags: frozenset[str]
    uses: frozenset[str]  # names in it, of functions that it may call


@cache
def sources(room: str) -> list[Source]:
    found = []
    for path in sorted((PACKAGE / room).glob("*.py")):
        text = path.read_text()
        _read(ast.parse(text), path.stem, text.splitlines(), (), found, "")
    return found


def _read(node, module, lines, around, found, prefix):
    own = ast.get_docstring(node) or ""
    is_module = isinstance(node, ast.Module)
    first, last = (1, len(lines)) if is_module else (node.lineno, node.end_lineno)
    name = module if is_module else prefix + node.name
    skip = range(0)
    if own:
        skip = range(node.body[0].lineno, node.body[0].end_lineno + 1)
    inside = [n for n in range(first, last + 1) if n not in skip]
    marked = frozenset(t for n in inside for t in tags_of_line(lines[n - 1]))
    names = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    found.append(
        Source(name, type(node), module, (own, *around), marked, frozenset(names))
    )
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            below = "" if is_module else f"{name}."
            _read(child, module, lines, (own, *around), found, below)


@cache
def functions(room: str) -> list[Source]:
    return [s for s in sources(room) if s.kind is ast.FunctionDef]


@cache
def reached(source: Source, room: str) -> set[Source]:
    """A source and the functions of its room that it may call, directly or not."""
    done, todo = set(), [source]
    while todo:
        this = todo.pop()
        if this in done:
            continue
        done.add(this)
        todo += [s for s in functions(room) if s.name.split(".")[-1] in this.uses]
    return done


@pytest.mark.parametrize("room", ROOMS)
def test_every_tag_in_the_source_has_an_equation(room):
    missing = []
    assert any(s.tags for s in functions(room))
    for this in functions(room):
        near = [s for s in functions(room) if s.module == this.module]
        callers = [s for s in near if this in reached(s, room)]
        docs = [doc for s in (this, *callers) for doc in s.docs]
        known = {tag for doc in docs for tag in equations_of(doc)}
        missing += [f"{this.module}.{this.name} ({tag})" for tag in this.tags - known]
    assert not missing, f"tags without an equation: {missing}"


@pytest.mark.parametrize("room", ROOMS)
def test_every_equation_of_a_docstring_is_on_a_line(room):
    missing, numbered = [], 0
    for this in sources(room):
        wanted = equations_of(this.docs[0]).keys()
        numbered += len(wanted)
        lines = reached(this, room) if wanted else ()
        found = {tag for s in lines for tag in s.tags}
        missing += [f"{this.module}: {this.name} ({tag})" for tag in wanted - found]
    assert not missing, f"equations that no line is tagged with: {missing}"
    assert numbered >= 5
