"""What notebook 01 measures, and what it claims of it."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd
import torch

from labkit.lab.books.rls_training import (
    CONSTANTS,
    TrainingSetup,
    by_epoch,
    make_training,
    network,
)
from labkit.lab.books.shared import judged
from labkit.lab.panels import image_rows
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.measured import Finding, Measurement
from labkit.lab.problem import Problem, load_problem, seeded
from labkit.lab.race import Race, View, race_figure, race_rows, spread
from labkit.rls.train import Record

VIEWS = (
    View(
        x="epoch",
        y="loss",
        title="Training loss",
        x_title="epoch",
        y_title="mean over the epoch",
        log_y=True,
    ),
    View(x="epoch", y="accuracy", title="Test accuracy", x_title="epoch", y_title="%"),
)
RELATIVES = ("RLS", "running-mean RLS", "SGD", "exact RLS", "averaged RLS")
NEAR = 0.05  # of the loss: so near is level
LIMITS = (0.1, 0.5, 0.9)  # of eigenvalues of P, which begin at 1
ALIKE = 0.99  # cosine of two images that look the same
Looks = Iterator[dict | None]  # at a run; None after other minibatches


def looks(
    look: Callable[[TrainingSetup, Iterator[Record], Problem], Looks],
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

    def run(name: str, seed: int) -> Looks:
        torch.manual_seed(seed)
        model = network(problem, hidden=hidden)
        training = make_training(name, model, **CONSTANTS["FC"])
        records = training.run(
            model, problem, generator=seeded(seed), epochs=epochs, batch_size=batch
        )
        return look(training, records, problem)

    yield from race_rows({name: partial(run, name) for name in names}, seeds=seeds)


def ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means over the seeds at the last epoch, and the sd of the accuracy."""
    last = spread(Race(rows).last(), "accuracy", "loss", "seconds")
    return last.loc[Race(rows).labels].rename_axis("method")


def one_vector(rows: pd.DataFrame) -> Finding:
    """Judge whether one running mean does the work of the whole matrix."""
    last = Race(rows).last().pivot(index="seed", columns="label", values="loss")
    ratios = last["running-mean RLS"] / last["RLS"]
    ratio, error = float(ratios.mean()), float(ratios.sem())
    words = f"its last loss is {ratio:.3f} ± {error:.3f} times that of RLS"
    return Finding(words, NEAR - abs(ratio - 1), error)


def both(rows: pd.DataFrame) -> Figure:
    """Draw the races' loss and accuracy, means over the seeds."""
    caption = (
        "One running-mean vector draws the curve of RLS; the exact inverse starts "
        "faster and is overtaken; the averaged form hardly learns."
    )
    return race_figure(Race(rows), VIEWS, caption=caption)


def by_loss(
    _training: TrainingSetup, records: Iterator[Record], _problem: Problem
) -> Looks:
    """Look at loss and accuracy after each epoch."""
    return by_epoch(records)


ANATOMY = Measurement(
    name="rls-anatomy",
    claim="One vector, the running mean of the inputs, does the work of the matrix P: "
    "its training loss after the last epoch is that of RLS, to 5 %.",
    seconds=5,
    measure=partial(looks, by_loss, RELATIVES),
    judge=one_vector,
    figure=both,
    table=ends,
)


def spectrum(
    training: TrainingSetup, records: Iterator[Record], problem: Problem
) -> Looks:
    """Look at the eigenvalues of P after the last epoch, and at the two images."""
    for _ in records:
        yield None
    first, *_ = blocks = training.rls.blocks
    for block in blocks:
        P = training.rls.state[block.weight]["P"].cpu()
        values, vectors = torch.linalg.eigh(P)
        below = {f"below {limit}": int((values < limit).sum()) for limit in LIMITS}
        yield {"layer": block.name, "of": len(values)} | below
        if block is first:
            mean, off = problem.fit.inputs.mean(0).cpu(), vectors[:-1, 0]  # the least
            off = off * (off @ mean).sign()
            for pixel in range(len(mean)):
                pair = {"off": float(off[pixel]), "mean": float(mean[pixel])}
                yield {"pixel": pixel} | pair


def one_direction(rows: pd.DataFrame) -> Finding:
    """Judge whether what P has lost is the mean image."""
    images = rows.dropna(subset="pixel").groupby("seed")[["off", "mean"]]
    cosines = images.apply(
        lambda one: one["off"] @ one["mean"] / np.linalg.norm(one, axis=0).prod()
    )
    return judged("the cosine of the two images is {}", cosines, ALIKE)


def images(rows: pd.DataFrame) -> Figure:
    """Draw the direction that P has switched off above the mean of all images."""
    found = rows.dropna(subset="pixel").pivot(index="seed", columns="pixel")
    both = np.stack([found["off"], found["mean"]])  # (2, seeds, pixels)
    both = both[:, :, : math.isqrt(both.shape[2]) ** 2]
    both = both / both.max(2, keepdims=True)
    names = ("switched off", "mean image")
    caption = (
        "A column a seed. The first P has lost the mean image; the table counts what "
        "else it lost."
    )
    return image_rows(both, names, both.shape[1], caption=caption)


def switched_off(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how many eigenvalues of each layer's P are below three values."""
    layers = rows.dropna(subset="layer").groupby("layer", sort=False)
    return layers[["of", *(f"below {limit}" for limit in LIMITS)]].mean()


SPECTRUM = Measurement(
    name="rls-spectrum",
    claim="What P has switched off in the first layer is the mean input: its "
    "eigenvector of the least eigenvalue and the mean image have a cosine above 0.99.",
    seconds=2,
    measure=partial(looks, spectrum, ("RLS",)),
    judge=one_direction,
    figure=images,
    table=switched_off,
)
