"""The paper's toy over a thousand noisy runs, and what the correction does there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch

from labkit.bpls import (
    BPLSRegressor,
    descend,
    noisy_outputs,
    random_weights,
    rmse,
    toy_errors,
    toy_problem,
    toy_walk,
)
from labkit.bpls.toy import SIZES, THEORY
from labkit.labs.bpls.problems import READING_NAMES, reading_of
from labkit.panels import Lines, LiveLab, knob
from labkit.panels.curves import curves

PLAIN = "BPLS"
REMEDIES = {
    "no correction": {"reading": "none", "clamp": 1e-6},
    "output solved again": {"solve_again": True},
}
BASELINES = {"Adam": "adam", "NAG": "nag", "SGD": "sgd", "AdaGrad": "adagrad"}
THEORY_LINE = "theory"


def toy_errors_of(
    kind, sigmas: Sequence[float], *, runs=1000, epochs=1000, device=None, seed=0
) -> dict[str, tuple]:
    """Squared errors (train, test) of all methods, each (sigmas, runs).

    All methods start from the same weights, a network for every run, and see the same
    noise. The four of the paper train with a batch of one, rate 1e-3, AdaGrad 1e-1.
    """
    toy, Y, start = _runs(kind, sigmas, runs, seed, device)
    ways = {PLAIN: {}} | (REMEDIES if kind == "nonlinear" else {})
    found = {
        label: toy_errors(toy, toy_walk(toy, Y, start, **{"ridge": 0.0} | options))
        for label, options in ways.items()
    }
    for label, name in BASELINES.items():
        *_, last = descend(
            toy.X,
            Y,
            tuple(W.expand(len(sigmas), *W.shape) for W in start),
            toy.activation,
            output=toy.activation,
            optimizer=name,
            lr=0.1 if name == "adagrad" else 1e-3,
            epochs=epochs,
            generator=torch.Generator().manual_seed(seed + 2),
        )
        found[label] = toy_errors(toy, last.weights)
    return found


def _runs(kind, sigmas, runs, seed, device):
    toy = toy_problem(kind, device=device)
    Y = noisy_outputs(
        toy, torch.tensor(sigmas), runs, generator=torch.Generator().manual_seed(seed)
    )
    start = random_weights(
        SIZES,
        runs=(runs,),
        generator=torch.Generator().manual_seed(seed + 1),
        dtype=toy.X.dtype,
        device=device,
    )
    return toy, Y, start


def toy_table(kind, sigmas: Sequence[float], errors: dict) -> pd.DataFrame:
    """RMSE by method and sigma, train and test, and the median run in test."""
    rows = []
    for label, (train, test) in errors.items():
        columns = (rmse(train), rmse(test), test.median(-1).values.sqrt())
        numbers = zip(sigmas, *(c.tolist() for c in columns), strict=True)
        rows += [(label, *each) for each in numbers]
    if kind == "linear":
        exact = (THEORY["train"], THEORY["test"])
        rows += [(THEORY_LINE, s, *(c * s for c in exact), np.nan) for s in sigmas]
    names = ["method", "sigma", "train", "test", "median run, test"]
    return pd.DataFrame(rows, columns=names).set_index(["method", "sigma"])


def toy_figure(table: pd.DataFrame, *, log=False) -> go.Figure:
    """RMSE against sigma, training and test; ``log``: both axes logarithmic."""
    panels = {
        f"{part.capitalize()} RMSE": {
            label: (group.index.get_level_values("sigma"), group[part])
            for label, group in table.groupby("method", sort=False)
        }
        for part in ("train", "test")
    }
    linear = THEORY_LINE in table.index.get_level_values("method")
    return curves(
        panels,
        "noise sigma",
        "RMSE",
        log_x=log,
        log_y=log,
        lines=(THEORY_LINE,),
        reading="BPLS lies on the theory, since here it is least squares; gradient "
        "methods stopped early lie above, most plainly where there is little noise."
        if linear
        else "Plain BPLS lies above both of its remedies at every noise; its single "
        "runs, below, say why.",
    )


def tail_figure(errors: dict, index: int) -> go.Figure:
    """Share of runs with a larger test error than x, for one sigma."""
    lines = {}
    for label in (PLAIN, *REMEDIES, "Adam"):
        sorted_ = errors[label][1][index].sqrt().sort().values.tolist()
        share = 1 - np.arange(len(sorted_)) / len(sorted_)
        lines[label] = (sorted_, share)
    panel = {"Share of runs whose test error is larger": lines}
    return curves(
        panel,
        "test error of a run",
        "share",
        log_x=True,
        log_y=True,
        width=760,
        reading="Most runs of plain BPLS are like those of its remedies; the few in "
        "its long tail, on the right, make its mean.",
    )


def tail_table(errors: dict, index: int, *, worst=0.05) -> pd.DataFrame:
    """Test RMSE, median, and the part of all squared error in the worst runs."""
    rows = {}
    for label in (PLAIN, *REMEDIES, "Adam"):
        squares = errors[label][1][index].sort(descending=True).values
        top = squares[: max(1, round(worst * len(squares)))]
        rows[label] = {
            "RMSE": float(rmse(squares)),
            "median run": float(squares.median().sqrt()),
            f"squared error in the worst {worst:.0%} [%]": float(
                100 * top.sum() / squares.sum()
            ),
        }
    return pd.DataFrame(rows).T.rename_axis("method")


# Live


@dataclass(frozen=True)
class ToyKnobs:
    """What can be turned on the toy; its figure is over all runs, so it restarts."""

    kind: str = knob(
        "nonlinear",
        choices=("linear", "nonlinear"),
        help="hidden and output activation",
        look_for="Linear: both curves on the theory; nonlinear: the worst run far "
        "above the median.",
    )
    sigma: float = knob(
        0.05,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the outputs",
        help="noise on the training outputs",
        look_for="Linear: the error in proportion; nonlinear: a worst run of 2 even "
        "at 0.",
    )
    reading: str = knob(
        "min_norm",
        choices=READING_NAMES,
        help="of equation (5)",
        look_for="Linear: no difference, but for label; nonlinear: as printed, none "
        "has the least error.",
    )
    clamp: float = knob(
        1e-2,
        low=1e-8,
        high=0.4,
        log=True,
        unit="of the range",
        help="of hidden targets",
        look_for="As printed the error is least near 1e-2; solved again it hardly "
        "minds what lies above.",
    )
    seed: int = knob(
        0,
        low=0,
        high=99,
        help="of noise and weights",
        look_for="The medians stay; the error as printed moves with the worst runs.",
    )


def toy_lab(knobs: ToyKnobs | None = None, *, interactive=True, folder="") -> LiveLab:
    """Knobs and a figure of the RMSE while runs come in, 20 a step."""
    return LiveLab(
        knobs or ToyKnobs(),
        lambda now: toy_rows(now()),
        TOY_PANELS,
        name="toy",
        reading="In the non-linear toy single bad runs set the RMSE over all: the "
        "worst jumps, while the median hardly moves.",
        interactive=interactive,
        folder=folder,
    )


def toy_rows(knobs: ToyKnobs, *, each=20, most=250) -> Iterator[dict]:
    """One row per ``each`` runs: the RMSE over all so far, and the worst run."""
    toy, Y, start = _runs(knobs.kind, [knobs.sigma], each * most, knobs.seed, None)
    options = {"reading": reading_of(knobs.reading), "clamp": knobs.clamp, "ridge": 0.0}
    seen = {"plain": [], "again": []}
    for step in range(1, most + 1):
        rows = slice((step - 1) * each, step * each)
        row = {"step": step, "runs": step * each}
        for name, again in (("plain", False), ("again", True)):
            weights = toy_walk(
                toy,
                Y[0, rows],
                tuple(W[rows] for W in start),
                solve_again=again,
                **options,
            )
            seen[name].append(toy_errors(toy, weights)[1])
            squares = torch.cat(seen[name])
            row |= {
                f"rmse {name}": float(rmse(squares)),
                f"worst {name}": float(squares.max().sqrt()),
                f"median {name}": float(squares.median().sqrt()),
            }
        if knobs.kind == "linear":
            row["theory"] = THEORY["test"] * knobs.sigma
        yield row


_STEP = "step of 20 runs"
TOY_PANELS = (
    Lines(
        {
            "rmse plain": "as printed",
            "rmse again": "output solved again",
            "theory": "theory (linear)",
        },
        "Test RMSE over all runs so far",
        "RMSE",
        x_title=_STEP,
    ),
    Lines(
        {
            "worst plain": "worst",
            "median plain": "median",
            "worst again": "worst, again",
            "median again": "median, again",
        },
        "Single runs",
        "test error",
        x_title=_STEP,
        log=True,
    ),
)


# Regression


def smooth_problems(seed=0) -> dict[str, tuple]:
    """Functions without noise on [-1, 1] and its square: (X, y) by name."""
    rng = np.random.default_rng(seed)
    x, X = np.linspace(-1, 1, 200)[:, None], rng.uniform(-1, 1, (500, 2))
    return {
        "sin 3x": (x, np.sin(3 * x[:, 0])),
        "sin 8x": (x, np.sin(8 * x[:, 0])),
        "x1 x2": (X, X[:, 0] * X[:, 1]),
        "exp(-4 |x|^2)": (X, np.exp(-4 * (X**2).sum(1))),
    }


def regression_table(*, seeds=5, hidden="tanh", width=50, ridge=1e-4) -> pd.DataFrame:
    """Test RMSE on held-out halves, medians over seeds: random features and BPLS."""
    rows = {}
    for name, (X, y) in smooth_problems().items():
        found = {"random features": [], "BPLS": []}
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(X))
            fit, test = order[: len(X) // 2], order[len(X) // 2 :]
            for label, reading in zip(found, ("none", "min_norm"), strict=True):
                net = BPLSRegressor(
                    (width,),
                    hidden,
                    reading,
                    bias=True,
                    ridge=ridge,
                    random_state=seed,
                ).fit(X[fit], y[fit])
                off = net.predict(X[test]) - y[test]
                found[label].append(np.sqrt(np.mean(off**2)))
        rows[name] = {label: np.median(each) for label, each in found.items()}
    table = pd.DataFrame(rows).T.rename_axis("test RMSE of")
    table["ratio"] = table["BPLS"] / table["random features"]
    return table
