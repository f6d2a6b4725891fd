"""Broad learning at the paper's size: where Chol-1 ends, and the ridge inverses."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pandas as pd

from labkit.broad import SOLVERS, NotPositiveDefinite
from labkit.broad.state import DaggerState, FactorState
from labkit.lab.claims import NO, UNDECIDED, YES, plus_minus
from labkit.lab.race import spread
from labkit.lab.runs.jobs import Checkpoint
from reproduction.broad import (
    ACCURACY,
    MARGIN,
    NEAR,
    ROWS,
    SIXTH,
    UPDATES,
    accuracies,
    coded,
    drawn,
    draws_of,
    growth,
    images,
    near,
)
from reproduction.criteria import FEW, SEEDS, of_runs
from reproduction.drawing import Chart
from reproduction.studies import Study

DRAWS = SEEDS
STEP = 2010  # columns of an update
LAST = 25_170  # columns
AT_ONCE = "images at once"  # in the labels of runs whose sums are of other pieces
ENDS = {"chol-1 1e-08": 13_110, "chol-1 1e-07": 19_140}  # where Table II has NA first
CHOL_2 = {"chol-2 1e-08": (98.89, 0.059)}  # the last column of Table II, %


def sizes_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return where each draw ended, its accuracy there, and where it lost a pivot."""
    shown = {}
    for (label, seed), mine in rows.groupby(["label", "seed"], sort=False):
        lost = _lost(mine)
        done = mine if lost is None else mine[mine["columns"] < lost]
        shown[label, seed] = {
            "columns": done["columns"].max(),
            "accuracy": round(done.accuracy.iloc[-1], 2) if len(done) else None,
            "lost at": "" if lost is None else f"{lost:,}",
        }
    return pd.DataFrame(shown).T.rename_axis(["row", "draw"])


def _lost(mine: pd.DataFrame) -> int | None:
    """Return the number of columns at which a draw lost a pivot, or None."""
    if "lost" not in mine or mine.lost.isna().all():
        return None
    return int(mine[mine.lost.notna()]["columns"].iloc[0])


def lost_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge whether Chol-1 ends where the paper's did, and Chol-2 does not."""
    everywhere = {
        label: {seed: _lost(draw) for seed, draw in mine.groupby("seed")}
        for label, mine in rows.groupby("label", sort=False)
    }
    for label, mine in rows.groupby("label", sort=False):
        lost = list(everywhere[label].values())
        here = ", ".join("at none" if n is None else f"at {n:,}" for n in lost)
        if AT_ONCE in label:
            row = label.split(",")[0]
            same = [everywhere[row].get(seed, -1) for seed in everywhere[label]] == lost
            decided = YES if same else NO
            claim = f"ours: V-B, {label}: lost where it is with {ROWS:,} at once"
        elif label in ENDS:
            pieces = [draw for name, draw in everywhere.items() if label in name]
            ends = [n for draw in pieces for n in draw.values() if n is not None]
            close = [n for n in ends if abs(n - ENDS[label]) <= STEP]
            at = [n in close for n in lost]
            decided = YES if all(at) else UNDECIDED if close else NO
            claim = f"V-B, {label}: NA from {ENDS[label]:,} columns on"
        else:
            decided = YES if not any(lost) else NO
            claim = f"V-B, {label}: has no NA up to {LAST:,} columns"
        told = f"a pivot is lost {here} columns" if any(lost) else "no pivot is lost"
        yield claim, told, of_runs(decided, len(lost))
        if label in CHOL_2:
            said, sd = CHOL_2[label]
            ends = mine[mine["columns"] == LAST].dropna(subset="accuracy")
            if len(ends):
                told = plus_minus(spread(ends, "accuracy").iloc[0], digits=2)
                claim = f"V-B, {label}: {said:.2f} ± {sd:.2f} % at {LAST:,} columns"
                yield claim, f"{told}, {draws_of(ends)}", near(ends.accuracy, said, sd)


LOST = Study(
    name="broad/lost-pivots",
    shows="Table II, NA of rows Chol-1; row Chol-2 at ridge 1e-8",
    claim="V-B: at the two smallest ridges Chol-1 loses a pivot, Chol-2 does not",
    data="MNIST, 60,000 and 10,000 images",
    setting="as broad/growth; Chol-1 at ridges 1e-8 and 1e-7, Chol-2 at 1e-8, float64",
    differs="three draws of the nodes for the paper's 100; sums over the images, 2,000 "
    "at a time and once 20,000, whose rounding is not that of one product",
    work=growth,
    units={
        f"{solver}-{ridge:g}-{seed}": {"solver": solver, "ridge": ridge, "seed": seed}
        for solver, ridge in (("chol-1", 1e-8), ("chol-1", 1e-7), ("chol-2", 1e-8))
        for seed in range(DRAWS)
    }
    | {
        f"chol-1-1e-07-at-once-{seed}": {"solver": "chol-1", "ridge": 1e-7}
        | {"seed": seed, "at_once": 20_000}
        for seed in range(DRAWS)
    },
    small={
        "solver": "chol-2",
        "ridge": 1e-4,
        "seed": 0,
        "data": "digits",
        "updates": 2,
    },
    minutes=30,
    memory=8,
    table=sizes_of,
    claims=lost_claims,
    criterion="of an NA yes where every draw loses a pivot within one update of the "
    "paper's, no where none does so, in pieces of any size, whose rounding moves it, "
    "and undecided in between; of no NA yes where no draw loses one and no where any "
    "does; of larger pieces yes where every draw loses its pivot at the same columns; "
    f"{FEW}; of a number {NEAR}",
    views=(ACCURACY,),
)


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
    problem, checkpoint.every = images(data), 10 * checkpoint.every
    nodes, Z, widths = drawn(data, seed, updates, SIXTH)
    A, Y, rows = nodes.expand(Z), coded(problem), []
    kinds = FactorState, DaggerState
    saved = checkpoint.load(classes=kinds) or {"state": None, "rows": []}
    state, rows = saved["state"], saved["rows"]
    for k, grown in list(pairwise((0, *widths)))[len(rows) :]:
        row = {"label": f"{solver} {ridge:g}", "seed": seed, "columns": grown}
        try:
            if k:
                state = SOLVERS[solver].update(state, A[:, :k], A[:, k:grown], Y)
            else:
                state = SOLVERS[solver].start(A[:, :grown], Y, ridge)
        except NotPositiveDefinite as error:
            return [*rows, row | {"lost": str(error)}]
        rows.append(row | {"accuracy": accuracies(nodes, problem, [state.W])[0]})
        checkpoint.save({"state": state, "rows": rows})
    return rows


def by_size(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean accuracy by solver and number of columns."""
    wide = rows.pivot_table(index="label", columns="columns", values="accuracy")
    return wide.round(2).rename_axis("row")


def inverse_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge whether two solvers agree in every draw, and whether Orig falls."""
    wide = rows.pivot_table(
        index=["seed", "columns"], columns="label", values="accuracy"
    )
    for ridge in dict.fromkeys(label.split()[1] for label in wide):
        for one, other in (("orig", "exg-e"), ("r-inv", "chol-2")):
            names = [f"{one} {ridge}", f"{other} {ridge}"]
            if not set(names) <= set(wide):
                continue
            both = wide[names].dropna()
            apart = (both[names[0]] - both[names[1]]).abs().groupby("seed").max()
            decided = YES if (apart <= MARGIN).all() else NO
            claim = f"V-B, ridge {ridge}: {one} and {other} have the same accuracies"
            here = (
                f"they differ by {apart.max():.2f} points at most, {len(apart)} draws"
            )
            yield claim, here, of_runs(decided, len(apart))
        if f"orig {ridge}" in wide:
            mine = wide[f"orig {ridge}"].dropna().groupby("seed")
            fall = mine.max() - mine.last()
            fell = [fall > MARGIN, fall <= MARGIN]
            decided = YES if fell[0].all() else NO if fell[1].all() else UNDECIDED
            here = f"by {fall.min():.2f} to {fall.max():.2f} points"
            claim = f"V-B, ridge {ridge}: orig rises and then falls"
            yield claim, here, of_runs(decided, len(fall))


ALIKE = ("orig", "exg-e", "r-inv", "chol-2")
PAIRS = "exg-e drawn over orig, chol-2 over r-inv"  # their curves are the same
INVERSES = Study(
    name="broad/inverses",
    shows="Tables II and III, rows Orig and R-Inv",
    claim="V-B: Orig is Exg-E and falls; R-Inv is the ridge solution",
    data="MNIST, 60,000 and 10,000 images",
    setting="60 + 450 nodes, 11 updates of 10 + 115 + 210, to 4,195 columns, ridges "
    "1e-6 and 1e-4, float64",
    differs="a sixth of the columns: the inverse has a row for each and a column for "
    "every image, and cannot be made again from sums over the images (12 GB, and as "
    "much for the columns); three draws; Chol-2 stands for D-Rdg",
    work=inverses,
    units={
        f"{solver}-{ridge:g}-{seed}": {"solver": solver, "ridge": ridge, "seed": seed}
        for solver in ALIKE
        for ridge in (1e-6, 1e-4)
        for seed in range(DRAWS)
    },
    small={
        "solver": "orig",
        "ridge": 1e-4,
        "seed": 0,
        "data": "digits",
        "updates": 2,
    },
    minutes=2,
    memory=9,
    table=by_size,
    claims=inverse_claims,
    criterion="of two solvers yes where they are within 0.1 points at every size in "
    "every draw, else no; of a fall yes where every draw ends more than 0.1 points "
    f"below its maximum, no where none does, and undecided in between; {FEW}",
    views=tuple(
        Chart(
            view=replace(ACCURACY, title=f"Ridge {ridge:g}, {PAIRS}"),
            only=tuple(f"{solver} {ridge:g}" for solver in ALIKE),
            y_range=(88.0, 99.0),
        )
        for ridge in (1e-6, 1e-4)
    ),
)

STUDIES = (LOST, INVERSES)
