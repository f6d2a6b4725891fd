"""How the package reads: annotations, lengths, names."""

import ast

from tests import ROOT
from tests.test_house import modules


def of_each_file(check):
    """Return what a check of a file's source finds, by path."""
    files = ((p.relative_to(ROOT), p.read_text("utf-8")) for p, _ in modules())
    found = {str(path): check(source) for path, source in files}
    return {path: each for path, each in found.items() if each}


def functions(body, private=False):
    """Yield the public functions and methods of a module."""
    for node in body:
        hidden = private or (node.name if hasattr(node, "name") else "").startswith("_")
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, hidden)
        elif isinstance(node, ast.FunctionDef):
            if not hidden or (not private and node.name in ("__init__", "__call__")):
                yield node


def unannotated(source):
    """List the public functions whose parameters or result have no annotation."""
    found = []
    for node in functions(ast.parse(source).body):
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        bare = [a.arg for a in given if a.annotation is None]
        if given and given[0].arg in ("self", "cls"):
            bare = bare[1:] if bare[:1] == [given[0].arg] else bare
        if node.returns is None and node.name != "__init__":
            bare.append("its result")
        found += [f"{node.name}: {name}" for name in bare]
    return found


def test_public_functions_are_annotated():
    assert not of_each_file(unannotated)


def test_a_file_of_the_package_can_be_held_in_the_head():
    lengths = {path: path.read_text("utf-8").count("\n") for path, _ in modules()}
    assert not {path: n for path, n in lengths.items() if n > 500}
