"""Several runners side by side: the same seeds, one budget, a clock for each.

A runner is a function from a seed to looks. A look is a mapping of numbers that were
measured of a run between two of its steps. :func:`run_race` treats every runner alike.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from labkit.broad import NotPositiveDefinite
from labkit.check import (
    FUNCTION,
    Range,
    check_kind,
    check_options,
    integer,
    one_of,
    optional,
)
from labkit.errors import DivergedError
from labkit.instruments import Trace
from labkit.rls import NumericalError

if TYPE_CHECKING:
    from tqdm import tqdm

    from labkit.lab.panels.figures.captions import Figure

FAILURES = (
    *(DivergedError, FloatingPointError, NotPositiveDefinite, NumericalError),
    torch.linalg.LinAlgError,
)
CLOCKS = ("epoch", "passes", "rows", "symbols", "seconds")  # a failure keeps these

MANY = integer(1, 10_000)  # runs


def _alone(value):
    """Return whether an array has no rows to go through."""
    return getattr(value, "ndim", 1) == 0 or getattr(value, "is_meta", False)


BAR = {  # of `with_bar`
    "things": Range(
        "None or what can be iterated over",
        lambda v: v is None or (isinstance(v, Iterable) and not _alone(v)),
    ),
    "progress": one_of((False, True)),
    "unit": Range("a word", lambda v: isinstance(v, str)),
    "total": optional(integer(0)),
}

Runner = Callable[[int], Iterator[Mapping[str, float]]]


@dataclass(frozen=True, eq=False)
class Race:
    """All looks at all runs.

    Attributes
    ----------
    runs : DataFrame, a row for each look
        Columns ``label``, ``seed``, ``look`` (0, 1, ...), ``failed`` (the reason, or
        empty) and those of the looks, which hold nan where a run failed.
    setting : str, data and scale in words
    """

    runs: pd.DataFrame
    setting: str = ""

    @property
    def labels(self) -> list[str]:
        """Names of the runners, in their order."""
        return list(dict.fromkeys(self.runs.label))

    @property
    def seeds(self) -> int:
        """Number of runs of each runner."""
        return self.runs.seed.nunique()

    def last(self) -> pd.DataFrame:
        """Return the last look at every run."""
        return self.runs.groupby(["label", "seed"], sort=False).tail(1)

    def within(self, column: str, limit: float) -> pd.DataFrame:
        """Return, for every run, its last look at which a column is within a limit.

        A run without such a look has a row of nan.
        """
        runs = self.runs
        kept = (
            runs[runs[column] <= limit].groupby(["label", "seed"], sort=False).tail(1)
        )
        whole = self.last()[["label", "seed"]]
        return whole.merge(kept, on=["label", "seed"], how="left")

    def best(self, column: str, *, higher: bool = True) -> pd.DataFrame:
        """Return, for every run, the earliest look with its best value."""
        runs = self.runs.reset_index(drop=True)
        values = runs[column].fillna(-math.inf if higher else math.inf)
        grouped = values.groupby([runs.label, runs.seed], sort=False)
        return runs.loc[grouped.idxmax() if higher else grouped.idxmin()]


def with_bar(
    things: Iterable | None,
    progress: bool,
    unit: str = "step",
    total: int | None = None,
) -> "tqdm":
    """Iterate, and show a bar if ``progress`` and it takes more than three seconds."""
    from tqdm import tqdm

    given = {"things": things, "progress": progress, "unit": unit, "total": total}
    check_options(given, BAR)
    return tqdm(
        things,
        disable=not progress,
        unit=unit,
        total=total,
        delay=3,
        leave=False,
        miniters=0,
        file=sys.stdout,
    )


def run_race(
    runners: Mapping[str, Runner],
    *,
    seeds: int,
    setting: str = "",
    path: str | Path | None = None,
    progress: bool = False,
    **parameters: object,
) -> Race:
    """Run every runner with every seed, one after the other.

    Parameters
    ----------
    runners : mapping of label to function
        From a seed to an iterator of looks. A runner measures its own time.
    seeds : int, number of runs of each, with the seeds 0 .. seeds - 1
    setting : str, data and scale in words, for tables
    path : path, optional, where the looks are written as they come
    progress : bool, whether a bar counts the runs if they take over three seconds
    parameters : further values for the head of that file

    Returns
    -------
    Race
        A run that fails ends with a look that holds nan and the reason.
    """
    rows, given = [], parameters | {"setting": setting}
    bar = with_bar(None, progress, "run", seeds * len(runners))
    with Trace(path, parameters=given) as trace, bar as done:
        for row in race_rows(runners, seeds=seeds):
            if isinstance(row, Mapping):
                trace.log(len(rows), **row)
                rows.append(row)
                done.update(0)  # a single run may be a long one
            else:
                done.update(round(row * seeds * len(runners)) - done.n)
    return Race(pd.DataFrame(rows), setting)


def race_rows(
    runners: Mapping[str, Runner], *, seeds: int
) -> Iterator[dict[str, float | str] | float]:
    """Yield the looks of :func:`run_race`, and the share of the runs that is done.

    A runner may yield None between two looks, where a page may be heard.
    """
    check_options({"seeds": seeds}, {"seeds": MANY})
    check_kind("runners", runners, Mapping, "a mapping of labels to functions")
    check_options(runners, dict.fromkeys(runners, FUNCTION), "runners")
    done, total = 0, seeds * len(runners)
    for seed in range(seeds):
        for label, runner in runners.items():
            number = 0
            for look in _to_its_end(runner(seed)):
                if look is None:
                    yield done / total
                else:
                    yield {"label": label, "seed": seed, "look": number} | look
                    number += 1
            done += 1
            yield done / total


def _to_its_end(looks: Iterator[Mapping | None]) -> Iterator[dict | None]:
    last = {}
    try:
        for look in looks:
            last = look or last
            yield look and {"failed": ""} | dict(look)
    except FAILURES as error:
        kept = {key: v if key in CLOCKS else math.nan for key, v in last.items()}
        yield kept | {"failed": str(error) or type(error).__name__}


def spread(looks: pd.DataFrame, column: str, *also: str) -> pd.DataFrame:
    """Return mean and sample sd over the seeds, by label.

    A failed run makes both nan.

    Parameters
    ----------
    looks : DataFrame, one look for each run, as :meth:`Race.last` returns
    column : str, the column that ``mean`` and ``sd`` are taken of
    also : str, columns whose means stand beside them

    Returns
    -------
    DataFrame, indexed by label: ``mean``, ``sd`` and the columns ``also``
    """
    check_kind("looks", looks, pd.DataFrame, "a table of looks")
    if "label" not in looks:
        raise ValueError(f"looks must have a column label, got {[*looks.columns]}")
    for name in (column, *also):
        check_kind("column", name, str, "the name of a column")
    looks = looks.reindex(columns=["label", column, *also])  # a failure may lack one
    grouped = looks.groupby("label", sort=False)
    mean = grouped[column].agg(lambda values: values.mean(skipna=False))
    means = {name: grouped[name].mean() for name in also}
    return pd.DataFrame({"mean": mean, "sd": grouped[column].std()} | means)


@dataclass(frozen=True)
class View:
    """One panel of :func:`race_figure`: column ``y`` of the looks against ``x``."""

    x: str
    y: str
    title: str
    x_title: str
    y_title: str
    log_x: bool = False
    log_y: bool = False


def race_figure(
    result: Race, views: Sequence[View], *, bands: bool = False, **style: object
) -> "Figure":
    """Draw the curves of all runners, means over the seeds, in a panel for each view.

    A look is drawn where every seed has it.

    Parameters
    ----------
    result : Race
    views : sequence of View
    bands : bool, whether a band of one standard deviation lies round each curve
    style : keywords of :func:`labkit.lab.panels.curves`, such as ``caption``

    Raises
    ------
    TypeError, ValueError
        If there is no view, or the runs have no column of one.
    """
    from labkit.lab.panels import curves

    check_kind("result", result, Race, "a Race; see run_race")
    check_kind("views", views, (list, tuple), "a list of views")
    check_kind("bands", bands, bool, "True or False")
    for view in views:
        check_kind("a view", view, View, "a View")
        for column in (view.x, view.y):
            if column not in result.runs:
                known = ", ".join(map(str, result.runs))
                raise ValueError(f"the runs have no column {column!r}, but {known}")
    panels, spreads = {view.title: {} for view in views}, []
    for label, runs in result.runs.groupby("label", sort=False):
        looks = runs.groupby("look")
        whole = looks.size() == result.seeds
        for view in views:
            means = looks[list({view.x, view.y})].mean()[whole]
            panels[view.title][label] = (means[view.x], means[view.y])
            spreads.append((view, label, means, looks[view.y].std()[whole]))
    figure = curves(
        panels,
        [view.x_title for view in views],
        [view.y_title for view in views],
        log_x=[view.log_x for view in views],
        log_y=[view.log_y for view in views],
        **style,
    )
    if bands:
        axes = {view.title: str(i + 1) if i else "" for i, view in enumerate(views)}
        figure["data"] += [
            _band(figure, axes[view.title], view, *rest) for view, *rest in spreads
        ]
    return figure


def _band(figure, axis, view, label, means, sd) -> dict:
    """The area between a curve less and plus one sd, as a trace behind the curves."""
    x, y, sd = means[view.x], means[view.y], sd.fillna(0.0)
    low = (y - sd).clip(lower=y / 10) if view.log_y else y - sd  # zero has no logarithm
    lines = (trace for trace in figure["data"] if trace.get("name"))
    colours = {trace["name"]: trace["line"]["color"] for trace in lines}
    return {
        "type": "scatter",
        "x": np.array([*x, *x[::-1]]),
        "y": np.array([*(y + sd), *low[::-1]]),
        "xaxis": f"x{axis}",
        "yaxis": f"y{axis}",
        "fill": "toself",
        "fillcolor": colours[label],
        "opacity": 0.12,
        "line": {"width": 0},
        "mode": "lines",
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": label,
    }
