"""The forms of criteria that papers share, and what a judge needs of rows.

A judge gets the rows and what stands in the study's row (see
:mod:`reproduction.studies`). It yields the claim, what was measured, and the
verdict, and nothing where the runs that the claim speaks of are not there.
"""

from collections.abc import Iterator, Mapping

import pandas as pd

from labkit.lab.claims import NO, UNDECIDED, YES, plus_minus
from reproduction import criteria
from reproduction.criteria import of_runs

Judged = Iterator[tuple[str, str, str]]  # claim, measured, verdict


def by_label(rows: pd.DataFrame, column: str, at: str = "last") -> dict[str, pd.Series]:
    """Return what counts of every run, by label: a Series whose index is the seed.

    Parameters
    ----------
    rows : DataFrame with the columns ``label`` and ``seed``
    column : str
    at : str, ``last``, ``first``, ``max``, ``min`` or ``mean`` of the looks of a run
        A last look that failed is nan; the others leave it out.
    """
    runs = rows.groupby(["label", "seed"], sort=False)[column]
    found = runs.last(skipna=False) if at == "last" else runs.agg(at)
    grouped = found.groupby("label", sort=False)
    return {label: each.droplevel("label") for label, each in grouped}


def words(runs: pd.Series, unit: str = "%", digits: int = 2) -> str:
    """Return the mean and the standard deviation of runs in words."""
    row = {"mean": runs.mean(skipna=False), "sd": runs.std()}
    return plus_minus(row, unit, digits)


def every(holds: pd.Series) -> str:
    """Return yes where all runs hold, no where none does, else undecided."""
    held = YES if holds.all() else UNDECIDED if holds.any() else NO
    return of_runs(held, len(holds))


def ahead(
    rows: pd.DataFrame,
    *,
    claim: str,
    a: str,
    b: str,
    column: str,
    at: str = "last",
    since: int = 0,
    unit: str = "%",
    digits: int = 2,
    **how: float,
) -> Judged:
    """Judge whether a is ahead of b from a look on; see :func:`criteria.ahead`."""
    found = by_label(rows[rows["look"] >= since], column, at)
    if {a, b} <= found.keys():
        one, two = found[a], found[b]
        told = f"{words(one, unit, digits)} and {words(two, unit, digits)}"
        yield claim, told, criteria.ahead(one, two, **how)


def meets(
    rows: pd.DataFrame,
    *,
    claim: str,
    numbers: Mapping[str, float],
    column: str,
    margin: float,
    at: str = "last",
    less: float = 0.0,
    unit: str = "%",
    digits: int = 2,
) -> Judged:
    """Judge whether our means, less a number, are those that the paper prints."""
    for label, runs in by_label(rows, column, at).items():
        if label in numbers:
            ours = runs - less
            held = criteria.meets(ours, numbers[label], margin=margin)
            said = claim.format(label=label, number=numbers[label])
            yield said, words(ours, unit, digits), held
