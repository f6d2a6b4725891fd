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
from labkit.rls import NumericalError

FAILURES = (
    DivergedError,
    FloatingPointError,
    NotPositiveDefinite,
    NumericalError,
    torch.linalg.LinAlgError,
)
CLOCKS = ("epoch", "passes", "rows", "symbols", "seconds")  # a failure leaves these
AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
YES, NO, UNDECIDED = "yes", "no", "not decided by this run"
BASELINE = "Adam"
POINTS = 3.0  # of accuracy, see goal
FACTOR = 1.25  # of an error, see goal; two times closer than this are level

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
    looks = looks.reindex(columns=["label", column, *also])  # a failure may lack one
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


# Who wins what on a job, a `labkit.labs.rules.Job`


def leaders(job, table: pd.DataFrame) -> list[str]:
    """The rule with the best mean, and those that it is not ahead of."""
    best = job.best(table["mean"])
    rest = table.drop(best).iterrows()
    level = [name for name, row in rest if job.compared(table.loc[best], row) != AHEAD]
    return [best, *level]


def fastest(times: pd.Series) -> list[str]:
    """The rule with the least time, and those within a quarter of it."""
    times = times.dropna().sort_values()
    return list(times[times <= FACTOR * times.min()].index)


def goal(job, result: Race) -> float:
    """The score that is asked for on the clocks; the best rule gets there in all seeds.

    Three points of accuracy below its mean last score, or a quarter above its error;
    less where one of its own seeds ends worse.
    """
    last = result.last()
    mean = spread(last, "score")["mean"]
    mine = last.score[last.label == job.best(mean)]
    if job.shares:
        return min(mean.max() - POINTS, mine.min())
    return max(mean.min() * FACTOR, mine.max())


def to_goal(job, result: Race) -> pd.DataFrame:
    """Seconds and passes until a run is first at the goal.

    Nan for a rule that is not there in every seed, or fails in one.
    """
    runs, aim = result.runs, goal(job, result)
    there = runs[runs.score >= aim if job.shares else runs.score <= aim]
    grouped = there.groupby(["label", "seed"]).head(1).groupby("label")
    found = grouped[["seconds", "passes"]].mean()[grouped.size() == result.seeds]
    failed = runs.label[runs.score.isna()]
    return found.drop(failed, errors="ignore").reindex(result.labels)


def on_the_clock(mine: float, other: float, ends: str) -> str:
    """Whether one time to the goal is ahead of another.

    Where only one of two gets there in every seed, the ends decide: a seed that just
    misses the goal is no reason to call a rule slow.
    """
    if math.isnan(mine) != math.isnan(other):
        return ends
    if mine > FACTOR * other:
        return BEHIND
    return AHEAD if mine * FACTOR < other else LEVEL


def under_noise(races: Mapping[float, Race]) -> pd.DataFrame:
    """Mean and sd over the seeds of each run's mean over the levels of noise."""
    last = pd.concat([each.last() for each in races.values()])
    runs = last.groupby(["label", "seed"], sort=False).score
    means = runs.agg(lambda scores: scores.mean(skipna=False))
    return spread(means.reset_index(), "score")


def pays_table(job, result: Race, noise: Mapping = {}) -> pd.DataFrame:
    """Each rule beside the baseline, count by count, and in what it is ahead.

    Parameters
    ----------
    noise : mapping of kind to level to Race
    """
    ends, times = spread(result.last(), "score"), to_goal(job, result)
    tables = {"at the end": ends}
    tables |= {f"noisy {kind}": under_noise(each) for kind, each in noise.items()}
    counts = {
        name: {k: job.compared(row, each.loc[BASELINE]) for k, row in each.iterrows()}
        for name, each in tables.items()
    }
    at_the_end = counts.pop("at the end")
    clocks = {
        f"{name} to goal": {
            label: on_the_clock(mine, times[column][BASELINE], at_the_end[label])
            for label, mine in times[column].items()
        }
        for name, column in (("seconds", "seconds"), ("rows", "passes"))
    }
    table = pd.DataFrame({"at the end": at_the_end} | clocks | counts).drop(BASELINE)
    wins = [", ".join(row.index[row == AHEAD]) or "no" for _, row in table.iterrows()]
    return table.assign(**{"pays here": wins}).rename_axis("beside Adam")


def findings(job, result: Race, noise: Mapping = {}) -> str:
    """Where each rule wins and where it does not, in sentences, as Markdown."""

    def said(table, labels):
        return ", ".join(f"{label} ({job.words(table.loc[label])})" for label in labels)

    ends, times = spread(result.last(), "score"), to_goal(job, result)
    best, lines = leaders(job, ends), []
    if len(best) > 1:
        level = f"not told apart over {result.seeds} seeds: {said(ends, best)}"
        lines.append(f"At the end of the budget, {level}.")
    else:
        alone = f"{said(ends, best)} is ahead of all others"
        lines.append(f"At the end of the budget {alone}.")
    aim = f"{goal(job, result):.1f} %" if job.shares else f"{goal(job, result):.2f}"
    for column, unit, text in (
        ("seconds", " s", "seconds of its own work"),
        ("passes", " passes", "passes over the rows"),
    ):
        lines.append(f"First at {aim}, by {text}: {_first(times[column], unit)}.")
    for kind, races in noise.items():
        table = under_noise(races)
        worst = table["mean"].idxmin() if job.shares else table["mean"].idxmax()
        lines.append(
            f"Noise on {kind}, mean over its levels: best, or not told apart from the "
            f"best: {said(table, leaders(job, table))}. "
            f"Lowest: {said(table, [worst])}."
        )
    if never := list(times.index[times.seconds.isna()]):
        lines.append(f"Not at {aim} in every seed: {', '.join(never)}.")
    return "\n".join(f"* {line}" for line in lines)


def _first(times: pd.Series, unit: str) -> str:
    """The fastest with their times, and the baseline's if it is not among them."""
    names, adam = fastest(times), times[BASELINE]
    said = ", ".join(f"{name} ({times[name]:.2g}{unit})" for name in names)
    if BASELINE in names:
        return said
    if math.isnan(adam):
        return f"{said}; {BASELINE} does not get there in every seed"
    return f"{said}; {BASELINE} gets there after {adam:.2g}{unit}"
