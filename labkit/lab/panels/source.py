"""Statements of a source file: which lines are one, and the tags in their comments.

A line names the equations that it implements in a trailing comment, ``# (38), (39)``
or ``# (1)-(6)``. Tags are numbers, also with letters, or single small letters.
"""

import ast
import linecache
import re
from functools import lru_cache

TAG = r"\(([A-Z]?\d+[a-z]?'?|[a-z])\)"
_TAGS = rf"{TAG}(?:\s*[,-]\s*{TAG})*"


def tags_of_line(line: str) -> list[str]:
    """Tags in the trailing comment of a line of code.

    Examples
    --------
    >>> tags_of_line("u, h = gain(P, x)  # (38), (39)")
    ['38', '39']
    >>> tags_of_line("P: Tensor  # (n, n) inverse"), tags_of_line("mix(G)  # (1)-(3)")
    ([], ['1', '2', '3'])
    """
    _, _, comment = line.partition("#")
    found = re.match(rf"\s*({_TAGS})(?:\s*$|[^\w])", comment)
    tags: list[str] = []
    for between, tag in re.findall(rf"([,-]?)\s*{TAG}", found[1] if found else ""):
        if between == "-" and tag.isdigit() and tags[-1].isdigit():
            tags += map(str, range(int(tags[-1]) + 1, int(tag)))
        tags.append(tag)
    return tags


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
