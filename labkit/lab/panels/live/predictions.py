"""What was predicted in all panels of this kernel, and how it came out."""

import weakref

import ipywidgets as widgets

from labkit.lab.panels.figures.shown import Page, Shown

NONE = "No turn of a knob has been predicted yet."

_made: list[tuple[str, bool]] = []  # the panel, and whether it came out as predicted
_boards: "weakref.WeakSet[Predictions]" = weakref.WeakSet()


def keep(panel: str, right: bool) -> None:
    """Add a prediction to the score, and show it wherever the score is shown."""
    _made.append((panel, right))
    for board in list(_boards):
        board.update()


def score(panel: str | None = None) -> tuple[int, int]:
    """Return how many predictions came out right, and how many were made."""
    mine = [right for name, right in _made if panel in (None, name)]
    return sum(mine), len(mine)


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
    return Predictions(interactive=interactive)
