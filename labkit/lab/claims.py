"""Claims and verdicts: what a paper says, what was measured, whether it holds."""

import html
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

    from labkit.lab.panels.figures.shown import Page

YES = "yes"
NO = "no"
UNDECIDED = "not decided by this run"
# both by `labkit reproduce pages`
RECORDED = Path(__file__).with_name("claims.csv")
RACE = Path(__file__).with_name("race.html")


def plus_minus(
    row: Mapping[str, float] | pd.Series, unit: str = "%", digits: int = 1
) -> str:
    """Write mean and sd, as :func:`labkit.lab.race.spread` has: ``97.1 ± 0.3 %``.

    One seed has no spread, and then none is written.
    """
    if math.isnan(row["mean"]):
        return "failed"
    sd = "" if math.isnan(row["sd"]) else f" ± {row['sd']:.{digits}f}"
    return f"{row['mean']:.{digits}f}{sd} {unit}".rstrip()


def folded(table: "pd.DataFrame | Styler", summary: str) -> "Page":
    """Return a table that a click on its summary opens."""
    from labkit.lab.panels.figures.shown import Page

    head = f"<summary>{html.escape(summary)}</summary>"
    return Page(f"<details>{head}{table.to_html()}</details>", summary)


def show_race() -> None:
    """Display how the race of notebook 06 ended at full size, as it was recorded."""
    from IPython.display import display

    from labkit.lab.panels.figures.shown import Page

    words = "The race at full size is shown in pages and notebooks."
    display(Page(RACE.read_text("utf-8"), words))


def recorded(paper: str) -> pd.DataFrame:
    """Return the table of a paper's claims that its page of results begins with.

    It lies beside this module, ``claims.csv``. In a clone the command
    ``labkit reproduce pages`` writes it from the results of all runs.

    Parameters
    ----------
    paper : str, ``rls``, ``bpls``, ``hessian_free``, ``broad``, ``rtrl``, ``compare``

    Returns
    -------
    pandas.DataFrame
        A row for each claim: the number that the paper prints, ours with its standard
        deviation, the runs, their size, the verdict, the studies whose rows decide it,
        and what a decision would cost where it is open. The claims about the race are
        ours.

    Raises
    ------
    ValueError : if no claims of a paper of this name are recorded
    """
    table = pd.read_csv(RECORDED, keep_default_na=False, dtype=str)
    rows = table[table["paper"] == paper].drop(columns="paper")
    if rows.empty:
        known = ", ".join(table["paper"].unique())
        raise ValueError(f"no claims of {paper!r} are recorded; there are {known}")
    return rows.reset_index(drop=True)
