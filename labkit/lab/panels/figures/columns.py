"""A trace as growing columns of numbers, and fewer points where there are many."""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from labkit.instruments import Trace

MAX_POINTS = 2000  # of one curve that are sent to the browser


class Columns:
    """The rows of a trace, each read once, whatever is drawn."""

    def __init__(self, trace: "Trace"):
        self._trace, self._rows = trace, []
        self.until = None  # rows after this step are left out; None: none is
        self.filled = set()  # names of columns with a number that can be drawn
        self._x, self._y = (defaultdict(partial(array, "d")) for _ in range(2))

    def read(self) -> "Columns":
        """Take in the rows that have come since the last call."""
        known, self._rows = len(self._rows), self._trace.rows
        for row in self._rows[known:]:
            for name, value in row.items():
                self._x[name].append(row["step"])
                self._y[name].append(x := number(value))
                if not math.isnan(x):
                    self.filled.add(name)
        return self

    def differs(self, other: "Trace") -> str:
        """Return how the settings of this run differ from another's: `` (rank 4)``."""
        mine, others = (t.header["parameters"] or {} for t in (self._trace, other))
        own = {k: v for k, v in mine.items() if others.get(k) != v}
        text = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in own.items())
        return text and f" ({text})"

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return steps and values of a column where rows have it; nan is kept."""
        x, y = np.array(self._x[name]), np.array(self._y[name])
        end = len(x) if self.until is None else np.searchsorted(x, self.until, "right")
        return x[:end], y[:end]

    def newest(self, names: Iterable[str]) -> dict:
        """Return the last row that has any of these columns; empty if none has."""
        wanted, until = set(names), math.inf if self.until is None else self.until
        rows = (row for row in reversed(self._rows) if row["step"] <= until)
        return next((row for row in rows if row.keys() & wanted), {})


def number(value: object) -> float:
    """Return a value as what can be drawn; nan for strings and missing values."""
    return float(value) if isinstance(value, int | float) else math.nan


def decimate(y: np.ndarray, limit: int = MAX_POINTS) -> np.ndarray:
    """Return the indices of at most `limit` >= 4 points that keep a curve's shape.

    The indices are sorted: both ends of ``y`` (n,), which may hold ``nan``, and the
    lowest and the highest point of each stretch between, so that no spike is lost.
    Cost: O(n).

    Examples
    --------
    >>> decimate(np.array([0.0, 0, 0, 9, 0, 0, 0]), limit=4).tolist()
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
