"""The text of an exercise: a step of the library with one equation left out.

Everything is read from the library's source when it is asked for. What is left out are
all statements whose trailing comment names one of the exercise's tags.
"""

import ast
import dis
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Collection
from types import CodeType, FunctionType, ModuleType

from labkit.lab.exercises.in_place import plain
from labkit.lab.panels.lines.source import tags_of_line

WIDTH = 88


def text_of(function: Callable) -> str:
    """Return the source of a step without decorators, docstring and annotations."""
    text = textwrap.dedent(inspect.getsource(plain(function)))
    node = ast.parse(text).body[0]
    lines, body = text.splitlines(), node.body
    if ast.get_docstring(node) is not None:
        start = body[0].end_lineno
    else:
        start = body[0].lineno - 1
    return "\n".join([_header(node), *lines[start:]]) + "\n"


def _header(node: ast.FunctionDef) -> str:
    """Return the line ``def f(...):`` without annotations, within the width."""
    for each in ast.walk(node.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    arguments = ast.unparse(node.args)
    if '"' not in arguments:
        arguments = arguments.replace("'", '"')
    inside = f"def {node.name}({arguments}):"
    if len(inside) <= WIDTH:
        return inside
    wrapped = textwrap.wrap(arguments, WIDTH - 4, break_long_words=False)
    return "\n    ".join([f"def {node.name}(", *wrapped]) + "\n):  # fmt: skip"


def blanks(text: str, tags: Collection[str]) -> list[list[ast.stmt]]:
    """Return the statements left out, those that follow each other in one list.

    LookupError if no line of the text has one of the tags.
    """
    lines, found = text.splitlines(), []

    def tagged(node):
        here = lines[node.lineno - 1 : node.end_lineno]
        simple = not hasattr(node, "body")
        return simple and any(tag in tags for x in here for tag in tags_of_line(x))

    for node in ast.walk(ast.parse(text)):
        for name in ("body", "orelse", "finalbody"):
            group = []
            inside = getattr(node, name, None)
            for each in inside if isinstance(inside, list) else []:
                if tagged(each):
                    group.append(each)
                elif group:
                    found.append(group)
                    group = []
            if group:
                found.append(group)
    if not found:
        raise LookupError(f"no line is tagged {', '.join(tags)} in\n{text}")
    return sorted(found, key=lambda group: group[0].lineno)


def with_blank(text: str, tags: Collection[str], given: Collection[str] = ()) -> str:
    """Return the text with ``...`` in the place of what is left out.

    Where assignments are left out, their targets stay. Where something is changed in
    place, ``given`` has for each group of statements what takes its place: the ``...``
    and the lines that write the result to where the library has it. ValueError if it
    has not as many texts as there are groups.
    """
    lines, groups = text.splitlines(), blanks(text, tags)
    if given and len(given) != len(groups):
        raise ValueError(f"{len(groups)} groups are left out, but {given} is given")
    shown = [each.splitlines() for each in given]
    shown = shown or [_open(group, lines) for group in groups]
    for group, new in reversed([*zip(groups, shown, strict=True)]):
        first, last = group[0], group[-1]
        indent = " " * first.col_offset
        lines[first.lineno - 1 : last.end_lineno] = [indent + line for line in new]
    return "\n".join(lines) + "\n"


def _open(group: list[ast.stmt], lines: list[str]) -> list[str]:
    new = []
    for node in group:
        here = lines[node.lineno - 1 : node.end_lineno]
        named = [t for x in here for t in tags_of_line(x)]
        end = "  # " + ", ".join(f"({tag})" for tag in dict.fromkeys(named))
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            each = target.elts if isinstance(target, ast.Tuple) else [target]
            new.append(f"{', '.join(map(ast.unparse, each))} = ...{end}")
        elif isinstance(node, ast.Return):
            new.append(f"return ...{end}")
        else:
            new.append(f"...{end}")
    return list(dict.fromkeys(new))


def is_open(text: str) -> bool:
    r"""Return whether a ``...`` stands where a value is wanted, in a function's text.

    Examples
    --------
    >>> is_open("def f(x):\n    y = ...\n    return y"), is_open("x = y[..., 0]")
    (True, False)
    """
    tree = ast.parse(textwrap.dedent(text))
    sliced = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        for part in ast.walk(node.slice)
    }
    constants = (n for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return any(n.value is Ellipsis and id(n) not in sliced for n in constants)


def imports_of(function: Callable) -> str:
    """Return the import lines for all names that a step takes from its module."""
    function = plain(function)
    space, names = function.__globals__, names_of(function.__code__)
    arguments = ast.parse(text_of(function)).body[0].args
    names |= {n.id for n in ast.walk(arguments) if isinstance(n, ast.Name)}  # defaults
    lines, own = [], []
    for name in sorted(names & space.keys(), key=_by_kind):
        value = space[name]
        if not isinstance(value, ModuleType):
            own.append(name)
        elif value.__name__ == name:
            lines.append(f"import {name}")
        else:
            parent, _, leaf = value.__name__.rpartition(".")
            alias = "" if leaf == name else f" as {name}"
            lines.append(f"from {parent} import {leaf}{alias}")
    if own:
        line = f"from {function.__module__} import {', '.join(own)}"
        if len(line) > WIDTH:
            names = "".join(f"    {name},\n" for name in own)
            line = f"from {function.__module__} import (\n{names})"
        lines.append(line)
    groups: dict[int, list[str]] = {}
    for line in lines:
        root = line.split()[1].partition(".")[0]
        kind = 2 if root == "labkit" else int(root not in sys.stdlib_module_names)
        groups.setdefault(kind, []).append(line)
    return "\n\n".join("\n".join(groups[kind]) for kind in sorted(groups))


def _by_kind(name: str) -> tuple[bool, bool, str]:
    """Sort constants before classes, and these before functions."""
    return not name.isupper(), not name[0].isupper(), name


def names_of(code: CodeType) -> set[str]:
    """Return the global names that code reads, also in functions inside it."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return found.union(*map(names_of, inner))


def compiled(text: str, function: Callable, name: str) -> FunctionType:
    """Return the function that a text defines, with the globals of the library's one.

    ``name`` stands for a file, from which errors and tracebacks read the text.
    """
    file = f"<{name}>"
    lines = text.splitlines(keepends=True)
    linecache.cache[file] = len(text), None, lines, file
    function = plain(function)
    space = dict(function.__globals__)
    exec(compile(text, file, "exec"), space)
    return space[function.__name__]
