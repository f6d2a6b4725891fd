r"""What a source file says of its lines: statements, equations, variables' symbols.

A line names the equations that it implements in a trailing comment, ``# (38), (39)``
or ``# (1)-(6)``. Tags are numbers, also with letters, or single small letters.

A docstring gives an equation a number in front, ``(38) $u = P \bar x$``, or behind it
in a displayed block, ``u &= P \bar x &&(38) \\``.

A variable's symbol in its paper is the first ``$...$`` of its entry in a numpydoc
table, in its type or in the first line of its description; several names and as many
symbols go in pairs. A local that stands in no table has the symbol that a formula of
the docstring spells in the same way: ``h_hat`` is $\hat h$, ``p1`` is $p_1$, ``theta``
is $\Theta$. Other locals have none. Symbols are written without LaTeX: x̄, ρ_0, A^†.
"""

import ast
import inspect
import linecache
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

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


class Docstrings:
    """Docstrings of the function, its class, its module, then of its callers."""

    def __init__(self, functions: Mapping[CodeType, Callable | None]):
        self._functions = functions
        self._known: dict[tuple, str] = {}

    def equations(self, record: Any) -> dict[str, str]:
        """LaTeX by tag; a tag without an equation maps to an empty text."""
        around = [equations_of(text) for text in self._around(record)]
        wanted = tags(record.code.co_filename, record.line)
        return {t: next((e[t] for e in around if e.get(t)), "") for t in wanted}

    def symbol(self, record: Any, path: str) -> str:
        """Symbol of the variable at a path; empty where no docstring has one."""
        name = name_of(path)
        callers = tuple(code for code, _ in record.path)
        if (callers, name) not in self._known:
            found = (symbol(name, text) for text in self._around(record) if name)
            self._known[callers, name] = next(filter(None, found), "")
        return self._known[callers, name]

    def _around(self, record) -> Iterator[str]:
        for code, _ in reversed(record.path):
            yield from filter(None, docstrings_of(self._functions.get(code)))


def docstrings_of(function: Callable | None) -> Iterator[str | None]:
    """The function's own docstring, its class's, its module's."""
    if function is None:
        return
    yield function.__doc__
    module = sys.modules.get(function.__module__)
    owner = function.__qualname__.rpartition(".")[0]
    yield getattr(getattr(module, owner, None), "__doc__", None) if owner else None
    yield getattr(module, "__doc__", None)


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

_ACCENTS = {"hat": "\u0302", "tilde": "\u0303", "bar": "\u0304", "mean": "\u0304"}
_SIGNS = {"nabla": "∇", "dagger": "†", "top": "T", "prime": "′", "varepsilon": "ε"}
_WORDS = {"lam": "lambda", "eps": "epsilon"}
_ENTRY = re.compile(r"( *)([A-Za-z_]\w*(?:, *[A-Za-z_]\w*)*) : (.*)")
_NAME = re.compile(
    r"([A-Za-z]+?)(?:_?(hat|bar|mean|tilde))?(?:_?(\d)|_([A-Za-z])|_(dagger))?"
)
MARK = "[\u0302-\u0304]"  # an accent


@lru_cache(maxsize=4096)
def symbol(name: str, docstring: str) -> str:
    r"""Return the symbol of a variable; empty where the docstring has none.

    Examples
    --------
    >>> text = "(1) $u = P\\bar x$\n\nl1, ratio : float\n    $\\gamma$ and $k$, >= 0"
    >>> [symbol(name, text) for name in ("l1", "ratio", "P", "x_mean", "x", "other")]
    ['γ', 'k', 'P', 'x̄', '', '']
    """
    tables, formulas = _read(docstring)
    if name in tables:
        return tables[name]
    for spelled in _spelled(name):
        letters = r"[\s,]*".join(map(re.escape, spelled.split()))
        if any(re.search(f"{letters}(?!{MARK})", formula) for formula in formulas):
            return spelled
    return ""


@lru_cache(maxsize=512)
def _read(docstring: str) -> tuple[dict[str, str], list[str]]:
    """The symbols in a docstring's tables, and its formulas."""
    lines = inspect.cleandoc(docstring).splitlines()
    found: dict[str, str] = {}
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if not (match := _ENTRY.fullmatch(line)):
            continue
        names = [name.strip() for name in match[2].split(",")]
        inside = len(below) - len(below.lstrip()) > len(match[1])
        said = match[3] if "$" in match[3] or not inside else below
        said = re.findall(r"\$([^$]+)\$", said)
        if len(said) >= len(names):
            found |= dict(zip(names, map(plain, said), strict=False))
    blocks, prose = _blocks(docstring)
    return found, [*map(plain, blocks + re.findall(r"\$([^$]+)\$", prose))]


def plain(latex: str) -> str:
    r"""Return LaTeX with letters and signs in the place of its commands.

    Examples
    --------
    >>> [plain(s) for s in (r"\bar x", r"\rho_{0}", r"A^\dagger", r"\Delta Z")]
    ['x̄', 'ρ_0', 'A^†', 'Δ Z']
    """
    text = re.sub(r"\\(mathrm|text|operatorname)\{[^}]*\}", " ", latex)
    text = re.sub(r"\\([A-Za-z]+) *", lambda found: _sign(found[1]), text)
    text = re.sub(r"[{}]", "", text.replace("'", "′").replace(r"\,", " "))
    text = re.sub(rf"({MARK})\s*(\w|∇)", r"\2\1", text)
    return re.sub(r"\s+(?=[_^\s])", "", text).strip()


def _sign(command: str) -> str:
    return _ACCENTS.get(command) or _SIGNS.get(command) or f"{_greek(command)} "


def _greek(name: str) -> str:
    """A Greek letter by its name in LaTeX; empty for other names."""
    kind = "SMALL" if name.islower() else "CAPITAL"
    word = {"LAMBDA": "LAMDA"}.get(name.upper(), name.upper())
    try:
        return unicodedata.lookup(f"GREEK {kind} LETTER {word}")
    except KeyError:
        return ""


def _spelled(name: str) -> list[str]:
    """Symbols that a name in ASCII usually stands for, the likeliest first."""
    if not (parts := _NAME.fullmatch(name)):
        return []
    stem, accent, digit, letter, dagger = parts.groups()
    word = _WORDS.get(stem, stem)
    if _greek(word):
        bases = [_greek(word), _greek(word.capitalize())]
    elif len(stem) > 2:
        return []
    else:
        bases = [" ".join(stem)]
        bases += [f"Δ {stem[1]}"] if stem[0] == "d" and stem[1:] else []
    low = digit or letter
    end = "^†" if dagger else f"_{low}" if low else ""
    return [base + _ACCENTS.get(accent, "") + end for base in bases]
