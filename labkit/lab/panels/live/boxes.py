"""A worked example: boxes that a reader fills, each judged as soon as it is filled."""

import html
import math
from collections.abc import Mapping

from ipywidgets import HTML, HBox, Label, Text, VBox

from labkit.lab.panels.figures.shown import Page, Shown

RIGHT = "right"
LARGE = "too large"
SMALL = "too small"
NONE = "not a number"
TOLERANCE = 0.005  # of a right answer
FILL = "Fill in a box and press Enter."
ALL = "All right."
ROOM = {"width": "240px"}
TITLE = {"description_width": "150px"}


class Boxes(Shown):
    """Boxes for the numbers of a worked example.

    Parameters
    ----------
    answers : mapping of str, what stands before a box, to float
    interactive : bool, show boxes; otherwise the answers

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

    def __init__(self, answers: Mapping[str, float], *, interactive: bool = True):
        self.answers, self.interactive = dict(answers), interactive
        self.boxes = [
            Text(description=f"{title} =", placeholder="?", layout=ROOM, style=TITLE)
            for title in self.answers
        ]
        self.marks = [Label().add_class("labkit-box-mark") for _ in self.answers]
        self.line, self.widget = HTML(f"<i>{FILL}</i>"), None
        if interactive:
            for box in self.boxes:
                box.observe(self._filled, "value")
            rows = map(HBox, zip(self.boxes, self.marks, strict=True))
            self.widget = VBox([*rows, self.line]).add_class("labkit-boxes")

    def _filled(self, _: object) -> None:
        filled = zip(self.marks, self.boxes, self.answers.values(), strict=True)
        for mark, box, answer in filled:
            text = box.value.strip()
            mark.value = judged(number(text), answer) if text else ""
        done = all(mark.value == RIGHT for mark in self.marks)
        self.line.value = f"<i>{ALL if done else FILL}</i>"

    @property
    def figure(self) -> Page:
        """The answers."""
        pairs = (f"{title} = {answer:g}" for title, answer in self.answers.items())
        text = ", ".join(pairs)
        return Page(f"<p class='labkit-boxes'>{html.escape(text)}</p>", text)


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
