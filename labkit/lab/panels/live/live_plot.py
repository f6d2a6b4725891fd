"""A figure that follows a trace while it grows."""

from collections.abc import Mapping, Sequence

from labkit.instruments import Trace
from labkit.lab.panels.figures.captions import Figure, describe
from labkit.lab.panels.figures.curves import Lines
from labkit.lab.panels.figures.drawing import Drawing
from labkit.lab.panels.figures.plot import Plot
from labkit.lab.panels.figures.shown import Shown


class LivePlot(Shown):
    """One figure, several panels, redrawn from a trace at most ten times a second.

    Parameters
    ----------
    trace : Trace, what to show; rows that it already has are drawn at once
    panels : sequence of Lines, two side by side, at least one
    interactive : bool
        Follow the trace in a widget; otherwise a figure is built when asked for.
    caption : str, a sentence below: what to look at, and what it means; behind it
        stands whose the grey curves are
    first : int >= 1, panels drawn in a widget until `unfold`; by default all
    low : bool, lower panels by default, as below pictures

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
        panels: Sequence[Lines],
        *,
        interactive: bool = True,
        caption: str = "",
        first: int | None = None,
        low: bool = False,
    ):
        self.panels = tuple(panels)
        if not panels:
            raise ValueError("a plot needs at least one panel")
        self.interactive, self._caption = interactive, caption
        self._low, self._first = low, first if interactive else None
        self._before, self._whose = (), ""  # rows of the run before, and what it was
        self._without = ()  # rows of the same run without a turn of a knob
        self._marks = {}  # x to text
        self.trace, self.widget, self._unsubscribe = trace, None, None
        self.unfold(False)
        if interactive:
            self.widget = Plot(lambda: self.figure)
            self._follow()

    def unfold(self, unfolded: bool = True) -> None:
        """Draw all panels, or the first ones only."""
        shown = self.panels[: None if unfolded else self._first]
        self.drawing = Drawing(shown, low=self._low)
        self.changed()

    def attach(self, trace: Trace) -> None:
        """Follow another trace, as after a reset; the one before is drawn in grey."""
        self.detach()
        if self.trace.rows:
            own, other = (
                each.header["parameters"] or {} for each in (self.trace, trace)
            )
            parts = [
                f"{name} {value}"
                for name, value in own.items()
                if other.get(name) != value
            ]
            whose = f" ({', '.join(parts)})".replace("_", " ") if parts else ""
            self._before, self._whose = self.trace.rows, f"Grey: the run before{whose}."
        self._without, self._marks, self.trace = (), {}, trace
        self._follow()
        self.changed()

    def _follow(self) -> None:
        if self.widget:
            self._unsubscribe = self.trace.subscribe(lambda _: self.changed())

    def detach(self) -> None:
        """Follow no trace any more; what is drawn stays."""
        if self._unsubscribe:
            self._unsubscribe()

    def compare(self, rows: Sequence[Mapping]) -> None:
        """Draw these rows in grey, those of the same run without a turn of a knob."""
        self._without = rows
        self.changed()

    def mark(self, x: float, text: str, instead_of: float | None = None) -> None:
        """Draw a dotted line and a text at step `x`, in all panels.

        It stands until :meth:`attach` or another there; that at ``instead_of`` goes.
        """
        self._marks.pop(instead_of, None)
        self._marks[x] = text
        self.changed()

    def changed(self) -> None:
        """Redraw as soon as it is due; does nothing headless."""
        if self.widget:
            self.widget.changed()

    @property
    def figure(self) -> Figure:
        """The figure as it is now."""
        figure = self.drawing.build(self.trace.rows)
        figure["layout"]["shapes"] = self.drawing.marks(self._marks)
        captions = [self._caption, self._whose]
        if self._before:
            figure["data"] += self.drawing.ghosts(self._before)
        if self._without:
            figure["data"] += self.drawing.ghosts(self._without, width=2)
            captions.append("Thicker grey: the same run without the turn.")
        words = [panel.words for panel in self.drawing.panels]
        return describe(figure, " ".join(filter(None, captions)), words)

    def __repr__(self) -> str:
        titles = ", ".join(panel.title for panel in self.panels)
        return f"LivePlot({self.trace!r}: {titles})"
