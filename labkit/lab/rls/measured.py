"""What notebook 01 measures, and what it claims of it."""

import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd
import torch

from labkit.lab.panels import heat_maps
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.measured import Finding, Measurement
from labkit.lab.problem import Problem, load_problem
from labkit.lab.race import Race, View, race_figure, race_rows, spread
from labkit.lab.rls.training import (
    CONSTANTS,
    make_training,
    network,
)

VIEWS = (
    View("epoch", "loss", "Training loss", "epoch", "mean over the epoch", log_y=True),
    View("epoch", "accuracy", "Test accuracy", "epoch", "%"),
)
RELATIVES = ("RLS", "running-mean RLS", "SGD", "exact RLS", "averaged RLS")
RIVALS = ("Adam", "Adam, rate 1e-2", "RLS", "RLS+M", "Adam-CE", "HRLS+M")
RATES = {"Adam, rate 1e-2": ("Adam", {"adam_lr": 1e-2})}  # beside the default of 1e-3
NEAR = 0.05  # of the loss: so near is level
LIMITS = (0.1, 0.5, 0.9)  # of eigenvalues of P, which begin at 1
ALIKE = 0.99  # cosine of two images that look the same


def by_epoch(
    problem: Problem, name: str, seed: int, *, hidden: int, epochs: int, batch: int
) -> Iterator[dict | None]:
    """Yield what one run is like after each epoch, and None after other minibatches."""
    method, options = RATES.get(name, (name, {}))
    torch.manual_seed(seed)
    model = network(problem, "FC", hidden)
    training = make_training(method, model, **CONSTANTS["FC"] | options)
    run = training.run(model, problem, seed=seed, epochs=epochs, batch_size=batch)
    seconds = 0.0
    for record in run:
        seconds += record.seconds
        if record.epoch_loss is None:
            yield None
        else:
            accuracy = 100 * record.test_accuracy
            look = {"epoch": record.epoch, "loss": record.epoch_loss}
            yield look | {"accuracy": accuracy, "seconds": seconds}


def race(
    names: tuple[str, ...],
    *,
    data: str,
    samples: int,
    hidden: int,
    epochs: int,
    seeds: int,
    batch: int,
    device: str,
) -> Iterator[Mapping | float]:
    """Run methods from the same weights on the same minibatches, with every seed."""
    problem = load_problem(data, samples=samples, device=device)
    sizes = {"hidden": hidden, "epochs": epochs, "batch": batch}
    runners = {name: partial(by_epoch, problem, name, **sizes) for name in names}
    yield from race_rows(runners, seeds=seeds)


def ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means over the seeds at the last epoch, and the sd of the accuracy."""
    last = spread(Race(rows).last(), "accuracy", "loss", "seconds")
    order = list(dict.fromkeys(rows["label"]))
    return last.loc[order].rename_axis("method")


def ratio_of(rows: pd.DataFrame, name: str, other: str) -> tuple[float, float]:
    """Return the last losses' ratio, its mean over the seeds and standard error."""
    last = Race(rows).last().pivot(index="seed", columns="label", values="loss")
    ratios = last[name] / last[other]
    return float(ratios.mean()), float(ratios.std() / math.sqrt(len(ratios)))


def one_vector(rows: pd.DataFrame) -> Finding:
    """Judge whether one running mean does the work of the whole matrix."""
    ratio, error = ratio_of(rows, "running-mean RLS", "RLS")
    words = f"its last loss is {ratio:.3f} ± {error:.3f} times that of RLS"
    return Finding(words, NEAR - abs(ratio - 1), error)


def below_adam(rows: pd.DataFrame) -> Finding:
    """Judge whether RLS+M ends with a lower loss than Adam at its default rate."""
    ratio, error = ratio_of(rows, "RLS+M", "Adam")
    words = f"it ends at {ratio:.3f} ± {error:.3f} times Adam's loss"
    return Finding(words, 1 - ratio, error)


def drawn(caption: str, rows: pd.DataFrame) -> Figure:
    """Draw the races' curves, means over the seeds."""
    return race_figure(Race(rows), VIEWS, caption=caption)


ANATOMY = Measurement(
    "rls-anatomy",
    "One vector, the running mean of the inputs, does the work of the matrix P: its "
    "training loss after the last epoch is that of RLS, to 5 %.",
    5,
    partial(race, RELATIVES),
    one_vector,
    partial(
        drawn,
        "One running-mean vector draws the curve of RLS; the exact inverse starts "
        "faster and is overtaken; the averaged form hardly learns.",
    ),
    ends,
)
SIDE_BY_SIDE = Measurement(
    "rls-side-by-side",
    "On digits RLS with momentum ends with a lower training loss than Adam at its "
    "default rate.",
    5,
    partial(race, RIVALS),
    below_adam,
    partial(
        drawn,
        "RLS+M falls fastest. It is a lead over Adam's default rate: at ten times "
        "that rate Adam's loss is level with that of plain RLS.",
    ),
    ends,
)


def spectrum(
    *,
    data: str,
    samples: int,
    hidden: int,
    epochs: int,
    seeds: int,
    batch: int,
    device: str,
) -> Iterator[Mapping | float]:
    """Train by RLS, and yield the eigenvalues of P and the two images."""
    problem = load_problem(data, samples=samples, device=device)
    mean = problem.fit.inputs.mean(0).flatten().cpu()
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = network(problem, "FC", hidden)
        training = make_training("RLS", model, **CONSTANTS["FC"])
        records = training.run(
            model, problem, seed=seed, epochs=epochs, batch_size=batch
        )
        total = epochs * math.ceil(len(problem.fit.targets) / batch)
        for record in records:
            yield (seed + record.step / total) / seeds
        for block in training.rls.blocks:
            P = training.rls.state[block.weight]["P"].cpu()
            values, vectors = torch.linalg.eigh(P)
            below = {f"below {x}": int((values < x).sum()) for x in LIMITS}
            yield {"seed": seed, "layer": block.name, "of": len(values)} | below
            if block is training.rls.blocks[0]:
                off = vectors[:-1, 0]  # of the least; without the bias
                off = off * (1 if off @ mean > 0 else -1)
                pairs = zip(off.tolist(), mean.tolist(), strict=True)
                for pixel, (gone, seen) in enumerate(pairs):
                    yield {"seed": seed, "pixel": pixel, "off": gone, "mean": seen}


def one_direction(rows: pd.DataFrame) -> Finding:
    """Judge whether what P has lost is the mean image."""
    images = rows.dropna(subset="pixel").groupby("seed")
    found = images.apply(lambda one: cosine(one["off"], one["mean"]))
    error = found.std() / math.sqrt(len(found))
    words = f"the cosine of the two images is {found.mean():.4f} ± {error:.4f}"
    return Finding(words, found.mean() - ALIKE, error)


def cosine(a: pd.Series, b: pd.Series) -> float:
    """Return the cosine between two vectors."""
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def images(rows: pd.DataFrame) -> Figure:
    """Draw the direction that P has switched off beside the mean of all images."""
    first = rows.dropna(subset="pixel").query("seed == 0")
    side = math.isqrt(len(first))
    titles = {"off": "Direction switched off", "mean": "Mean of the images"}
    maps = {
        title: first[column].to_numpy()[: side * side].reshape(side, side)[::-1]
        for column, title in titles.items()
    }
    caption = "What the first layer's P has lost is the mean image: see the table."
    return heat_maps(maps, "pixel", "pixel", caption=caption)


def switched_off(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how many eigenvalues of each layer's P are below three values."""
    layers = rows.dropna(subset="layer").groupby("layer", sort=False)
    return layers[["of", *(f"below {x}" for x in LIMITS)]].mean()


SPECTRUM = Measurement(
    "rls-spectrum",
    "What P has switched off in the first layer is the mean input: its eigenvector of "
    "the least eigenvalue and the mean image have a cosine above 0.99.",
    2,
    spectrum,
    one_direction,
    images,
    switched_off,
)
