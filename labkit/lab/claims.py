"""Claims and verdicts: what a paper says, what was measured, whether it holds."""

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

    from labkit.lab.panels.figures.shown import Page

YES, NO, UNDECIDED = "yes", "no", "not decided by this run"
# all by `labkit reproduce pages`
RECORDED = Path(__file__).with_name("claims.csv")
SUMMARIES = Path(__file__).with_name("summaries.json")
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


def claim_table(rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Return a table of rows (claim, measured here, setting, verdict)."""
    columns = ["paper's claim", "measured here", "setting", "verdict"]
    rows = [*rows]
    for row in rows:
        if not isinstance(row, tuple | list) or len(row) < 4:
            raise ValueError(f"a row must be {', '.join(columns)}; got {row!r}")
    return pd.DataFrame([row[:4] for row in rows], columns=columns)


def folded(table: "pd.DataFrame | Styler", summary: str) -> "Page":
    """Return a table that a click on its summary opens."""
    from labkit.lab.panels.figures.shown import Page

    head = f"<summary>{html.escape(summary)}</summary>"
    return Page(f"<details>{head}{table.to_html()}</details>", summary)


def show_summary(paper: str) -> None:
    """Display which claims of a paper stand, at which size, which do not, and why.

    The paragraph is the one at the head of the paper's page of results; that of
    ``compare`` says which rule is ahead of Adam at full size.

    Parameters
    ----------
    paper : str, ``rls``, ``bpls``, ``hessian_free``, ``broad``, ``rtrl``, ``compare``

    Raises
    ------
    ValueError : if there is no paragraph on a paper of this name
    """
    from IPython.display import Markdown, display

    told = json.loads(SUMMARIES.read_text("utf-8"))
    if not told.get(paper):
        known = ", ".join(name for name, text in told.items() if text)
        raise ValueError(f"there is no summary of {paper!r}; there are {known}")
    display(Markdown(told[paper]))


def show_race() -> None:
    """Display how the race of notebook 06 ended at full size, as it was recorded."""
    from IPython.display import display

    from labkit.lab.panels.figures.shown import Page

    told = "The race at full size is shown in pages and notebooks."
    display(Page(RACE.read_text("utf-8"), told))


def recorded(paper: str) -> pd.DataFrame:
    """Return the claims of a paper with what is recorded of each at the paper's size.

    The table lies beside this module, ``claims.csv``. In a clone the command
    ``labkit reproduce pages`` writes it from the results of all runs.

    Parameters
    ----------
    paper : str, ``rls``, ``bpls``, ``hessian_free``, ``broad``, ``rtrl``, ``compare``

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
