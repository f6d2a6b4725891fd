"""Ranges of options, and the checks of options by tables of ranges."""

import math
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Range(NamedTuple):
    """The range of an option, in words and as a test."""

    words: str  # after "must be"
    holds: Callable[[Any], bool]


def number(words: str, holds: Callable[[float], bool]) -> Range:
    """Return the range of the real numbers for which ``holds`` is true.

    Booleans, nan and integers that no float can hold, such as ``10**400``, are outside.
    """
    return Range(
        words,
        lambda v: (
            _is(v, numbers.Real)
            and not (isinstance(v, int) and abs(v) > sys.float_info.max)
            and bool(holds(v))
        ),
    )


def integer(low: int, high: float = math.inf) -> Range:
    """Return the range of the integers from ``low`` to ``high``, without booleans."""
    words = (
        f"an integer >= {low}" if high == math.inf else f"an integer in {low}..{high}"
    )
    return Range(words, lambda v: _is(v, numbers.Integral) and low <= v <= high)


def one_of(allowed: Sequence) -> Range:
    """Return the range of a few values."""
    known = tuple(allowed)
    return Range(
        f"one of {', '.join(map(str, known))}",
        lambda v: _among(known, v),
    )


def optional(inner: Range) -> Range:
    """Return the range of None and what another range allows."""
    return Range(f"None or {inner.words}", lambda v: v is None or inner.holds(v))


POSITIVE = number("> 0 and finite", lambda v: 0 < v < math.inf)
NOT_NEGATIVE = number(">= 0 and finite", lambda v: 0 <= v < math.inf)
SHARE = number("in [0, 1]", lambda v: 0 <= v <= 1)
INSIDE = number("in (0, 1)", lambda v: 0 < v < 1)
UP_TO_ONE = number("in (0, 1]", lambda v: 0 < v <= 1)
BELOW_ONE = number("in [0, 1)", lambda v: 0 <= v < 1)
NUMBER = number("a number, or nan", lambda v: True)
COUNT = integer(1)
YES_OR_NO = Range("True or False", lambda v: isinstance(v, bool))
FUNCTION = Range("a function", callable)


def check(
    values: Mapping[str, Any], table: Mapping[str, Range], owner: str = ""
) -> None:
    """Raise ValueError for an unknown option or a value out of its range.

    Parameters
    ----------
    values : mapping
        Options by name.
    table : mapping of name to Range
    owner : str
        Whose options they are; stands before the message.

    Raises
    ------
    ValueError
        With the name, what it must be and what was given.

    Examples
    --------
    >>> check({"rank": 0}, {"rank": COUNT})
    Traceback (most recent call last):
    ValueError: rank must be an integer >= 1, got 0
    """
    start = f"{owner}: " if owner else ""
    for name, value in values.items():
        if name not in table:
            known = ", ".join(table)
            raise ValueError(f"{start}there is no option {name!r}; there are: {known}")
        words, holds = table[name]
        if not holds(value):
            raise ValueError(f"{start}{name} must be {words}, got {value!r}")


def check_squares(name: str, values: np.ndarray) -> None:
    """Raise ValueError if the sum of the numbers' squares could overflow their dtype.

    Examples
    --------
    >>> check_squares("X", np.array([3e19], np.float32))
    Traceback (most recent call last):
    ValueError: X holds values up to 3e+19, whose squares leave float32; scale it down
    """
    if not values.size:  # such as the values of an empty sparse matrix
        return
    largest = max(float(values.max()), -float(values.min()))
    if largest > (float(np.finfo(values.dtype).max) / values.size) ** 0.5:
        raise ValueError(
            f"{name} holds values up to {largest:.3g}, whose squares leave "
            f"{values.dtype}; scale it down"
        )


def _among(known: Sequence, value: Any) -> bool:
    try:
        return bool(value in known)
    except (TypeError, ValueError, RuntimeError):  # an array, or a tensor, of several
        return False


def _is(value, kind) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
