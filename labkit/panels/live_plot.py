"""A figure that follows a trace while it grows."""

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go
from IPython.display import display
from ipywidgets import VBox
from plotly.subplots import make_subplots

from labkit.instruments import Trace
from labkit.panels import end_labels
from labkit.panels.captions import Figure, describe, live, with_caption
from labkit.panels.kinds import (
    Bars,
    Lines,
    check_panels,
    curves_of,
    legend_of,
    legend_rows,
    mark_layout,
    named_of,
    names_ends,
    one_legend,
    panel_layout,
    values_of,
    words_of,
)
from labkit.panels.theme import layout

MIN_INTERVAL = 0.1  # seconds between two redraws: at most ten a second
TALL, LOW = 214, 150  # pixels of a panel, by default, and where there are many
MAX_WAIT = 10.0  # seconds until a redraw that no browser confirms counts as done
MAX_PAUSE = 2.0  # seconds that one slow redraw, as of a page still loading, can cost
MAX_SHARE = 0.2  # of the time goes to redrawing, however long the trace has grown


def _alone(method):
    """Have a method wait for others of the same plot, on other threads."""

    @functools.wraps(method)
    def waiting(self, *args):
        with self._lock:
            return method(self, *args)

    return waiting


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
    caption : str
        A sentence below the figure: what to look at, and what it means.
    columns : int
        Panels side by side.
    width, height : int, optional
        Size of the figure in pixels; by default 480 a panel across, and as high as its
        panels need.  A width above 700 gives way to the page's.
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
        caption: str = "",
        columns: int = 2,
        width: int | None = None,
        height: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.panels = tuple(panels)
        check_panels(self.panels, columns)
        self.interactive = interactive
        self._columns = min(columns, len(self.panels))
        lines = math.ceil(len(self.panels) / self._columns)
        self._caption, self._widget = caption, None
        self._look = layout(title, width=width or 480 * self._columns, height=height)
        self._make_room()
        if height is None:
            margin = self._look["margin"]
            panel = TALL if lines <= 2 else LOW
            inner = lines * panel + (lines - 1) * self._gap()
            self._look["height"] = inner + margin["t"] + margin["b"]
        self._clock = clock
        self._due = -math.inf  # the earliest time of the next redraw
        self._sent = -math.inf  # when the last redraw left
        self._answers = False  # whether a browser is there that confirms redraws
        self._drawing = False  # whether it still owes one
        self._timer = None  # a redraw owed for the rows after the last one
        self._until = None  # show no row after this step; None: all
        self._marks = {}  # x to text
        self._noted = False  # whether marks changed since the last redraw
        self._unsubscribe = _nothing
        self._figure = None
        self._lock = contextlib.nullcontext()
        self.trace = trace
        if interactive:
            # Whole at construction: a widget that is reopened shows that state.
            self._figure = live(self._build())
            self._lock = self._figure.lock
            self._figure.when_drawn(self._drawn)
            self._unsubscribe = trace.subscribe(self._on_row)

    @property
    def widget(self) -> VBox:
        """The ``FigureWidget`` with its caption below; only if interactive."""
        if self._widget is None:
            self._widget = with_caption(self._figure)
        return self._widget

    @property
    def figure(self) -> go.Figure:
        """The ``FigureWidget`` if interactive, else a ``Figure`` built just now."""
        return self._figure if self.interactive else self._build()

    @_alone
    def update(self) -> None:
        """Redraw now, whenever the last redraw was; does nothing headless."""
        self._cancel_timer()
        if not self.interactive:
            return
        begin, edits = self._clock(), self._figure.edits
        values = self._values()
        with self._figure.batch_update():
            for curve, new in zip(self._figure.data, values, strict=True):
                curve.x, curve.y = new
            if self._noted:
                notes = self._notes()
                self._figure.layout.shapes = notes["shapes"]
                self._figure.layout.annotations = notes["annotations"]
                self._noted = False
        if self._figure.edits != edits:
            self._sent, self._drawing = begin, True
        end = self._clock()
        pause = min((end - begin) / MAX_SHARE, MAX_PAUSE)
        self._due = max(begin + MIN_INTERVAL, end + pause)

    @_alone
    def attach(self, trace: Trace) -> None:
        """Follow another trace, as after a reset, and redraw without marks."""
        self._unsubscribe()
        self.trace = trace
        self._until = None
        self._noted, self._marks = bool(self._marks), {}
        if self.interactive:
            self._unsubscribe = trace.subscribe(self._on_row)
        self.update()

    @_alone
    def mark(self, x: float, text: str) -> None:
        """Draw a dotted line at `x` in all panels of lines, until :meth:`attach`.

        Parameters
        ----------
        x : float
            Where, in steps; a mark that is there already is replaced.
        text : str
            A few words that stand along the line, such as ``"k = 0.1"``.
        """
        self._marks[float(x)] = text
        self._noted = True
        if self.interactive:
            # A hand is on the knob: it waits for no share of the time.
            self._due = min(self._due, self._sent + MIN_INTERVAL)
            self._on_row(None)

    @_alone
    def show_until(self, step: int | None) -> None:
        """Draw only the rows up to `step`, to look back; ``None`` follows again.

        A step at or after the trace's last one follows again too.
        """
        rows = self.trace.rows
        if step is not None and rows and step >= rows[-1]["step"]:
            step = None
        self._until, self._noted = step, bool(self._marks)
        self.update()

    @_alone
    def _drawn(self) -> None:
        """Hear that the browser has drawn: leave it as long again for other things.

        A browser slower than the kernel would otherwise fall behind, and every button
        would wait in a queue of old pictures.
        """
        self._answers = True
        if not self._drawing:
            return
        self._drawing = False
        now = self._clock()
        if not self._noted:  # a mark waits no longer
            self._due = max(self._due, now + min(now - self._sent, MAX_PAUSE))
        if self._timer is not None and _loop() is not None:
            self._cancel_timer()
            self._on_row(None)

    @_alone
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
        """Return x and y of all curves, then of the names at their ends."""
        rows = self.trace.rows
        if self._until is not None:
            rows = [row for row in rows if row["step"] <= self._until]
        curves = [values_of(panel, rows) for panel in self.panels]
        names = [
            end_labels.places(
                [each[i] for i in named_of(panel)],
                pixels=self._pixels(),
                log=panel.log,
                limits=panel.y_range,
            )
            for panel, each in zip(self.panels, curves, strict=True)
            if names_ends(panel, self._columns)
        ]
        return [values for each in curves for values in each] + names

    def _make_room(self) -> None:
        """Make room for legends above the panels of the first line, or below all."""
        first, margin = self.panels[: self._columns], self._look["margin"]
        rows = max(legend_rows(panel, self._columns) for panel in first)
        if one_legend(self.panels, self._columns):
            # Below there is the whole width for it.
            below = end_labels.legend_rows(legend_of(first[0], self._columns))
            margin["b"] += end_labels.legend_height(below)
        else:
            margin["t"] += end_labels.legend_height(rows)

    def _gap(self) -> float:
        """Return the pixels between two lines of panels: axis title, title, legend."""
        if one_legend(self.panels, self._columns):
            return 90
        below = self.panels[self._columns :]
        rows = [legend_rows(panel, self._columns) for panel in below]
        return 90 + end_labels.legend_height(max(rows, default=0))

    def _pixels(self) -> float:
        """Return the height of one panel."""
        lines = math.ceil(len(self.panels) / self._columns)
        margin = self._look["margin"]
        inner = self._look["height"] - margin["t"] - margin["b"]
        return max((inner - (lines - 1) * self._gap()) / lines, 20)

    def _build(self) -> Figure:
        lines = math.ceil(len(self.panels) / self._columns)
        margin = self._look["margin"]
        inner = self._look["height"] - margin["t"] - margin["b"]
        figure = make_subplots(
            rows=lines,
            cols=self._columns,
            horizontal_spacing=0.22 / self._columns,
            vertical_spacing=min(self._gap() / inner, 0.9 / max(lines - 1, 1)),
            figure=Figure(),
        )
        values = iter(self._values())
        together = one_legend(self.panels, self._columns)
        named = []
        for index, panel in enumerate(self.panels):
            place = [part + 1 for part in divmod(index, self._columns)]
            ends = named_of(panel) if names_ends(panel, self._columns) else []
            drawn = curves_of(panel)
            for i, curve in enumerate(drawn):
                x, y = next(values)
                shown = i not in ends and not (together and index)
                place_of_legend = "legend" if index == 0 else f"legend{index + 1}"
                curve |= {
                    "x": x,
                    "y": y,
                    "legend": place_of_legend,
                    "showlegend": shown and curve["showlegend"],
                }
                figure.add_trace(curve, *place)
            if ends:
                colours = [drawn[i]["line"]["color"] for i in ends]
                names = [drawn[i]["name"] for i in ends]
                named.append((end_labels.names_trace(names, colours), place))
        # Last, so that a curve is found where its panel and column say.
        for names, place in named:
            x, y = next(values)
            figure.add_trace(names | {"x": x, "y": y}, *place)
        figure.update_layout(self._look)
        entries = panel_layout(self.panels, figure, self._columns)
        self._titles = entries.pop("annotations")
        figure.update_layout(entries | self._notes())
        return describe(figure, self._caption, map(words_of, self.panels))

    def _notes(self) -> dict:
        """Return what is written and drawn over the panels: titles and marks."""
        end = math.inf if self._until is None else self._until
        marks = [(x, text) for x, text in self._marks.items() if x <= end]
        drawn = mark_layout(self.panels, marks)
        return drawn | {"annotations": [*self._titles, *drawn["annotations"]]}

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        shown = self.widget if self.interactive else self.figure
        return shown._repr_mimebundle_(include=include, exclude=exclude)

    def _ipython_display_(self):
        display(self.widget if self.interactive else self.figure)

    def __repr__(self) -> str:
        titles = ", ".join(panel.title for panel in self.panels)
        return f"LivePlot({self.trace!r}: {titles})"


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _nothing() -> None:
    """Stand in for unsubscribing from nothing."""
