"""Walk the source lines of one real update: the line, its equation, its values."""

import ast
import base64
import html
import inspect
import linecache
import math
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from latex2mathml.converter import convert

from labkit.lab.panels.figures.shown import embedded
from labkit.lab.panels.lines.sketch import Picture, pictures
from labkit.lab.panels.lines.source import MARK, Docstrings, name_of, statement
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
    picture : callable, optional
        ``picture(values, changed)`` draws the values so far, arrays by name, as SVG,
        with what a line has ``changed`` lit; it stands beside the equation. See
        :func:`~labkit.lab.panels.lines.sketch.sketch`.

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
    >>> walk, walk.result, walk.data["changing"]
    (LineStepper(2 lines, 1 with an equation), 9, ['y'])
    """

    def __init__(
        self,
        function: Callable,
        *args: Any,
        follow: Iterable[str] | None = None,
        picture: Picture | None = None,
        **kwargs: Any,
    ):
        self.recording = follow_lines(function, *args, follow=follow, **kwargs)
        self.result = self.recording.result
        self.stops = _fold(self.recording.lines)
        if not self.stops:
            raise ValueError(f"no line of {function!r} ran that could be shown")
        self.data = walk_data(self.recording, self.stops)
        if picture:
            drawn = pictures(self.recording.lines, picture)
            numbers = {id(line): i for i, line in enumerate(self.recording.lines)}
            self.data["pictures"] = drawn
            for stop, records in zip(self.data["stops"], self.stops, strict=True):
                for turn, record in zip(stop["turns"], records, strict=True):
                    turn["picture"] = numbers[id(record)]

    def _repr_html_(self) -> str:
        table = table_html(self.stops, Docstrings(self.recording.functions))
        return embedded(Path(__file__).with_suffix(".js"), self.data, table)

    def __repr__(self):
        told = sum(bool(stop["equations"]) for stop in self.data["stops"])
        return f"LineStepper({len(self.stops)} lines, {told} with an equation)"


def _fold(lines: Sequence[LineRun]) -> list[list[LineRun]]:
    stops: dict[tuple, list[LineRun]] = {}
    for record in lines:
        stops.setdefault(record.path, []).append(record)
    return list(stops.values())


Stops = list[list[LineRun]]  # of each line its turns
ROWS = 14  # values shown beside a line: the changed ones first


class _Table(list):
    """What occurs often is kept once: ``table(item)`` is its number."""

    def __init__(self):
        self._numbers = {}

    def __call__(self, item, key=None) -> int:
        number = self._numbers.setdefault(item if key is None else key, len(self))
        if number == len(self):
            self.append(item)
        return number


def walk_data(recording: Recording, stops: Stops) -> dict:
    """Return all that the page shows of a call that was followed, as plain data.

    Returns
    -------
    dict
        ``stops`` name by their numbers ``functions`` (with their source) and
        ``equations``, and have ``turns``: of each its ``rows`` (number of the name,
        of the summary after the line and before it, whether changed), how many values
        ``more`` there are, and the variables ``changed``. ``names`` are paths with
        their symbols, ``summaries`` values, their pictures as float32 in base64.
    """
    docs = Docstrings(recording.functions)
    functions, names, summaries, equations = _Table(), _Table(), _Table(), _Table()

    def turn(record):
        order = ranked(record)
        rows = []
        for path in order[:ROWS]:
            name = names((path, symbol_html(docs.symbol(record, path))))
            after, before = record.values[path], record.before.get(path)
            pair = [None if s is None else summaries(s, id(s)) for s in (after, before)]
            same = path not in record.changed
            rows.append([name, pair[0], pair[0] if same else pair[1], int(not same)])
        changed = sorted({variable_of(path) for path in record.changed})
        return {"rows": rows, "more": len(order) - len(rows), "changed": changed}

    def stop(number, records):
        first = records[0]
        latex = docs.equations(first).items()
        return {
            "number": number,
            "function": functions(first.code),
            "line": first.line,
            "lit": list(statement(first.code.co_filename, first.line)),
            "equations": [equations(equation_html({t: e})) for t, e in latex],
            "turns": [turn(record) for record in records],
        }

    return {
        "stops": [stop(number, records) for number, records in enumerate(stops)],
        "functions": [source_lines(code) for code in functions],
        "changing": changing(stops),
        "names": names,
        "equations": equations,
        "summaries": [_summary(s) for s in summaries],
    }


def changing(stops: Stops) -> list[str]:
    """Return the variables that lines change, locals first."""
    paths = (p for stop in stops for r in stop for p in sorted(r.changed))
    found = dict.fromkeys(map(variable_of, paths))
    return sorted(found, key=lambda variable: not variable.isidentifier())


def variable_of(path: str) -> str:
    """The variable that a path leads from, or the attribute of ``self``.

    Examples
    --------
    >>> variable_of("W"), variable_of("d[3]"), variable_of('new["A"][0]')
    ('W', 'd', 'new')
    >>> variable_of("point.inputs[0]"), variable_of("self.A"), variable_of("self.R[1]")
    ('point', 'self.A', 'self.R')
    """
    return re.match(r"(self\.)?[^.\[]+", path)[0]


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
    parts = [linecache.getline(filename, i).split("  #")[0].strip() for i in lines]
    return " ".join(filter(None, parts))


def equation_html(equations: dict[str, str]) -> str:
    """Return equations by their tags as HTML."""
    rows = (f"<div>({t}) {mathml(e) if e else ''}</div>" for t, e in equations.items())
    return "".join(rows)


def ranked(record: LineRun) -> list[str]:
    """Return the paths of values after a line: changed ones, then those it names."""
    words = set(re.findall(r"[A-Za-z_]\w*", _text(record))) - {"self"}

    def rank(path):
        held_by = re.split(r"[.\[]", path)[0]
        near = (path in words, name_of(path) in words, held_by in words)
        return path not in record.changed, *(not n for n in near), held_by == "self"

    return sorted(record.values, key=rank)


def _summary(s: Summary) -> dict:
    shape = "" if s.shape is None else " × ".join(map(str, s.shape)) or "scalar"
    numbers = (s.norm, s.least, s.greatest)
    numbers = ["" if math.isnan(number) else f"{number:.4g}" for number in numbers]
    found = {"cells": [shape, s.dtype or s.kind, s.device, *numbers], "text": s.text}
    if s.heat is not None:
        heat = base64.b64encode(s.heat.astype("<f4").tobytes()).decode()
        found |= {"heat": heat, "columns": s.heat.shape[1]}
    return found


def symbol_html(text: str) -> str:
    """Return a symbol as HTML: letters, accents, one level of sub- and superscripts.

    Examples
    --------
    >>> symbol_html("x̄"), symbol_html("ρ_0"), symbol_html("A^†")
    ('<i>x̄</i>', '<i>ρ</i><sub>0</sub>', '<i>A</i><sup>†</sup>')
    """

    def marked(found):
        place = {"_": "sub", "^": "sup"}.get(found[1])
        if place:
            return f"<{place}>{found[2]}</{place}>"
        return f"<i>{found[2]}</i>" if found[2][0].isalpha() else found[2]

    text = html.escape(unicodedata.normalize("NFC", text), quote=False)
    return re.sub(rf"([_^]?)([^\W_]{MARK}?|[†∇′]{MARK}?)", marked, text)


def table_html(stops: Stops, docs: Docstrings) -> str:
    """Return all stops as one table: function, line, source, equations, changes."""
    names, left = "function line source equation changed".split(), "text-align: left"
    rows = ["".join(f'<th style="{left}">{name}</th>' for name in names)]
    for stop in stops:
        record = stop[0]
        turns = f" × {len(stop)}" if len(stop) > 1 else ""
        cells = (
            "&nbsp;&nbsp;" * record.depth + html.escape(record.code.co_qualname),
            str(record.line) + turns,
            f"<code>{html.escape(_text(record))}</code>",
            equation_html(docs.equations(record)),
            html.escape(", ".join(sorted(record.changed)[:4])),
        )
        rows.append("".join(f'<td style="{left}">{cell}</td>' for cell in cells))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


@lru_cache(maxsize=512)
def mathml(latex: str) -> str:
    r"""Return LaTeX as a MathML formula in a line, with the sums of a displayed one.

    Examples
    --------
    >>> ">x</" in mathml("x")
    True
    """
    return convert(latex).replace('display="inline"', 'displaystyle="true"', 1)
