"""The class of a study, and the table of all studies."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

import pandas as pd

from labkit.lab.race import View
from labkit.lab.runs.parameters import RunRefused
from reproduction.drawing import Chart

PAPERS = ("broad", "bpls", "rls", "rtrl", "hessian_free", "compare")
MODULES = (
    *("broad", "broad_solvers", "bpls", "bpls_toy", "rls", "rls_constants"),
    *("rls_cost", "rtrl", "rtrl_noise", "hessian_free", "compare", "compare_cost"),
)
SPREAD = (
    "yes or no where two means differ by more than both standard deviations over the "
    "seeds together, and undecided otherwise"
)


@dataclass(frozen=True, kw_only=True)
class Study:
    """The study of one table or figure of a paper.

    Attributes
    ----------
    name : str, the paper and what of it, such as ``broad/table2``
    shows : str, which table or figure
    claim : str, what the paper says there, with the section
    data, setting : str, what is computed
    differs : str, how that differs from the paper
    work : callable
        Does one unit: it takes a :class:`~labkit.lab.runs.jobs.Checkpoint` and the
        arguments of the unit, and returns rows, plain mappings of numbers and words.
        The same arguments give the same rows, except for columns whose names begin with
        ``seconds``. A unit that takes long saves its state in the checkpoint and goes
        on from it to the same bits.
    units : mapping of the name of each unit to its arguments
    small : mapping, arguments of a unit that takes seconds, on embedded data
    minutes, memory : float, of one unit on one quiet core [min], [GB]
    table : callable, from all rows (which have a column ``unit``) to a table of the
        paper's numbers beside ours
    claims : callable, from all rows to the claims: for each one what the paper says,
        what was measured, and the verdict
    criterion : str, how the verdicts are made
    views : tuple of `labkit.lab.race.View` or `reproduction.drawing.Chart`
        The panels of the figure.
    drawn : callable, from all rows to those that the figure shows
    version : int
        It increases when ``work`` gives other rows for the same arguments; states and
        results of another version are refused.
    """

    name: str
    shows: str
    claim: str
    data: str
    setting: str
    differs: str
    work: Callable[..., Iterable[Mapping[str, Any]]]
    units: Mapping[str, Mapping[str, Any]]
    small: Mapping[str, Any]
    minutes: float
    memory: float
    table: Callable[[pd.DataFrame], pd.DataFrame]
    claims: Callable[[pd.DataFrame], Iterable[tuple[str, str, str]]] = lambda rows: ()
    criterion: str = SPREAD
    views: tuple[View | Chart, ...] = ()
    drawn: Callable[[pd.DataFrame], pd.DataFrame] = lambda rows: rows
    version: int = 1

    @property
    def paper(self) -> str:
        """Return the name of the paper, as in :data:`PAPERS`."""
        return self.name.partition("/")[0]

    def chosen(self, pattern: str = "*") -> list[str]:
        """Return the units whose names match a pattern, or one of several.

        Parameters
        ----------
        pattern : str, names in which ``*`` stands for anything, parted by commas
        """
        patterns = pattern.split(",")
        return [u for u in self.units if any(fnmatchcase(u, p) for p in patterns)]


def studies() -> dict[str, Study]:
    """Return all studies by name, paper by paper."""
    modules = [import_module(f"reproduction.{name}") for name in MODULES]
    return {each.name: each for module in modules for each in module.STUDIES}


def find_study(name: str) -> Study:
    """Return the study of this name."""
    return find_studies([name])[0]


def find_studies(names: Iterable[str]) -> list[Study]:
    """Return the studies that are meant: by their names, or all of a paper by its name.

    Parameters
    ----------
    names : iterable of str, such as ``rtrl/fig3`` or ``rtrl``; none for all studies

    Raises
    ------
    RunRefused : if there is no study and no paper of a name
    """
    every, chosen = studies(), []
    for name in names:
        meant = [n for n, each in every.items() if name in (n, each.paper)]
        if not meant:
            raise RunRefused(f"unknown study {name!r}; there are {', '.join(every)}")
        chosen += meant
    return [every[name] for name in dict.fromkeys(chosen or every)]
