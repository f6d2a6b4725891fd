"""Bowls of batches round two weights, and how their bottoms draw together."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.lab.books.shared import noise_knob, place_dragged, place_of, seed_knob
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
from labkit.lab.panels.figures.theme import COLOURS, INK, colour_of
from labkit.lab.problem import seeded

ROWS = 400
TRUE = (1.2, -0.6)
START = np.array([-1.4, 1.6])
WIDE = 3.0  # half of the plane of the weights
GRID = 31  # points on a side of it
MIX = ((1.2, 0.7), (0.0, 0.5))  # of the inputs, which makes a valley
OTHERS = 60  # batches besides the one of the step
DRAWN = 6  # of which the bowl is drawn
LEVEL = 0.1  # of the lines that show a bowl, as a share of its depth
STEP = colour_of("Hessian-free")
OTHER = COLOURS[5]
YOURS = COLOURS[4]


@dataclass(frozen=True)
class BowlKnobs:
    """The knobs of the bowls; the seed determines the data and the batches."""

    # fmt: off
    n: int = knob(
        20, low=2, high=ROWS, unit="rows", label="batch", log=True,
        help="of 400 rows; at 400 all batches are one",
        look_for="Four times the rows: are the bottoms half as far apart?")
    damping: float = knob(
        0.1, low=0.01, high=3.0, log=True, label="damping lambda", help="of the step",
        look_for="Are the bowls rounder, the steps shorter and the bottoms closer?")
    noise: float = noise_knob(
        0.3, help="on the targets",
        look_for="How many rows bring the bottoms as close as they were?")
    seed: int = seed_knob(
        help="of data and batches",
        look_for="Other batches: do the steps point elsewhere?")
    guess: str = knob(
        "-1.4 1.6", label="your dot", help="two weights; drag the purple square",
        look_for="Turn the batch to 400: how far off were you?")
    # fmt: on

    def __post_init__(self):
        place_of("guess", self.guess, WIDE)


class Bowl(NamedTuple):
    """The bowls of batches of one size; what is lowest is given as weights."""

    loss: np.ndarray  # (GRID, GRID), of all rows
    gradient: np.ndarray  # (2,) of this batch
    curvature: np.ndarray  # (1 + OTHERS, 2, 2) of the damped bowls, this batch's first
    lowest: np.ndarray  # (1 + OTHERS, 2)
    n: int  # rows of a batch
    guess: np.ndarray  # (2,) the reader's dot, which begins at the weights


def output(X: Tensor, w: Tensor) -> Tensor:
    """Return what tanh units of weights w (k, 2) make of rows (n, 2), (n, k)."""
    return torch.tanh(X @ w.T)


def data(seed: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows (n, 2), targets (n, 1) of the true weights, and rows in other orders.

    Their numbers are (1 + OTHERS, n), and each order begins with a batch.
    """
    generator, f64 = seeded(seed), torch.float64
    X = torch.randn(ROWS, 2, generator=generator, dtype=f64) @ torch.tensor(
        MIX, dtype=f64
    )
    Y = output(X, torch.tensor([TRUE], dtype=f64))
    Y = Y + noise * torch.randn(ROWS, 1, generator=generator, dtype=f64)
    orders = torch.rand(1 + OTHERS, ROWS, generator=seeded(seed)).argsort(1)
    return X, Y, orders


def bowls(
    X: Tensor,
    Y: Tensor,
    batches: Tensor,
    damping: float,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return curvature and gradient at the start, and where bowls are lowest.

    The bowl of a batch of n rows is $|A d + r|^2 / 2n + \lambda^2 |d|^2 / 2$, in which
    r are the residuals and A their derivatives by the weights.

    Parameters
    ----------
    X, Y : (N, 2) and (N, 1) tensors
    batches : (k, n) tensor of the rows' numbers
    damping : float, lambda

    Returns
    -------
    (k, 2, 2), (k, 2) and (k, 2) tensors
    """
    start = torch.from_numpy(START)[None]
    y, n = output(X, start), batches.shape[1]
    A, r = ((1 - y.square()) * X)[batches], (y - Y)[batches]
    B = A.mT @ A / n + damping**2 * torch.eye(2, dtype=X.dtype)
    gradient = A.mT @ r / n
    d = torch.linalg.solve(B, -gradient)
    return B, gradient[..., 0], start + d[..., 0]


def bowl_rows(knobs: BowlKnobs) -> Iterator[dict]:
    """Yield the one row: the bowls of the first step, which is not taken."""
    X, Y, orders = data(knobs.seed, knobs.noise)
    B, gradient, lowest = bowls(X, Y, orders[:, : knobs.n], knobs.damping)
    ticks = torch.linspace(-WIDE, WIDE, GRID, dtype=X.dtype)
    errors = output(X, torch.cartesian_prod(ticks, ticks)) - Y
    made = Bowl(
        loss=errors.square().mean(0).view(GRID, GRID).T.numpy() / 2,
        gradient=gradient[0].numpy(),
        curvature=B.numpy(),
        lowest=lowest.numpy(),
        n=knobs.n,
        guess=place_of("guess", knobs.guess, WIDE),
    )
    spread = float(lowest[1:].var(0).sum().sqrt())
    gap = math.dist(made.guess, made.lowest[0])
    yield {"step": 1, "spread": spread, "gap": gap, "pictures": made}


CAPTION = (
    "Each ellipse is a level line of the bowl that one batch sees from the black dot, "
    "where the weights are; its middle is the bottom. A step leads to the bottom of "
    "its own batch. The bottoms of larger batches draw together, about as 1/sqrt(n), "
    "and faster where batches share most of the 400 rows."
)


def picture(now: Bowl | None, before: Bowl | None) -> dict:
    """Draw the plane of the two weights."""
    figure = planes(
        ["Bowls of batches"],
        ["first weight"],
        ["second weight"],
        [((-WIDE, WIDE),) * 2],
        caption=CAPTION,
        height=412,  # what stands below it is high, too
    )
    if before:
        put(figure, 0, [dots(before.lowest, GHOST, EARLIER, size=4)])
    if now:
        put(figure, 0, _weights(now))
    return figure


def _weights(now: Bowl) -> list[dict]:
    ticks = np.linspace(-WIDE, WIDE, GRID)
    edges = [
        level_line(now, index, OTHER, "other batches' bowls", width=1)
        for index in range(1, DRAWN + 1)
    ]
    gap = [now.lowest[0], now.guess] if (now.guess != START).any() else []
    return [
        contours(ticks, ticks, now.loss, ""),
        *edges,
        level_line(now, 0, COLOURS[0], "this batch's bowl", width=3),
        dots(now.lowest[1:], OTHER, "their bottoms", size=5),
        arrow(START, now.lowest[0], STEP, "step to this bottom"),
        dots(START, INK, size=9),
        path(gap, YOURS, dash="dot"),
        dots(now.guess, YOURS, "your dot", size=11, symbol="square-open"),
        handles(now.guess, "guess"),
    ]


def level_line(now: Bowl, index: int, colour: str, name: str, **line: float) -> dict:
    """Return the line on which a bowl has risen by a share of its depth."""
    off, B = START - now.lowest[index], now.curvature[index]
    spread = LEVEL * (off @ B @ off) * np.linalg.inv(B)
    return ellipse(now.lowest[index], spread, 1.0, colour, name, **line)


def _status(row: dict) -> str:
    now = row["pictures"]
    (a, b), (_, c) = now.curvature[0]
    (down, across), (first, second) = now.gradient, now.lowest[0] - START
    text = (
        r"$d = -(A^\top A + \lambda^2 I)^{-1}\nabla f = "
        rf"-\begin{{pmatrix}} {a:.3f} & {b:.3f} \\ {b:.3f} & {c:.3f} \end{{pmatrix}}"
        rf"^{{-1}} \begin{{pmatrix}} {down:.3f} \\ {across:.3f} \end{{pmatrix}} = "
        rf"({first:.2f}, {second:.2f})$; the bottoms of other batches of "
        f"{now.n} lie {row['spread']:.2g} from their middle"
    )
    if (now.guess != START).any():
        text += f"; your dot is {row['gap']:.2f} from this bottom"
    return text


BOWL = Experiment(
    "bowl",
    BowlKnobs,
    bowl_rows,
    (),
    CAPTION,
    _status,
    front=("n", "damping", "noise"),
    playable={"n": (5, 20, 80, 320), "damping": (0.1, 1.0)},
    picture=picture,
    drag=partial(place_dragged, low=-WIDE, high=WIDE),
)
