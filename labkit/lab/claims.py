"""Claims and verdicts: what was said, what was measured, whether it holds."""

import math
from collections.abc import Iterable, Sequence

import pandas as pd

AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
YES, NO, UNDECIDED = "yes", "no", "not decided by this run"


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
    """A row of :func:`labkit.lab.race.spread` in words, such as ``97.1 ± 0.3 %``.

    One seed has no spread.
    """
    if math.isnan(row["mean"]):
        return "failed"
    sd = "" if math.isnan(row["sd"]) else f" ± {row['sd']:.{digits}f}"
    return f"{row['mean']:.{digits}f}{sd} {unit}".rstrip()


def claim_table(rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Claims beside what was measured: claim, measured here, setting, verdict."""
    columns = ["paper's claim", "measured here", "setting", "verdict"]
    return pd.DataFrame(rows, columns=columns)
