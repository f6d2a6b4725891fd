"""Broad learning at the paper's size: where Chol-1 ends, and the ridge inverses."""

import pandas as pd
from torch import Tensor

from labkit.broad import side_by_side
from labkit.lab.claims import NO, UNDECIDED, YES
from labkit.lab.runs.jobs import Checkpoint
from reproduction.broad import (
    MARGIN,
    SIXTH,
    UPDATES,
    accuracies,
    coded,
    drawn,
    images,
)
from reproduction.criteria import of_runs
from reproduction.judges import Judged, by_label, every

STEP = 2010  # columns of an update


def sizes_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return where each draw ended, its accuracy there, and where it lost a pivot."""
    done = rows.dropna(subset="accuracy").groupby(["label", "seed"], sort=False)
    table, lost = done[["columns", "accuracy"]].last().round(2), lost_at(rows)
    ends = [lost[label][seed] for label, seed in table.index]
    table["lost at"] = [f"{end:,}" if end else "" for end in ends]
    return table.rename_axis(["row", "draw"])


def lost_at(rows: pd.DataFrame) -> dict[str, dict[int, int | None]]:
    """Return the columns at which each draw of a label lost a pivot, or None."""
    found = {}
    for (label, seed), draw in rows.groupby(["label", "seed"], sort=False):
        gone = draw["columns"][draw.get("lost", draw["accuracy"]).notna()]
        found.setdefault(label, {})[seed] = None
        if "lost" in draw and len(gone):
            found[label][seed] = int(gone.iloc[0])
    return found


def pivots(
    rows: pd.DataFrame,
    *,
    claim: str,
    label: str,
    columns: int = 0,
    as_in: str = "",
) -> Judged:
    """Judge where the draws of a label lose a pivot.

    Parameters
    ----------
    columns : int
        Of the paper, near which it is lost, in pieces of any size whose rounding moves
        it; 0 if none is lost
    as_in : str, the label whose draws lose it at the same columns
    """
    lost = lost_at(rows)
    here = [*lost.get(label, {}).values()]
    if as_in:
        same = [lost.get(as_in, {}).get(seed, -1) for seed in lost.get(label, {})]
        held = YES if same == here else NO
    elif columns:
        ends = (
            n for name, draws in lost.items() if label in name for n in draws.values()
        )
        close = {n for n in ends if n and abs(n - columns) <= STEP}
        held = YES if close.issuperset(here) else UNDECIDED if close else NO
    else:
        held = NO if any(here) else YES
    at = ", ".join(f"at {n:,}" if n else "at none" for n in here)
    told = f"a pivot is lost {at} columns" if any(here) else "no pivot is lost"
    if here:
        yield claim, told, of_runs(held, len(here))


# Orig and R-Inv, whose state has a column for every image


def inverses(
    checkpoint: Checkpoint,
    *,
    solver: str,
    ridge: float,
    seed: int,
    data: str = "mnist",
    updates: int = UPDATES,
) -> list[dict]:
    """Grow a network of a sixth of the columns by one solver, all of them in memory."""
    problem = images(data)
    nodes, Z, widths = drawn(data, seed, updates, SIXTH)

    def score(W: Tensor) -> float:
        return accuracies(nodes, problem, [W])[0]

    rows = []
    for (record,) in side_by_side(
        nodes.expand(Z), widths, coded(problem), ridge, [solver], score=score
    ):
        row = {"label": f"{solver} {ridge:g}", "seed": seed, "columns": record.columns}
        row |= {"lost": str(record.lost)} if record.lost else {"accuracy": record.score}
        rows.append(row)
    return rows


def by_size(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean accuracy by solver and number of columns."""
    wide = rows.pivot_table(index="label", columns="columns", values="accuracy")
    return wide.round(2).rename_axis("row")


def alike(rows: pd.DataFrame, *, claim: str, a: str, b: str) -> Judged:
    """Judge whether two solvers have the same accuracies in every draw."""
    wide = rows.pivot_table("accuracy", ["seed", "columns"], "label")
    both = wide.reindex(columns=[a, b]).dropna()
    if len(both):
        apart = (both[a] - both[b]).abs().groupby("seed").max()
        held = of_runs(YES if (apart <= MARGIN).all() else NO, len(apart))
        told = f"they differ by {apart.max():.2f} points at most, {len(apart)} draws"
        yield claim, told, held


def falls(rows: pd.DataFrame, *, claim: str, label: str) -> Judged:
    """Judge whether the accuracy of each draw ends below its maximum."""
    rows = rows.dropna(subset="accuracy")
    ends, tops = (by_label(rows, "accuracy", at).get(label) for at in ("last", "max"))
    if ends is not None:
        fall = tops - ends
        told = f"by {fall.min():.2f} to {fall.max():.2f} points"
        yield claim, told, every(fall > MARGIN)
