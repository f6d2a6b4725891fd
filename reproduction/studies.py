"""What a study is, and the table of all of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

import pandas as pd

PAPERS = ("broad", "bpls", "rls", "rtrl", "hessian_free")
MODULES = ("broad", "bpls", "rls", "rtrl", "rtrl_noise", "hessian_free")
SPREAD = (
    "yes or no where two means differ by more than both standard deviations over the "
    "seeds together, and undecided otherwise"
)


class Refused(ValueError):
    """Asked for what there is not; the message says what there is."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table or a figure of a paper.

    ``work`` does one unit: from a :class:`~reproduction.units.Keep` and the
    unit's arguments to rows, plain mappings of numbers and words. The same arguments
    give the same rows, but for columns that begin with ``seconds``. A unit that takes
    long saves its state with the ``Keep`` and goes on from it, bit-equal.
    """

    name: str  # paper/what, such as broad/table2
    shows: str  # which table or figure
    claim: str  # by section
    data: str
    setting: str
    differs: str  # from the paper
    work: Callable[..., Iterable[Mapping[str, Any]]]
    units: Mapping[str, Mapping[str, Any]]  # name of a unit -> its arguments
    small: Mapping[str, Any]  # arguments of a unit of seconds, on embedded data
    minutes: float  # of a unit, on one quiet core
    memory: float  # GB
    # From all rows (which have "unit") to the paper's numbers beside ours, and to
    # claims: what the paper says, what was measured, verdict.
    table: Callable[[pd.DataFrame], pd.DataFrame]
    claims: Callable[[pd.DataFrame], Iterable[tuple[str, str, str]]] = lambda rows: ()
    criterion: str = SPREAD
    views: tuple = field(default=())  # of labs.race.View, over the looks of the rows
    drawn: Callable[[pd.DataFrame], pd.DataFrame] = lambda rows: rows  # in the figure

    def chosen(self, pattern: str = "*") -> dict[str, Mapping[str, Any]]:
        """Units whose names match a pattern, or one of several parted by commas."""
        patterns = pattern.split(",")
        found = {
            name: arguments
            for name, arguments in self.units.items()
            if any(fnmatchcase(name, each) for each in patterns)
        }
        if not found:
            known = ", ".join(self.units)
            raise Refused(f"no unit of {self.name} matches {pattern!r}: {known}")
        return found


def studies() -> dict[str, Study]:
    """All studies by name, paper by paper."""
    modules = [import_module(f"reproduction.{name}") for name in MODULES]
    return {each.name: each for module in modules for each in module.STUDIES}


def find_study(name: str) -> Study:
    """The study of this name."""
    known = studies()
    if name not in known:
        raise Refused(f"unknown study {name!r}; there are {', '.join(known)}")
    return known[name]
