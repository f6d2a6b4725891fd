"""Claims and verdicts: what a paper says, what was measured, whether it holds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
YES, NO, UNDECIDED = "yes", "no", "not decided by this run"
RECORDED = Path(__file__).with_name("claims.csv")  # by `labkit reproduce pages`


Row = Mapping[str, float] | pd.Series  # with ``mean`` and ``sd``


def compared(a: Row, b: Row, *, higher: bool = True, least: float = 0.0) -> str:
    """Say whether a is ahead of b, level with it or behind it.

    Two rows are level unless their means differ by more than both spreads together,
    and by more than ``least``. A mean of nan, a failure, is behind any other.

    Parameters
    ----------
    a, b : mapping or Series with ``mean`` and ``sd``
    higher : bool, whether a higher mean is better
    least : float >= 0, the gap that decides nothing, whatever the spreads
    """
    gap = a["mean"] - b["mean"] if higher else b["mean"] - a["mean"]
    if math.isnan(gap):
        return BEHIND if math.isnan(a["mean"]) else AHEAD
    both = a["sd"] + b["sd"]  # nan of a single seed, which decides nothing
    if math.isnan(both) or abs(gap) <= max(both, least):
        return LEVEL
    return AHEAD if gap > 0 else BEHIND


def verdict(a: Row, b: Row, *, higher: bool = True, least: float = 0.0) -> str:
    """Say whether "a is better than b" holds: yes, no, or not decided.

    The parameters are those of :func:`compared`. A failure decides nothing.
    """
    if math.isnan(a["mean"] + b["mean"]):
        return UNDECIDED
    return {AHEAD: YES, LEVEL: UNDECIDED, BEHIND: NO}[
        compared(a, b, higher=higher, least=least)
    ]


def plus_minus(row: Row, unit: str = "%", digits: int = 1) -> str:
    """Write a row of :func:`labkit.lab.race.spread`, such as ``97.1 ± 0.3 %``.

    One seed has no spread, and then none is written.
    """
    if math.isnan(row["mean"]):
        return "failed"
    sd = "" if math.isnan(row["sd"]) else f" ± {row['sd']:.{digits}f}"
    return f"{row['mean']:.{digits}f}{sd} {unit}".rstrip()


def claim_table(rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Return a table of rows (claim, measured here, setting, verdict)."""
    columns = ["paper's claim", "measured here", "setting", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def recorded(paper: str) -> pd.DataFrame:
    """Return the claims of a paper with what is recorded of each at the paper's size.

    The table lies beside this module, ``claims.csv``. In a clone the command
    ``labkit reproduce pages`` writes it from the results of all runs.

    Parameters
    ----------
    paper : str, ``rls``, ``bpls``, ``hessian_free``, ``broad`` or ``rtrl``

    Returns
    -------
    pandas.DataFrame
        A row for each claim: what the paper says, what was recorded, data and scale,
        the verdict, and the command that computes it again.

    Raises
    ------
    ValueError : if no claims of a paper of this name are recorded
    """
    table = pd.read_csv(RECORDED, keep_default_na=False, dtype=str)
    mine = table[table["paper"] == paper].drop(columns="paper")
    if mine.empty:
        known = ", ".join(table["paper"].unique())
        raise ValueError(f"no claims of {paper!r} are recorded; there are {known}")
    return mine.reset_index(drop=True)
