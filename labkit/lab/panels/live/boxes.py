"""A worked example: boxes that a reader fills, each judged as soon as it is filled."""

import html
import math
from collections.abc import Callable, Mapping

from ipywidgets import HTML, HBox, Label, Text, VBox

from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.plot import Plot
from labkit.lab.panels.figures.shown import Page, Shown

RIGHT, LARGE, SMALL, NONE = "right", "too large", "too small", "not a number"
TOLERANCE = 0.005  # of a right answer
FILL, ALL = "Fill in a box and press Enter.", "All right."
ROOM, TITLE = {"width": "240px"}, {"description_width": "150px"}
SIDES = {"flex_flow": "row wrap", "align_items": "center", "grid_gap": "0 24px"}
DRAWN = {"flex": "1 1 420px", "min_width": "0"}


class Boxes(Shown):
    """Boxes for the numbers of a worked example, beside what they draw.

    Parameters
    ----------
    answers : mapping of str, what stands before a box, to float
    draw : callable
        ``draw(values)`` returns a figure of what is filled in, a float for each box in
        their order, nan for an empty one.
    interactive : bool, show boxes; otherwise the answers and their figure

    Attributes
    ----------
    boxes, marks : lists of Text and Label, what is filled in and what is said of it
    line : HTML, what is to be done, or that all is right

    Examples
    --------
    >>> boxes = Boxes({"h": 2.5})
    >>> boxes.boxes[0].value = "5/2"
    >>> boxes.marks[0].value
    'right'
    """

    def __init__(
        self,
        answers: Mapping[str, float],
        draw: Callable[[list[float]], Figure] | None = None,
        *,
        interactive: bool = True,
    ):
        self.answers, self._draw = dict(answers), draw
        self.interactive, self.widget = interactive, None
        self.boxes = [
            Text(description=f"{title} =", placeholder="?", layout=ROOM, style=TITLE)
            for title in self.answers
        ]
        self.marks = [Label().add_class("labkit-box-mark") for _ in self.answers]
        if interactive:
            self.widget = self._build()

    def _build(self) -> HBox:
        rows = []
        for box, mark in zip(self.boxes, self.marks, strict=True):
            box.observe(self._filled, "value")
            rows.append(HBox([box, mark]))
        self.line = HTML(f"<i>{FILL}</i>")
        shown = [VBox([*rows, self.line])]
        if self._draw:
            self.plot = Plot(lambda: self._draw(self._values()))
            shown.append(VBox([self.plot], layout=DRAWN))
        return HBox(shown, layout=SIDES).add_class("labkit-boxes")

    def _filled(self, _: object = None) -> None:
        values = self._values()
        filled = zip(self.boxes, values, self.answers.values(), strict=True)
        for mark, (box, value, answer) in zip(self.marks, filled, strict=True):
            mark.value = judged(value, answer) if box.value.strip() else ""
        done = all(mark.value == RIGHT for mark in self.marks)
        self.line.value = f"<i>{ALL if done else FILL}</i>"
        if self._draw:
            self.plot.changed()

    def _values(self) -> list[float]:
        return [number(box.value) for box in self.boxes]

    @property
    def figure(self) -> Page:
        """The answers."""
        pairs = (f"{title} = {answer:g}" for title, answer in self.answers.items())
        said = ", ".join(pairs)
        return Page(f"<p class='labkit-boxes'>{html.escape(said)}</p>", said)

    def _ipython_display_(self):
        super()._ipython_display_()
        if self._draw and not self.interactive:
            self._draw(list(self.answers.values())).display()


def number(text: str) -> float:
    """Return a number as a reader writes it, also as a fraction; else nan.

    Examples
    --------
    >>> number("13/25"), number("0,52"), number("half")
    (0.52, 0.52, nan)
    """
    above, _, below = text.replace(",", ".").partition("/")
    try:
        return float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return math.nan


def judged(value: float, answer: float) -> str:
    """Say whether a value is the answer, or on which side of it."""
    if math.isnan(value):
        return NONE
    if abs(value - answer) <= TOLERANCE:
        return RIGHT
    return LARGE if value > answer else SMALL
