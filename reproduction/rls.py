"""RLS: the learning curves of Figures 2 and 3, at the paper's size or reduced."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import torch

from labkit.errors import DivergedError
from labkit.lab.books.rls_training import (
    CONSTANTS,
    after_each_epoch,
    make_training,
    network,
)
from labkit.lab.claims import NO, YES
from labkit.lab.datasets import load_imdb
from labkit.lab.problem import Problem, load_problem, rows as some
from labkit.lab.runs.jobs import Checkpoint
from reproduction.criteria import (
    NOT_AT_END,
    POINTS,
    ahead,
    faster_claims,
    still_improving,
)
from reproduction.judges import Judged, by_label, words


def looked_at(epoch: int) -> bool:
    """Return whether an epoch is kept: the first ten and every fifth are."""
    return epoch <= 10 or epoch % 5 == 0


def problem_of(data: str, standardised: bool = False, device: str = "cpu") -> Problem:
    """Load a data set; of the film reviews only some, each by its first 100 words.

    ``standardised`` pixels have mean 0 and standard deviation 1 over all training
    images.
    """
    if data != "imdb":
        problem = load_problem(data, device=device)
        return _standardised(problem) if standardised else problem
    parts = []
    for split, count in REVIEWS.items():
        read = load_imdb(split, length=100)
        g = torch.Generator().manual_seed(0)
        drawn = torch.randperm(len(read.targets), generator=g)[:count]
        kept = some(read, drawn)
        X, y = kept.inputs.to(device), kept.targets.to(device)
        parts.append(replace(kept, inputs=X, targets=y))
    return Problem(*parts)


def _standardised(problem: Problem) -> Problem:
    mean, sd = problem.fit.inputs.mean(), problem.fit.inputs.std()
    fit, test = (
        replace(part, inputs=(part.inputs - mean) / sd)
        for part in (problem.fit, problem.test)
    )
    return replace(problem, fit=fit, test=test)


REVIEWS = {"train": 5_000, "test": 2_500}


def epochs_of(
    checkpoint: Checkpoint,
    *,
    method: str,
    seed: int,
    epochs: int,
    data: str = "mnist",
    layers: str = "FC",
    hidden: int | None = None,
    standardised: bool = False,
    device: str = "cpu",
    **options: float,
) -> list[dict]:
    """Train by a method, and return a look after each epoch that `looked_at` keeps."""
    problem = problem_of(data, standardised, device)
    torch.manual_seed(seed)
    model = network(problem, layers, hidden)
    training = make_training(method, model, **CONSTANTS[layers], **options)
    g, saved = torch.Generator().manual_seed(seed), checkpoint.load()
    rows, done, seconds = [], 0, 0.0
    if saved:
        rows, done, seconds = saved["rows"], saved["done"], saved["seconds"]
        model.load_state_dict(saved["model"])
        training.optimizer.load_state_dict(saved["optimizer"])
        g.set_state(saved["generator"])
    named = [f"{k} {v:g}" for k, v in options.items()]
    run = {"label": ", ".join([method, *named]), "seed": seed}
    for epoch in range(done + 1, epochs + 1):
        records = training.run(model, problem, generator=g)
        try:
            (measured,) = after_each_epoch(records)
        except DivergedError as error:
            return [*rows, run | {"look": epoch, "failed": str(error)}]
        seconds += measured["seconds"]
        if looked_at(epoch) or epoch == epochs:
            row = run | {"look": epoch, "loss": measured["loss"], "seconds": seconds}
            rows.append(row | {"accuracy": measured["accuracy"]})
        state = {"model": model.state_dict(), "done": epoch, "rows": rows}
        state |= {"optimizer": training.optimizer.state_dict(), "seconds": seconds}
        checkpoint.save(state | {"generator": g.get_state()})
    return rows


# What stands on the page

EPOCHS = 100  # of the paper's runs
LEAST = 0.02  # share of the loss that a run still gains


def faster(
    rows: pd.DataFrame,
    *,
    a: str,
    b: str,
    goals: Mapping[str, float],
    clocks: Sequence[str],
) -> Judged:
    """Judge whether a is faster than b, and ends better.

    Parameters
    ----------
    goals : mapping, the ``accuracy`` [%] and the ``loss`` whose time is taken
    clocks : sequence of str, what "faster" is judged by
    """
    pair = rows[rows["label"].isin((a, b))]
    pair = pair.assign(epoch=pair["look"])
    for column, goal in goals.items():
        for claim, told, held in faster_claims(
            f"VI-B: {a} converges faster than {b}",
            pair,
            (a, b),
            column,
            goal,
            clocks=tuple(clocks),
            higher=column == "accuracy",
        ):
            reached = f"s to {column} " in claim
            yield claim, told, held if reached else at_the_end(held, pair)
    ends, said = by_label(pair, "accuracy"), f"VI-B: {a} ends above {b}, last accuracy"
    for claim, told, held in led(said, ends, a, b):
        yield claim, told, at_the_end(held, pair)


def led(claim: str, found: Mapping[str, pd.Series], a: str, b: str) -> Judged:
    """Judge whether a is ahead of b by paired seeds."""
    if {a, b} <= found.keys():
        held = ahead(found[a], found[b], paired=True, least=POINTS)
        yield claim, f"{words(found[a])} and {words(found[b])}", held


def at_the_end(held: str, rows: pd.DataFrame) -> str:
    """Return a verdict, or that runs shorter than the paper's are not at their end."""
    goes_on = 1 < rows["look"].max() < EPOCHS and held in (YES, NO)
    if goes_on and still_improving(rows, "loss", least=LEAST):
        return NOT_AT_END
    return held
