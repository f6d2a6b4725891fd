"""Show recursive least squares on two weights, with the ellipse of P and its effect."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    contours,
    dots,
    ellipse,
    handles,
    path,
    planes,
    put,
)
from labkit.lab.panels.figures.theme import INK, colour_of
from labkit.lab.problem import seeded
from labkit.rls import update

POINTS, TRUE = 60, (0.8, -0.5)
RULES = {name: colour_of(name) for name in ("RLS", "SGD")}
GREEN = RULES["RLS"]
FAR, WIDE, BESIDE = 5.0, 2.6, 4.0  # of the inputs; of the weights, which are wider
TICKS = np.linspace(-BESIDE, BESIDE, 49)
LENGTH = 0.7  # of the longer of the two arrows


@dataclass(frozen=True)
class EllipseKnobs:
    """Knobs of the picture; the seed determines the data and their order."""

    # fmt: off
    mean_weight: float = knob(
        0.3, low=0.01, high=10.0, log=True, label="mean weight k", help="of RLS",
        look_for="Too small, RLS crosses the valley too; too large, it hardly moves.")
    lr: float = knob(
        0.4, low=0.05, high=1.0, step=0.05, label="step factor eta", help="of both",
        look_for="From which one on does SGD jump further and further?")
    mean: float = knob(
        1.5, low=0.0, high=3.0, step=0.5, label="mean input", unit="sd",
        help="how far the inputs lie from 0",
        look_for="At 0 there is no valley, and nothing for P to switch off.")
    batch: int = knob(
        16, choices=(1, 4, 16, 60), unit="points", help="of a step; 60: all",
        look_for="At 1 P knows every input, at 60 the mean alone: how thin is it?")
    noise: float = knob(
        0.3, low=0.0, high=2.0, step=0.1, unit="sd", help="on the targets",
        look_for="Which path trembles at the end?")
    seed: int = knob(0, low=0, high=99, help="of the data", look_for="Is it chance?")
    start: str = knob(
        "1.9 0.9", help="of both paths: two weights; drag the square",
        look_for="Begin on the valley's floor: is SGD still worse?")
    # fmt: on

    def __post_init__(self):
        corner_of(self.start)


class Ellipse(NamedTuple):
    """One step: what P was before it, and both paths up to its end."""

    inputs: np.ndarray  # (n, 2)
    mean: np.ndarray  # (2,) of the minibatch
    P: np.ndarray  # (2, 2)
    gradient: np.ndarray  # (2,)
    loss: np.ndarray  # (49, 49) of all data, at the plane's points
    paths: dict[str, np.ndarray]  # by rule, (steps + 1, 2)


def corner_of(start: str) -> tuple[float, float]:
    """Parse the two weights at which the paths begin, a ValueError if this fails."""
    try:
        first, second = map(float, start.split())
        if abs(first) <= BESIDE >= abs(second):
            return first, second
    except ValueError:
        pass
    allowed = f"two numbers from {-BESIDE} to {BESIDE}, such as '1.9 0.9'"
    raise ValueError(f"start must be {allowed}, got {start!r}")


def data(knobs: EllipseKnobs) -> tuple[Tensor, Tensor]:
    """Return inputs (n, 2), their mean on the diagonal, and noisy targets (n, 1)."""
    g = seeded(knobs.seed)
    X = torch.randn(POINTS, 2, generator=g) * torch.tensor([1.0, 0.6]) + knobs.mean
    y = X @ torch.tensor([TRUE]).T
    return X, y + knobs.noise * torch.randn(POINTS, 1, generator=g)


def surface(X: Tensor, y: Tensor) -> np.ndarray:
    """Compute the loss of all data over the plane of the weights, and beside it."""
    ticks = torch.tensor(TICKS, dtype=X.dtype)
    W = torch.cartesian_prod(ticks, ticks)
    losses = (X @ W.T - y).square().mean(0) / 2  # (57)
    return losses.view(len(ticks), -1).T.numpy()  # a row for each second weight


def ellipse_rows(knobs: EllipseKnobs) -> Iterator[dict]:
    """Yield one row per step, with both rules on the same minibatch."""
    (X, y), g, step = data(knobs), seeded(knobs.seed), 0
    loss, rate, k = surface(X, y), knobs.lr, knobs.mean_weight
    theta, P = torch.tensor([corner_of(knobs.start)]), torch.eye(2)
    weights = {"SGD": theta.clone(), "RLS": theta}  # the last lies above
    paths = {name: at.numpy().copy() for name, at in weights.items()}
    while True:
        for rows in torch.randperm(POINTS, generator=g).split(knobs.batch):
            step, x_mean, P_before = step + 1, X[rows].mean(0), P.clone()
            slope, other = (
                gradient(weights[name], X[rows], y[rows]) for name in ("RLS", "SGD")
            )
            weights["SGD"] -= rate * other
            h = update.rls_step(theta, P, x_mean, slope, mean_weight=k, lr=rate)
            paths = {
                name: np.concatenate([paths[name], at]) for name, at in weights.items()
            }
            first, second = (paths["RLS"][-1] - paths["RLS"][-2]).tolist()
            yield {
                "step": step,
                "k": k,
                "h": float(h),
                "first": first,
                "second": second,
                "pictures": Ellipse(
                    X.numpy(),
                    x_mean.numpy(),
                    P_before.numpy(),
                    slope.numpy()[0],
                    loss,
                    paths,
                ),
            }


def gradient(theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Return the gradient (1, 2) of the mean squared error over two, (57)."""
    return (theta @ X.T - y.T) @ X / len(X)


def dragged(
    _now: Ellipse,
    _knobs: EllipseKnobs,
    _name: str,
    _index: int,
    point: Sequence[float],
) -> dict[str, str]:
    """Return the knob of the start, which a hand has dragged."""
    first, second = np.clip(point, -BESIDE, BESIDE)
    return {"start": f"{first:.2f} {second:.2f}"}


CAPTION = (
    "With one step factor for both, SGD jumps across the valley at every step, and RLS "
    "goes down it without crossing: P, the green ellipse, has grown thin along the "
    "mean input, which is the direction across. Both arrows are drawn by one factor."
)


def picture(now: Ellipse | None, before: Ellipse | None) -> dict:
    """Draw the inputs on the left and the weights on the right."""
    figure = planes(
        ["Inputs, and P (green)", "Loss, paths, P at half size"],
        ["first input", "first weight"],
        ["second input", "second weight"],
        [((-FAR, FAR),) * 2, ((-WIDE, WIDE),) * 2],
        caption=CAPTION,
        square=True,
    )
    drawn = []
    if now:
        inputs = [
            dots(now.inputs, GHOST, size=6),
            ellipse((0, 0), now.P, 1.0, GREEN, width=3),
            arrow((0, 0), now.mean, INK, "mean input"),
        ]
        put(figure, 0, inputs)
        drawn = _weights(now)
    if before:
        drawn.append(path(before.paths["RLS"], GHOST, EARLIER))
    put(figure, 1, [trace | {"showlegend": True} for trace in drawn])
    return figure


def _weights(now: Ellipse) -> list[dict]:
    drawn = [contours(TICKS, TICKS, now.loss, "")]
    for name, points in now.paths.items():
        drawn.append(path(points, RULES[name], name, width=2 + (name == "RLS")))
        drawn.append(dots(points[-1], RULES[name], size=9))
    start, (at, end) = now.paths["RLS"][0], now.paths["RLS"][-2:]
    drawn.append(dots(start, INK, size=11, symbol="square"))
    drawn.append(handles(start, "start"))
    drawn.append(ellipse(at, 0.25 * now.P, 1.0, GREEN))
    step, down = end - at, -now.gradient
    longest = max(np.linalg.norm(down), np.linalg.norm(step), 1e-12)
    for vector, colour, name in (
        (down, INK, "minus the gradient"),
        (step, GREEN, "step of RLS"),
    ):
        drawn.append(arrow(at, at + LENGTH / longest * vector, colour, name))
    return drawn


def _status(row: dict) -> str:
    k, h = row["k"], row["h"]
    return (
        rf"$h = 1 + k\,\bar x^\top P\bar x = 1 + {k:.3g} \cdot {(h - 1) / k:.3g} = "
        rf"{h:.3g}$, and the step is $-\tfrac{{\eta}}{{h}}\nabla P = "
        rf"({row['first']:.3f}, {row['second']:.3f})$"
    )


ELLIPSE = Experiment(
    "ellipse",
    EllipseKnobs,
    ellipse_rows,
    (),
    CAPTION,
    _status,
    front=("mean_weight", "lr", "mean"),
    playable={"mean_weight": (0.1, 1.0, 3.0, 10.0), "lr": (0.1, 0.2, 0.6, 1.0)},
    picture=picture,
    drag=dragged,
)
