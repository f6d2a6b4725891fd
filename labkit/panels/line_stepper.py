"""Walk the source lines of one real update: the line, its equation, its values."""

import html
from collections.abc import Sequence

import ipywidgets as widgets

from labkit.panels.aria import Aria
from labkit.panels.busy import Busy
from labkit.panels.cells import close, replace_earlier
from labkit.panels.docstrings import Docstrings
from labkit.panels.line_view import equation_html, source_html, table_html, values_html
from labkit.panels.recorder import LineRecord, record_lines
from labkit.panels.shown import Page, Shown


class LineStepper(Shown):
    """Run one call of a real function and walk the lines that ran.

    The call is made at once; walking looks at the record and runs nothing. Lines that
    ran more than once are one stop, with an index for the turns of the loop. A
    ValueError if no line ran that could be shown.

    Parameters
    ----------
    function, args, follow, kwargs : of :func:`~labkit.panels.record_lines`
    interactive : bool, make widgets; otherwise a static table of all stops is shown

    Attributes
    ----------
    result, recording : what the call returned; all its lines
    position, turn : int, stop and turn shown, from 0
    widget : ipywidgets.VBox or None
        Buttons (CSS classes ``labkit-line-first``, ``-back``, ``-next``, ``-last``),
        the next line that changes a value (``-name`` chooses it, ``-change`` goes
        there), slider (``labkit-line``), slider of turns (``labkit-line-turn``),
        source, equation (``labkit-line-equation``), values. Arrow keys, Home and End
        work anywhere in the panel (``labkit-walk``).

    Examples
    --------
    >>> def square(x):
    ...     y = x * x  # (1)
    ...     return y
    >>> walk = LineStepper(square, 3, interactive=False)
    >>> walk.next(), walk.back(), sorted(walk.record.changed)
    (1, 0, ['y'])
    """

    def __init__(self, function, *args, follow=None, interactive=True, **kwargs):
        self.recording = record_lines(function, *args, follow=follow, **kwargs)
        self.result = self.recording.result
        self.stops: list[list[LineRecord]] = _fold(self.recording.lines)
        if not self.stops:
            raise ValueError(f"no line of {function!r} ran that could be shown")
        self.position, self.turn = 0, 0
        self._docs = Docstrings(self.recording.functions)
        self.interactive, self.widget = interactive, None
        if interactive:
            self._build()
            replace_earlier(self)

    def close(self) -> None:
        """Leave the page, as when the panel's cell runs again."""
        if self.interactive:
            close(self.widget)

    @property
    def record(self) -> LineRecord:
        """The line shown."""
        return self.stops[self.position][self.turn]

    @property
    def equations(self) -> dict[str, str]:
        """LaTeX by tag of the line shown."""
        return self._docs.equations(self.record)

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

        A LookupError if no later line changes it; the stop shown stays.
        """
        for position in range(self.position + 1, len(self.stops)):
            for turn, record in enumerate(self.stops[position]):
                if name in record.changed:
                    return self.go(position, turn)
        there = ", ".join(self.changing)
        raise LookupError(f"no later line changes {name!r}; lines change {there}")

    @property
    def changing(self) -> list[str]:
        """Paths of the values that lines change, locals first, in their order."""
        paths = (p for stop in self.stops for r in stop for p in sorted(r.changed))
        return sorted(dict.fromkeys(paths), key=lambda path: not path.isidentifier())

    @property
    def _still(self) -> Page:
        return Page(table_html(self.stops, self._docs), repr(self))

    def __repr__(self):
        return f"LineStepper(line {self.position + 1} of {len(self.stops)})"

    @property
    def status(self) -> str:
        """One line: where the stepper is."""
        record, stop = self.record, self.stops[self.position]
        turns = f", turn {self.turn + 1} of {len(stop)}" if len(stop) > 1 else ""
        place = f"{record.code.co_qualname}, line {record.line}"
        return f"stop {self.position + 1} of {len(self.stops)}{turns}: {place}"

    def _build(self):
        look = {"description": "changes", "style": {"description_width": "60px"}}
        name = widgets.Dropdown(options=self.changing, **look)
        self._name = name.add_class("labkit-line-name")
        buttons = [
            _button("First", "fast-backward", self.first),
            _button("Back", "step-backward", self.back),
            _button("Next", "step-forward", self.next),
            _button("Last", "fast-forward", self.last),
            self._name,
            _button("Next change", "search", self._to_change, width="auto"),
        ]
        buttons[-1].disabled = not name.options
        self._slider = _slider("line", "labkit-line", len(self.stops))
        self._turns = _slider("turn", "labkit-line-turn", 1)
        self._slider.observe(lambda c: self._moved(c["new"] - 1, 0), "value")
        self._turns.observe(lambda c: self._moved(self.position, c["new"] - 1), "value")
        self._status, self._source, self._values = (widgets.HTML() for _ in range(3))
        look = {"layout": {"overflow": "auto hidden", "min_height": "3.5em"}}
        self._equation = widgets.HTMLMath(**look).add_class("labkit-line-equation")
        keys = {"ArrowLeft": self.back, "ArrowRight": self.next}
        keys |= {"Home": self.first, "End": self.last}
        hint = "Keys ← and →: Back and Next; Home and End: First and Last."
        aria = Aria("labkit-walk", keys, hint, shown=".labkit-source [aria-current]")
        wrap = {"flex_flow": "row wrap"}
        thin = {"min_width": "0", "max_width": "100%", "overflow": "auto"}
        both = [widgets.VBox([p], layout=thin) for p in (self._source, self._values)]
        rows = (buttons, [self._slider, self._turns], both)
        top, sliders, below = (widgets.HBox(row, layout=wrap) for row in rows)
        told = widgets.HBox([self._status, Busy()], layout=wrap)
        parts = [top, sliders, told, self._equation, below, aria]
        self._busy, self.widget = False, widgets.VBox(parts).add_class("labkit-walk")
        self._refresh()

    def _to_change(self):
        try:
            self.next_change(self._name.value)
        except LookupError:
            self._say(f"no later line changes {self._name.value}")

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
        self._source.value = source_html(self.record, self.stops)
        self._equation.value = equation_html(self.equations)
        self._values.value = values_html(self.record, self._docs)
        self._say(self.status)

    def _say(self, text: str):
        self._status.value = f"<span role='status'>{html.escape(text)}</span>"


def _button(name: str, icon: str, action, width="90px") -> widgets.Button:
    button = widgets.Button(description=name, icon=icon, layout={"width": width})
    button.on_click(lambda _: action())
    return button.add_class(f"labkit-line-{name.lower().split()[-1]}")


def _slider(name: str, css: str, most: int) -> widgets.IntSlider:
    look = {"layout": {"width": "360px", "max_width": "100%"}}
    look |= {"description": name, "style": {"description_width": "40px"}}
    slider = widgets.IntSlider(min=1, max=most, readout=False, **look)
    return slider.add_class(css)  # the line below says where it is


def _fold(lines: Sequence[LineRecord]) -> list[list[LineRecord]]:
    stops: dict[tuple, list[LineRecord]] = {}
    for record in lines:
        stops.setdefault(record.path, []).append(record)
    return list(stops.values())
