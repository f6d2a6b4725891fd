"""A recorded call as data and HTML for the page: sources, equations, values."""

import ast
import base64
import html
import inspect
import linecache
import math
import re
import textwrap
import unicodedata

from labkit.lab.panels.docstrings import MARK, Docstrings, name_of
from labkit.lab.panels.formulas import mathml
from labkit.lab.panels.recorder import LineRecord, Recording
from labkit.lab.panels.source import statement
from labkit.lab.panels.summaries import Summary

Stops = list[list[LineRecord]]  # of each line its turns
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
    """All that the page shows of a recorded call, as plain data.

    Returns
    -------
    dict
        ``stops`` name by their numbers ``functions`` (with their source) and
        ``equations``, and have ``turns``: of each its ``rows`` (number of the name,
        of the summary after the line and before it, whether changed), how many values
        ``more`` there are, and the paths ``changed``. ``names`` are paths with their
        symbols, ``summaries`` values, their pictures as float32 in base64.
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
        changed = sorted(record.changed)
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
    """Paths of the values that lines change, locals first, in their order."""
    paths = (p for stop in stops for r in stop for p in sorted(r.changed))
    return sorted(dict.fromkeys(paths), key=lambda path: not path.isidentifier())


def source_lines(code) -> dict:
    """A function's title and its numbered lines, the docstring folded into one."""
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


def _text(record: LineRecord) -> str:
    """A record's statement in one line, without comments."""
    filename = record.code.co_filename
    lines = statement(filename, record.line)
    parts = [linecache.getline(filename, i).split("  #")[0].strip() for i in lines]
    return " ".join(filter(None, parts))


def equation_html(equations: dict[str, str]) -> str:
    """Equations by tag."""
    rows = (f"<div>({t}) {mathml(e) if e else ''}</div>" for t, e in equations.items())
    return "".join(rows)


def ranked(record: LineRecord) -> list[str]:
    """Paths of the values after the line: changed ones, then those that it names."""
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
    """A symbol as HTML: letters, accents, one level of sub- and superscripts.

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
    """All stops as one static table: function, line, source, equations, changes."""
    names, left = (
        ("function", "line", "source", "equation", "changed"),
        "text-align: left",
    )
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
