"""The studies: a row each, in the file ``<paper>.toml``, and what stands in a row.

How a study is written. A table of that file, whose name is the study's, says in words
what the paper claims and what is computed, and names the function that does one unit
(``work``, such as ``broad:growth`` of ``broad.py``), the arguments of its ``units`` and
those that are ``shared`` by them, those of a ``small`` unit of seconds, the paper's
numbers by label (``printed``), and how the rows become a table, verdicts and figures.
In a name of units such as ``{solver}-{seed}`` a word in braces stands for each value of
the list that this argument has. ``made``, of the table, and each of ``criteria`` have a
function ``by`` which the rows are shown or judged; it is called with the rows and all
else that stands there, with ``printed = true`` for the paper's numbers. A maker of
tables returns a DataFrame; a judge yields triples of the claim, what was measured, and
the verdict. Forms that papers share are in ``judges.py``. ``read`` is a function that
all rows go through before, and ``figure`` one for the figures alone. A study that is
``like`` one above it has all that it does not have itself. In ``criterion`` stand names
of ``criteria.py`` in braces.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd

from labkit.lab.race import View
from labkit.lab.runs.parameters import RunRefused
from reproduction import criteria
from reproduction.drawing import Chart

PAPERS = ("broad", "bpls", "rls", "rtrl", "hessian_free", "compare")
Row = Mapping[str, Any]


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
    criterion : str, how the verdicts are made
    work : callable
        Does one unit: it takes a :class:`~labkit.lab.runs.jobs.Checkpoint` and the
        arguments of the unit, and returns rows, plain mappings of numbers and words.
        The same arguments give the same rows, except for columns whose names begin with
        ``seconds``. A unit that takes long saves its state in the checkpoint and goes
        on from it to the same bits.
    units : mapping of the name of each unit to its arguments
    small : mapping, arguments of a unit that takes seconds, on embedded data
    minutes, memory : float, of one unit on one quiet core, or a GPU [min], [GB]
    made : mapping, the function that makes the table, and its arguments
    criteria : sequence of mapping, the functions that judge, and their arguments
    read, figure : callable
        From all rows (which have a column ``unit``) to those that the table and the
        judges get, and from these to those that the figure shows
    shared : mapping, arguments of all units
    printed : mapping of a label to the paper's numbers
    views : sequence of `reproduction.drawing.Chart`, the panels of the figure
    """

    name: str
    shows: str
    claim: str
    data: str
    setting: str
    differs: str
    criterion: str
    work: Callable[..., Iterable[Row]]
    units: Mapping[str, Row]
    small: Row
    minutes: float
    memory: float
    made: Row
    criteria: Sequence[Row]
    read: Callable[[pd.DataFrame], pd.DataFrame] = pd.DataFrame.copy
    figure: Callable[[pd.DataFrame], pd.DataFrame] = pd.DataFrame.copy
    shared: Row = field(default_factory=dict)
    printed: Row = field(default_factory=dict)
    views: Sequence[Chart] = ()

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
        return [
            unit
            for unit in self.units
            if any(fnmatchcase(unit, each) for each in patterns)
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the table of the paper's numbers beside ours."""
        return self._by(self.made, rows)

    def claims(self, rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
        """Yield each claim, what was measured, and the verdict."""
        for each in self.criteria:
            yield from self._by(each, rows)

    def drawn(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows that the figure shows."""
        return self.figure(self.read(rows))

    def _by(self, given: Row, rows: pd.DataFrame) -> Any:
        options = {name: value for name, value in given.items() if name != "by"}
        if given.get("printed") is True:
            options["printed"] = self.printed
        return function(given["by"])(self.read(rows), **options)


def function(name: str) -> Callable:
    """Return a function of this package by the names of its module and its own."""
    return resolve_name(f"reproduction.{name}")


@cache
def studies() -> dict[str, Study]:
    """Return all studies by name, paper by paper."""
    found = {}
    for paper in PAPERS:
        text = Path(__file__).with_name(f"{paper}.toml").read_text("utf-8")
        rows = tomllib.loads(text)
        for name, row in rows.items():
            rows[name] = row = rows.get(row.pop("like", ""), {}) | row
            found[f"{paper}/{name}"] = made_of(f"{paper}/{name}", row)
    return found


def made_of(name: str, row: Row) -> Study:
    """Return the study that a row of a file describes."""
    made = row | {"name": name, "views": []}
    made["criterion"] = row["criterion"].format_map(vars(criteria))
    made["units"] = spelled_out(row["units"], row.get("shared", {}))
    for key in {"work", "read", "figure"} & row.keys():
        made[key] = function(row[key])
    for each in row.get("views", ()):
        made["views"].append(Chart(**each | {"view": View(**each["view"])}))
    return Study(**made)


def spelled_out(units: Mapping[str, Row], shared: Row) -> dict[str, Row]:
    """Return a unit for each choice of the values that the names in braces stand for.

    >>> spelled_out({"{solver}-0": {"solver": ["a", "b"]}}, {"seed": 0})
    {'a-0': {'seed': 0, 'solver': 'a'}, 'b-0': {'seed': 0, 'solver': 'b'}}
    """
    found = {}
    for name, own in units.items():
        arguments = shared | own
        keys = [key for key in own if f"{{{key}" in name]
        for values in product(*(arguments[key] for key in keys)):
            each = arguments | dict(zip(keys, values, strict=True))
            found[name.format_map(each).replace(" ", "-")] = each
    return found


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
        meant = [key for key, each in every.items() if name in (key, each.paper)]
        if not meant:
            raise RunRefused(f"unknown study {name!r}; there are {', '.join(every)}")
        chosen += meant
    return [every[name] for name in dict.fromkeys(chosen or every)]
