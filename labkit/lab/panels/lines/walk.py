"""Walk the source lines of one real update: the line, its equation, its values."""

import ast
import html
import inspect
import linecache
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from latex2mathml.converter import convert

from labkit.lab.panels.figures.shown import Table, embedded
from labkit.lab.panels.lines.source import Docstrings, name_of, statement
from labkit.lab.panels.lines.tracer import LineRun, Recording, Summary, follow_lines


class LineStepper:
    """Run one call of a real function and walk the lines that ran.

    The call is made at once. To walk needs no kernel: it goes on after a restart, after
    a reload and in an exported page. First the lines with an equation are walked; a box
    adds all others. Lines that ran more than once are one stop, with an index for the
    turns of the loop. A ValueError if no line ran that could be shown.

    Parameters
    ----------
    function, args, follow, kwargs : of :func:`~labkit.lab.panels.follow_lines`

    Attributes
    ----------
    result, recording : what the call returned; all its lines
    stops : list of lists of LineRun, of each line its turns
    data : dict, what the page walks, see :func:`~walk_data`

    Examples
    --------
    >>> def square(x):
    ...     y = x * x  # (1)
    ...     return y
    >>> walk = LineStepper(square, 3)
    >>> walk, walk.result
    (LineStepper(2 lines, 1 with an equation), 9)
    """

    def __init__(
        self,
        function: Callable,
        *args: Any,
        follow: Iterable[str] | None = None,
        **kwargs: Any,
    ):
        self.recording = follow_lines(function, *args, follow=follow, **kwargs)
        self.result = self.recording.result
        self.stops = _fold(self.recording.lines)
        if not self.stops:
            raise ValueError(f"no line of {function!r} ran that could be shown")
        self.data = walk_data(self.recording, self.stops)

    def _repr_html_(self) -> str:
        return embedded(Path(__file__).with_suffix(".js"), self.data)

    def __repr__(self):
        tagged = sum(bool(stop["equations"]) for stop in self.data["stops"])
        return f"LineStepper({len(self.stops)} lines, {tagged} with an equation)"


def _fold(lines: Sequence[LineRun]) -> list[list[LineRun]]:
    stops: dict[tuple, list[LineRun]] = {}
    for record in lines:
        stops.setdefault(record.path, []).append(record)
    return list(stops.values())


Stops = list[list[LineRun]]  # of each line its turns
ROWS = 14  # values shown beside a line: the changed ones first


HEAD = "<tr><th>name</th><th>symbol</th><th>shape</th><th>entries</th></tr>"
FEW = 8  # entries of a tensor that are written out


def walk_data(recording: Recording, stops: Stops) -> dict:
    """Return all that the page shows of a call that was followed, as plain data.

    Returns
    -------
    dict
        ``stops`` name by their numbers ``functions`` (with their source) and
        ``equations``, and have ``turns``: of each its ``rows``. Equations and rows are
        HTML.
    """
    docs = Docstrings(recording.docs)
    functions, rows, equations = Table(), Table(), Table()

    def turn(record):
        found = []
        for path in ranked(record)[:ROWS]:
            symbol, changed = docs.symbol(record, path), path in record.changed
            symbol = symbol and mathml(symbol)
            found.append(rows(row_html(path, symbol, record.values[path], changed)))
        return {"rows": found}

    def stop(number, records):
        first = records[0]
        latex = docs.equations(first).items()
        return {
            "number": number,
            "function": functions(first.code),
            "line": first.line,
            "lit": list(statement(first.code.co_filename, first.line)),
            "equations": [
                equations(equation_html({tag: equation})) for tag, equation in latex
            ],
            "turns": [turn(record) for record in records],
        }

    return {
        "stops": [stop(number, records) for number, records in enumerate(stops)],
        "functions": [source_lines(code) for code in functions],
        "rows": list(rows),
        "equations": list(equations),
        "head": HEAD,
    }


def row_html(path: str, symbol: str, value: Summary, changed: bool) -> str:
    """Return a row of the table of values: few entries, or their range."""
    shape = " × ".join(map(str, value.shape or ())) or "scalar"
    entries = html.escape(value.text)
    if not math.isnan(value.least):
        entries = f"{value.least:.4g} … {value.greatest:.4g}"
        if math.prod(value.shape) <= FEW:
            entries = " ".join(f"{entry:.4g}" for entry in value.entries.flat)
    cells = path, symbol, shape if value.shape is not None else value.kind, entries
    inside = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr class="changed">{inside}</tr>' if changed else f"<tr>{inside}</tr>"


def source_lines(code: CodeType) -> dict:
    """Return a function's title and numbered lines, the docstring as one of them."""
    start = code.co_firstlineno
    lines = inspect.getblock(linecache.getlines(code.co_filename)[start - 1 :])
    prose = _docstring_lines(lines)  # its equations stand above the source
    kept = []
    for number, text in enumerate(lines):
        if number in prose[1:]:
            continue
        if number in prose[:1]:
            text = text[: len(text) - len(text.lstrip())] + '"""…"""'
        kept.append([start + number, text.rstrip("\n")])
    return {"title": code.co_qualname, "lines": kept}


def _docstring_lines(lines: list[str]) -> list[int]:
    """Numbers of a function's lines, from 0, that its docstring takes."""
    try:
        (function,) = ast.parse(textwrap.dedent("".join(lines))).body
    except SyntaxError:  # a part of a line, as of a lambda
        return []
    first = getattr(function, "body", [None])[0]
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        return []
    return list(range(first.lineno - 1, first.end_lineno))


def _text(record: LineRun) -> str:
    """A record's statement in one line, without comments."""
    filename = record.code.co_filename
    lines = statement(filename, record.line)
    parts = [
        linecache.getline(filename, number).split("  #")[0].strip() for number in lines
    ]
    return " ".join(filter(None, parts))


def equation_html(equations: dict[str, str]) -> str:
    """Return equations by their tags as HTML."""
    rows = (
        f"<div>({tag}) {mathml(latex) if latex else ''}</div>"
        for tag, latex in equations.items()
    )
    return "".join(rows)


def ranked(record: LineRun) -> list[str]:
    """Return the paths of values after a line: changed ones, then those it names."""
    words = set(re.findall(r"[A-Za-z_]\w*", _text(record))) - {"self"}

    def rank(path):
        held_by = re.split(r"[.\[]", path)[0]
        near = (path in words, name_of(path) in words, held_by in words)
        return (
            path not in record.changed,
            *(not each for each in near),
            held_by == "self",
        )

    return sorted(record.values, key=rank)


@lru_cache(maxsize=512)
def mathml(latex: str) -> str:
    r"""Return LaTeX as a MathML formula in a line, with the sums of a displayed one.

    Examples
    --------
    >>> ">x</" in mathml("x")
    True
    """
    return convert(latex).replace('display="inline"', 'displaystyle="true"', 1)
