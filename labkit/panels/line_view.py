"""HTML of a line that ran: its source, its equations, its values."""

import ast
import html
import inspect
import linecache
import re
import textwrap
import unicodedata

import numpy as np

from labkit.panels.docstrings import MARK, Docstrings, name_of
from labkit.panels.recorder import LineRecord
from labkit.panels.source import statement
from labkit.panels.summaries import Summary

Stops = list[list[LineRecord]]  # of each line its turns
ROWS = 14  # values shown beside a line: the changed ones first
COLUMNS = "name symbol shape dtype device norm min max entries".split()

# JupyterLab's own colours, so that a dark theme is followed; numbers for elsewhere.
STYLE = """<style>
.labkit-source {line-height: 1.3; max-height: 24em; overflow: auto; margin: 0;
  max-width: 100%}
.labkit-walk .widget-html, .labkit-walk .widget-html-content {min-width: 0}
.labkit-source div {padding-left: 4px; border-left: 4px solid transparent;
  width: max-content; min-width: 100%; box-sizing: border-box; opacity: .75}
.labkit-source .ran {opacity: 1}
.labkit-source .lit {opacity: 1; font-weight: bold;
  background: var(--jp-layout-color3, #ddd);
  border-left-color: var(--jp-brand-color1, #1976d2)}
.labkit-values {border-collapse: collapse; font-size: 12px; line-height: 1.5}
.labkit-values td, .labkit-values th {padding: 1px .4em; text-align: left;
  white-space: nowrap; font-variant-numeric: tabular-nums}
.labkit-values th {border-bottom: 1px solid currentColor}
.labkit-values caption {caption-side: bottom; text-align: left}
.labkit-values svg {outline: 1px solid; outline-color: color-mix(
  in srgb, currentColor 40%, transparent); vertical-align: middle}
.labkit-values .changed {font-weight: bold}
</style>"""


def source_html(record: LineRecord, stops: Stops) -> str:
    """Source of a record's function: its line lit, lines that ran marked."""
    filename, start = record.code.co_filename, record.code.co_firstlineno
    lit = statement(filename, record.line)
    ran = {r.line for stop in stops for r in stop if r.code is record.code}
    done = {i for line in ran for i in statement(filename, line)}
    lines = inspect.getblock(linecache.getlines(filename)[start - 1 :])
    prose = _docstring_lines(lines)  # its equations stand beside the source
    body = []
    for number, text in enumerate(lines, start=start):
        if number - start in prose[1:]:
            continue
        if number - start in prose[:1]:
            text = text[: len(text) - len(text.lstrip())] + '"""…"""'
        kind = "lit" if number in lit else "ran" if number in done else ""
        mark = "▶" if number == lit[0] else "·" if kind else " "
        aria = ' aria-current="step"' if number == lit[0] else ""
        text = html.escape(text.rstrip("\n")) or " "
        body.append(f'<div class="{kind}"{aria}>{mark} {number:4d} {text}</div>')
    title = html.escape(record.code.co_qualname)
    block = f"<pre class='labkit-source' tabindex='0'>{''.join(body)}</pre>"
    return f"{STYLE}<b>{title}</b>{block}"


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
    """Equations by tag, for a widget that renders LaTeX."""
    shown = {tag: rf"$\displaystyle {html.escape(e)}$" for tag, e in equations.items()}
    rows = "".join(f"<div>({tag})&emsp;{latex}</div>" for tag, latex in shown.items())
    return rows or "<div>&emsp;</div>"


def values_html(record: LineRecord, docs: Docstrings) -> str:
    """Table of the values after the line: changed ones, marked, then those it names."""
    values = dict(record.values)
    words = set(re.findall(r"[A-Za-z_]\w*", _text(record))) - {"self"}

    def rank(path):
        held_by = re.split(r"[.\[]", path)[0]
        near = (path in words, name_of(path) in words, held_by in words)
        return path not in record.changed, *(not n for n in near), held_by == "self"

    order = sorted(values, key=rank)
    rows = []
    for path in order[:ROWS]:
        symbol = symbol_html(docs.symbol(record, path))
        rows.append(_value_row(path, symbol, values[path], path in record.changed))
    more = len(order) - len(rows)
    rest = f"<caption>{more} more, unchanged</caption>" if more > 0 else ""
    head = "".join(f"<th scope='col'>{name}</th>" for name in COLUMNS)
    return f"<table class='labkit-values'>{rest}<tr>{head}</tr>{''.join(rows)}</table>"


def _value_row(path, symbol, s: Summary, changed: bool) -> str:
    shape = "" if s.shape is None else " × ".join(map(str, s.shape)) or "scalar"
    numbers = ["" if np.isnan(v) else f"{v:.4g}" for v in (s.norm, s.least, s.greatest)]
    entries = _heat(s.heat) if s.heat is not None else html.escape(s.text)
    mark, kind = ("● ", "changed") if changed else ("", "")
    what = (mark + html.escape(path), symbol, shape, s.dtype or s.kind, s.device)
    cells = "".join(f"<td>{c}</td>" for c in (*what, *numbers, entries))
    return f"<tr class='{kind}'>{cells}</tr>"


def _heat(heat: np.ndarray) -> str:
    """A small picture: blue below zero, orange above, the page's colour at zero."""
    most = float(np.abs(heat[np.isfinite(heat)]).max(initial=0)) or 1.0
    rows, columns = heat.shape
    cells = []
    for (i, j), value in np.ndenumerate(heat):
        share = 1.0 if not np.isfinite(value) else abs(float(value)) / most
        hue = "#d55e00" if value > 0 else "#0072b2"
        place = f'x="{j}" y="{i}" width="1" height="1"'
        cells.append(f'<rect {place} fill="{hue}" fill-opacity="{share:.2f}"/>')
    pixels = max(2, min(5, 40 // max(rows, columns)))  # of one entry
    label = f"entries between {heat.min():.3g} and {heat.max():.3g}"
    size = f'width="{pixels * columns}" height="{pixels * rows}"'
    box = f'viewBox="0 0 {columns} {rows}"'
    cells = "".join(cells)
    return f'<svg role="img" aria-label="{label}" {size} {box}>{cells}</svg>'


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
