"""The forms of criteria that papers share, and what a judge needs of rows.

A judge gets the rows and what stands in the study's row (see
:mod:`reproduction.studies`). It yields the claim, what was measured, and the
verdict, and nothing where the runs that the claim speaks of are not there.
"""

from collections.abc import Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

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
        A last look that failed is nan; the others leave it out. Or ``area``, the mean
        over the looks, which may lie apart unequally.
    """
    if at == "area":
        runs = rows.groupby("label", sort=False)
        return {label: criteria.area(each, column) for label, each in runs}
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


def table(
    rows: pd.DataFrame,
    *,
    columns: Sequence[Mapping[str, Any]],
    of: str = "",
    printed: Mapping[str, Sequence[float]] | None = None,
    paper: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the mean and sd over the runs of each label that did not fail.

    Parameters
    ----------
    columns : sequence of mapping
        For each one its ``name``, the ``column`` of the rows, and as far as they differ
        ``at``, as for :func:`by_label`, the only ``look``, and the ``spec`` of numbers
    of : str, the function that gives the rows that count
    printed, paper : mapping and sequence, the paper's numbers and what they are
    """
    ended, shown = criteria.finished(chosen(rows, of)), {}
    for each in columns:
        looks = ended[ended["look"] == each["look"]] if "look" in each else ended
        runs = by_label(looks, each["column"], each.get("at", "last"))
        spec = each.get("spec", ".2f")
        shown[each["name"]] = {label: mean_sd(run, spec) for label, run in runs.items()}
    found = pd.DataFrame(shown).reindex(rows["label"].unique()).fillna("")
    count, left = (frame.groupby("label")["seed"].nunique() for frame in (rows, ended))
    lost = count.sub(left, fill_value=0).astype(int)
    found["runs"] = count.astype(str) + lost.map(
        lambda number: f", {number} failed" if number else ""
    )
    for i, name in enumerate(paper):
        found[f"paper, {name}"] = pd.Series(
            {label: numbers[i] for label, numbers in printed.items()}
        )
    return found.rename_axis("label")


def mean_sd(runs: pd.Series, spec: str) -> str:
    """Return the mean and, of several runs, the standard deviation in words."""
    sd = f" ± {runs.std():{spec}}" if len(runs) > 1 else ""
    return f"{runs.mean():{spec}}{sd}"


def chosen(rows: pd.DataFrame, of: str) -> pd.DataFrame:
    """Return the rows that count, which a function of this package gives."""
    return resolve_name(f"reproduction.{of}")(rows) if of else rows


def settled(held: str, rows: pd.DataFrame, label: str, gains: Mapping[str, Any]) -> str:
    """Return a verdict, or "not at its end" for a no of runs that still improve."""
    runs = rows[rows["label"] == label]
    return criteria.unless_improving(held, runs, **gains) if gains else held


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
    found = by_label(rows[rows["look"] >= since] if since else rows, column, at)
    if {a, b} <= found.keys():
        one, two = found[a], found[b]
        measured = f"{words(one, unit, digits)} and {words(two, unit, digits)}"
        yield claim, measured, criteria.ahead(one, two, **how)


def level(
    rows: pd.DataFrame,
    *,
    claim: str,
    a: str,
    b: str,
    column: str,
    margin: float,
    of: str = "",
    unit: str = "%",
    digits: int = 2,
    gains: Mapping[str, Any] | None = None,
) -> Judged:
    """Judge whether a ends as b does, within a margin; ``gains`` as for `meets`."""
    found = by_label(chosen(rows, of), column)
    if {a, b} <= found.keys():
        one, two = found[a], found[b]
        measured = f"{words(one, unit, digits)} and {words(two, unit, digits)}"
        held = criteria.level(one, two, margin=margin)
        yield claim, measured, settled(held, rows, a, gains)


def meets(
    rows: pd.DataFrame,
    *,
    claim: str,
    numbers: Mapping[str, float],
    column: str,
    margin: float = 0.0,
    share: float = 0.0,
    at: str = "last",
    of: str = "",
    unit: str = "%",
    digits: int = 2,
    gains: Mapping[str, Any] | None = None,
) -> Judged:
    """Judge whether our means are those that the paper prints.

    Parameters
    ----------
    numbers : mapping, the paper's by label
    margin, share : float, the margin, or its share of the number
    of : str, the function that gives the rows that count
    gains : mapping, of :func:`criteria.unless_improving`, which runs are not at an end
    """
    for label, runs in by_label(chosen(rows, of), column, at).items():
        if label in numbers:
            number = numbers[label]
            held = criteria.meets(runs, number, margin=margin or share * number)
            named = claim.format(label=label, number=number)
            yield named, words(runs, unit, digits), settled(held, rows, label, gains)
