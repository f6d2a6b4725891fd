"""How the package reads: annotations, calls, names, lengths, words."""

import ast
from collections import Counter

import pytest

from tests.test_house import ROOT, modules


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


def test_a_missing_annotation_is_found():
    source = "def f(x, *, y: int): ...\nclass A:\n  def __init__(self, z): ..."
    assert unannotated(source) == ["f: x", "f: its result", "__init__: z"]
    source = "def _f(x): ...\nclass _A:\n  def g(self, z): ..."
    assert unannotated(source) == []


def named(node):
    """Whether a node is a dict whose keys could be written as keywords."""
    keys = node.keys if isinstance(node, ast.Dict) else []
    words = (isinstance(k, ast.Constant) and isinstance(k.value, str) for k in keys)
    return bool(keys) and all(words) and all(k.value.isidentifier() for k in keys)


def only_shortening(source):
    """List the lines of dicts that are there only to make a call shorter.

    Such a dict has words for keys, and is either written into the call behind two
    stars, or bound to a name of which that call is the only use.
    """
    tree, found = ast.parse(source), set()
    stars = [k for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg is None]
    found |= {k.value.lineno for k in stars if named(k.value)}
    scopes = (tree, *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)))
    for scope in scopes:
        inside = list(ast.walk(scope))
        bound = {}
        for node in inside:
            if isinstance(node, ast.Assign) and named(node.value):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        bound.setdefault(target.id, []).append(node.lineno)
        uses = Counter(
            n.id
            for n in inside
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        )
        starred = [
            k.value.id
            for k in inside
            if isinstance(k, ast.keyword)
            and isinstance(k.value, ast.Name)
            and k.arg is None
        ]
        found |= {
            lines[0]
            for name, lines in bound.items()
            if len(lines) == 1 and uses[name] == 1 and name in starred
        }
    return sorted(found)


def test_no_dict_is_there_only_to_shorten_a_call():
    assert not of_each_file(only_shortening)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('f(**{"a": 1})', [1]),
        ('more = {"a": 1}\nf(**more)', [2 - 1]),
        ('def g():\n  more = {"a": 1}\n  return f(**more)', [2]),
        ('more = {"a": 1}\nf(**more)\nf(**more)', []),
        ('f(**{"a b": 1})', []),
        ('more = {"a": 1}\nf(more)', []),
    ],
)
def test_a_dict_that_shortens_a_call_is_found(source, lines):
    assert only_shortening(source) == lines


def test_a_file_of_the_package_can_be_held_in_the_head():
    lengths = {path: path.read_text("utf-8").count("\n") for path, _ in modules()}
    assert not {path: n for path, n in lengths.items() if n > 500}


def test_a_class_of_the_lab_has_a_name_of_its_own():
    found = [
        (node.name, module)
        for path, module in modules()
        if module.startswith(("labkit.lab", "reproduction"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    counts = Counter(name for name, _ in found)
    assert not [each for each in found if counts[each[0]] > 1]
