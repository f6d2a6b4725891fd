"""Walk the source lines of one real update: the line, its equation, its values."""

import ast
import html
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable
from types import CodeType

import ipywidgets as widgets
import numpy as np

from labkit.panels.equations import equations_of, tags_of_line
from labkit.panels.recorder import LineRecord, record_lines
from labkit.panels.summaries import Summary

ROWS = 14  # values shown beside a line: the changed ones first


class LineStepper:
    """Run one call of a real function and walk the lines that ran.

    The call is made at once, by :func:`~labkit.panels.record_lines`; walking looks at
    the record and runs nothing. Lines that ran more than once are one stop, with an
    index for the turns of the loop.

    Parameters
    ----------
    function, args, follow, kwargs : of :func:`~labkit.panels.record_lines`.
    interactive : bool
        Make widgets; otherwise a static table of all stops is shown, and all methods
        work the same.

    Attributes
    ----------
    result : what the call returned.
    recording : the record.
    position, turn : stop and turn shown, from 0.
    widget : ipywidgets.VBox or None
        Buttons (CSS classes ``labkit-line-first``, ``-back``, ``-next``, ``-last``),
        slider (``labkit-line``, moved by the arrow keys), slider of turns
        (``labkit-line-turn``), source, equation, values.

    Raises
    ------
    ValueError
        If no line of the function ran that could be shown.

    Examples
    --------
    >>> import torch
    >>> def square(x):
    ...     y = x * x  # (1)
    ...     return y
    >>> walk = LineStepper(square, torch.ones(2), interactive=False)
    >>> walk.next(), walk.record.changed
    (1, frozenset())
    >>> walk.back(), sorted(walk.record.changed)
    (0, ['y'])
    """

    def __init__(self, function, *args, follow=None, interactive=True, **kwargs):
        self.recording = record_lines(function, *args, follow=follow, **kwargs)
        self.result = self.recording.result
        self.stops: list[list[LineRecord]] = _fold(self.recording.lines)
        if not self.stops:
            raise ValueError(f"no line of {function!r} ran that could be shown")
        self.position, self.turn = 0, 0
        self._docs = _Docs(self.recording.functions)
        self.widget = None
        if interactive:
            self._build()

    @property
    def record(self) -> LineRecord:
        """The line shown."""
        return self.stops[self.position][self.turn]

    @property
    def equations(self) -> dict[str, str]:
        """LaTeX by tag of the line shown."""
        return self._docs.of(self.record)

    def go(self, position: int, turn: int = 0) -> int:
        """Show a stop and turn, the nearest ones that there are; return the stop."""
        self.position = min(max(position, 0), len(self.stops) - 1)
        self.turn = min(max(turn, 0), len(self.stops[self.position]) - 1)
        self._refresh()
        return self.position

    def first(self) -> int:
        """Show the first stop."""
        return self.go(0)

    def back(self) -> int:
        """Show the stop before."""
        return self.go(self.position - 1)

    def next(self) -> int:
        """Show the stop after."""
        return self.go(self.position + 1)

    def last(self) -> int:
        """Show the last stop."""
        return self.go(len(self.stops) - 1)

    def next_change(self, name: str) -> int:
        """Show the next stop whose line changes a value, named by its path.

        Raises
        ------
        LookupError
            If no later line changes it; the stop shown stays.
        """
        for position in range(self.position + 1, len(self.stops)):
            for turn, record in enumerate(self.stops[position]):
                if name in record.changed:
                    return self.go(position, turn)
        names = sorted({n for stop in self.stops for r in stop for n in r.changed})
        raise LookupError(
            f"no later line changes {name!r}; lines change {', '.join(names)}"
        )

    # What is shown

    def source_html(self) -> str:
        """Source of the function shown; the line lit, lines that ran marked."""
        record = self.record
        ran = {r.line for stop in self.stops for r in stop if r.code is record.code}
        start = record.code.co_firstlineno
        lines = inspect.getblock(
            linecache.getlines(record.code.co_filename)[start - 1 :]
        )
        prose = _docstring_lines(lines)  # its equations stand beside the source
        body = []
        for number, text in enumerate(lines, start=start):
            if number - start in prose[1:]:
                continue
            if number - start in prose[:1]:
                text = text[: len(text) - len(text.lstrip())] + '"""…"""'
            kind = "lit" if number == record.line else "ran" if number in ran else ""
            mark = {"lit": "▶", "ran": "·"}.get(kind, " ")
            aria = ' aria-current="step"' if kind == "lit" else ""
            text = html.escape(text.rstrip("\n")) or " "
            body.append(f'<div class="{kind}"{aria}>{mark} {number:4d} {text}</div>')
        title = html.escape(_name(record.code))
        return f"{_STYLE}<b>{title}</b><pre class='labkit-source'>{''.join(body)}</pre>"

    def equation_html(self) -> str:
        """The line's equations, for a MathJax widget."""
        rows = [f"({tag})&emsp;$${latex}$$" for tag, latex in self.equations.items()]
        return "".join(rows) or "&emsp;"

    def values_html(self) -> str:
        """Table of the values after the line, changed ones first and marked."""
        record = self.record
        order = sorted(record.values, key=lambda name: name not in record.changed)
        rows = [
            _value_row(name, record.values[name], name in record.changed)
            for name in order[:ROWS]
        ]
        more = len(order) - len(rows)
        rest = f"<caption>{more} more unchanged</caption>" if more > 0 else ""
        head = "".join(f"<th>{name}</th>" for name in COLUMNS)
        return (
            f"<table class='labkit-values'>{rest}<tr>{head}</tr>{''.join(rows)}</table>"
        )

    def _repr_mimebundle_(self, **options):
        if self.widget is not None:
            return self.widget._repr_mimebundle_(**options)
        return {"text/html": self.table_html(), "text/plain": repr(self)}

    def __repr__(self):
        return f"LineStepper(line {self.position + 1} of {len(self.stops)})"

    def table_html(self) -> str:
        """All stops as one static table: function, line, source, tags, changes."""
        rows = []
        for stop in self.stops:
            record = stop[0]
            text = linecache.getline(record.code.co_filename, record.line)
            tags = ", ".join(f"({tag})" for tag in self._docs.of(record))
            turns = f" × {len(stop)}" if len(stop) > 1 else ""
            cells = (
                "&emsp;" * record.depth + html.escape(_name(record.code)),
                str(record.line) + turns,
                f"<code>{html.escape(text.strip())}</code>",
                tags,
                html.escape(", ".join(sorted(record.changed)[:4])),
            )
            rows.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
        names = ("function", "line", "source", "equation", "changed")
        head = "".join(f"<th>{name}</th>" for name in names)
        return f"<table><tr>{head}</tr>{''.join(rows)}</table>"

    # Widgets

    def _build(self):
        buttons = [
            self._button("First", "fast-backward", self.first),
            self._button("Back", "step-backward", self.back),
            self._button("Next", "step-forward", self.next),
            self._button("Last", "fast-forward", self.last),
        ]
        options = {"style": {"description_width": "60px"}, "layout": {"width": "520px"}}
        self._slider = widgets.IntSlider(
            min=1, max=len(self.stops), description="line", **options
        )
        self._turns = widgets.IntSlider(min=1, max=1, description="turn", **options)
        self._slider.add_class("labkit-line")
        self._turns.add_class("labkit-line-turn")
        self._slider.observe(lambda c: self._moved(c["new"] - 1, 0), "value")
        self._turns.observe(lambda c: self._moved(self.position, c["new"] - 1), "value")
        self._source, self._values = widgets.HTML(), widgets.HTML()
        self._equation = widgets.HTMLMath()
        side = widgets.VBox([self._equation, self._values], layout={"min_width": "0"})
        self._busy = False
        self.widget = widgets.VBox(
            [
                widgets.HBox(buttons),
                self._slider,
                self._turns,
                widgets.HBox([self._source, side], layout={"flex_flow": "row wrap"}),
            ]
        )
        self._refresh()

    def _button(self, name, icon, action):
        button = widgets.Button(description=name, icon=icon, layout={"width": "90px"})
        button.add_class(f"labkit-line-{name.lower()}")
        button.on_click(lambda _: action())
        return button

    def _moved(self, position, turn):
        if not self._busy:
            self.go(position, turn)

    def _refresh(self):
        if self.widget is None:
            return
        self._busy = True  # the sliders follow; they must not move the stop again
        self._slider.value = self.position + 1
        turns = len(self.stops[self.position])
        self._turns.max, self._turns.value = turns, min(self.turn + 1, turns)
        self._turns.disabled = turns == 1
        self._busy = False
        self._source.value = self.source_html()
        self._equation.value = self.equation_html()
        self._values.value = self.values_html()


def _fold(lines) -> list[list[LineRecord]]:
    stops: dict[tuple, list[LineRecord]] = {}
    for record in lines:
        stops.setdefault(record.path, []).append(record)
    return list(stops.values())


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


def _name(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


class _Docs:
    """Equations by tag: of the function, its class, its module, then its callers."""

    def __init__(self, functions: dict[CodeType, Callable | None]):
        self._functions = functions

    def of(self, record: LineRecord) -> dict[str, str]:
        """LaTeX by tag; a tag without an equation maps to an empty text."""
        text = linecache.getline(record.code.co_filename, record.line)
        chain = [code for code, _ in reversed(record.path)]
        return {tag: self._find(tag, chain) for tag in tags_of_line(text)}

    def _find(self, tag, chain) -> str:
        for code in chain:
            for doc in self._docstrings(code):
                if latex := equations_of(doc).get(tag):
                    return latex
        return ""

    def _docstrings(self, code):
        function = self._functions.get(code)
        if function is None:
            return
        yield function.__doc__
        module = sys.modules.get(function.__module__)
        owner = function.__qualname__.rpartition(".")[0]
        yield getattr(getattr(module, owner, None), "__doc__", None) if owner else None
        yield getattr(module, "__doc__", None)


COLUMNS = ("name", "shape", "type", "norm", "least", "greatest", "entries")


def _value_row(name, s: Summary, changed: bool) -> str:
    kind = f"{s.dtype}, {s.device}" if s.dtype else s.kind
    shape = "" if s.shape is None else " × ".join(map(str, s.shape)) or "scalar"
    numbers = ["" if np.isnan(v) else f"{v:.4g}" for v in s[5:8]]
    entries = _heat(s.heat) if s.heat is not None else html.escape(s.text)
    label = f"<b>● {html.escape(name)}</b>" if changed else html.escape(name)
    cells = (label, shape, kind, *numbers, entries)
    return "<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"


def _heat(heat: np.ndarray) -> str:
    """A small picture: blue below zero, orange above, white at zero."""
    size = float(np.abs(heat[np.isfinite(heat)]).max(initial=0)) or 1.0
    rows, columns = heat.shape
    cells = []
    for (i, j), value in np.ndenumerate(heat):
        share = 1.0 if not np.isfinite(value) else abs(float(value)) / size
        hue = "#d55e00" if value > 0 else "#0072b2"
        cells.append(
            f'<rect x="{j}" y="{i}" width="1" height="1" fill="{hue}" '
            f'fill-opacity="{share:.2f}"/>'
        )
    label = f"entries between {heat.min():.3g} and {heat.max():.3g}"
    return (
        f'<svg role="img" aria-label="{label}" width="{5 * columns}" '
        f'height="{5 * rows}" viewBox="0 0 {columns} {rows}">{"".join(cells)}</svg>'
    )


_STYLE = """<style>
.labkit-source {line-height: 1.25; max-height: 30em; overflow: auto}
.labkit-source .lit {background: var(--jp-layout-color3, #ddd); font-weight: bold}
.labkit-source div {opacity: .6} .labkit-source .lit, .labkit-source .ran {opacity: 1}
.labkit-values td, .labkit-values th {padding: 0 .5em; text-align: left}
</style>"""
