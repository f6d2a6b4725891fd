"""What notebook 04 measures, and what it claims of it."""

import math
from collections.abc import Iterator, Mapping
from functools import partial

import pandas as pd
import torch

from labkit.broad import SOLVERS, side_by_side
from labkit.lab.broad.growth import shared, update_of
from labkit.lab.panels import curves
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.measured import Finding, Measurement
from labkit.lab.problem import load_problem, with_noise

PAIR = "chol-1", "orig"
BEHIND = 5.0  # points of accuracy
FIRST, ADDED, TURNS = 500, 250, 4  # of the growth whose seconds are taken
FASTER = 1.5
TAKEN = "solver", "columns", "seconds", "operations", "residual"


def grown(
    ridges: tuple[float, ...],
    wrong: float,
    *,
    data: str,
    samples: int,
    added: int,
    updates: int,
    seeds: int,
    device: str,
) -> Iterator[Mapping | float]:
    """Grow Chol-1 and Orig over the same columns, with a share of wrong labels."""
    clean = load_problem(data, samples=samples, dtype=torch.float64, device=device)
    for seed in range(seeds):
        problem = with_noise(clean, label_noise=wrong, seed=seed)
        columns = shared(problem, updates * (added + 4), seed=seed)
        for _ in range(updates):
            columns.add(update_of(added, 4))
        for ridge in ridges:
            setting = columns.A, columns.widths, columns.Y, ridge, PAIR
            for records in side_by_side(*setting, score=columns.score):
                yield (seed + ridges.index(ridge) / len(ridges)) / seeds
                for record in records:
                    if record.lost is None:
                        at = {"columns": record.columns, "accuracy": record.score}
                        row = {"seed": seed, "ridge": ridge, "solver": record.solver}
                        yield row | at


def ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last accuracies by ridge and seed, a column for each solver."""
    last = rows[rows["columns"] == rows["columns"].max()]
    return last.pivot(index=["ridge", "seed"], columns="solver", values="accuracy")


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last accuracies, means over the seeds."""
    return ends(rows).groupby(level="ridge").mean()


def found(words: str, values: pd.Series, least: float) -> Finding:
    """Judge whether the mean of the runs is above what is claimed."""
    mean, error = float(values.mean()), float(values.std() / math.sqrt(len(values)))
    return Finding(words.format(f"{mean:.2f} ± {error:.2f}"), mean - least, error)


def leaves(rows: pd.DataFrame) -> Finding:
    """Judge by how many points Orig ends behind Chol-1."""
    last = ends(rows).loc[1e-4]
    return found("it ends {} points behind", last["chol-1"] - last["orig"], BEHIND)


def wants_more(rows: pd.DataFrame) -> Finding:
    """Judge whether wrong labels ask for a larger ridge."""
    last = ends(rows)["chol-1"]
    words = "a ridge of 1 ends {} points above one of 1e-8"
    return found(words, last[1.0] - last[1e-8], 0.0)


def accuracies(caption: str, rows: pd.DataFrame) -> Figure:
    """Draw accuracy against columns, means over the seeds, a panel for each ridge."""
    panels = {}
    for (ridge, name), line in rows.groupby(["ridge", "solver"], sort=False):
        means = line.groupby("columns")["accuracy"].mean()
        panels.setdefault(f"ridge {ridge:.0e}", {})[name] = means.index, means
    return curves(panels, "columns of A", "test accuracy [%]", caption=caption)


LEAVING = Measurement(
    "broad-leaving",
    "At a ridge of 1e-4 Greville's recursion ends more than five points of accuracy "
    "behind the ridge solver.",
    6,
    partial(grown, (1e-8, 1e-4, 1e-2), 0.0),
    leaves,
    partial(accuracies, "Orig climbs with the nodes and then falls; Chol-1 does not."),
    table,
)
NOISE = Measurement(
    "broad-noise",
    "With 30 % of the labels drawn at random the ridge solver ends higher at a ridge "
    "of 1 than at 1e-8.",
    6,
    partial(grown, (1e-8, 1e-4, 1.0), 0.3),
    wants_more,
    partial(
        accuracies,
        "A small ridge lets new nodes fit the wrong labels, and Chol-1 falls too; at "
        "a ridge of 1 it climbs to the end.",
    ),
    table,
)


def costs(*, samples: int, seeds: int, device: str) -> Iterator[Mapping | float]:
    """Grow all solvers in turn over the same random columns, and take their seconds."""
    widths = [FIRST + ADDED * turn for turn in range(TURNS + 1)]
    for seed in range(-1, seeds):  # the first warms up
        g = torch.Generator().manual_seed(seed + 1)
        sizes = (samples, widths[-1]), (samples, 10)
        A, Y = (torch.rand(size, generator=g, dtype=torch.float64) for size in sizes)
        for records in side_by_side(A.to(device), widths, Y.to(device), 1.0, SOLVERS):
            yield (seed + 1) / (seeds + 1)
            for record in records if seed >= 0 else ():
                yield {"seed": seed} | {name: getattr(record, name) for name in TAKEN}


def summed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return seconds and operations of the whole growth, by seed and solver."""
    return rows.pivot_table(["seconds", "operations"], "seed", "solver", "sum")


def faster(rows: pd.DataFrame) -> Finding:
    """Judge how many times the seconds of Chol-1 Orig takes."""
    seconds = summed(rows)["seconds"]
    words = "Orig takes {} times the seconds of Chol-1"
    return found(words, seconds["orig"] / seconds["chol-1"], FASTER)


def costs_figure(rows: pd.DataFrame) -> Figure:
    """Draw the seconds that the growth has taken at each size."""
    spent = rows.pivot_table("seconds", "columns", "solver").cumsum()
    lines = {name: (spent.index, spent[name]) for name in SOLVERS}
    caption = "Chol-1 needs neither C nor B, and costs least of the paper's solvers."
    panels = {"Start and updates": lines}
    return curves(panels, "columns of A", "seconds so far", caption=caption)


def costs_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return operations and seconds beside those of Chol-1, and the ridge gradient."""
    sums = summed(rows).mean().unstack(0).loc[list(SOLVERS)]
    beside = (sums / sums.loc["chol-1"]).add_suffix(" / chol-1")
    gradient = rows.groupby("solver")["residual"].max()
    return beside.assign(gradient=gradient)


COSTS = Measurement(
    "broad-costs",
    "Greville's recursion, as Orig makes it, takes more than one and a half times the "
    "seconds of Chol-1.",
    20,
    costs,
    faster,
    costs_figure,
    costs_table,
)
