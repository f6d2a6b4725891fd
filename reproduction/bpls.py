"""BPLS and its competitors: Table I at the paper's size, its toy, and Table II."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import pandas as pd
import torch
from torch import Tensor

from labkit.bpls import activation, random_weights, scores, train
from labkit.bpls.toy import (
    SIZES,
    Toy,
    noisy_outputs,
    rmse,
    toy_errors,
    toy_problem,
    toy_walk,
)
from labkit.bpls.walk import Weights
from labkit.lab.datasets import Labelled, load
from labkit.lab.problem import percent, rows as some, seeded
from labkit.lab.runs.jobs import Checkpoint
from reproduction.bpls_rivals import OPTIMIZERS, descend
from reproduction.criteria import NOT_AT_END, SEEDS, ahead, level
from reproduction.judges import Judged, by_label, every, words

MOMENTUM = 0.9  # of NAG, which the paper does not print
CURVES = 10  # number of runs whose walks are all recorded
# Two draws of 10,000 test images, at an accuracy near 85 %, differ with a standard
# deviation of 0.5 points; twice that is what the paper's unknown draw leaves open.
MARGIN = 1.0


load_once = cache(load)


def split(data: str, seed: int, dtype: torch.dtype) -> tuple[Labelled, Labelled]:
    """Draw the images to learn from and to test on from the training file."""
    whole = load_once(data, "train", dtype=dtype)
    fit, test = (200, 100) if data == "digits" else (40_000, 10_000)
    order = torch.randperm(len(whole.targets), generator=seeded(seed))
    return some(whole, order[:fit]), some(whole, order[fit : fit + test])


def starting(fit: Labelled, seed: int) -> tuple[Tensor, ...]:
    """Draw random initial weights for images of this size."""
    sizes = (fit.inputs.shape[1], 50, 10)
    return random_weights(sizes, generator=seeded(seed), dtype=fit.inputs.dtype)


def walks(
    checkpoint: Checkpoint, *, data: str, hidden: str, seeds: Iterable[int]
) -> list[dict]:
    """Train by BPLS; return a look after the last walk that was kept, for each seed.

    Each seed draws its own images. The first runs have a look after every walk that
    was kept.
    """
    rows = []
    for seed in seeds:
        fit, test = split(data, seed, torch.float64)
        start = starting(fit, seed)
        records = train(fit.inputs, fit.targets, start, hidden, ridge=0.0)
        kept = [record.end for record in records if record.end and record.end.kept]
        for end in kept if seed < CURVES else kept[-1:]:
            outputs = scores(test.inputs, end.best, [activation(hidden)])
            look = {
                "label": f"{hidden}, {data}",
                "seed": seed,
                "look": end.walk,
                "train": 100 * end.accuracy,
                "test": percent(outputs, test.targets),
            }
            rows.append(look)
    return rows


def competitor(
    checkpoint: Checkpoint,
    *,
    data: str,
    method: str,
    seed: int,
    more: Iterable[int] = (),
    hidden: str = "softmax",
    momentum: float = MOMENTUM,
    epochs: int = 40,
) -> list[dict]:
    """Train by gradient descent on single images; return a look after every epoch.

    With the method ``bpls`` they are after every walk of BPLS, from number 0. Else runs
    with the seeds of ``more`` are trained at the same time, each on its own images
    and from its own weights, which reads them in the order of the first. The state is
    saved after each epoch, in less than 600 kB a run, and continues from there to the
    same bits.
    """
    seeds = (seed, *more)
    if method == "bpls":
        found = walks(checkpoint, data=data, hidden=hidden, seeds=seeds)
        return [row | {"label": f"BPLS, {data}"} for row in found]
    fits, tests = zip(
        *(split(data, each, torch.float32) for each in seeds), strict=True
    )
    parts = {"train": stacked(fits), "test": stacked(tests)}
    X, y = parts["train"].inputs, parts["train"].targets
    start = zip(*map(starting, fits, seeds), strict=True)
    weights = tuple(torch.stack(Ws).squeeze(0) for Ws in start)
    rows, optimizer, generator = [], None, seeded(1000 + seed)
    if saved := checkpoint.load():
        rows, weights, optimizer = saved["rows"], saved["weights"], saved["optimizer"]
        generator.set_state(saved["generator"])
    rule = method if momentum == MOMENTUM else f"{method} {momentum}"
    for step in descend(
        X,
        y,
        weights,
        hidden,
        optimizer=method,
        momentum=momentum,
        epochs=epochs - len(rows) // len(seeds),
        generator=generator,
        state=optimizer,
    ):
        if step.epoch % 1:
            continue
        look = len(rows) // len(seeds) + 1
        looks = [
            {"label": f"{rule}, {data}", "seed": each, "look": look} for each in seeds
        ]
        for name, part in parts.items():
            outputs = scores(part.inputs, step.weights, [activation(hidden)])
            outputs = outputs.view(len(seeds), *outputs.shape[-2:])
            targets = part.targets.view(len(seeds), -1)
            for row, S, labels in zip(looks, outputs, targets, strict=True):
                row[name] = percent(S, labels)
        rows += looks
        state = {
            "rows": rows,
            "weights": step.weights,
            "generator": generator.get_state(),
        }
        checkpoint.save(state | {"optimizer": step.optimizer.state_dict()})
    return rows


def stacked(parts: Sequence[Labelled]) -> Labelled:
    """Return the images of several runs in one, with a leading dimension if many."""
    inputs = torch.stack([part.inputs for part in parts]).squeeze(0)
    targets = torch.stack([part.targets for part in parts]).squeeze(0)
    return replace(parts[0], inputs=inputs, targets=targets)


# What stands on the page

SATURATED = 10  # epochs after which all rivals but AdaGrad gain little


def counted(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the number of epochs; the first walk of BPLS is number 0."""
    return rows.assign(epochs=rows["look"] + 1)


def falling(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the points by which the test accuracy fell at each look."""
    change = rows.groupby(["label", "seed"])["test"].diff()
    return rows.assign(fall=-change.clip(upper=0))


def saturates(
    rows: pd.DataFrame,
    *,
    claim: str,
    methods: Sequence[str],
    slow: bool = False,
) -> Judged:
    """Judge what each rival gains after ten epochs, at most or, if slow, at least."""
    early = by_label(rows[rows["look"] <= SATURATED], "test", "max")
    ends = by_label(rows, "test", "max")
    for label, epochs in by_label(rows, "look", "max").items():
        if label.split(", ")[0] in methods and epochs.min() == 40:
            gained = ends[label] - early[label]
            margin = MARGIN if slow else -MARGIN
            held = ahead(gained, 0 * gained, margin=margin, higher=slow)
            yield claim.format(label=label), words(gained, "points"), held


def followed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with looks at all walks; after its end a run keeps its value."""
    rows = rows[rows.seed < CURVES]
    walks = rows.pivot(index=["label", "seed"], columns="look", values="test")
    return walks.ffill(axis=1).stack().rename("test").reset_index()


# The toy of Figures 4 and 5

SIGMAS = (0.0, 0.1, 0.3)
RATES = {"adagrad": 0.1}  # all others 1e-3
CLOSE = 0.1  # of an error: about two standard deviations of one over 200 runs
LEAST = 0.01  # of an error: a rival that gains more in its last tenth has not ended


def toys(
    checkpoint: Checkpoint,
    *,
    kind: str,
    seed: int,
    runs: int = 200,
    epochs: int = 1000,
) -> list[dict]:
    """Return the errors of BPLS and of its four rivals at every level of noise."""
    toy = toy_problem(kind)
    Y = noisy_outputs(toy, torch.tensor(SIGMAS), runs, generator=seeded(2 * seed))
    generator = seeded(2 * seed + 1)
    start = random_weights(SIZES, runs=(runs,), generator=generator, dtype=toy.X.dtype)
    start, rows = tuple(W.expand(len(SIGMAS), *W.shape) for W in start), []
    for method, weights, before in solutions(toy, Y, start, epochs, seed):
        fit, test = (rmse(each).tolist() for each in toy_errors(toy, weights))
        earlier = rmse(toy_errors(toy, before)[0]).tolist()
        for i, sigma in enumerate(SIGMAS):
            look = {
                "label": f"{method}, {kind}",
                "seed": seed,
                "look": sigma,
                "train": fit[i],
                "test": test[i],
                "train, nine tenths": earlier[i],
            }
            rows.append(look)
    return rows


def solutions(
    toy: Toy, Y: Tensor, start: Weights, epochs: int, seed: int
) -> Iterator[tuple[str, Weights, Weights]]:
    """Yield each method's weights at its end and after nine tenths of its epochs.

    All start from the same draws. BPLS has an end alone, which stands there twice.
    """
    walked = toy_walk(toy, Y, start, ridge=0.0)
    yield "BPLS", walked, walked
    alone = toy_walk(toy, Y, start, ridge=0.0, interpretation="none", solve_again=True)
    yield "BPLS without (5)", alone, alone
    for name in OPTIMIZERS:
        run = descend(
            toy.X,
            Y,
            start,
            toy.activation,
            output=toy.activation,
            optimizer=name,
            lr=RATES.get(name, 1e-3),
            epochs=epochs,
            generator=seeded(seed),
        )
        looks = epochs - max(1, epochs // 10), epochs
        ends = (each.weights for each in run if each.epoch in looks)
        before, after = (tuple(W.clone() for W in weights) for weights in ends)
        yield name, after, before


def against(rows: pd.DataFrame, *, claim: str, kind: str, part: str) -> Judged:
    """Judge whether BPLS equals the best rival in training, or is ahead in the test.

    The best rival has the lowest training error. Errors are means over the levels of
    noise above 0. Where its training error fell in its last tenth it is not at its end.
    """
    noisy = rows[rows["look"] > 0]
    means = by_label(noisy, part, "mean")
    fit, earlier = (
        by_label(noisy, column, "mean") for column in ("train", "train, nine tenths")
    )
    rivals = {f"{name}, {kind}" for name in OPTIMIZERS} & means.keys()
    own = f"BPLS, {kind}"
    if not rivals or own not in means:
        return
    rival = min(rivals, key=lambda label: fit[label].mean())
    one, two = means[own], means[rival]
    if part == "train":
        held = level(one, two, margin=CLOSE * two.mean(), paired=True)
    else:
        held = ahead(one, two, higher=False, paired=True)
    before = earlier[rival].mean()
    if before - fit[rival].mean() > LEAST * before:
        held = NOT_AT_END
    measured = f"{words(one, '', 4)} and {words(two, '', 4)} ({rival})"
    yield claim, measured, held


# Seconds


def seconds_of(
    checkpoint: Checkpoint, *, data: str = "fashion-mnist", steps: int = 2_000
) -> list[dict]:
    """Take the processor's seconds of an epoch of BPLS, and of its rivals, in turn.

    An epoch of BPLS is a walk, the first one over all images; that of a rival is
    computed from ``steps`` steps of one image each.
    """
    rows = []
    for seed in range(SEEDS):
        fit, _ = split(data, seed, torch.float64)
        X, y, start = fit.inputs, fit.targets, starting(fit, seed)
        began = time.process_time()
        records = list(train(X, y, start, "softmax", ridge=0.0))
        walks = sum(record.end is not None for record in records)
        spent = {"BPLS": (time.process_time() - began) / walks}
        X, start = X.float(), tuple(W.float() for W in start)
        for method in OPTIMIZERS:
            generator = seeded(seed)
            run = descend(X, y, start, "softmax", optimizer=method, generator=generator)
            next(run)
            began = time.process_time()
            for _ in range(steps):
                next(run)
            spent[method] = (time.process_time() - began) * len(y) / steps
        rows += [
            {"label": label, "seed": seed, "look": 1, "seconds_cpu": seconds}
            for label, seconds in spent.items()
        ]
    return rows


def slower(rows: pd.DataFrame, *, claim: str, times: float) -> Judged:
    """Judge whether an epoch of each rival takes more than so many of BPLS."""
    wide = rows.pivot_table(index="seed", columns="label", values="seconds_cpu")
    for method in wide.columns.drop("BPLS", errors="ignore"):
        ratio = wide[method] / wide["BPLS"]
        measured = f"{ratio.mean():.1f} times on one CPU thread"
        yield claim.format(method=method), measured, every(ratio > times)
