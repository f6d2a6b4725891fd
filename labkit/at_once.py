"""Estimators change all at once, or not at all."""

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any

from labkit.precision import outside_modes


def at_once(method: Callable) -> Callable:
    """Make a method change its estimator all at once when it succeeds, or not at all.

    The method changes a shallow copy, which shares all attributes, so it must replace
    attributes rather than write into them. An error, an interrupt or a lack of memory
    leaves the estimator as it was. In a caller's autocast region the method computes as
    it does outside.
    """

    @wraps(method)
    def change(self: Any, *args: Any, **options: Any) -> Any:
        changed = copy(self)
        with outside_modes():
            method(changed, *args, **options)
        self.__dict__ = changed.__dict__
        return self

    return change
