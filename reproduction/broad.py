"""Broad learning at the paper's size: Tables II and III, and their first column.

Zhu's tables use 60,000 images of MNIST and 25,170 columns, which take 12 GB in
float64. Most studies here keep no column: they compute the columns again, for a few
images at a time, wherever they read them.
"""

import math
import time
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise

import pandas as pd
import torch
from torch import Tensor

from labkit.broad import NotPositiveDefinite, SharedColumns, Update
from labkit.broad.factor import add_product
from labkit.broad.nodes import Nodes, Preparation, Recipe, draw
from labkit.broad.ridge import with_ridge
from labkit.broad.solvers import start_operations, update_operations
from labkit.broad.triangular import gram, lower_solve, lower_t_solve, mm
from labkit.lab.claims import NO, YES
from labkit.lab.problem import Problem, load_problem
from labkit.lab.runs.jobs import Checkpoint
from reproduction import broad_streamed as streamed
from reproduction.criteria import SEEDS, ahead, inside, of_runs, runs_of
from reproduction.judges import Judged, by_label, words

START = (*6 * [Update(10)], Update(extra=3000))
UPDATE = Update(10, 750, 1250)
SIXTH = (*6 * [Update(10)], Update(extra=450)), Update(10, 115, 210)  # of all columns
SMALL_START, SMALL_UPDATE = (Update(5), Update(extra=40)), Update(3, 10, 20)
UPDATES = 11
RIDGES = tuple(10.0**-i for i in range(8, 0, -1))
ROWS = 2000  # images whose columns are in memory at once


@cache
def images(data: str) -> Problem:
    """Load a data set in float64."""
    return load_problem(data, dtype=torch.float64)


def coded(problem: Problem) -> Tensor:
    """Return the classes coded as -1 and +1, of shape (l, c)."""
    one_hot = torch.nn.functional.one_hot(problem.fit.targets, problem.classes)
    return 2 * one_hot.double() - 1


def drawn(
    data: str, seed: int, updates: int, sizes: tuple = (START, UPDATE)
) -> tuple[Nodes, Tensor, list[int]]:
    """Draw all nodes; return them, the training features and the columns by update.

    The nodes are those of a :class:`~labkit.broad.SharedColumns` with this seed, of
    ``sizes`` at the start and in each update, fewer for the digits.
    """
    X, small = images(data).fit.inputs, data == "digits"
    start, update = (SMALL_START, SMALL_UPDATE) if small else sizes
    nodes, Z, widths = Nodes(Preparation.fit("sample", X)), X[:, :0], []
    prepared = nodes.prepare(X)
    g = torch.Generator().manual_seed(seed)
    for part in (start, *updates * [[update]]):
        for each in part:
            nodes, Z = draw(nodes, prepared, Z, each, Recipe(), g)
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


# The first column


def first_column(
    checkpoint: Checkpoint, *, seeds: Iterable[int], data: str = "mnist"
) -> list[dict]:
    """Fit the first network at all ridges, with one Gram matrix for each seed."""
    problem, small = images(data), data == "digits"
    start = SMALL_START if small else START
    rows = (checkpoint.load() or {"rows": []})["rows"]
    for seed in list(seeds)[len(rows) // len(RIDGES) :]:
        fit, test = ((x.inputs, x.targets) for x in (problem.fit, problem.test))
        room = sum(each.columns for each in start)
        columns = SharedColumns(fit, test, room, seed=seed)
        columns.add(*start)
        R, AY = gram(columns.A), mm(columns.A.T, columns.Y)
        for ridge in RIDGES:
            L = torch.linalg.cholesky(with_ridge(R.clone(), ridge))
            score = columns.score(torch.cholesky_solve(AY, L))
            row = {"label": f"ridge {ridge:g}", "seed": seed, "accuracy": score}
            rows.append(row | {"columns": room})
        checkpoint.save({"rows": rows})
    return rows


# D-Rdg at all sizes


def direct(
    checkpoint: Checkpoint, *, seed: int, data: str = "mnist", updates: int = UPDATES
) -> list[dict]:
    """Fit by D-Rdg at all ridges and sizes, with one Cholesky factor for each ridge.

    There is one Gram matrix, and the Cholesky factor of fewer columns is the leading
    block of the factor of all of them.
    """
    problem, checkpoint.every = images(data), 10 * checkpoint.every
    nodes, Z, widths = drawn(data, seed, updates)
    Y, k = coded(problem), widths[-1]
    rows = (checkpoint.load("rows") or {"rows": []})["rows"]
    ready = _gram(checkpoint, nodes, Z, Y)
    for ridge in RIDGES[len(rows) // len(widths) :]:
        R, AY = ready.pop("R", None), ready["AY"]
        R = checkpoint.load("gram")["R"] if R is None else R
        with_ridge(R, ridge)
        L, lost = R.T, torch.zeros((), dtype=torch.int32)
        torch.linalg.cholesky_ex(L, out=(L, lost))  # in the memory of R
        whole = int(lost) - 1 if int(lost) else k
        sizes = [width for width in widths if width <= whole]
        z = lower_solve(L[:whole, :whole], AY[:whole])
        found = [lower_t_solve(L[:n, :n], z[:n]).clone() for n in sizes]
        scores = accuracies(nodes, problem, found) if found else []
        scores += [float("nan")] * (len(widths) - len(sizes))
        for width, score in zip(widths, scores, strict=True):
            row = {"label": f"ridge {ridge:g}", "seed": seed, "columns": width}
            rows.append(row | {"accuracy": score})
        del R, L
        checkpoint.save({"rows": rows}, "rows", now=True)
    return rows


def _gram(checkpoint: Checkpoint, nodes: Nodes, Z: Tensor, Y: Tensor) -> dict:
    """Compute the upper triangle of A^T A, and A^T Y, and save them on the way."""
    saved = checkpoint.load("gram")
    if saved is None:
        k = nodes.columns
        saved = {"R": Y.new_zeros(k, k), "AY": Y.new_zeros(k, Y.shape[1]), "at": 0}
    R, AY = saved["R"], saved["AY"]
    while saved["at"] < len(Z):
        rows = slice(saved["at"], saved["at"] + ROWS)
        A = nodes.expand(Z[rows])
        add_product(R, A, A)
        AY += A.T @ Y[rows]
        saved["at"] = rows.stop
        checkpoint.save(saved, "gram", now=rows.stop >= len(Z))
    return saved


# Growth to all columns


class Spent:
    """Add up the processor's seconds that this process spends in ``with`` blocks."""

    seconds = 0.0

    def __enter__(self):
        self._began = time.process_time()

    def __exit__(self, *_):
        self.seconds += time.process_time() - self._began


def product_rate(k: int) -> float:
    """Measure the operations per second of a product of two k x k matrices."""
    A, spent = torch.rand(k, k, dtype=torch.float64), Spent()
    with spent:
        A @ A
    return 2 * k**3 / spent.seconds


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
    l, c = Y.shape  # noqa: E741
    saved = checkpoint.load(classes=(streamed.Streamed,)) or {"state": None, "rows": []}
    state, rows = saved["state"], saved["rows"]
    for k, grown in list(pairwise((0, *widths)))[len(rows) :]:
        label = f"{solver} {ridge:g}"
        label += f", {at_once:,} images at once" if at_once != ROWS else ""
        row = {"label": label, "seed": seed, "columns": grown}
        making, whole, rate = Spent(), Spent(), product_rate(min(grown, 2000))

        def columns(k=k, grown=grown, making=making):
            made = nodes.between(0, grown)
            return streamed.chunks(made, k, Z, Y, at_once, making)

        try:
            with whole:
                if not k:
                    state = streamed.start(columns(), ridge, widths[-1])
                else:
                    state = streamed.UPDATES[solver](state, columns)
        except NotPositiveDefinite as error:
            return [*rows, row | {"lost": str(error)}]
        operations = start_operations(solver, l, grown, c)
        if k:
            operations = update_operations(solver, l, k, grown - k, c)
        row["accuracy"] = accuracies(nodes, problem, [state.W])[0]
        row |= {"operations": operations, "pivot": float(state.pivot)}
        row["seconds_cpu"] = whole.seconds - making.seconds
        row |= {"seconds_nodes": making.seconds, "seconds_at_rate": operations / rate}
        rows.append(row)
        checkpoint.save({"state": state, "rows": rows})
    return rows


# What stands on the page

MARGIN = 0.1  # points that unpublished details of the recipe may change
RUNS = 100  # draws in the paper


def beside(rows: pd.DataFrame, printed: Mapping[str, list[float]]) -> pd.DataFrame:
    """Return the mean accuracy by ridge and columns, the paper's row above ours."""
    ours = rows.pivot_table("accuracy", "label", "columns", sort=False)
    shown = {}
    for label, means in ours.iterrows():
        shown[label, "paper"] = printed[label][: len(means)]
        shown[label, "here"] = means.tolist()
    table = pd.DataFrame(shown, index=ours.columns).T.round(2)
    return table.rename_axis(["row", "of"]).rename_axis(None, axis="columns")


def agrees(ours: pd.Series, number: float, sd: float) -> str:
    """Return whether our mean is the paper's mean of 100 draws, within `MARGIN`.

    It is undecided where two standard errors of their difference change the answer.
    """
    gap, count = ours.mean() - number, runs_of(ours)
    if count < SEEDS:
        return of_runs(YES if abs(gap) <= MARGIN else NO, count)
    error = 2 * math.sqrt(ours.var() / count + sd**2 / RUNS)
    return inside((gap - error, gap + error), MARGIN)


def near(
    rows: pd.DataFrame,
    *,
    claim: str,
    columns: int,
    numbers: Mapping[str, tuple[float, float]],
) -> Judged:
    """Judge whether accuracies with so many columns are the paper's mean and sd."""
    ends = rows[rows["columns"] == columns].dropna(subset="accuracy")
    for label, ours in by_label(ends, "accuracy").items():
        if label in numbers:
            number, sd = numbers[label]
            said = claim.format(label=label, number=number, sd=sd)
            told = f"{words(ours)}, {len(ours)} draws"
            yield said, told, agrees(ours, number, sd)


def rises(rows: pd.DataFrame, *, claim: str) -> Judged:
    """Judge whether accuracy at the end is above that at the start."""
    ends = by_label(rows, "accuracy")
    for label, first in by_label(rows, "accuracy", "first").items():
        last = ends[label]
        told = f"from {words(first)} to {words(last)}, {len(last)} draws"
        held = ahead(last, first, paired=True, least=MARGIN)
        yield claim.format(label=label), told, held


def highest(rows: pd.DataFrame, *, claim: str, number: float, sd: float) -> Judged:
    """Judge whether the highest mean of all sizes and ridges is the paper's."""
    runs = dict(list(rows.groupby(["label", "columns"])["accuracy"]))
    label, columns = max(runs, key=lambda each: runs[each].mean())
    ours = runs[label, columns]
    yield claim, f"{words(ours)} at {label}", agrees(ours, number, sd)


def turns(
    rows: pd.DataFrame, printed: Mapping[str, list[float]], *, claim: str
) -> Judged:
    """Judge whether accuracy ends on the side of its start that the paper's does."""
    for label, mine in rows.groupby("label", sort=False):
        ours = mine.groupby("columns")["accuracy"].mean().tolist()
        told, ends = (
            f"{x[0]:.2f} to {x[-1]:.2f} %, at most {max(x):.2f} %"
            for x in (ours, printed[label])
        )
        first, *_, last = printed[label]
        rise = last > first
        same = rise == (ours[-1] > ours[0]) and len(ours) == len(printed[label])
        said = claim.format(label=label, way="rises" if rise else "falls", ends=ends)
        yield said, told, of_runs(YES if same else NO, mine["seed"].nunique())


def costs(rows: pd.DataFrame, *, claim: str, most: float) -> Judged:
    """Judge whether seconds are at most so many times those of the operations."""
    for label, mine in rows.groupby("label", sort=False):
        columns = ["seconds_cpu", "seconds_at_rate"]
        spent, counted = mine[columns].sum() / mine["seed"].nunique()
        told = f"{spent:.0f} s of the processor, {spent / counted:.2f} of the count"
        held = YES if spent <= most * counted else NO
        yield claim.format(label=label), told, held


def higher(rows: pd.DataFrame, *, claim: str, a: str, b: str) -> Judged:
    """Judge whether the highest accuracy of a is above that of b."""
    found = by_label(rows, "accuracy", "max")
    if {a, b} <= found.keys():
        one, two = found[a].max(), found[b].max()
        held = of_runs(YES if one > two else NO, min(len(found[a]), len(found[b])))
        yield claim, f"{one:.2f} and {two:.2f} %", held


def faster(rows: pd.DataFrame, *, claim: str, a: str, b: str, least: float) -> Judged:
    """Judge whether b takes so many times the seconds of a to all columns."""
    spent = rows.pivot_table("seconds_cpu", "columns", "label").reindex(columns=[a, b])
    if spent.notna().all(axis=None) and len(spent) == UPDATES + 1:
        ratio = spent[b].sum() / spent[a].sum()
        draws = rows[rows["label"].isin((a, b))].groupby("label")["seed"].nunique()
        held = of_runs(YES if ratio >= least else NO, draws.min())
        yield claim, f"{ratio:.2f} times", held
