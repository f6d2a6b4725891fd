"""Rules side by side: the same seeds, clocks of their own, verdicts with a spread.

A runner is a function from a seed to looks, one mapping of numbers for each look at a
run; :func:`race` treats every runner alike and knows none. A :class:`Job` makes them of
learning rules: tuning, a race and a race under noise are all one race of its runners.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import torch
from scipy.stats import qmc
from torch import Tensor
from tqdm import tqdm

from labkit.broad import NotPositiveDefinite
from labkit.errors import DivergedError
from labkit.instruments import Trace
from labkit.lab.datasets import Labelled
from labkit.lab.panels import curves
from labkit.lab.problem import Problem, with_noise
from labkit.ranges import COUNT, check, one_of
from labkit.rls import NumericalError

FAILURES = DivergedError, FloatingPointError, NotPositiveDefinite, NumericalError
FAILURES += (torch.linalg.LinAlgError,)
CLOCKS = ("epoch", "passes", "rows", "symbols", "seconds")  # a failure leaves these
AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
YES, NO, UNDECIDED = "yes", "no", "not decided by this run"
TUNING_SEED = 1000  # from here on: weights, batches and nodes that serve no race

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


def with_bar(things: Iterable | None, progress: bool, unit="step", total=None) -> tqdm:
    """Iterate, with a bar where that takes more than three seconds and ``progress``."""
    look = {"delay": 3, "leave": False, "miniters": 0, "file": sys.stdout}
    return tqdm(things, disable=not progress, unit=unit, total=total, **look)


def race(
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


def compared(a, b, *, higher=True, least=0.0) -> str:
    """Whether a is ahead of b; rows with ``mean`` and ``sd``.

    Level unless the means differ by more than both spreads together, and by more than
    ``least``. A mean of nan, a failure, is behind any other.
    """
    gap = a["mean"] - b["mean"] if higher else b["mean"] - a["mean"]
    if math.isnan(gap):
        return BEHIND if math.isnan(a["mean"]) else AHEAD
    both = a["sd"] + b["sd"]  # nan of a single seed, which decides nothing
    if math.isnan(both) or abs(gap) <= max(both, least):
        return LEVEL
    return AHEAD if gap > 0 else BEHIND


def verdict(a, b, **how) -> str:
    """Whether "a is better than b" holds: yes, no, or undecided; as :func:`compared`.

    A failure decides nothing.
    """
    if math.isnan(a["mean"] + b["mean"]):
        return UNDECIDED
    return {AHEAD: YES, LEVEL: UNDECIDED, BEHIND: NO}[compared(a, b, **how)]


def plus_minus(row, unit="%", digits=1) -> str:
    """A row of `spread` in words: ``97.1 ± 0.3 %``; one seed has no spread."""
    if math.isnan(row["mean"]):
        return "failed"
    sd = "" if math.isnan(row["sd"]) else f" ± {row['sd']:.{digits}f}"
    return f"{row['mean']:.{digits}f}{sd} {unit}".rstrip()


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


def race_figure(result: Race, views: Sequence[View], **look) -> go.Figure:
    """Curves of all runners, means over the seeds, one panel a view.

    A look is drawn where every seed has it. ``look`` are keywords of
    :func:`labkit.lab.panels.curves`, such as ``caption`` and ``height``.
    """
    panels = {view.title: {} for view in views}
    for label, runs in result.runs.groupby("label", sort=False):
        looks = runs.groupby("look")
        whole = looks.size() == result.seeds
        for view in views:
            means = looks[list({view.x, view.y})].mean()[whole]
            panels[view.title][label] = (means[view.x], means[view.y])
    x_titles, y_titles = ([v.x_title for v in views], [v.y_title for v in views])
    logs = {"log_x": [v.log_x for v in views], "log_y": [v.log_y for v in views]}
    return curves(panels, x_titles, y_titles, **logs, **look)


# Learning rules with ranges, tuned equally


@dataclass(frozen=True)
class Sizes:
    """What a rule may read, and how large it is."""

    passes: int  # rows handed to it at most, in multiples of the training rows
    batch: int  # rows of a minibatch
    hidden: int  # units
    rank: int = 1  # of OK

    def __post_init__(self):
        check(vars(self), dict.fromkeys(vars(self), COUNT))


@dataclass(frozen=True)
class Rule:
    """A learning rule, and what is tuned of it.

    ``run(fit, sizes, values, seed)`` learns from ``fit`` and yields looks at its
    network, ``(passes, seconds, outputs)``: rows handed to it / training rows, its own
    work, both so far, and a function of inputs that is valid until it goes on.
    """

    run: Callable[..., Iterator[tuple[float, float, Callable[[Tensor], Tensor]]]]
    ranges: Mapping[str, tuple[float, float]]  # logarithmic, one for each of ``values``
    loss: str = "squares"  # what it minimises


@dataclass(frozen=True, eq=False)
class Job:
    """One task, the rules that can do it, and the score that judges them all."""

    name: str
    problem: Problem
    rules: Mapping[str, Rule]
    sizes: Sizes
    score: Callable[[Tensor, Tensor], float]  # of outputs and targets
    shares: bool = True  # it is a share of rows [%], better when higher; else an error

    def runner(
        self, label: str, values, *, on: Labelled | None = None, first=0, **noise
    ) -> Runner:
        """A rule at these values: looks with a score on rows that it does not see.

        A rule's clock stands still while it is scored.

        Parameters
        ----------
        on : Labelled, rows to score on; those for the end if not given
        first : int, what seeds are counted from
        noise : levels of :func:`~labkit.lab.problem.with_noise`, on rows to learn from
        """
        check({"rule": label}, {"rule": one_of(self.rules)})
        on = self.problem.test if on is None else on

        def looks(seed):
            fit = with_noise(self.problem, seed=first + seed, **noise).fit
            run = self.rules[label].run(fit, self.sizes, values, first + seed)
            for passes, seconds, outputs in run:
                with torch.no_grad():
                    score = self.score(outputs(on.inputs), on.targets)
                yield {"passes": passes, "seconds": seconds, "score": score}

        return looks

    def runners(self, values: Mapping[str, Mapping], **noise) -> dict[str, Runner]:
        """Rules at their values, for :func:`race`."""
        return {label: self.runner(label, v, **noise) for label, v in values.items()}

    def compared(self, a, b, judge=compared) -> str:
        """Whether a is ahead of b by the score; or what :func:`verdict` says of both.

        The least gap is the standard error that the number of test rows leaves. The
        spread over the seeds does not hold it: all seeds have the same test rows.
        """
        p, least = b["mean"] / 100, 0.0
        if self.shares:
            least = 100 * math.sqrt(p * (1 - p) / len(self.problem.test.targets))
        return judge(a, b, higher=self.shares, least=least)

    def best(self, column: pd.Series):
        """Where a score is best, the first such place; a failure never is."""
        values = column.fillna(-math.inf if self.shares else math.inf)
        return values.idxmax() if self.shares else values.idxmin()

    def words(self, row) -> str:
        """Mean and spread of the score: ``97.1 ± 0.3 %``, ``1.89 ± 0.12``."""
        return plus_minus(row) if self.shares else plus_minus(row, "", 2)


def halton(ranges: Mapping[str, tuple[float, float]], count: int) -> list[dict]:
    """The values that tuning tries: the first points of Halton's sequence.

    The same points of the unit square for every rule, mapped to its ranges; one range
    takes their first coordinate.

    Examples
    --------
    >>> [round(each["lr"], 3) for each in halton({"lr": (0.01, 1.0)}, 3)]
    [0.1, 0.032, 0.316]
    """
    check({"trials": count}, {"trials": COUNT})
    points = qmc.Halton(len(ranges), scramble=False).fast_forward(1).random(count)
    return [
        {
            name: float(low * (high / low) ** u)
            for u, (name, (low, high)) in zip(point, ranges.items(), strict=True)
        }
        for point in points
    ]


def tune(job: Job, count: int, *, seeds=1, progress=False) -> tuple[dict, pd.DataFrame]:
    """Give every rule equally many trials; the best on the tuning rows is chosen.

    A trial has the whole budget, and its last look counts. Of equal trials the earlier
    one is chosen, and the first one if all fail.

    Returns
    -------
    chosen : dict of label to values
    tried : DataFrame, a row a trial
        ``label``, ``values``, ``mean`` and ``sd`` of the score, ``seconds``.
    """
    rows = [
        {"label": label, "values": values}
        for label, rule in job.rules.items()
        for values in halton(rule.ranges, count)
    ]
    runners = {
        number: job.runner(**row, on=job.problem.tune, first=TUNING_SEED)
        for number, row in enumerate(rows)
    }
    ends = race(runners, seeds=seeds, progress=progress).last()
    tried = pd.DataFrame(rows).join(spread(ends, "score", "seconds"))
    by_rule = tried.groupby("label", sort=False)["mean"]
    return {label: rows[job.best(mine)]["values"] for label, mine in by_rule}, tried
