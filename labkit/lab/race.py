"""Several runners side by side: the same seeds, one budget, a clock for each.

A runner is a function from a seed to looks. A look is a mapping of numbers that were
measured of a run between two of its steps. :func:`run_race` treats every runner alike.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import torch

from labkit.broad import NotPositiveDefinite
from labkit.check import COUNT, check_options
from labkit.errors import DivergedError
from labkit.rls import NumericalError

if TYPE_CHECKING:
    from labkit.lab.panels.figures.captions import Figure

FAILURES = (
    DivergedError,
    FloatingPointError,
    NotPositiveDefinite,
    NumericalError,
    torch.linalg.LinAlgError,
)
CLOCKS = ("epoch", "passes", "rows", "symbols", "seconds")  # a failure keeps these

Runner = Callable[[int], Iterator[Mapping[str, float]]]


@dataclass(frozen=True, eq=False)
class Race:
    """All looks at all runs.

    Attributes
    ----------
    runs : DataFrame, a row for each look
        Columns ``label``, ``seed``, ``look`` (0, 1, ...), ``failed`` (the reason, or
        empty) and those of the looks, which hold nan where a run failed.
    """

    runs: pd.DataFrame

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


def run_race(runners: Mapping[str, Runner], *, seeds: int) -> Race:
    """Run every runner with every seed, one after the other.

    Parameters
    ----------
    runners : mapping of label to function
        From a seed to an iterator of looks. A runner measures its own time.
    seeds : int, number of runs of each, with the seeds 0 .. seeds - 1

    Returns
    -------
    Race
        A run that fails ends with a look that holds nan and the reason.
    """
    rows = race_rows(runners, seeds=seeds)
    return Race(pd.DataFrame([row for row in rows if isinstance(row, Mapping)]))


def race_rows(
    runners: Mapping[str, Runner], *, seeds: int
) -> Iterator[dict[str, float | str] | float]:
    """Yield the looks of :func:`run_race`, and the share of the runs that is done.

    A runner may yield None between two looks, where a page may be heard.
    """
    check_options({"seeds": seeds}, {"seeds": COUNT})
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
        kept = {
            key: value if key in CLOCKS else math.nan for key, value in last.items()
        }
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


def race_figure(result: Race, views: Sequence[View], **style: object) -> "Figure":
    """Draw the curves of all runners, means over the seeds, in a panel for each view.

    A look is drawn where every seed has it.

    Parameters
    ----------
    result : Race
    views : sequence of View
    style : keywords of :func:`labkit.lab.panels.curves`, such as ``caption``
    """
    from labkit.lab.panels import curves

    panels = {view.title: {} for view in views}
    for label, runs in result.runs.groupby("label", sort=False):
        looks = runs.groupby("look")
        whole = looks.size() == result.seeds
        for view in views:
            means = looks[list({view.x, view.y})].mean()[whole]
            panels[view.title][label] = (means[view.x], means[view.y])
    return curves(
        panels,
        [view.x_title for view in views],
        [view.y_title for view in views],
        log_x=[view.log_x for view in views],
        log_y=[view.log_y for view in views],
        **style,
    )
