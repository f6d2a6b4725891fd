"""Statements of a source file: which lines are one, and what their comments say."""

import ast
import linecache
from functools import lru_cache

from labkit.panels.equations import tags_of_line


def statement(filename: str, line: int) -> range:
    """Lines of the statement that a line belongs to; of a block its header alone.

    A line of no statement, or of a file that cannot be read, stands for itself.
    """
    spans = _spans("".join(linecache.getlines(filename)))
    return spans.get(line, range(line, line + 1))


def tags(filename: str, line: int) -> list[str]:
    """Equation tags in the comments of a whole statement, in order."""
    lines = (linecache.getline(filename, i) for i in statement(filename, line))
    return list(dict.fromkeys(tag for text in lines for tag in tags_of_line(text)))


@lru_cache(maxsize=64)
def _spans(text: str) -> dict[int, range]:
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a cell with magics, a part of a file
        return {}
    spans: dict[int, range] = {}
    for node in ast.walk(tree):  # from outside in: what is inside overwrites
        if not isinstance(node, ast.stmt | ast.ExceptHandler):
            continue
        end = node.end_lineno
        if body := getattr(node, "body", None):
            end = max(node.lineno, _first(body[0]) - 1)
        span = range(_first(node), end + 1)
        spans |= dict.fromkeys(span, span)
    return spans


def _first(node: ast.stmt) -> int:
    """First line, decorators included."""
    marks = getattr(node, "decorator_list", [])
    return min([node.lineno, *(mark.lineno for mark in marks)])
