"""The paper's toy in notebook 02: errors of many runs, their table, their figures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from labkit import bpls
from labkit.bpls.walk import Weights
from labkit.lab.bpls.baselines import descend
from labkit.lab.bpls.training import toy_runs
from labkit.lab.problem import seeded
from labkit.lab.race import with_bar

if TYPE_CHECKING:
    from labkit.lab.panels.figures.captions import Figure

DESCENTS = {"Adam": "adam", "NAG": "nag", "SGD": "sgd", "AdaGrad": "adagrad"}
WORST = 0.05  # of the runs, whose share of the squared error is told

Errors = Mapping[str, tuple[Tensor, Tensor]]  # (train, test), each (sigmas, runs)


def by_gradient(
    toy: bpls.Toy, Y: Tensor, start: Weights, name: str, epochs: int
) -> Weights:
    """Return the weights of all runs after so many epochs, one sample a step.

    Parameters
    ----------
    toy, Y, start : of :func:`~labkit.lab.bpls.toy_runs`
    name : str, one of `labkit.lab.bpls.OPTIMIZERS`
    epochs : int
    """
    *_, last = descend(
        toy.X,
        Y,
        tuple(W.expand(len(Y), *W.shape) for W in start),
        toy.activation,
        output=toy.activation,
        optimizer=name,
        lr=0.1 if name == "adagrad" else 1e-3,
        epochs=epochs,
        generator=seeded(2),
    )
    return last.weights


def toy_errors(
    kind: str,
    sigmas: Sequence[float],
    ways: Mapping[str, Mapping[str, Any]],
    *,
    runs: int,
    epochs: int,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the squared errors (train, test), each (sigmas, runs), of each method.

    Parameters
    ----------
    kind : {"linear", "nonlinear"}
    sigmas : sequence of float, noise on the outputs
    ways : mapping of label to options of `labkit.bpls.toy_walk`
    runs : int, of each method at each noise
    epochs : int, of the four descents, which stand beside these ways
    device : torch.device or str, optional
    progress : bool, whether a bar counts the descents
    """
    toy, Y, start = toy_runs(kind, sigmas, runs, device=device)
    weights = {
        label: bpls.toy_walk(toy, Y, start, **{"ridge": 0.0} | options)
        for label, options in ways.items()
    }
    for label, name in with_bar(DESCENTS.items(), progress, "method"):
        weights[label] = by_gradient(toy, Y, start, name, epochs)
    return {label: bpls.toy_errors(toy, each) for label, each in weights.items()}


def toy_table(sigmas: Sequence[float], errors: Errors) -> pd.DataFrame:
    """Return the RMSE over the runs by method and sigma, and the median run in test."""
    rows = {
        (label, sigma): {
            "train": float(bpls.rmse(train[i])),
            "test": float(bpls.rmse(test[i])),
            "median run, test": float(test[i].median().sqrt()),
        }
        for label, (train, test) in errors.items()
        for i, sigma in enumerate(sigmas)
    }
    return pd.DataFrame(rows).T.rename_axis(["method", "sigma"])


def toy_figure(table: pd.DataFrame, caption: str, *, log: bool = False) -> "Figure":
    """Draw the RMSE of :func:`toy_table` against sigma, in training and in test."""
    from labkit.lab.panels import curves

    panels = {
        f"{part.capitalize()} RMSE": {
            label: (group.index.get_level_values("sigma"), group[part])
            for label, group in table.groupby("method", sort=False)
        }
        for part in ("train", "test")
    }
    return curves(
        panels,
        "noise sigma",
        "RMSE",
        log_x=log,
        log_y=log,
        lines=("theory",),
        caption=caption,
    )


def _of_runs(errors: Errors, labels: Iterable[str], sigma: int) -> dict[str, Tensor]:
    """The squared test errors of each method's runs, the largest first."""
    squares = {label: errors[label][1][sigma].cpu() for label in labels}
    return {k: each.sort(descending=True).values for k, each in squares.items()}


def tail_figure(errors: Errors, labels: Iterable[str], sigma: int) -> "Figure":
    """Draw the share of runs whose test error is larger, at one of the sigmas."""
    from labkit.lab.panels import curves

    drawn = {}
    for label, squares in _of_runs(errors, labels, sigma).items():
        share = torch.arange(1, len(squares) + 1) / len(squares)
        drawn[label] = squares.sqrt(), share
    return curves(
        {"Share of runs whose test error is larger": drawn},
        "test error of a run",
        "share",
        log_x=True,
        log_y=True,
        width=760,
        caption="Most runs of plain BPLS are like those of its remedies; the few in "
        "its long tail, on the right, make its mean.",
    )


def tail_table(errors: Errors, labels: Iterable[str], sigma: int) -> pd.DataFrame:
    """Return the RMSE, the median run, and what the worst twentieth of runs hold."""
    squares = _of_runs(errors, labels, sigma)
    table = pd.DataFrame({"RMSE": {k: float(bpls.rmse(s)) for k, s in squares.items()}})
    table["median run"] = [float(s.median().sqrt()) for s in squares.values()]
    worst = [s[: max(1, round(WORST * len(s)))].sum() for s in squares.values()]
    part = [
        100 * float(w / s.sum()) for w, s in zip(worst, squares.values(), strict=True)
    ]
    table["squared error in the worst 5% [%]"] = part
    return table.rename_axis("method")
