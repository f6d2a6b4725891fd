"""SHF, Martens' Hessian-free and Adam from the same weights: time, rows, error."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import torch
from torch import nn

from labkit.hessian_free import (
    DivergedError,
    MartensHF,
    squared_error,
    train_martens,
)
from labkit.hessian_free.train import Clock
from labkit.instruments import Trace
from labkit.labs.hessian_free.knobs import knobs_of
from labkit.labs.hessian_free.live import start
from labkit.labs.hessian_free.problems import Problem
from labkit.panels.curves import curves

SHF, FULL, BATCH, ADAM = "SHF", "Martens, full", "Martens, batch", "Adam, tuned"
METHODS = (SHF, FULL, BATCH, ADAM)
ADAM_RATES = (1e-3, 2e-3, 4e-3, 8e-3)
LOOKS = 60  # at Adam's errors, in the budget


@dataclass(frozen=True)
class Race:
    """One row for each look at each run."""

    problem: str
    setting: str
    budget: float  # seconds of each run
    runs: pd.DataFrame  # label, seed, seconds, rows (in N), train, validation, test
    rates: dict[float, float]  # Adam's rates and their lowest validation error


def race(
    problem: Problem, *, seconds, seeds=1, methods=METHODS, recover=20, path=None
) -> Race:
    """Run every method from the same weights, for so many seconds of its own work.

    Errors are taken outside the clock. Adam's rate is the best of four on seed 0, each
    given a quarter of the time; its search is not counted against it.

    Parameters
    ----------
    seconds : of each run.
    seeds : runs 0 .. seeds - 1, of weights and batches.
    methods : of `METHODS`.
    recover : SHF's patience; the paper's is 100.
    """
    unknown = set(methods) - set(METHODS)
    if unknown:
        raise ValueError(
            f"unknown method {unknown.pop()!r}; there are {', '.join(METHODS)}"
        )
    rates, rate = {}, ADAM_RATES[0]
    if ADAM in methods:
        for each in ADAM_RATES:
            looks = _adam(problem, 0, each, seconds / 4)
            rates[each] = min(look["validation"] for look in looks)
        rate = min(rates, key=rates.get)
    rows = []
    setting = f"{seconds:g} s a run, {seeds} seeds, {len(problem.train):,} rows"
    parameters = {"problem": problem.name, "seconds": seconds, "recover": recover}
    trace = Trace(path, parameters=parameters | {"rate": rate})
    with trace:
        for label in methods:
            for seed in range(seeds):
                if label == ADAM:
                    looks = _adam(problem, seed, rate, seconds)
                else:
                    looks = _second_order(problem, label, seed, seconds, recover)
                for look in looks:
                    rows.append({"label": label, "seed": seed} | look)
                    trace.log(len(rows), **rows[-1])
    return Race(problem.name, setting, seconds, pd.DataFrame(rows), rates)


def _errors(net, problem):
    names = ("train", "validation", "test")
    return {
        name: float(squared_error(net, rows))
        for name, rows in zip(names, problem.parts, strict=True)
    }


def _second_order(problem, label, seed, seconds, recover) -> Iterator[dict]:
    if label == SHF:
        knobs = knobs_of(problem, seed=seed, recover=recover)
        net, _, records = start(problem, lambda: knobs)
    else:
        net, g = problem.network(seed)
        records = train_martens(
            *(net, MartensHF(net, damp=problem.martens_damp), problem.train),
            validation=problem.valid,
            chunks=problem.chunks,
            gradient="full" if label == FULL else "batch",
            generator=g,
        )
    N = len(problem.train)
    try:
        for r in records:
            place = {"seconds": r.seconds, "rows": r.rows / N, "batch": r.n}
            yield place | _errors(net, problem)
            if r.seconds >= seconds:
                return
    except (DivergedError, FloatingPointError):
        return


def _adam(problem, seed, rate, seconds) -> Iterator[dict]:
    net, g = problem.network(seed)
    net = as_sequential(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    X, n = problem.train, problem.adam_batch
    clock, drawn, look = Clock(X.device), 0, 0.0
    while clock.seconds < seconds:
        with clock:
            begin = time.perf_counter()
            order = torch.randperm(len(X), generator=g).to(X.device)
            for rows in order.split(n):
                batch = X[rows]
                loss = (net(batch) - batch).square().sum() / len(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                drawn += len(batch)
                if time.perf_counter() - begin > seconds / LOOKS:
                    break
        if clock.seconds >= min(look, seconds):
            look = clock.seconds + seconds / LOOKS
            place = {"seconds": clock.seconds, "rows": drawn / len(X), "batch": n}
            yield place | _errors(net, problem)


def as_sequential(net) -> nn.Sequential:
    """The same net of torch's own layers, which are what Adam would be used with."""
    layers = []
    for W in net.parameters():
        layer = nn.Linear(*(len(W) - 1, W.shape[1]), dtype=W.dtype, device=W.device)
        layer.weight.data, layer.bias.data = W.data[:-1].T.clone(), W.data[-1].clone()
        layers += [layer, nn.Sigmoid()]
    return nn.Sequential(*layers)


def race_plot(result: Race, *, seed=0) -> go.Figure:
    """Training error of one seed against seconds and against rows drawn."""
    runs = result.runs[result.runs.seed == seed]
    against = {}
    for title, column in (("Against time", "seconds"), ("Against data", "rows")):
        against[title] = {
            label: (each[column], each["train"])
            for label, each in runs.groupby("label", sort=False)
        }
    return curves(
        against,
        ("seconds of its own work", "rows drawn / training rows"),
        "squared error per image, training rows",
        log_x=True,
        log_y=True,
        reading="In rows drawn SHF is ahead of the full variant at every level; in "
        "seconds it has no such lead.",
    )


def race_table(result: Race) -> pd.DataFrame:
    """Errors at the end and at the lowest validation error; means, and spread of test.

    Rows are given in multiples of the training set.
    """
    table = {}
    for label, runs in result.runs.groupby("label", sort=False):
        last = runs.groupby("seed").tail(1)
        best = runs.loc[runs.groupby("seed")["validation"].idxmin()]
        table[label] = {
            "train, end": last.train.mean(),
            "test, end": last.test.mean(),
            "validation, lowest": best.validation.mean(),
            "train there": best.train.mean(),
            "test there": best.test.mean(),
            "sd": best.test.std(),
            "rows / N there": best.rows.mean(),
            "rows / N, end": last.rows.mean(),
        }
    return pd.DataFrame(table).T.rename_axis("method")


def levels_table(result: Race, levels=(4.0, 2.0, 1.5)) -> pd.DataFrame:
    """Rows and seconds until the training error is first at or below each level.

    Means over the seeds; nan where a seed did not get there.
    """
    table = {}
    for label, runs in result.runs.groupby("label", sort=False):
        cells = {}
        for what in ("rows", "seconds"):
            for level in levels:
                cells[f"{what} / N" if what == "rows" else what, level] = _first(
                    runs, what, level
                )
        table[label] = cells
    return pd.DataFrame(table).T.rename_axis("method")


def _first(runs, what, level) -> float:
    firsts = []
    for _, each in runs.groupby("seed"):
        there = each[each.train <= level]
        firsts.append(there[what].iloc[0] if len(there) else float("nan"))
    return pd.Series(firsts).mean(skipna=False)
