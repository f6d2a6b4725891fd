"""Versions of an exercise: sizes and constants of its example drawn from a seed.

A room's module may have ``BOUNDS``: a name maps to two whole numbers or to two real
ones, both included. A theorem of the room's exercises takes what it has an argument
for. The numbers that are drawn change the example, not what has to be written.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random

from labkit.lab.exercises.judging import Exercise

Bounds = Mapping[str, tuple[int, int] | tuple[float, float]]


def draw(bounds: Bounds, seed: str | int) -> dict[str, int | float]:
    """Draw a value for each name; whole numbers all differ.

    Examples
    --------
    >>> sorted(draw({"n": (4, 5), "m": (4, 5), "ridge": (0.5, 0.5)}, 7).values())
    [0.5, 4, 5]
    """
    random, found = Random(seed), {}
    for name, (low, high) in bounds.items():
        if isinstance(low, int):
            taken = {value for value in found.values() if isinstance(value, int)}
            left = [n for n in range(low, high + 1) if n not in taken]
            found[name] = random.choice(left or [low])
        else:
            found[name] = round(random.uniform(low, high), 3)
    return found


def varied(exercise: Exercise, bounds: Bounds, seed: int) -> Exercise:
    """Return the exercise with an example that is drawn from a seed."""
    values = draw(bounds, f"{seed} {exercise.name}")
    theorems = tuple(_with(theorem, values) for theorem in exercise.theorems)
    return replace(exercise, theorems=theorems)


def _with(theorem: Callable, values: Mapping[str, int | float]) -> Callable:
    taken = inspect.signature(theorem).parameters
    if any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return partial(theorem, **values)
    return partial(theorem, **{k: v for k, v in values.items() if k in taken})
