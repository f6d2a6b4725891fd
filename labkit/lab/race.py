"""Runners side by side: the same seeds, one budget, each with a clock of its own.

A runner is a function from a seed to looks, one mapping of numbers for each look at a
run; :func:`run_race` treats every runner alike and knows none.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import torch

from labkit.broad import NotPositiveDefinite
from labkit.errors import DivergedError
from labkit.instruments import Trace
from labkit.rls import NumericalError

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from tqdm import tqdm

FAILURES = DivergedError, FloatingPointError, NotPositiveDefinite, NumericalError
FAILURES += (torch.linalg.LinAlgError,)
CLOCKS = ("epoch", "passes", "rows", "symbols", "seconds")  # a failure leaves these

Runner = Callable[[int], Iterator[Mapping[str, float]]]


@dataclass(frozen=True, eq=False)
class Race:
    """All looks at all runs.

    ``runs`` has the columns ``label``, ``seed``, ``look`` (0, 1, ...), ``failed`` (why,
    or empty) and those of the looks; nan where a run failed.
    """

    runs: pd.DataFrame
    setting: str = ""  # data and scale, in words

    @property
    def labels(self) -> list[str]:
        """Runners, in their order."""
        return list(dict.fromkeys(self.runs.label))

    @property
    def seeds(self) -> int:
        """Runs of each runner."""
        return self.runs.seed.nunique()

    def last(self) -> pd.DataFrame:
        """The last look at every run."""
        return self.runs.groupby(["label", "seed"], sort=False).tail(1)

    def best(self, column: str, *, higher=True) -> pd.DataFrame:
        """Of every run the look with the best value, the earliest such."""
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
    """Iterate, with a bar where that takes more than three seconds and ``progress``."""
    from tqdm import tqdm

    style = {"delay": 3, "leave": False, "miniters": 0, "file": sys.stdout}
    return tqdm(things, disable=not progress, unit=unit, total=total, **style)


def run_race(
    runners: Mapping[str, Runner],
    *,
    seeds: int,
    setting="",
    path=None,
    progress=False,
    **parameters,
) -> Race:
    """Run every runner on every seed, one after the other.

    Parameters
    ----------
    runners : mapping of label to function
        From a seed to an iterator of looks; work between two looks is the runner's own,
        and it brings its own clock.
    seeds : int, runs 0 .. seeds - 1
    setting : str, data and scale, in words, for tables
    path : path, where the looks are written as they come, if anywhere
    progress : bool, count runs in a bar if they take more than three seconds in all
    parameters : noted in that file

    Returns
    -------
    Race, in which a run that fails ends with a look that holds nan and the reason
    """
    rows, given = [], parameters | {"setting": setting}
    bar = with_bar(None, progress, "run", seeds * len(runners))
    with Trace(path, parameters=given) as trace, bar as done:
        for seed in range(seeds):
            for label, runner in runners.items():
                for number, look in enumerate(_to_its_end(runner(seed))):
                    row = {"label": label, "seed": seed, "look": number} | look
                    trace.log(len(rows), **row)
                    rows.append(row)
                    done.update(0)  # a single run may be a long one
                done.update()
    return Race(pd.DataFrame(rows), setting)


def _to_its_end(looks: Iterator[Mapping]) -> Iterator[dict]:
    look = {}
    try:
        for look in looks:
            yield {"failed": ""} | dict(look)
    except FAILURES as error:
        kept = {key: v if key in CLOCKS else math.nan for key, v in look.items()}
        yield kept | {"failed": str(error) or type(error).__name__}


def spread(looks: pd.DataFrame, column: str, *also: str) -> pd.DataFrame:
    """Mean and sample sd over the seeds, by label; one failed run makes them nan.

    Parameters
    ----------
    looks : DataFrame, one look a run, as of :meth:`Race.last` or :meth:`Race.best`
    column : str, what ``mean`` and ``sd`` are of
    also : str, columns whose means stand beside them
    """
    looks = looks.reindex(columns=["label", column, *also])  # a failure may lack one
    grouped = looks.groupby("label", sort=False)
    mean = grouped[column].agg(lambda values: values.mean(skipna=False))
    means = {name: grouped[name].mean() for name in also}
    return pd.DataFrame({"mean": mean, "sd": grouped[column].std()} | means)


@dataclass(frozen=True)
class View:
    """One panel of :func:`race_figure`: a column of the looks against another."""

    x: str
    y: str
    title: str
    x_title: str
    y_title: str
    log_x: bool = False
    log_y: bool = False


def race_figure(result: Race, views: Sequence[View], **style) -> "go.Figure":
    """Curves of all runners, means over the seeds, one panel a view.

    A look is drawn where every seed has it. ``style`` are keywords of
    :func:`labkit.lab.panels.curves`, such as ``caption`` and ``height``.
    """
    from labkit.lab.panels import curves

    panels = {view.title: {} for view in views}
    for label, runs in result.runs.groupby("label", sort=False):
        looks = runs.groupby("look")
        whole = looks.size() == result.seeds
        for view in views:
            means = looks[list({view.x, view.y})].mean()[whole]
            panels[view.title][label] = (means[view.x], means[view.y])
    x_titles, y_titles = ([v.x_title for v in views], [v.y_title for v in views])
    logs = {"log_x": [v.log_x for v in views], "log_y": [v.log_y for v in views]}
    return curves(panels, x_titles, y_titles, **logs, **style)
