"""A trace as growing columns of numbers: each row is read once, whatever is drawn."""

import math
from array import array
from collections import defaultdict

import numpy as np

from labkit.instruments import Trace


class Columns:
    """The rows of a trace, up to a step if one is given.

    Parameters
    ----------
    trace : Trace

    Attributes
    ----------
    until : int or None
        Rows after this step count as not there; None: all are.
    """

    def __init__(self, trace: Trace):
        self._trace, self._rows, self.until = trace, [], None
        self._x, self._y = defaultdict(_numbers), defaultdict(_numbers)

    def read(self) -> "Columns":
        """Take in the rows that have come since."""
        known, self._rows = len(self._rows), self._trace.rows
        for row in self._rows[known:]:
            for name, value in row.items():
                self._x[name].append(row["step"])
                self._y[name].append(number(value))
        return self

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of a column; a row without it is left out, a nan is kept."""
        x, y = np.array(self._x[name]), np.array(self._y[name])
        end = len(x) if self.until is None else np.searchsorted(x, self.until, "right")
        return x[:end], y[:end]

    def newest(self, names) -> dict:
        """The last row that has any of these columns; empty if there is none."""
        wanted, until = set(names), math.inf if self.until is None else self.until
        rows = (row for row in reversed(self._rows) if row["step"] <= until)
        return next((row for row in rows if row.keys() & wanted), {})


def _numbers() -> array:
    return array("d")


def number(value) -> float:
    """Return what can be drawn; strings and missing values cannot."""
    return float(value) if isinstance(value, int | float) else math.nan
