"""Rules side by side: the same seeds, clocks of their own, verdicts with a spread.

A runner is a function from a seed to looks, one mapping of numbers for each look at a
run. What follows treats every runner alike and knows none.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import torch

from labkit.broad import NotPositiveDefinite
from labkit.errors import DivergedError
from labkit.instruments import Trace
from labkit.panels import curves

FAILURES = (
    DivergedError,
    FloatingPointError,
    NotPositiveDefinite,
    torch.linalg.LinAlgError,
)
CLOCKS = ("step", "epoch", "passes", "rows", "seconds")  # a failure leaves these
AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
YES, NO, UNDECIDED = "yes", "no", "not decided by this run"

Runner = Callable[[int], Iterator[Mapping[str, float]]]


@dataclass(frozen=True, eq=False)
class Race:
    """All looks at all runs.

    Attributes
    ----------
    runs : DataFrame
        Columns ``label``, ``seed``, ``look`` (0, 1, ...), ``failed`` (why, or empty)
        and those of the looks; nan where a run failed.
    setting : str
        Data and scale, in words.
    """

    runs: pd.DataFrame
    setting: str = ""

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
        values = runs[column].where(
            runs[column].notna(), -math.inf if higher else math.inf
        )
        grouped = values.groupby([runs.label, runs.seed], sort=False)
        return runs.loc[grouped.idxmax() if higher else grouped.idxmin()]


def race(
    runners: Mapping[str, Runner], *, seeds: int, setting="", path=None, **parameters
) -> Race:
    """Run every runner on every seed, one after the other.

    Parameters
    ----------
    runners : mapping of label to function
        From a seed to an iterator of looks; work between two looks is the runner's own,
        and it brings its own clock.
    seeds : int
        Runs 0 .. seeds - 1.
    setting : str
        Data and scale, in words, for tables.
    path : path, optional
        Where the looks are written as they come.
    parameters
        Noted in that file.

    Returns
    -------
    Race
        A run that fails ends with a look that holds nan and the reason.
    """
    rows = []
    with Trace(path, parameters=parameters | {"setting": setting}) as trace:
        for seed in range(seeds):
            for label, runner in runners.items():
                for number, look in enumerate(_to_its_end(runner(seed))):
                    row = {"label": label, "seed": seed, "look": number} | look
                    trace.log(len(rows), **row)
                    rows.append(row)
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
    looks : DataFrame
        One look a run, as of :meth:`Race.last` or :meth:`Race.best`.
    column : str
        What ``mean`` and ``sd`` are of.
    also : str
        Columns whose means stand beside them.
    """
    grouped = looks.groupby("label", sort=False)
    means = {name: grouped[name].mean() for name in also}
    table = {"mean": grouped[column].apply(_mean), "sd": grouped[column].std()}
    return pd.DataFrame(table | means)


def _mean(values: pd.Series) -> float:
    return values.mean(skipna=False)


def compared(a, b, *, higher=True, least=0.0) -> str:
    """Whether a is ahead of b; rows with ``mean`` and ``sd``.

    Level unless the means differ by more than both spreads together, and by more than
    ``least``. A mean of nan, a failure, is behind any other.
    """
    gap = a["mean"] - b["mean"] if higher else b["mean"] - a["mean"]
    if math.isnan(gap):
        return BEHIND if math.isnan(a["mean"]) else AHEAD
    if math.isnan(a["sd"]) or math.isnan(b["sd"]):  # one seed decides nothing
        return LEVEL
    if abs(gap) <= max(a["sd"] + b["sd"], least):
        return LEVEL
    return AHEAD if gap > 0 else BEHIND


def verdict(a, b, *, higher=True, least=0.0) -> str:
    """Whether "a is better than b" holds: yes, no, or undecided; see `compared`."""
    if math.isnan(a["mean"]) or math.isnan(b["mean"]):
        return UNDECIDED
    said = {AHEAD: YES, LEVEL: UNDECIDED, BEHIND: NO}
    return said[compared(a, b, higher=higher, least=least)]


def plus_minus(row, unit="%", digits=1) -> str:
    """A row of `spread` in words: ``97.1 ± 0.3 %``."""
    return f"{row['mean']:.{digits}f} ± {row['sd']:.{digits}f} {unit}".rstrip()


def claims(rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Claims beside what was measured: claim, measured here, setting, verdict."""
    columns = ["paper's claim", "measured here", "setting", "verdict"]
    return pd.DataFrame(rows, columns=columns)


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


def race_figure(
    result: Race, views: Sequence[View], *, caption="", **look
) -> go.Figure:
    """Curves of all runners, means over the seeds, one panel a view.

    A look is drawn where every seed has it. ``look`` are keywords of
    :func:`labkit.panels.curves`, such as ``height``.
    """
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
        caption=caption,
        **look,
    )
