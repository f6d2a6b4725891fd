"""BPLS on the paper's toy (Figures 4 and 5), and its running time (Table II)."""

import time
from collections.abc import Iterator, Mapping

import pandas as pd
import torch
from torch import Tensor

from labkit.bpls import random_weights, train
from labkit.bpls.toy import (
    SIZES,
    THEORY,
    Toy,
    noisy_outputs,
    rmse,
    toy_errors,
    toy_problem,
    toy_walk,
)
from labkit.bpls.walk import Weights
from labkit.lab.claims import NO, YES
from labkit.lab.problem import seeded
from labkit.lab.runs.jobs import Checkpoint
from reproduction.bpls import split, starting
from reproduction.bpls_rivals import OPTIMIZERS, DescentStep, descend
from reproduction.criteria import NOT_AT_END, SEEDS, ahead, level
from reproduction.judges import Judged, by_label, every, words

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
    g, like = seeded(2 * seed + 1), {"dtype": toy.X.dtype}
    start = random_weights(SIZES, runs=(runs,), generator=g, **like)
    start, rows = tuple(W.expand(len(SIGMAS), *W.shape) for W in start), []
    for method, weights, before in solutions(toy, Y, start, epochs, seed):
        fit, test = (rmse(each).tolist() for each in toy_errors(toy, weights))
        earlier = rmse(toy_errors(toy, before)[0]).tolist()
        for i, sigma in enumerate(SIGMAS):
            row = {"label": f"{method}, {kind}", "seed": seed, "look": sigma}
            row |= {"train": fit[i], "test": test[i]}
            rows.append(row | {"train, nine tenths": earlier[i]})
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
        yield name, *reversed([_copied(r) for r in run if r.epoch in looks])


def _copied(record: DescentStep) -> Weights:
    return tuple(W.clone() for W in record.weights)


def against(rows: pd.DataFrame, *, claim: str, kind: str, part: str) -> Judged:
    """Judge whether BPLS equals each rival in training, or is ahead in the test.

    Errors are means over the levels of noise above 0. Rivals whose training error fell
    in their last tenth are not at their end.
    """
    noisy = rows[rows["look"] > 0]
    means = by_label(noisy, part, "mean")
    fit, earlier = (
        by_label(noisy, column, "mean") for column in ("train", "train, nine tenths")
    )
    for name in OPTIMIZERS:
        own, rival = f"BPLS, {kind}", f"{name}, {kind}"
        if not {own, rival} <= means.keys():
            continue
        one, two = means[own], means[rival]
        if part == "train":
            held = level(one, two, margin=CLOSE * two.mean(), paired=True)
        else:
            held = ahead(one, two, higher=False, paired=True)
        before = earlier[rival].mean()
        if before - fit[rival].mean() > LEAST * before:
            held = NOT_AT_END
        told = f"{words(one, '', 4)} and {words(two, '', 4)}"
        yield claim.format(name=name), told, held


def theory(rows: pd.DataFrame, *, claim: str) -> Judged:
    """Judge whether the errors of the linear toy are what least squares predicts."""
    mine = rows[(rows["label"] == "BPLS, linear") & (rows["look"] > 0)]
    for part, number in THEORY.items() if len(mine) else ():
        ratio = (mine[part] / mine["look"]).mean()
        held = YES if abs(ratio / number - 1) <= CLOSE else NO
        yield claim.format(part=part, number=number), f"{ratio:.3f} sigma", held


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
        began = time.process_time()
        records = train(
            fit.inputs, fit.targets, starting(fit, seed), "softmax", ridge=0.0
        )
        walks = sum(record.end is not None for record in records)
        spent = (time.process_time() - began) / walks
        rows.append({"label": "BPLS", "seed": seed, "look": 1, "seconds_cpu": spent})
        fit, _ = split(data, seed, torch.float32)
        for method in OPTIMIZERS:
            run = descend(
                fit.inputs,
                fit.targets,
                starting(fit, seed),
                "softmax",
                optimizer=method,
                generator=seeded(seed),
            )
            next(run)
            began = time.process_time()
            for _ in range(min(steps, len(fit.targets) - 1)):
                next(run)
            spent = (time.process_time() - began) * len(fit.targets)
            row = {"label": method, "seed": seed, "look": 1}
            rows.append(row | {"seconds_cpu": spent / min(steps, len(fit.targets) - 1)})
    return rows


def seconds_table(rows: pd.DataFrame, printed: Mapping[str, float]) -> pd.DataFrame:
    """Return the seconds of an epoch beside the paper's, and over those of BPLS."""
    here = rows.groupby("label", sort=False)["seconds_cpu"].mean()
    paper = pd.Series(printed).reindex(here.index)
    return pd.DataFrame(
        {
            "here, s": here.map("{:.3g}".format),
            "paper, s": paper,
            "here, times BPLS": (here / here["BPLS"]).round(1),
            "paper, times BPLS": (paper / paper["BPLS"]).round(0),
        }
    )


def slower(rows: pd.DataFrame, *, claim: str, times: float) -> Judged:
    """Judge whether an epoch of each rival takes more than so many of BPLS."""
    wide = rows.pivot_table(index="seed", columns="label", values="seconds_cpu")
    for method in wide.columns.drop("BPLS", errors="ignore"):
        ratio = wide[method] / wide["BPLS"]
        told = f"{ratio.mean():.1f} times on one CPU thread"
        yield claim.format(method=method), told, every(ratio > times)
