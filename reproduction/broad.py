"""Broad learning at the paper's size: Tables II and III.

Zhu's tables use 60,000 images of MNIST and 25,170 columns, which take 12 GB in
float64. Most studies here keep no column: they compute the columns again, for a few
images at a time, wherever they read them.
"""

import math
import time
from collections.abc import Iterable, Mapping
from functools import cache, partial
from itertools import pairwise

import pandas as pd
import torch
from torch import Tensor

from labkit.broad import SOLVERS, NotPositiveDefinite, Update
from labkit.broad.factor import add_product
from labkit.broad.greville import r_inv_69_update
from labkit.broad.nodes import Nodes, Preparation, Recipe, draw
from labkit.broad.ridge import with_ridge
from labkit.broad.triangular import lower_solve, lower_t_solve
from labkit.lab.claims import NO, UNDECIDED, YES
from labkit.lab.problem import Problem, load_problem
from labkit.lab.runs.jobs import Checkpoint
from reproduction import broad_streamed as streamed
from reproduction.criteria import SEEDS, ahead, inside, interval, of_runs, runs_of
from reproduction.judges import Judged, by_label, every, words

# the nodes at the start and of an update
WHOLE = (*6 * [Update(10)], Update(extra=3000)), Update(10, 750, 1250)
SIXTH = (*6 * [Update(10)], Update(extra=450)), Update(10, 115, 210)  # of all columns
DIGITS = (Update(5), Update(extra=40)), Update(3, 10, 20)
UPDATES = 11
RIDGES = tuple(10.0**-i for i in range(8, 0, -1))
ROWS = 2000  # images whose columns are in memory at once


@cache
def images(data: str) -> Problem:
    """Load a data set in float64."""
    return load_problem(data, dtype=torch.float64)


def coded(problem: Problem) -> Tensor:
    """Return the classes coded as -1 and +1, of shape (l, c)."""
    one_hot = torch.eye(problem.classes, dtype=torch.float64)[problem.fit.targets]
    return 2 * one_hot - 1


def drawn(
    data: str, seed: int, updates: int, sizes: tuple = WHOLE
) -> tuple[Nodes, Tensor, list[int]]:
    """Draw all nodes; return them, the training features and the columns by update.

    The nodes are those of a :class:`~labkit.broad.SharedColumns` with this seed, of
    ``sizes`` at the start and in each update, fewer for the digits.
    """
    X = images(data).fit.inputs
    start, update = DIGITS if data == "digits" else sizes
    nodes, Z, widths = Nodes(Preparation.fit("sample", X)), X[:, :0], []
    prepared = nodes.prepare(X)
    generator = torch.Generator().manual_seed(seed)
    for part in (start, *updates * [[update]]):
        for each in part:
            nodes, Z = draw(nodes, prepared, Z, each, Recipe(), generator)
        widths.append(nodes.columns)
    return nodes, Z, widths


def accuracies(nodes: Nodes, problem: Problem, weights: list[Tensor]) -> list[float]:
    """Return the test accuracy [%] of each W (k, c) that reads the first k columns."""
    right, test = torch.zeros(len(weights)), problem.test
    for x, y in zip(test.inputs.split(ROWS), test.targets.split(ROWS), strict=True):
        A = nodes.between(0, max(map(len, weights))).apply(x)
        for i, W in enumerate(weights):
            right[i] += ((A[:, : len(W)] @ W).argmax(1) == y).sum()
    return (100 * right / len(test.targets)).tolist()


# D-Rdg at all sizes


def first_column(
    checkpoint: Checkpoint, *, seeds: Iterable[int], data: str = "mnist"
) -> list[dict]:
    """Fit the first network by D-Rdg at all ridges, for each seed."""
    runs = (direct(checkpoint, seed=seed, data=data, updates=0) for seed in seeds)
    return [row for rows in runs for row in rows]


def direct(
    checkpoint: Checkpoint, *, seed: int, data: str = "mnist", updates: int = UPDATES
) -> list[dict]:
    """Fit by D-Rdg at all ridges and sizes, with one Cholesky factor for each ridge.

    There is one Gram matrix for each seed. It is factorised in its own memory and read
    again for the next ridge.
    """
    problem, gram, done = images(data), f"gram-{seed}", f"rows-{seed}"
    nodes, Z, widths = drawn(data, seed, updates)
    if checkpoint.load(gram) is None:
        checkpoint.save(sums(nodes, Z, coded(problem)), gram, now=True)
    rows = (checkpoint.load(done) or {"rows": []})["rows"]
    for ridge in RIDGES[len(rows) // len(widths) :]:
        found = solutions(checkpoint.load(gram), ridge, widths)
        scores = accuracies(nodes, problem, found)
        label = f"ridge {ridge:g}"
        rows += [
            {"label": label, "seed": seed, "columns": width, "accuracy": score}
            for width, score in zip(widths, scores, strict=True)
        ]
        checkpoint.save({"rows": rows}, done, now=True)
    return rows


def sums(nodes: Nodes, Z: Tensor, Y: Tensor) -> dict[str, Tensor]:
    """Return the upper triangle of A^T A, and A^T Y."""
    k = nodes.columns
    R, AY = Y.new_zeros(k, k), Y.new_zeros(k, Y.shape[1])
    for z, y in zip(Z.split(ROWS), Y.split(ROWS), strict=True):
        A = nodes.expand(z)
        add_product(R, A, A)
        AY += A.T @ y
    return {"R": R, "AY": AY}


def solutions(
    sums: Mapping[str, Tensor], ridge: float, widths: Iterable[int]
) -> list[Tensor]:
    """Return W (k, c) of the first k columns for each width k; R is overwritten.

    The Cholesky factor of fewer columns is the leading block of that of all of them.
    """
    L = with_ridge(sums["R"], ridge).T
    torch.linalg.cholesky(L, out=L)
    z = lower_solve(L, sums["AY"])
    return [lower_t_solve(L[:k, :k], z[:k]).clone() for k in widths]


# Growth to all columns


class Spent:
    """Add up the processor's seconds that this process spends in ``with`` blocks."""

    seconds = 0.0

    def __enter__(self):
        self._began = time.process_time()

    def __exit__(self, *_):
        self.seconds += time.process_time() - self._began


def growth(
    checkpoint: Checkpoint,
    *,
    solver: str,
    ridge: float,
    seed: int,
    data: str = "mnist",
    updates: int = UPDATES,
    at_once: int = ROWS,
) -> list[dict]:
    """Grow by Chol-1, Chol-2 or Exg-E to all columns, and keep none of them.

    The sums over the images are made of those of ``at_once`` images each.
    """
    problem, checkpoint.every = images(data), 10 * checkpoint.every
    nodes, Z, widths = drawn(data, seed, updates)
    Y = coded(problem)
    label = f"{solver} {ridge:g}"
    label += f", {at_once:,} images at once" if at_once != ROWS else ""
    saved = checkpoint.load(classes=(streamed.Streamed,)) or {"state": None, "rows": []}
    state, rows = saved["state"], saved["rows"]
    for k, grown in list(pairwise((0, *widths)))[len(rows) :]:
        row = {"label": label, "seed": seed, "columns": grown}
        making, whole = Spent(), Spent()
        columns = nodes.between(0, grown)
        passes = partial(streamed.chunks, columns, k, Z, Y, at_once, making)
        try:
            with whole:
                if k:
                    state = streamed.UPDATES[solver](state, passes)
                else:
                    state = streamed.start(passes(), ridge, widths[-1])
        except NotPositiveDefinite as error:
            return [*rows, row | {"lost": str(error)}]
        row["accuracy"] = accuracies(nodes, problem, [state.W])[0]
        row["seconds_cpu"] = whole.seconds - making.seconds
        rows.append(row)
        checkpoint.save({"state": state, "rows": rows})
    return rows


# What stands on the page

MARGIN = 0.1  # points that unpublished details of the recipe may change
RUNS = 100  # draws in the paper


def with_paper(rows: pd.DataFrame, printed: Mapping[str, list[float]]) -> pd.DataFrame:
    """Return the mean accuracy by row and columns, the paper's row above ours."""
    accuracy = rows.pivot_table("accuracy", "label", "columns", sort=False)
    shown = {}
    for label, means in accuracy.iterrows():
        if label in printed:
            shown[label, "paper"] = printed[label][: len(means)]
        shown[label, "here"] = means.tolist()
    table = pd.DataFrame(shown, index=accuracy.columns).T.round(2)
    return table.rename_axis(["row", "of"]).rename_axis(None, axis="columns")


def agrees(accuracy: pd.Series, number: float, sd: float) -> str:
    """Return whether our mean is the paper's mean of 100 draws, within `MARGIN`.

    It is undecided where the 95 % interval of their difference has both answers.
    """
    gap, count = accuracy.mean() - number, runs_of(accuracy)
    if count < SEEDS:
        return of_runs(YES if abs(gap) <= MARGIN else NO, count)
    ours, theirs = accuracy.var() / count, sd**2 / RUNS
    parts = ours**2 / (count - 1) + theirs**2 / (RUNS - 1)
    freedom = (ours + theirs) ** 2 / parts  # Welch's
    return inside(interval(gap, math.sqrt(ours + theirs), freedom), MARGIN)


def near(
    rows: pd.DataFrame,
    *,
    claim: str,
    columns: int,
    numbers: Mapping[str, tuple[float, float]],
) -> Judged:
    """Judge whether accuracies with so many columns are the paper's mean and sd."""
    ends = rows[rows["columns"] == columns].dropna(subset="accuracy")
    for label, accuracy in by_label(ends, "accuracy").items():
        if label in numbers:
            number, sd = numbers[label]
            named = claim.format(label=label, number=number, sd=sd)
            measured = f"{words(accuracy)}, {len(accuracy)} draws"
            yield named, measured, agrees(accuracy, number, sd)


def rises(
    rows: pd.DataFrame, *, claim: str, solver: str = "", higher: bool = True
) -> Judged:
    """Judge whether accuracy at the end is above that at the start, or below it."""
    ends = by_label(rows, "accuracy")
    for label, first in by_label(rows, "accuracy", "first").items():
        if label.startswith(solver):
            last = ends[label]
            measured = f"from {words(first)} to {words(last)}, {len(last)} draws"
            held = ahead(last, first, higher=higher, paired=True, least=MARGIN)
            yield claim.format(label=label), measured, held


def highest(rows: pd.DataFrame, *, claim: str, number: float, sd: float) -> Judged:
    """Judge whether the highest mean of all sizes and ridges is the paper's."""
    runs = dict(list(rows.groupby(["label", "columns"])["accuracy"]))
    label, columns = max(runs, key=lambda each: runs[each].mean())
    best = runs[label, columns]
    yield claim, f"{words(best)} at {label}", agrees(best, number, sd)


def faster(rows: pd.DataFrame, *, claim: str, a: str, b: str, least: float) -> Judged:
    """Judge whether b takes so many times the seconds of a to all columns."""
    spent = rows.pivot_table("seconds_cpu", "columns", "label").reindex(columns=[a, b])
    if spent.notna().all(axis=None) and len(spent) == UPDATES + 1:
        ratio = spent[b].sum() / spent[a].sum()
        draws = rows[rows["label"].isin((a, b))].groupby("label")["seed"].nunique()
        held = of_runs(YES if ratio >= least else NO, draws.min())
        yield claim, f"{ratio:.2f} times", held


# Where a solver loses a pivot

STEP = 2010  # columns of an update


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
        Within an update of which it is lost, in pieces of any size whose rounding moves
        it; 0 if none is lost
    as_in : str, the label whose draws lose it at the same columns
    """
    ends = rows.reindex(columns=["label", "seed", "columns", "lost"])
    ends["lost"] = ends["columns"].where(ends["lost"].notna(), 0)
    lost = by_label(ends, "lost", "max")
    if not {label, as_in or label} <= lost.keys():
        return
    here = lost[label]
    if as_in:
        held = YES if (here == lost[as_in].reindex(here.index)).all() else NO
    elif columns:
        ends = pd.concat(draws for name, draws in lost.items() if label in name)
        close = ends[(ends - columns).abs() <= STEP]
        held = UNDECIDED if len(close) else NO
        held = YES if here.isin(close).all() else held
    else:
        held = NO if here.any() else YES
    at = ", ".join(f"at {count:,}" if count else "at none" for count in here)
    measured = f"a pivot is lost {at} columns" if here.any() else "no pivot is lost"
    yield claim, measured, of_runs(held, len(here))


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
    problem, state, rows = images(data), None, []
    nodes, Z, widths = drawn(data, seed, updates, SIXTH)
    A, Y = nodes.expand(Z), coded(problem)
    start, update, _ = SOLVERS[solver.removesuffix("-69")]
    if solver == "r-inv-69":
        update = r_inv_69_update
    for k, grown in pairwise((0, *widths)):
        row = {"label": f"{solver} {ridge:g}", "seed": seed, "columns": grown}
        try:
            if k:
                state = update(state, A[:, :k], A[:, k:grown], Y)
            else:
                state = start(A[:, :grown], Y, ridge)
        except NotPositiveDefinite as error:
            return [*rows, row | {"lost": str(error)}]
        rows.append(row | {"accuracy": accuracies(nodes, problem, [state.W])[0]})
    return rows


def alike(rows: pd.DataFrame, *, claim: str, a: str, b: str) -> Judged:
    """Judge whether two solvers have the same accuracies in every draw."""
    wide = rows.pivot_table("accuracy", ["seed", "columns"], "label")
    both = wide.reindex(columns=[a, b]).dropna()
    if len(both):
        apart = (both[a] - both[b]).abs().groupby("seed").max()
        held = of_runs(YES if (apart <= MARGIN).all() else NO, len(apart))
        found = f"they differ by {apart.max():.2f} points at most, {len(apart)} draws"
        yield claim, found, held


def falls(rows: pd.DataFrame, *, claim: str, label: str) -> Judged:
    """Judge whether the accuracy of each draw ends below its maximum."""
    rows = rows.dropna(subset="accuracy")
    ends, tops = (by_label(rows, "accuracy", at).get(label) for at in ("last", "max"))
    if ends is not None:
        fall = tops - ends
        measured = f"by {fall.min():.2f} to {fall.max():.2f} points"
        yield claim, measured, every(fall > MARGIN)
