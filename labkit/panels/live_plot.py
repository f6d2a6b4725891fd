"""A figure that follows a trace while it grows."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.instruments import Trace
from labkit.panels.theme import COLOURS, DASHES, INK, SYMBOLS, axis, layout

MIN_INTERVAL = 0.1  # seconds between two redraws: at most ten a second
MAX_WAIT = 10.0  # seconds until a redraw that no browser confirms counts as done
MAX_SHARE = 0.2  # of the time goes to redrawing, however long the trace has grown
MAX_POINTS = 2000  # of one curve that are sent to the browser

KEPT = COLOURS[0]
MIXED = COLOURS[3]


@dataclass(frozen=True)
class Lines:
    """Curves over the step, one per column of the trace.

    Attributes
    ----------
    columns : mapping of column to label, or tuple of columns
        The curves, in the order of colours.
    title : str
        Title of the panel.
    y_title, x_title : str
        Titles of the axes, with units.
    log : bool
        Logarithmic vertical axis.
    y_range : pair of float, optional
        Ends of the vertical axis in data units; ``None`` fits the data.
    marks : tuple of str
        Columns drawn as marks alone, each of them; for events.
    """

    columns: Mapping[str, str] | tuple[str, ...]
    title: str
    y_title: str
    x_title: str = "step"
    log: bool = False
    y_range: tuple[float, float] | None = None
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bars:
    """The newest values of some columns as bars under a water level.

    Bars that reach the level are kept, those below it are mixed; the level is a line.

    Attributes
    ----------
    columns : tuple of str
        One column a bar, from left to right; a missing or ``nan`` value has no bar.
    title : str
        Title of the panel.
    y_title, x_title : str
        Titles of the axes, with units.
    level : str, optional
        The column that holds the level; without one all bars are kept.
    level_label, kept_label, mixed_label : str
        What the legend calls the level and the bars on either side.
    log : bool
        Logarithmic vertical axis.
    """

    columns: tuple[str, ...]
    title: str
    y_title: str
    level: str | None = None
    level_label: str = "level"
    kept_label: str = "kept"
    mixed_label: str = "mixed"
    x_title: str = "component"
    log: bool = False


class LivePlot:
    """One figure, several panels, redrawn from a trace at most ten times a second.

    Parameters
    ----------
    trace : Trace
        What to show; rows that it already has are drawn at once.
    panels : sequence of Lines or Bars
        The panels, row by row.
    interactive : bool
        Follow the trace in a ``FigureWidget``.  Otherwise nothing happens per row, and
        a plain ``Figure`` of the trace as it then is gets built when asked for.
    title : str
        Title of the figure.
    columns : int
        Panels side by side.
    width, height : int, optional
        Size of the figure in pixels; by default 480 x 320 a panel.
    clock : callable
        Returns the time in seconds; for tests.

    Raises
    ------
    ValueError
        If there is no panel or no column.

    Notes
    -----
    A redraw costs O(rows x columns); when that grows long, redraws grow rarer, so that
    they take at most a fifth of the time.  Curves of more than 2000 points are thinned:
    the lowest and the highest point of each stretch stay, and both ends.

    Examples
    --------
    >>> trace = Trace()
    >>> trace.log(0, loss=2.0)
    >>> plot = LivePlot(trace, [Lines(("loss",), "Loss", "nats")], interactive=False)
    >>> plot.figure.data[0].y.tolist()
    [2.0]
    """

    def __init__(
        self,
        trace: Trace,
        panels: Sequence[Lines | Bars],
        *,
        interactive: bool = True,
        title: str = "",
        columns: int = 2,
        width: int | None = None,
        height: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.panels = tuple(panels)
        _check(self.panels, columns)
        self.interactive = interactive
        self._columns = min(columns, len(self.panels))
        lines = math.ceil(len(self.panels) / self._columns)
        self._look = layout(
            title,
            width=width or 480 * self._columns,
            height=height or 320 * lines + (40 if title else 0),
        )
        self._clock = clock
        self._due = -math.inf  # the earliest time of the next redraw
        self._sent = -math.inf  # when the last redraw left
        self._answers = False  # whether a browser is there that confirms redraws
        self._drawing = False  # whether it still owes one
        self._timer = None  # a redraw owed for the rows after the last one
        self._until = None  # show no row after this step; None: all
        self._unsubscribe = _nothing
        self._figure = None
        self.trace = trace
        if interactive:
            # Whole at construction: a widget that is reopened shows that state.
            self._figure = go.FigureWidget(self._build())
            # What the browser sends after every drawing. on_edits_completed would be
            # the public way, but it waits for a message that plotly 7 never sends.
            if self._figure.has_trait("_js2py_traceDeltas"):
                self._figure.observe(self._drawn, "_js2py_traceDeltas")
            self._unsubscribe = trace.subscribe(self._on_row)

    @property
    def figure(self) -> go.Figure:
        """The ``FigureWidget`` if interactive, else a ``Figure`` built just now."""
        return self._figure if self.interactive else self._build()

    def update(self) -> None:
        """Redraw now, whenever the last redraw was; does nothing headless."""
        self._cancel_timer()
        if not self.interactive:
            return
        begin = self._clock()
        values = self._values()
        with self._figure.batch_update():
            for curve, new in zip(self._figure.data, values, strict=True):
                curve.x, curve.y = new
        end = self._clock()
        self._due = max(begin + MIN_INTERVAL, end + (end - begin) / MAX_SHARE)
        self._sent, self._drawing = begin, True

    def attach(self, trace: Trace) -> None:
        """Follow another trace, as after a reset, and redraw."""
        self._unsubscribe()
        self.trace = trace
        self._until = None
        if self.interactive:
            self._unsubscribe = trace.subscribe(self._on_row)
        self.update()

    def show_until(self, step: int | None) -> None:
        """Draw only the rows up to `step`, to look back; ``None`` follows again.

        A step at or after the trace's last one follows again too.
        """
        rows = self.trace.rows
        if step is not None and rows and step >= rows[-1]["step"]:
            step = None
        self._until = step
        self.update()

    def _drawn(self, change) -> None:
        """Hear that the browser has drawn: leave it as long again for other things.

        A browser slower than the kernel would otherwise fall behind, and every button
        would wait in a queue of old pictures.
        """
        self._answers = True
        if change["new"] is None or not self._drawing:  # plotly clears the message
            return
        self._drawing = False
        now = self._clock()
        self._due = max(self._due, now + (now - self._sent))
        if self._timer is not None and _loop() is not None:
            self._cancel_timer()
            self._on_row(None)

    def _on_row(self, _row) -> None:
        now = self._clock()
        wait = self._due - now
        if self._drawing and self._answers:
            wait = max(wait, self._sent + MAX_WAIT - now)
        if wait <= 0:
            self.update()
        elif self._timer is None:
            # Without an event loop nothing can be owed: the caller ends with update().
            loop = _loop()
            if loop is not None:
                self._timer = loop.call_later(wait, self.update)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _values(self) -> list[tuple[np.ndarray, np.ndarray]]:
        rows = self.trace.rows
        if self._until is not None:
            rows = [row for row in rows if row["step"] <= self._until]
        return [values for panel in self.panels for values in _values(panel, rows)]

    def _build(self) -> go.Figure:
        lines = math.ceil(len(self.panels) / self._columns)
        figure = make_subplots(
            rows=lines,
            cols=self._columns,
            horizontal_spacing=0.22 / self._columns,
            # Room for an axis title below and a panel title with legend above.
            vertical_spacing=min(125 / self._look["height"], 0.9 / max(lines - 1, 1)),
        )
        values = iter(self._values())
        for index, panel in enumerate(self.panels):
            row, column = divmod(index, self._columns)
            for curve in _curves(panel):
                x, y = next(values)
                legend = "legend" if index == 0 else f"legend{index + 1}"
                figure.add_trace(
                    curve | {"x": x, "y": y, "legend": legend}, row + 1, column + 1
                )
        figure.update_layout(self._look)
        figure.update_layout(_panel_layout(self.panels, figure))
        return figure

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        if self.interactive:
            return self.figure._repr_mimebundle_(include=include, exclude=exclude)
        figure = self.figure
        bundle = figure._repr_mimebundle_(include, exclude)
        if bundle:
            return bundle
        # Outside a notebook plotly names no renderer; the data are right everywhere.
        return {
            "application/vnd.plotly.v1+json": json.loads(figure.to_json()),
            "text/plain": repr(self),
        }

    def __repr__(self) -> str:
        titles = ", ".join(panel.title for panel in self.panels)
        return f"LivePlot({self.trace!r}: {titles})"


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def thin(y: np.ndarray, limit: int = MAX_POINTS) -> np.ndarray:
    """Return the indices of at most `limit` points that keep a curve's look.

    Parameters
    ----------
    y : (n,) array
        The curve; may hold ``nan``.
    limit : int
        At least 4.

    Returns
    -------
    indices : (m,) int array, m <= limit
        Sorted: both ends, and the lowest and the highest point of each stretch between,
        so that no spike is lost.

    Notes
    -----
    Cost: O(n).

    Examples
    --------
    >>> thin(np.array([0.0, 0, 0, 9, 0, 0, 0]), limit=4).tolist()
    [0, 1, 3, 6]
    """
    n = len(y)
    if n <= limit:
        return np.arange(n)
    stretches = limit // 2 - 1
    length = math.ceil((n - 2) / stretches)
    inner = np.full(stretches * length, np.nan)
    inner[: n - 2] = y[1:-1]
    inner = inner.reshape(stretches, length)
    start = 1 + length * np.arange(stretches)
    lowest = start + np.where(np.isnan(inner), np.inf, inner).argmin(1)
    highest = start + np.where(np.isnan(inner), -np.inf, inner).argmax(1)
    return np.unique(np.r_[0, np.minimum(np.r_[lowest, highest], n - 1), n - 1])


def _nothing() -> None:
    """Stand in for unsubscribing from nothing."""


def _check(panels, columns) -> None:
    if not panels:
        raise ValueError("a plot needs at least one panel")
    if columns < 1:
        raise ValueError(f"columns must be >= 1, got {columns}")
    for panel in panels:
        if not isinstance(panel, (Lines, Bars)):
            raise TypeError(f"a panel is Lines or Bars, got {type(panel).__name__}")
        if isinstance(panel.columns, str) or not panel.columns:
            raise ValueError(
                f"panel {panel.title!r} needs a tuple or mapping of columns, "
                f"got {panel.columns!r}"
            )


def _number(value) -> float:
    """Return what can be drawn; strings and missing values cannot."""
    return float(value) if isinstance(value, (int, float)) else math.nan


def _values(panel, rows) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return x and y for each of the panel's curves, in the order of `_curves`."""
    if isinstance(panel, Lines):
        return [_line_values(name, rows) for name in panel.columns]
    return _bar_values(panel, rows)


def _line_values(name, rows) -> tuple[np.ndarray, np.ndarray]:
    # A row without the column is no gap in the curve; a nan in it is one.
    pairs = [(row["step"], _number(row[name])) for row in rows if name in row]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    kept = thin(table[:, 1])
    return table[kept, 0], table[kept, 1]


def _bar_values(panel, rows) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the kept bars, the mixed bars and the level line."""
    newest = next((r for r in reversed(rows) if r.keys() & set(panel.columns)), {})
    heights = np.array([_number(newest.get(name)) for name in panel.columns])
    level = _number(newest.get(panel.level))
    x = np.arange(1.0, len(heights) + 1)
    there = ~np.isnan(heights)
    # At the level a component is still kept whole.  Without one (nan) all are.
    mixed = there & (heights < level)
    kept = there & ~mixed
    ends = [] if math.isnan(level) else [0.5, len(heights) + 0.5]
    line = np.array(ends), np.full(len(ends), level)
    return [(x[kept], heights[kept]), (x[mixed], heights[mixed]), line]


def _curves(panel) -> list[dict]:
    """Return the plotly traces of a panel without their data."""
    return _line_curves(panel) if isinstance(panel, Lines) else _bar_curves(panel)


def _line_curves(panel) -> list[dict]:
    names = panel.columns
    labels = names.values() if isinstance(names, Mapping) else names
    return [
        {
            "type": "scatter",
            "mode": "markers" if name in panel.marks else "lines+markers",
            "name": label,
            "showlegend": len(names) > 1,
            "line": {
                "color": COLOURS[i % len(COLOURS)],
                "dash": DASHES[i % len(DASHES)],
                "width": 2,
            },
            # A dozen markers tell the curves apart; one a point would hide them.
            "marker": {
                "symbol": SYMBOLS[i % len(SYMBOLS)],
                "maxdisplayed": 0 if name in panel.marks else 12,
            },
        }
        for i, (name, label) in enumerate(zip(names, labels, strict=True))
    ]


def _bar_curves(panel) -> list[dict]:
    levelled = panel.level is not None
    bar = {"type": "bar", "width": 0.8, "showlegend": levelled}
    stripes = {
        "shape": "/",
        "fillmode": "replace",
        "bgcolor": MIXED,
        "fgcolor": "white",
        "size": 6,
        "solidity": 0.2,
    }
    return [
        bar | {"name": panel.kept_label, "marker": {"color": KEPT}},
        bar
        | {
            "name": panel.mixed_label,
            "marker": {"color": MIXED, "pattern": stripes},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": panel.level_label,
            "showlegend": levelled,
            "line": {"color": INK, "dash": "dash", "width": 2},
        },
    ]


def _panel_layout(panels, figure) -> dict:
    """Return axes, legends and titles of all panels."""
    entries: dict = {"barmode": "overlay", "annotations": []}
    for index, panel in enumerate(panels):
        k = "" if index == 0 else str(index + 1)
        x_axis, y_axis = axis(panel.x_title), _y_axis(panel)
        if isinstance(panel, Bars):
            x_axis |= _bar_ticks(panel)
        entries[f"xaxis{k}"], entries[f"yaxis{k}"] = x_axis, y_axis
        corner = {
            "x": figure.layout[f"xaxis{k}"].domain[0],
            "y": figure.layout[f"yaxis{k}"].domain[1],
            "xanchor": "left",
            "yanchor": "bottom",
        }
        entries[f"legend{k}"] = corner | {
            "orientation": "h",
            "bgcolor": "rgba(0,0,0,0)",
            "font": {"size": 11},
        }
        entries["annotations"].append(
            corner
            | {
                "text": f"<b>{panel.title}</b>",
                "xref": "paper",
                "yref": "paper",
                "showarrow": False,
                "yshift": 24 if _has_legend(panel) else 6,
                "font": {"size": 13},
            }
        )
    return entries


def _has_legend(panel) -> bool:
    return any(curve["showlegend"] for curve in _curves(panel))


def _y_axis(panel) -> dict:
    limits = panel.y_range if isinstance(panel, Lines) else None
    line = axis(panel.y_title, log=panel.log, limits=limits)
    if isinstance(panel, Bars) and not panel.log:
        line["rangemode"] = "tozero"
    return line


def _bar_ticks(panel) -> dict:
    count = len(panel.columns)
    every = math.ceil(count / 12)  # more names than that run into each other
    return {
        "range": [0.4, count + 0.6],
        "tickvals": list(range(1, count + 1, every)),
        "ticktext": list(panel.columns[::every]),
        "showgrid": False,
    }
