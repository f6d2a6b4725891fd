"""BPLS, its refinement and gradient descent on one clock."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import torch
from torch.nn import functional as F

from labkit.bpls import (
    activation,
    descend,
    random_weights,
    refine,
    refined_scores,
    scores,
    train,
)
from labkit.bpls.refine import SCALE
from labkit.instruments import Trace
from labkit.labs.bpls.problems import Problem, percent
from labkit.panels.curves import curves

LOOKS = 8  # at the accuracy in an epoch, besides those of the first few steps
EARLY = (1, 2, 5, 10, 20, 50, 100, 200)  # steps


@dataclass(frozen=True)
class Walks:
    """BPLS with a hidden layer of this kind."""

    hidden: str = "sigmoid"
    max_walks: int = 20


@dataclass(frozen=True)
class Refined:
    """The Gauss-Newton refinement (ours), with a bias column."""

    hidden: str = "tanh"
    sweeps: int = 10


@dataclass(frozen=True)
class Descent:
    """Gradient descent on the cross-entropy of the same network."""

    optimizer: str = "adam"
    batch: int = 128
    epochs: int = 40
    hidden: str = "tanh"
    scale: float | None = None  # of U[-scale, scale]; None: 1 / root of the inputs
    lr: float = 1e-3


Runner = Walks | Refined | Descent

BPLS, ADAM_128, ADAM_1 = "BPLS, sigmoid", "Adam 128, tanh", "Adam 1, tanh"
GAUSS_NEWTON, PAPER_ADAM = "Gauss-Newton (ours)", "Adam 1, softmax (paper)"
TABLE_1 = {"nag": "NAG 1, softmax", "sgd": "SGD 1, softmax", "adagrad": "AdaGrad 1"}


def runners(epochs, epochs_128, *, sweeps=10, all_baselines=False) -> dict[str, Runner]:
    """Those of the notebook; with ``all_baselines`` Table I's other three too."""
    paper = {"batch": 1, "epochs": epochs, "hidden": "softmax", "scale": 1.0}
    found = {
        BPLS: Walks(),
        "BPLS, identity": Walks("identity"),
        "BPLS, softmax": Walks("softmax"),
        GAUSS_NEWTON: Refined(sweeps=sweeps),
        ADAM_128: Descent(epochs=epochs_128),
        ADAM_1: Descent(batch=1, epochs=epochs),
        PAPER_ADAM: Descent(**paper),
    }
    if all_baselines:
        found |= {label: Descent(name, **paper) for name, label in TABLE_1.items()}
    return found


@dataclass(frozen=True)
class Race:
    """Accuracies on the clock."""

    problem: str
    setting: str
    runs: pd.DataFrame  # label, seed, passes, seconds, train [%], test [%]

    @property
    def labels(self) -> list[str]:
        """Runners, in their order."""
        return list(dict.fromkeys(self.runs.label))


def race(
    problem: Problem, runners: Mapping[str, Runner], *, width=50, seeds=1, path=None
) -> Race:
    """Run all of them, one after the other; only their own computing time counts.

    A pass is a walk, a sweep or an epoch.
    """
    trace = Trace(path, parameters={"problem": problem.name, "width": width})
    with trace:
        for seed in range(seeds):
            for label, runner in runners.items():
                for row in _RUNS[type(runner)](problem, runner, width, seed):
                    trace.log(len(trace), label=label, seed=seed, **row)
    setting = f"{len(problem.y):,} images, {width} hidden, {seeds} seeds"
    return Race(problem.name, setting, trace.frame())


def _walks(problem, runner, width, seed) -> Iterator[dict]:
    start, acts = _start(problem, width, seed, 1.0), [activation(runner.hidden)]
    records = train(problem.X, problem.y, start, acts, max_walks=runner.max_walks)
    seconds = 0.0
    for end in (record.end for record in records if record.end):
        seconds += end.seconds
        test = percent(scores(problem.X_test, end.weights, acts), problem.y_test)
        yield _row(end.walk + 1, seconds, 100 * end.accuracy, test)


def _sweeps(problem, runner, width, seed) -> Iterator[dict]:
    X, X_test = (F.pad(each, (0, 1), value=1) for each in (problem.X, problem.X_test))
    (W1, _) = random_weights(
        (X.shape[1], width, 1),
        scale=SCALE,
        generator=_seeded(seed),
        dtype=X.dtype,
        device=X.device,
    )
    seconds = 0.0
    for end in refine(X, problem.y, W1, runner.hidden, sweeps=runner.sweeps):
        seconds += end.seconds
        S = refined_scores(X_test, end.weights, runner.hidden)
        yield _row(end.walk, seconds, 100 * end.accuracy, percent(S, problem.y_test))


def _steps(problem, runner, width, seed) -> Iterator[dict]:
    X, y, acts = problem.X, problem.y, [activation(runner.hidden)]
    scale = runner.scale or X.shape[1] ** -0.5
    steps = math.ceil(len(y) / runner.batch)
    every = max(1, steps // LOOKS)
    for step in descend(
        X,
        y,
        _start(problem, width, seed, scale),
        acts,
        optimizer=runner.optimizer,
        lr=runner.lr,
        batch_size=runner.batch,
        epochs=runner.epochs,
        generator=_seeded(seed + 1),
    ):
        if step.step % every == 0 or step.step in EARLY or step.step % steps == 0:
            now = percent(scores(X, step.weights, acts), y)
            S = scores(problem.X_test, step.weights, acts)
            yield _row(step.epoch, step.seconds, now, percent(S, problem.y_test))


_RUNS = {Walks: _walks, Refined: _sweeps, Descent: _steps}


def _row(passes, seconds, train, test) -> dict:
    return {"passes": float(passes), "seconds": seconds, "train": train, "test": test}


def _seeded(seed):
    return torch.Generator().manual_seed(seed)


def _start(problem, width, seed, scale):
    return random_weights(
        problem.sizes([width]),
        scale=scale,
        generator=_seeded(seed),
        dtype=problem.X.dtype,
        device=problem.X.device,
    )


def best_rows(result: Race) -> pd.DataFrame:
    """Of each run the row with the best training accuracy, the earliest such."""
    rows = result.runs.reset_index(drop=True)
    return rows.loc[rows.groupby(["label", "seed"], sort=False).train.idxmax()]


def race_table(result: Race, goal: str = BPLS) -> pd.DataFrame:
    """Means over seeds: best accuracies, seconds a pass, seconds to ``goal``'s test.

    The goal of a seed is the test accuracy that ``goal`` keeps in that seed. ``s to
    goal`` is nan where a run did not get there.
    """
    best = best_rows(result)
    aims = best[best.label == goal].set_index("seed").test
    rows = {}
    for label in result.labels:
        runs = result.runs[result.runs.label == label]
        mine = best[best.label == label]
        last = runs.groupby("seed").last()
        rows[label] = {
            "train [%]": mine.train.mean(),
            "test [%]": mine.test.mean(),
            "sd [%]": mine.test.std(),
            "passes": last.passes.mean(),
            "s per pass": (last.seconds / last.passes.clip(lower=1)).mean(),
            "s in all": last.seconds.mean(),
            "s to goal": pd.Series(
                [_reached(runs[runs.seed == seed], aim) for seed, aim in aims.items()]
            ).mean(skipna=False),
        }
    return pd.DataFrame(rows).T.rename_axis("method")


def _reached(run, aim) -> float:
    there = run[run.test >= aim]
    return there.seconds.iloc[0] if len(there) else math.nan


def race_figure(result: Race, seed=0) -> go.Figure:
    """Test error against computing seconds, one seed; both axes logarithmic."""
    runs = result.runs[result.runs.seed == seed]
    lines = {
        label: (each.seconds, 100 - each.test)
        for label, each in runs.groupby("label", sort=False)
    }
    panel = {f"Test error, {result.problem}": lines}
    return curves(
        panel,
        "computing time, seconds",
        "%",
        log_x=True,
        log_y=True,
        width=900,
        reading="BPLS is done while gradient descent is still far off; given more time "
        "Adam on batches of 128 ends below it, as the Gauss-Newton refinement does at "
        "once.",
    )
