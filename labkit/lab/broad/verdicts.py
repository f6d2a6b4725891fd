"""The tables and the verdicts of the notebook on broad learning."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from pandas.io.formats.style import Styler

from labkit.lab.claims import NO, UNDECIDED, YES, Claim

EQUAL = 0.1  # points within which two solvers count as equal
POINTS = "points of accuracy"
# Two solvers that the paper finds equal, and the least ridge at which it does.
PAIRS = (
    ("orig", "exg-e", "orig and exg-e agree at ridge 1e-2 and above", 1e-2),
    ("chol-1", "d-rdg", "chol-1 is the direct solution at ridge 1e-5 and up", 1e-5),
    ("chol-2", "d-rdg", "chol-2 is the direct solution at ridge 1e-4 and up", 1e-4),
    ("r-inv", "d-rdg", "r-inv is the direct solution at ridge 1e-3 and up", 1e-3),
)
COUNTS = {"orig": "3 for l >> k (71)", "exg-e": "over 5/3 (72)"}
CLOCK = {"orig": 1.99, "exg-e": 1.53}  # Table VI: 60,000 images, up to 25,170 columns


def accuracy_table(runs: pd.DataFrame) -> Styler:
    """Return accuracies by ridge and solver, one column a size; NA once it is lost."""
    wide = runs.pivot(index=["ridge", "solver"], columns="columns", values="score")
    wide = wide.reindex(runs.solver.unique(), level="solver")
    return wide.style.format(precision=2, na_rep="NA").format_index("{:.0e}", level=0)


def accuracies(runs: pd.DataFrame) -> dict[str, dict[str, tuple]]:
    """Return a panel of curves for each ridge: accuracy against columns, by solver."""
    panels = {f"ridge {ridge:.0e}": {} for ridge in runs.ridge}
    for (ridge, solver), run in runs.groupby(["ridge", "solver"], sort=False):
        panels[f"ridge {ridge:.0e}"][solver] = run["columns"], run.score
    return panels


def cost_table(operations: pd.DataFrame, seconds: pd.DataFrame) -> pd.DataFrame:
    """Return operations and seconds of each solver, also beside those of chol-1."""
    totals = {"operations [1e9]": operations.sum(axis=1) / 1e9}
    costs = pd.DataFrame(totals | {"seconds": seconds.sum(axis=1)})
    for quantity in list(costs):
        name = quantity.removesuffix(" [1e9]")
        costs[f"{name} / chol-1"] = costs[quantity] / costs.loc["chol-1", quantity]
    costs["GFLOP/s"] = costs["operations [1e9]"] / costs.seconds
    return costs


def growth_claims(initial: pd.Series, ends: pd.DataFrame, setting: str) -> list[Claim]:
    """Judge the start, the growth at each ridge, and which solvers agree.

    Parameters
    ----------
    initial : Series of accuracies at the start, by ridge, from small to large
    ends : DataFrame of accuracies, by ridge and step, a column for each solver
    setting : str
    """
    best, worst = initial.iloc[0], initial.iloc[-1]
    claim = "smaller ridge, better initial network: 98.30 at 1e-8, 93.64 at 1e-1"
    gap, found = best - worst - EQUAL, f"{best:.2f} and {worst:.2f} %"
    rows = [_judged(claim, found, setting, gap)]
    steps = ends.index.get_level_values("step")
    for ridge, runs in ends.groupby(level="ridge"):
        runs = runs.droplevel("ridge").reindex([0, steps.max()])
        first, end = runs["chol-1"]
        best, fallen = ends["orig"][ridge].max(), runs["orig"].iloc[1]
        claim = f"ridge {ridge:.0e}: ridge solvers rise, orig rises and falls"
        found = f"chol-1 {first:.1f} to {end:.1f} %; orig best {best:.1f}, "
        found += f"{fallen:.1f} at the end"
        numbers = [end - first, best - 1 - fallen, end - 1 - fallen]
        gap = math.nan if any(map(math.isnan, numbers)) else min(numbers)
        rows.append(_judged(claim, found, setting, gap))
    last = ends.xs(steps.max(), level="step")
    for one, other, claim, least in PAIRS:
        gaps = (last[one] - last[other]).abs()[last.index > 0.99 * least]
        most = gaps.max(skipna=False)
        found = f"last accuracies differ by {most:.2f} points at most"
        rows.append(_judged(claim, found, setting, EQUAL - most))
    return rows


def edge_claims(
    lost: pd.DataFrame, errors: Mapping[tuple[float, str], float], setting: str
) -> list[Claim]:
    """Judge what happens at tiny ridges, where pivots are lost.

    Parameters
    ----------
    lost : DataFrame, the rows of the runs that have ended
    errors : the error of the factor by (ridge, solver)
    setting : str
    """
    names = [f"{row.solver} at {row.ridge:.0e}" for row in lost.itertuples()]
    holds = "chol-1" in set(lost.solver) and "chol-2" not in set(lost.solver)
    said = YES if holds else NO
    claim = "at tiny ridges chol-1 ends (NA), chol-2 never"
    rows = [Claim(claim, f"ended: {'; '.join(names)}", setting, said)]
    one, two = (errors[1e-10, name] for name in ("chol-1", "chol-2"))
    claim = "chol-2 is numerically more stable than chol-1"
    found = f"|F'RF - I| where both finish, ridge 1e-10: {one:.1e} and {two:.1e}"
    but = "; its factor is not more accurate" if two > one / 3 else ""
    return [*rows, Claim(claim, found, setting, f"it does not break: {said}{but}")]


def cost_claims(
    costs: pd.DataFrame, samples: int, widths: Sequence[int]
) -> list[Claim]:
    """Return the published ratios of costs beside those of this machine."""
    setting, rows = f"{samples} samples, up to {widths[-1]} columns", []
    for name, count in COUNTS.items():
        row = costs.loc[name]
        claim = f"{name} / chol-1: {count} by operations, {CLOCK[name]} by seconds"
        found = f"{row['operations / chol-1']:.2f} by operations, "
        found += f"{row['seconds / chol-1']:.2f} by seconds"
        rows.append(Claim(claim, found, setting, "a clock, not a test"))
    return rows


def _judged(claim: str, found: str, setting: str, gap: float) -> Claim:
    """Return a claim that holds where ``gap`` is positive; nan decides nothing."""
    said = UNDECIDED if math.isnan(gap) else YES if gap > 0 else NO
    return Claim(claim, found, setting, said, gap, unit=f"{POINTS} to spare")
