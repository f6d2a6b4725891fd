"""What was predicted in all panels of this kernel, and how it came out."""

import weakref
from typing import NamedTuple

import ipywidgets as widgets

from labkit.check import YES_OR_NO, check_options
from labkit.lab.panels.figures.shown import Page, Shown

NONE = "No turn of a knob has been predicted yet."


class Prediction(NamedTuple):
    """A prediction that was judged."""

    panel: str
    knob: str
    column: str
    predicted: str
    happened: str

    @property
    def right(self) -> bool:
        """Whether it came out as predicted."""
        return self.predicted == self.happened


_made: list[Prediction] = []
_boards: "weakref.WeakSet[Predictions]" = weakref.WeakSet()


def keep(prediction: Prediction) -> None:
    """Add a prediction to the score, and show it wherever the score is shown."""
    _made.append(prediction)
    for board in list(_boards):
        board.update()


def score(panel: str | None = None) -> tuple[int, int]:
    """Return how many predictions came out right, and how many were made."""
    mine = [each for each in _made if panel in (None, each.panel)]
    return sum(each.right for each in mine), len(mine)


class Predictions(Shown):
    """How many predictions came out right, while panels are used."""

    def __init__(self, *, interactive: bool = True):
        self.interactive = interactive
        self.widget = widgets.HTML() if interactive else None
        if interactive:
            _boards.add(self)
            self.update()

    def update(self) -> None:
        """Show what has been predicted so far."""
        self.widget.value = self._still.html

    @property
    def _still(self) -> Page:
        right, count = score()
        said = f"{right} of {count} predictions came out right." if count else NONE
        return Page(f"<p>{said}</p>", said)


def predictions(*, interactive: bool = True) -> Predictions:
    """Return the score of all predictions, to stand at the end of a notebook."""
    check_options({"interactive": interactive}, {"interactive": YES_OR_NO})
    return Predictions(interactive=interactive)
