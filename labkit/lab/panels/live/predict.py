"""What a turned knob did to a measured quantity, beside what was predicted."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev

from labkit.lab.panels.figures.columns import number

ROWS = 10  # that are compared at most
LEAST = 0.01  # a smaller change, as a share of the value, counts as none
ANSWERS = ("up", "down", "nothing")


def values_of(rows: Iterable[Mapping], column: str) -> list[float]:
    """Return the finite numbers that measured rows have in a column."""
    measured = (row for row in rows if row.get("measured", True))
    return [x for row in measured if math.isfinite(x := number(row.get(column)))]


def happened(before: list[float], after: list[float]) -> str:
    """Whether a mean went up or down; nothing: by no more than the values scatter.

    Examples
    --------
    >>> happened([1, 1.1], [2, 2.1]), happened([1, 3], [2, 3.5])
    ('up', 'nothing')
    """
    old, new = fmean(before), fmean(after)
    scatter = (pstdev(before) + pstdev(after)) / 2
    if abs(new - old) <= max(scatter, LEAST * max(abs(old), abs(new))):
        return "nothing"
    return "up" if new > old else "down"


@dataclass
class Outcome:
    """One turn of a knob, and the column that the knob is about.

    Rows are compared with as many before the turn; where the run began anew, with the
    first ones of the run before, which are at the same steps.
    """

    knob: str
    column: str
    before: list[float]
    predicted: str | None
    anew: bool
    after: list[float] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        knob: str,
        column: str,
        rows: Sequence[Mapping],
        predicted: str | None,
        anew: bool,
    ) -> "Outcome | None":
        """That of a turn after these rows; None if none of them has the column."""
        values = values_of(rows, column)
        before = values[:ROWS] if anew else values[-ROWS:]
        return cls(knob, column, before, predicted, anew) if before else None

    @property
    def whole(self) -> bool:
        """Whether no more rows are asked for."""
        return len(self.after) >= len(self.before)

    def add(self, row: Mapping) -> None:
        """Take in a row after the turn."""
        if not self.whole:
            self.after += values_of([row], self.column)

    def __str__(self) -> str:
        """What happened, in a line; empty as long as there is nothing to compare."""
        if not (n := len(self.after)):
            return ""
        before = self.before[:n] if self.anew else self.before[-n:]
        was, of = happened(before, self.after), f"{n} rows" if n > 1 else "one row"
        means = f"{fmean(before):.3g} before, {fmean(self.after):.3g} after"
        said = {None: "", was: ", as predicted"}
        judged = said.get(self.predicted, f", not {self.predicted} as predicted")
        return f"{self.column}: {means} (means of {of}): {was}{judged}"
