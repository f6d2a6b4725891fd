"""Criteria of verdicts, which are fixed before the run and can come out either way.

Values of runs are series indexed by seed. Two means are compared by the interval in
which their difference lies with 95 % (Student's t; Welch's degrees of freedom, or the
differences over common seeds), and by a margin that the study writes down with its
reason. Fewer than :data:`SEEDS` runs decide nothing: where their means lie as a yes
asks, the verdict is "not contradicted (n runs)", and it is never counted with yes.
"""

import math

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid
from scipy.stats import t

from labkit.lab.claims import NO, UNDECIDED, YES

SEEDS = 3  # number of seeds that a verdict needs
NOT_AT_END = "not at its end"
NOT_CONTRADICTED = "not contradicted"
TRIFLE = 0.01  # share of the larger mean: where the margin is 0, less decides nothing
POINTS = 0.1  # of an accuracy in %, ten of 10,000 images, likewise
AHEAD = (
    "yes where the 95 % interval of the difference of the two means lies above the "
    f"margin, no where it lies below, and undecided otherwise; with fewer than {SEEDS}"
    f" runs {NOT_CONTRADICTED!r} where the lead is above a margin other than 0, else "
    f"undecided; where the margin is 0, means that differ by at most {TRIFLE:.0%} of "
    f"the larger one, accuracies by at most {POINTS} points, epochs by at most one, "
    "decide nothing; if a run never reaches a level, only seeds that all agree decide"
)
FEW = f"of fewer than {SEEDS} runs a yes is {NOT_CONTRADICTED!r} and a no undecided"
PAPER = "paper"
READING = "reading"
IDENTITY = "identity"
OURS = "ours"


def finished(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the runs that did not fail.

    A run is a seed of a label; of one that failed, a row has words in ``failed``.
    """
    if "failed" not in rows:
        return rows
    failures = rows["failed"].notna().groupby([rows["label"], rows["seed"]])
    return rows[~failures.transform("any")]


def whose(claim: str) -> str:
    """Return whose a claim is: the paper's, of a reading of it, an identity, or ours.

    A claim of ours begins with ``ours``, one that holds by its formulas, whatever was
    measured, with ``identity``, and one about a setting that the paper's own numbers
    contradict with ``reading``; all others are the paper's.

    >>> whose("ours, chol-1: at most 1.3 of its count"), whose("4.1, Fig. 1: longer")
    ('ours', 'paper')
    """
    first = claim.replace(",", ":").partition(":")[0]
    return first if first in (READING, IDENTITY, OURS) else PAPER


class Verdict(str):
    """A verdict by a comparison of two means, and its p-value.

    ``p`` is of the hypothesis that the means differ by just the margin, and nan where
    all runs agree.
    """

    p: float = math.nan


def difference(
    a: pd.Series, b: pd.Series, *, paired: bool = False
) -> tuple[float, float, float]:
    """Return mean a less mean b, its standard error, and the degrees of freedom.

    The error is infinite for too few seeds.

    Parameters
    ----------
    a, b : Series, a value for each seed, which is the index
    paired : bool, whether the runs of a seed share their data and their start
    """
    runs = [(a - b).dropna()] if paired else [a.dropna(), b.dropna()]
    mean = runs[0].mean() if paired else runs[0].mean() - runs[1].mean()
    if min(map(len, runs)) < SEEDS:
        return mean, math.inf, 1.0
    shares = [run.var() / len(run) for run in runs]  # of the squared error
    parts = [share**2 / (len(run) - 1) for share, run in zip(shares, runs, strict=True)]
    error = math.sqrt(sum(shares))
    return mean, error, sum(shares) ** 2 / sum(parts) if error else math.inf


def interval(mean: float, error: float, freedom: float) -> tuple[float, float]:
    """Return the 95 % interval of a mean by its standard error."""
    half = error * t.ppf(0.975, freedom)
    return mean - half, mean + half


def holm(p: pd.Series) -> pd.Series:
    """Return p-values corrected for their number by Holm's method.

    >>> holm(pd.Series([0.03, 0.01, 0.04])).tolist()
    [0.06, 0.03, 0.06]
    """
    known = p.dropna().sort_values()
    steps = known * list(range(len(known), 0, -1))
    return steps.cummax().clip(upper=1.0).reindex(p.index)


def of_runs(held: str, runs: int) -> str:
    """Return what a verdict is with so many runs: few neither say yes nor no."""
    if runs >= SEEDS:
        return held
    words = f"{NOT_CONTRADICTED} ({runs} run{'s' if runs > 1 else ''})"
    return words if held == YES and runs else UNDECIDED


def runs_of(*series: pd.Series) -> int:
    """Return the smallest number of runs, 0 if one of few failed."""
    few = min(len(each.dropna()) for each in series)
    return few if few >= SEEDS or not any(each.isna().any() for each in series) else 0


def ahead(
    a: pd.Series,
    b: pd.Series,
    *,
    margin: float = 0.0,
    higher: bool = True,
    paired: bool = False,
    least: float | None = None,
) -> str:
    """Return whether a is better than b by more than a margin; see `AHEAD`.

    Yes where the interval of a's lead lies above the margin, no where it lies below it
    (a leads by less, or b leads), undecided where the margin lies in it. A negative
    margin asks whether a is no worse than b by more than that. Where a value is
    infinite, a is better if it is for every seed. With a margin of 0 a
    difference of at most `least` decides nothing; it is :data:`TRIFLE` of the larger
    mean if it is not given.
    """
    a, b = (a, b) if higher else (-a, -b)
    if math.inf in (*map(abs, a), *map(abs, b)):  # a level that some run never reaches
        seeds = a.index.intersection(b.index)
        one, two = a[seeds], b[seeds]
        if len(seeds) < SEEDS:
            return UNDECIDED
        return YES if (one > two).all() else NO if (one < two).all() else UNDECIDED
    gap, runs = a.mean() - b.mean(), runs_of(a, b)
    if runs < SEEDS:
        return of_runs(YES if margin and gap > margin else UNDECIDED, runs)
    if least is None:
        least = TRIFLE * max(abs(a.mean()), abs(b.mean()))
    mean, error, freedom = difference(a, b, paired=paired)
    held = above(interval(mean, error, freedom), margin)
    if not margin and abs(gap) <= least:
        held = UNDECIDED
    held = Verdict(held)
    if error:
        held.p = 2 * t.sf(abs(mean - margin) / error, freedom)
    return held


def above(interval: tuple[float, float], margin: float = 0.0) -> str:
    """Return whether an interval lies above a margin, below it, or around it."""
    low, high = interval
    return YES if low > margin else NO if high < margin else UNDECIDED


def inside(interval: tuple[float, float], margin: float) -> str:
    """Return whether an interval lies within a margin on either side, or outside."""
    low, high = interval
    if -margin <= low and high <= margin:
        return YES
    return NO if low > margin or high < -margin else UNDECIDED


def level(a: pd.Series, b: pd.Series, *, margin: float, paired: bool = False) -> str:
    """Return whether a is as good as b, within a margin on either side.

    Yes where the interval of the difference lies within the margin, no where it lies
    outside of it, undecided otherwise; of few runs see :func:`of_runs`.
    """
    gap, error, freedom = difference(a, b, paired=paired)
    runs = runs_of(a, b)
    if runs < SEEDS:
        return of_runs(inside((gap, gap), margin), runs)
    return inside(interval(gap, error, freedom), margin)


def meets(values: pd.Series, number: float, *, margin: float) -> str:
    """Return whether our mean is the number that a paper prints, within a margin.

    The margin is what the paper's rounding and setting leave open.
    """
    return level(values, 0 * values + number, margin=margin, paired=True)


def area(rows: pd.DataFrame, column: str) -> pd.Series:
    """Return each seed's mean of a column over the looks: the area under its curve.

    It is nan where a run failed, or has one look.
    """

    def mean(run: pd.DataFrame) -> float:
        run = run.sort_values("look")
        span = float(np.ptp(run["look"]))
        return trapezoid(run[column], run["look"]) / span if span else math.nan

    return rows.groupby("seed")[[column, "look"]].apply(mean)


# Runs that were stopped too early


def unless_improving(
    held: str, rows: pd.DataFrame, column: str, *, least: float, higher: bool = False
) -> str:
    """Return a verdict, or "not at its end" for a "no" of runs that still improve.

    Parameters
    ----------
    rows : DataFrame with the columns ``label``, ``seed``, ``look`` and `column`
    least : float
        A run improves if it gained more in its last tenth of looks, as a share of the
        best value before
    """
    improving = still_improving(rows, column, least=least, higher=higher)
    return NOT_AT_END if held == NO and improving else held


def still_improving(
    rows: pd.DataFrame, column: str, *, least: float, higher: bool = False
) -> bool:
    """Return whether any run still improves; see :func:`unless_improving`."""
    sign = 1 if higher else -1
    for _, run in rows.groupby(["label", "seed"], sort=False):
        values = sign * run.sort_values("look")[column].dropna()
        cut = len(values) - max(1, len(values) // 10)
        if cut > 0:
            before = values.iloc[:cut].max()
            if values.iloc[cut:].max() - before > least * abs(before):
                return True
    return False
