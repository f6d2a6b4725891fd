"""A figure that follows a trace while it grows."""

import contextlib
import functools
import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from IPython import get_ipython

from labkit.instruments import Trace
from labkit.lab.panels.figures.captions import Figure, describe
from labkit.lab.panels.figures.columns import Columns
from labkit.lab.panels.figures.drawing import Drawing
from labkit.lab.panels.figures.kinds import Bars, Lines, check_panels
from labkit.lab.panels.figures.plot import Plot
from labkit.lab.panels.figures.shown import Shown, loop_here

MIN_INTERVAL = 0.1  # seconds between two redraws: at most ten a second
MAX_PAUSE = 2.0  # seconds left to a browser that was slow, as one that still loads
MAX_SHARE = 0.2  # of the time goes to redrawing, however long the trace has grown
ENOUGH = 20  # rows after which a panel that has nothing to draw is folded


def _alone(method):
    """Have a method wait for others of the same plot, on other threads."""

    @functools.wraps(method)
    def waiting(self, *args):
        with self._lock:
            return method(self, *args)

    return waiting


class LivePlot(Shown):
    """One figure, several panels, redrawn from a trace at most ten times a second.

    Parameters
    ----------
    trace : Trace, what to show; rows that it already has are drawn at once
    panels : sequence of Lines or Bars, row by row, at least one
    interactive : bool
        Follow the trace in a widget; otherwise a figure is built when asked for, and
        one on a notebook's page is that of the trace after each cell that went on.
    title : str, of the figure
    caption : str, a sentence below: what to look at, and what it means; behind it a
        widget says which panels are folded because no row has what they draw, and
        whose the grey curves are: those of the run before, or of one that is pinned
    first : int >= 1, panels drawn in a widget until `unfold`; by default all
    columns : int >= 1, panels side by side
    width, height : int
        Pixels; by default 480 a panel across, and as panels need. A width above 700
        gives way to the page's.
    low : bool, lower panels by default, as below pictures
    clock : callable, returns the time in seconds; for tests

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
    >>> plot.figure["data"][0]["y"].tolist()
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
        first: int | None = None,
        columns: int = 2,
        width: int | None = None,
        height: int | None = None,
        low: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.panels = tuple(panels)
        check_panels(self.panels, columns)
        self.interactive, self._caption = interactive, caption
        self._size = {"columns": columns, "title": title}
        self._size |= {"width": width, "height": height, "low": low}
        self._first, self._all = first if interactive else None, False
        self._folded = ()  # titles of panels without data
        self._ghost, self._pinned = None, False  # columns of a run, drawn in grey
        self._beside = None  # those of the same run without a turn of a knob
        self._lay_out()
        self._clock = clock
        self._due = -math.inf  # the earliest time of the next redraw
        self._late = False  # whether there are rows after it
        self._timer = None  # for which one is to come
        self._marks = {}  # x to text
        self._noted = False  # whether marks changed since the last redraw
        self._unsubscribe, self._figure, self.widget = (lambda: None), None, None
        self._lock = contextlib.nullcontext()
        self.trace, self._data = trace, Columns(trace)
        if interactive:
            self._figure = self._build()
            self.widget = Plot(self._figure, clock=clock)
            self._lock = self.widget.lock
            self.widget.when_drawn(self._drawn)
            self._unsubscribe = trace.subscribe(self._on_row)

    def _ipython_display_(self):
        if self.interactive:
            super()._ipython_display_()
        elif handle := self._build().display():
            _renew_after_cells(self, handle)

    @property
    def figure(self) -> Figure:
        """What is drawn if interactive, else built just now."""
        return self._figure if self.interactive else self._build()

    def replayed(self, rows: Iterable[Mapping]) -> Iterator[tuple[Mapping, list]]:
        """Of each row, x and y of all that were drawn if a run had come to it."""
        trace = Trace()
        data = Columns(trace)
        for row in rows:
            trace.log(**row)
            yield row, self._drawing.values(data.read())

    @_alone
    def update(self) -> None:
        """Redraw now, whenever the last redraw was; does nothing headless."""
        self._cancel_timer()
        if not self.interactive:
            return
        begin = self._clock()
        data = self._data.read()
        if (folded := self._empty()) != self._folded:
            self._folded = folded
            self._lay_out()
            self._figure = self._build()
        self._drawing.fill(self._figure, data)
        if self._noted:
            self._figure["layout"] |= self._notes()
            self._noted = False
        self.widget.show(self._figure)
        self._late = False
        end = self._clock()
        self._due = max(begin + MIN_INTERVAL, end + (end - begin) / MAX_SHARE)

    @_alone
    def unfold(self, unfolded: bool = True) -> None:
        """Draw all panels, or the first ones only."""
        self._all = unfolded
        self._lay_out()
        self._renew()

    @_alone
    def attach(self, trace: Trace) -> None:
        """Follow another trace, as after a reset; the one before is drawn in grey."""
        self._unsubscribe()
        if len(self.trace) and not self._pinned:
            self._keep()
        self.trace, self._data, self._beside = trace, Columns(trace), None
        self._noted, self._marks = bool(self._marks), {}
        if self.interactive:
            self._unsubscribe = trace.subscribe(self._on_row)
        self._renew()

    @_alone
    def pin(self, pinned: bool = True) -> None:
        """Have the run that is drawn stay, in grey, until it is not pinned any more."""
        self._pinned = pinned
        if pinned and len(self.trace):
            self._keep()
        self._renew()

    @_alone
    def beside(self, rows: Sequence[Mapping]) -> None:
        """Draw these rows in grey, those of the same run without a turn of a knob."""
        before, self._beside = self._beside, None
        if rows:
            trace = Trace()
            for row in rows:
                trace.log(**{k: v for k, v in row.items() if k != "pictures"})
            self._beside = Columns(trace).read()
        if self._beside or before:
            self._renew()

    def _keep(self) -> None:
        """Draw all of this run in grey from now on."""
        self._ghost = Columns(self.trace).read()

    def _renew(self) -> None:
        """Build the figure anew, and show it."""
        if self.interactive:
            self._figure = self._build()
            self.update()

    def _lay_out(self) -> None:
        """Make room for the panels that are to be seen."""
        there = [panel for panel in self.panels if panel.title not in self._folded]
        shown = there[: None if self._all else self._first]
        self._drawing = Drawing(shown, **self._size)

    def _empty(self) -> tuple[str, ...]:
        """Titles of panels that this run has nothing for; none if it has for none."""
        filled = self._data.filled
        none = [p.title for p in self.panels if filled.isdisjoint(p.columns)]
        if len(self.trace) < ENOUGH:  # it is too early to say: as in the run before
            none = [title for title in none if title in self._folded]
        return () if len(none) == len(self.panels) else tuple(none)

    @_alone
    def detach(self) -> None:
        """Follow no trace any more; what is drawn stays."""
        self._unsubscribe()
        self._cancel_timer()

    @_alone
    def mark(self, x: float, text: str, instead_of: float | None = None) -> None:
        """Draw a dotted line and a text at step `x`, in all panels of lines.

        It stands until :meth:`attach` or another there; that at ``instead_of`` goes.
        """
        self._marks.pop(instead_of, None)
        self._marks[float(x)] = text
        self._noted = True
        if self.interactive:
            # A hand is on the knob: it waits for no share of the time.
            self._due = min(self._due, self.widget.sent + MIN_INTERVAL)
            self._on_row(None)

    @_alone
    def show_until(self, step: int | None) -> None:
        """Draw only the rows up to `step`; ``None`` or the last step follows again."""
        rows = self.trace.rows
        if step is not None and rows and step >= rows[-1]["step"]:
            step = None
        self._data.until, self._noted = step, bool(self._marks)
        self.update()

    @_alone
    def _drawn(self, seconds: float) -> None:
        """Hear that the browser has drawn: leave it as long again for other things.

        Else one slower than the kernel would fall behind, and every button would wait.
        """
        if not self._noted:  # a mark waits no longer
            self._due = max(self._due, self._clock() + min(seconds, MAX_PAUSE))
        if self._late and loop_here():
            self._cancel_timer()
            self._on_row(None)

    @_alone
    def _on_row(self, _row) -> None:
        wait = max(self._due, self.widget.due) - self._clock()
        if wait <= 0:
            self.update()
            return
        self._late = True
        if self._timer is None and wait < math.inf and (loop := loop_here()):
            # Without an event loop nothing can be owed: the caller ends with update().
            self._timer = loop.call_later(wait, self.update)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _build(self) -> Figure:
        figure = self._drawing.build(self._data.read())
        self._titles = figure["layout"]["annotations"]
        figure["layout"] |= self._notes()
        for grey, width in ((self._ghost, 1), (self._beside, 2)):
            if grey:
                figure["data"] += self._drawing.ghosts(grey, width)
        words = [panel.words for panel in self._drawing.panels]
        return describe(figure, " ".join(filter(None, self._said())), words)

    def _said(self) -> Iterator[str]:
        """The caption; whose run is grey; which panels are folded, and why."""
        yield self._caption
        if self._ghost:
            whose = "the run that is pinned" if self._pinned else "the run before"
            yield f"Grey: {whose}{self._ghost.differs(self.trace)}."
        if self._beside:
            yield "Thicker grey: the same run without the turn."
        if self._folded:
            folded = ", ".join(self._folded)
            yield f"Folded, for this run has no numbers of it: {folded}."

    def _notes(self) -> dict:
        """Return what is written and drawn over the panels: titles and marks."""
        end = math.inf if self._data.until is None else self._data.until
        marks = [(x, text) for x, text in self._marks.items() if x <= end]
        drawn = self._drawing.marks(marks)
        return drawn | {"annotations": [*self._titles, *drawn["annotations"]]}

    def __repr__(self) -> str:
        titles = ", ".join(panel.title for panel in self.panels)
        return f"LivePlot({self.trace!r}: {titles})"


def _renew_after_cells(plot: LivePlot, handle) -> None:
    """Show a headless plot's trace where it stands, after each cell that adds rows."""
    link, shown = weakref.ref(plot), [plot.trace, len(plot.trace)]
    events = get_ipython().events

    def renew(*_):
        plot = link()
        if plot is None:
            events.unregister("post_run_cell", renew)
        elif shown != [plot.trace, len(plot.trace)]:
            shown[:] = plot.trace, len(plot.trace)
            handle.update(plot.figure._repr_mimebundle_(), raw=True)

    events.register("post_run_cell", renew)
