"""Claims and verdicts: what a paper says, what was measured, whether it holds."""

import html
import json
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from labkit.check import (
    NUMBER,
    YES_OR_NO,
    Range,
    check_kind,
    check_options,
    integer,
    number,
)

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

    from labkit.lab.panels.figures.captions import Figure
    from labkit.lab.panels.figures.shown import Page

AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
YES, NO, UNDECIDED = "yes", "no", "not decided by this run"
WORDS = "another verdict"  # in the legend of dots; its words stand at the dot
LEAST = 560  # pixels of a figure of claims: a narrower page is scrolled
# all by `labkit reproduce pages`
RECORDED = Path(__file__).with_name("claims.csv")
SUMMARIES = Path(__file__).with_name("summaries.json")
RACE = Path(__file__).with_name("race.html")


Row = Mapping[str, float] | pd.Series  # with ``mean`` and ``sd``
ROW = Range(
    "a mapping or Series with the numbers mean and sd",
    lambda row: (
        isinstance(row, Mapping | pd.Series)
        and NUMBER.holds(row.get("mean"))
        and NUMBER.holds(row.get("sd"))
    ),
)
GAP = number(">= 0, or nan", lambda v: not v < 0)
TABLE = {"a": ROW, "b": ROW, "higher": YES_OR_NO, "least": GAP}


class Claim(NamedTuple):
    """What a paper says, what was measured of it, and what that comes to.

    ``gap`` is how far the claim holds, in ``unit``; it is negative where the opposite
    was measured, and nan where no number says it. ``spread`` is its error: both
    standard deviations together, and nan where nothing was repeated.
    """

    claim: str
    found: str
    setting: str
    verdict: str
    gap: float = math.nan
    spread: float = math.nan
    unit: str = "points"


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
    check_options({"a": a, "b": b, "higher": higher, "least": least}, TABLE)
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
    said = compared(a, b, higher=higher, least=least)
    if math.isnan(a["mean"] + b["mean"]):
        return UNDECIDED
    return {AHEAD: YES, LEVEL: UNDECIDED, BEHIND: NO}[said]


def duel(
    claim: str,
    a: Row,
    b: Row,
    names: tuple[str, str],
    setting: str,
    *,
    higher: bool = True,
    least: float = 0.0,
    unit: str = "points",
    digits: int = 1,
) -> Claim:
    """Return the claim that a is better than b, judged.

    Parameters
    ----------
    claim : str
    a, b : mapping or Series with ``mean`` and ``sd``
    names : (str, str), what a and b are
    setting : str, on what they were measured
    higher, least : see :func:`compared`
    unit : str, of the gap between the means
    digits : int, decimals in which the means are written
    """
    said = verdict(a, b, higher=higher, least=least)
    check_kind("names", names, tuple | list, "two names")
    if len(names) != 2:
        raise ValueError(f"names must be two, of a and of b, got {names!r}")
    rows = zip(names, (a, b), strict=True)
    both = (f"{name} {plus_minus(row, '', digits)}" for name, row in rows)
    gap = a["mean"] - b["mean"] if higher else b["mean"] - a["mean"]
    return Claim(claim, ", ".join(both), setting, said, gap, a["sd"] + b["sd"], unit)


def plus_minus(row: Row, unit: str = "%", digits: int = 1) -> str:
    """Write a row of :func:`labkit.lab.race.spread`, such as ``97.1 ± 0.3 %``.

    One seed has no spread, and then none is written.
    """
    check_options(
        {"row": row, "digits": digits}, {"row": ROW, "digits": integer(0, 99)}
    )
    if math.isnan(row["mean"]):
        return "failed"
    sd = "" if math.isnan(row["sd"]) else f" ± {row['sd']:.{digits}f}"
    return f"{row['mean']:.{digits}f}{sd} {unit}".rstrip()


def claim_table(rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Return a table of rows (claim, measured here, setting, verdict)."""
    columns = ["paper's claim", "measured here", "setting", "verdict"]
    check_kind("rows", rows, (list, tuple, Iterator), "rows of four columns")
    rows = [*rows]
    for row in rows:
        if not isinstance(row, tuple | list) or len(row) < 4:
            raise ValueError(f"a row must be {', '.join(columns)}; got {row!r}")
    return pd.DataFrame([row[:4] for row in rows], columns=columns)


def folded(table: "pd.DataFrame | Styler", summary: str) -> "Page":
    """Return a table that a click on its summary opens."""
    from pandas.io.formats.style import Styler

    from labkit.lab.panels.figures.shown import Page

    kinds = pd.DataFrame, Styler
    check_kind("table", table, kinds, "a pandas DataFrame or Styler")
    check_kind("summary", summary, str, "a str")
    head = f"<summary>{html.escape(summary)}</summary>"
    return Page(f"<details>{head}{table.to_html()}</details>", summary)


def _check_claims(claims: object, caption: object) -> None:
    check_kind("claims", claims, (list, tuple), "a list of claims; see duel")
    for each in claims:
        check_kind("a claim", each, Claim, "a Claim; see duel")
    check_kind("caption", caption, str, "a str")


def show_claims(claims: Sequence[Claim], caption: str = "") -> None:
    """Display claims as dots with error bars; a click shows the table of all numbers.

    A claim without a number is in the table alone.
    """
    from IPython.display import display

    _check_claims(claims, caption)
    if any(math.isfinite(claim.gap) for claim in claims):
        display(claim_figure(claims, caption))
    display(folded(claim_table(claims).style, "All claims, with their numbers"))


def claim_figure(claims: Sequence[Claim], caption: str = "") -> "Figure":
    """Draw how far each claim holds, with its error, in a panel for each unit.

    Right of zero is what the paper says. A bar that does not reach zero decides.
    """
    from labkit.lab.panels.figures.captions import describe, panel_text
    from labkit.lab.panels.figures.drawing import corner, on_axes, suffix
    from labkit.lab.panels.figures.theme import layout

    _check_claims(claims, caption)
    rows = [claim for claim in claims if math.isfinite(claim.gap)]
    drawn = pd.DataFrame(rows, columns=Claim._fields)
    units = {unit: mine for unit, mine in drawn.groupby("unit", sort=False)}
    total = len(drawn) + 2 * len(units)  # lines; two below each panel are its axis
    figure, data, top = layout(width=960, height=40 * total + 60), [], 0
    for i, (unit, mine) in enumerate(units.items()):
        data += [trace | on_axes(i) for trace in _dots(mine)]
        figure[f"xaxis{suffix(i)}"] = {
            "title": {"text": _wrapped(f"how far the claim holds, in {unit}")},
            "anchor": f"y{suffix(i)}",
            "zeroline": True,
            "rangemode": "tozero",
        }
        figure[f"yaxis{suffix(i)}"] = {
            "domain": [1 - (top + len(mine)) / (total - 2), 1 - top / (total - 2)],
            "categoryarray": [_wrapped(claim) for claim in mine["claim"]][::-1],
            "categoryorder": "array",
            "range": [-0.6, len(mine) - 0.4],
            "showline": False,
            "ticks": "",
            "anchor": f"x{suffix(i)}",
        }
        top += len(mine) + 2
    shown = set()  # each verdict is in the legend once
    for trace in data:
        trace["showlegend"] = trace["name"] not in shown
        shown.add(trace["name"])
    figure["legend"] = {"orientation": "h", **corner(0, 1)}
    words = [panel_text("Claims", f"gap in {unit}", "") for unit in units]
    made = describe({"data": data, "layout": figure}, caption, words)
    made["layout"]["meta"]["least"] = LEAST
    return made


def _dots(claims: pd.DataFrame) -> Iterator[dict]:
    """Yield the dots of claims in one unit, a trace for each verdict."""
    from labkit.lab.panels.figures.theme import BUTTON, COLOURS

    looks = {YES: (COLOURS[2], "circle"), NO: (COLOURS[1], "x")}
    kinds = claims["verdict"].where(claims["verdict"].isin([YES, NO, UNDECIDED]), WORDS)
    for said, group in claims.groupby(kinds, sort=False):
        colour, symbol = looks.get(said, (BUTTON, "circle-open"))
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": said,
            "legendgroup": said,
            "x": list(group["gap"]),
            "y": [_wrapped(claim) for claim in group["claim"]],
            "error_x": {"type": "data", "array": list(group["spread"].fillna(0))},
            "marker": {"color": colour, "symbol": symbol, "size": 9},
            "cliponaxis": False,
            "text": [
                f"{row.found}<br>{row.setting}<br><b>{row.verdict}</b>"
                for row in group.itertuples()
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }


def _wrapped(text: str) -> str:
    """A claim in lines of a tick's label."""
    return "<br>".join(textwrap.wrap(text, 52))


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

    check_kind("paper", paper, str, "the name of a paper")
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
    check_kind("paper", paper, str, "the name of a paper")
    table = pd.read_csv(RECORDED, keep_default_na=False, dtype=str)
    mine = table[table["paper"] == paper].drop(columns="paper")
    if mine.empty:
        known = ", ".join(table["paper"].unique())
        raise ValueError(f"no claims of {paper!r} are recorded; there are {known}")
    return mine.reset_index(drop=True)
