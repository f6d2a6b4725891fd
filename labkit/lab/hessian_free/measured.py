"""What notebook 03 measures, and what it claims of it."""

import math
from collections.abc import Iterator, Mapping
from itertools import islice

import pandas as pd
import torch

from labkit.lab.hessian_free.krylov import freeze, krylov_rows
from labkit.lab.hessian_free.live import knobs_of
from labkit.lab.hessian_free.training import Images, Training, load_images
from labkit.lab.panels import curves
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.measured import Finding, Measurement
from labkit.lab.race import Race, View, race_figure, race_rows

STEPS, ROWS, DAMPING = 20, 256, 0.03  # of the training, and the frozen problem
FALL = 0.01  # of the model's fall is left
MEASURES = {
    "value": "Model value above its least",
    "gradient": "Gradient of the model",
    "merit": "Validation error of w + d",
}
RUNS = {  # theta, first and largest batch
    "grows": (0.5, 60, 650),
    "60 rows": (0.95, 60, 60),
    "650 rows": (0.95, 650, 650),
}
GROWING, LARGE = "grows", "650 rows"
LEVEL = 1.5  # f of the validation rows, to which both get


def krylov(
    *,
    data: str,
    published: bool,
    samples: int,
    device: str,
    seeds: int,
    iterations: int,
) -> Iterator[Mapping | float]:
    """Train for twenty steps, freeze the next problem, and solve it by both methods."""
    where = {"published": published, "samples": samples, "device": device}
    problem = load_images(data, **where, dtype=torch.float64)
    for seed in range(seeds):
        knobs = knobs_of(problem.setting, seed=seed, max_batch_size=300)
        training = Training(problem, knobs, steps=STEPS)
        for record in training.records:
            yield (seed + record.step / STEPS / 2) / seeds
        rows = krylov_rows(freeze(training, ROWS, DAMPING), training)
        for row in islice(rows, iterations + 1):
            yield {"seed": seed} | row


def needed(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return the iterations by seed until 1 % of the model's fall is left."""
    there = rows[rows[f"value {name}"] <= FALL]
    return there.groupby("seed")["k"].min().reindex(rows["seed"].unique())


def cg_is_first(rows: pd.DataFrame) -> Finding:
    """Judge whether CG gets down the model in fewer iterations than LSMR."""
    ours, theirs = needed(rows, "LSMR"), needed(rows, "CG")
    ratio = ours / theirs
    error = float(ratio.std() / math.sqrt(len(ratio)))
    words = f"LSMR needs {ours.mean():.0f} iterations and CG {theirs.mean():.0f}"
    words += f", {ratio.mean():.2f} ± {error:.2f} times as many"
    return Finding(words, float(ratio.mean()) - 1, error)


def methods(rows: pd.DataFrame) -> Figure:
    """Draw three measures of the iterates of both methods, of seed 0."""
    first = rows[rows["seed"] == 0]
    panels = {
        title: {name: (first["k"], first[f"{each} {name}"]) for name in ("LSMR", "CG")}
        for each, title in MEASURES.items()
    }
    caption = (
        "CG is ahead in the model's value, which it makes least, and LSMR in the "
        "gradient, at every iteration. In the validation error LSMR leads at first, "
        "and CG later."
    )
    return curves(
        panels,
        "iteration",
        ["share of the fall", "norm", "f"],
        log_y=[True, True, False],
        lines=("LSMR", "CG"),
        caption=caption,
    )


def by_batch(problem: Images, name: str, steps: int, seed: int) -> Iterator[dict]:
    """Yield after each step the batch, the rows drawn so far and the error."""
    theta, first, largest = RUNS[name]
    sizes = {"theta": theta, "batch_size": first, "max_batch_size": largest}
    training = Training(
        problem, knobs_of(problem.setting, seed=seed, **sizes), steps=steps
    )
    for r in training.records:
        error = r.validation_error / 2
        yield {"after": r.step, "n": r.n, "rows": r.rows, "error": error}


def batches(
    *,
    data: str,
    published: bool,
    samples: int,
    device: str,
    seeds: int,
    steps: int,
) -> Iterator[Mapping | float]:
    """Train with batches that grow and with batches that do not."""
    where = {"published": published, "samples": samples, "device": device}
    problem = load_images(data, **where)
    runners = {
        name: lambda seed, name=name: by_batch(problem, name, steps, seed)
        for name in RUNS
    }
    yield from race_rows(runners, seeds=seeds)


def rows_until(rows: pd.DataFrame, level: float) -> pd.DataFrame:
    """Return the rows drawn, by seed and run, when the error was first that low."""
    there = rows[rows["error"] <= level].groupby(["seed", "label"])["rows"].min()
    return there.unstack().reindex(columns=list(RUNS))


def growing_saves(rows: pd.DataFrame) -> Finding:
    """Judge whether a batch that grows needs half the rows of one that is large."""
    until = rows_until(rows, LEVEL)
    ratio = until[GROWING] / until[LARGE]
    error = float(ratio.std() / math.sqrt(len(ratio)))
    words = f"it draws {ratio.mean():.2f} ± {error:.2f} times as many"
    return Finding(words, 0.5 - float(ratio.mean()), error)


VIEWS = (
    View("after", "n", "Rows of the batch", "step", "rows", log_y=True),
    View("rows", "error", "Error against rows drawn", "rows", "f", True, True),
)


def growth(rows: pd.DataFrame) -> Figure:
    """Draw the batches and the errors of seed 0."""
    caption = (
        "A batch that grows is small while the gradient is long, and large once its "
        "noise shows: it learns from few rows early, and does not stall late."
    )
    return race_figure(Race(rows[rows["seed"] == 0]), VIEWS, caption=caption)


def ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last batch and error of each run, and the rows until three levels."""
    last = rows.groupby(["label", "seed"], sort=False).tail(1).groupby("label")
    levels = {
        f"rows to f = {x:g}": rows_until(rows, x).mean() for x in (3.0, 2.0, LEVEL)
    }
    return pd.DataFrame(last[["n", "error"]].mean()).assign(**levels).loc[list(RUNS)]


KRYLOV = Measurement(
    "hessian_free-krylov",
    "On a frozen subproblem LSMR needs more iterations than CG until the model has "
    "fallen by 99 % of what is possible.",
    20,
    krylov,
    cg_is_first,
    methods,
)
BATCH = Measurement(
    "hessian_free-batch",
    "A batch that grows as its noise demands gets to the same validation error, "
    f"f = {LEVEL}, with less than half the rows that a batch of 650 draws.",
    20,
    batches,
    growing_saves,
    growth,
    ends,
)
