r"""What a source file says of its lines: statements, equations, variables' symbols.

A line names the equations that it implements in a trailing comment, ``# (38), (39)``
or ``# (1)-(6)``. Tags are numbers, also with letters, or single small letters.

A docstring gives an equation a number in front, ``(38) $u = P \bar x$``, or behind it
in a displayed block, ``u &= P \bar x &&(38) \\``.

A variable's symbol in its paper is the first ``$...$`` of its entry in a numpydoc
table, in its type or in the first line of its description; several names and as many
symbols go in pairs.
"""

import inspect
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from stack_data import Source

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
    """Lines of the statement that a line belongs to; of a block its header alone."""
    pieces = Source.for_filename(filename).pieces
    return next((piece for piece in pieces if line in piece), range(line, line + 1))


def tags(filename: str, line: int) -> list[str]:
    """Equation tags in the comments of a whole statement, in order."""
    lines = (
        linecache.getline(filename, number) for number in statement(filename, line)
    )
    return list(dict.fromkeys(tag for text in lines for tag in tags_of_line(text)))


class Docstrings:
    """Docstrings of the function, its class, its module, then of its callers."""

    def __init__(self, docs: Mapping[CodeType, Sequence[str]]):
        self._docs = docs

    def equations(self, record: Any) -> dict[str, str]:
        """LaTeX by tag; a tag without an equation maps to an empty text."""
        around = [equations_of(text) for text in self._around(record)]
        wanted = tags(record.code.co_filename, record.line)
        return {
            tag: next((each[tag] for each in around if each.get(tag)), "")
            for tag in wanted
        }

    def symbol(self, record: Any, path: str) -> str:
        """LaTeX of the variable at a path; empty where no docstring has a symbol."""
        tables = (symbols(text).get(name_of(path)) for text in self._around(record))
        return next(filter(None, tables), "")

    def _around(self, record) -> Iterator[str]:
        for code, _ in reversed(record.path):
            yield from self._docs[code]


def docstrings_of(frame: FrameType) -> Sequence[str]:
    """The docstring of the function that a frame runs, of its class, of its module."""
    own, around = frame.f_code.co_consts[:1], frame.f_globals
    owner = around.get(frame.f_code.co_qualname.partition(".")[0])
    found = *own, getattr(owner, "__doc__", None), around.get("__doc__")
    return [doc for doc in found if isinstance(doc, str)]


def name_of(path: str) -> str:
    """The last name of a path; empty for an entry of a list.

    Examples
    --------
    >>> name_of("self.A"), name_of('state["P"]'), name_of("h"), name_of("W[0]")
    ('A', 'P', 'h', '')
    """
    found = re.search(r'(?:^|\.|\[")([A-Za-z_]\w*)(?:"\])?$', path)
    return found[1] if found else ""


# Equations

_INLINE = re.compile(rf"({TAG}(?:,\s*{TAG})*):?\s*((?:\$[^$]+\$[\s,]*)+)")
_BLOCK = re.compile(
    r"\.\. math::[^\n]*\n((?:[ \t]+\S[^\n]*(?:\n|\Z)|[ \t]*\n)+)|\$\$(.+?)\$\$", re.S
)
_BEHIND = re.compile(rf"&&\s*((?:{TAG}[,\s]*)+)\s*$")


@lru_cache(maxsize=512)
def equations_of(docstring: str | None) -> dict[str, str]:
    r"""LaTeX by tag, without the tags and the marks of alignment.

    Examples
    --------
    >>> equations_of(r"One step: (1) $y = x^2$    (2) $z = y,$ $w = z$.")
    {'1': 'y = x^2', '2': 'z = y, \\quad w = z'}
    """
    blocks, prose = _blocks(docstring)
    found: dict[str, str] = {}
    for row in (row for block in blocks for row in re.split(r"\\\\", block)):
        row = " ".join(row.split())
        if behind := _BEHIND.search(row):
            latex = row[: behind.start()].replace("&", " ").strip(" ,.")
            for tag in re.findall(TAG, behind[1]):
                found.setdefault(tag, latex)
    for match in _INLINE.finditer(prose):
        parts = re.findall(r"\$([^$]+)\$", match[0][len(match[1]) :])
        latex = r" \quad ".join(" ".join(part.split()) for part in parts)
        for tag in re.findall(TAG, match[1]):
            found.setdefault(tag, latex)
    return found


def _blocks(docstring: str | None) -> tuple[list[str], str]:
    """The displayed blocks of a docstring, and the rest of it."""
    text = inspect.cleandoc(docstring or "")
    blocks = [block[1] or block[2] for block in _BLOCK.finditer(text)]
    return blocks, _BLOCK.sub("\n", text)


# Symbols

_ENTRY = re.compile(r"( *)([A-Za-z_]\w*(?:, *[A-Za-z_]\w*)*) : (.*)")


@lru_cache(maxsize=512)
def symbols(docstring: str) -> dict[str, str]:
    r"""Return the LaTeX of variables in a docstring's tables.

    Examples
    --------
    >>> text = "Of\n\nl1, ratio : float\n    $\\gamma$ and $k$, >= 0"
    >>> symbols(text + "\nx : (n,) tensor, $\\bar x$\n    Mean of the inputs, (50).")
    {'l1': '\\gamma', 'ratio': 'k', 'x': '\\bar x'}
    """
    lines = inspect.cleandoc(docstring).splitlines()
    found: dict[str, str] = {}
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if not (match := _ENTRY.fullmatch(line)):
            continue
        names = [name.strip() for name in match[2].split(",")]
        inside = len(below) - len(below.lstrip()) > len(match[1])
        text = match[3] if "$" in match[3] or not inside else below
        own = re.findall(r"\$([^$]+)\$", text)
        own = own if len(own) >= len(names) else [""] * len(names)
        found |= zip(names, own, strict=False)
    return found
