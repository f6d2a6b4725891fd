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
    words,
)
from labkit.lab.panels.figures.theme import INK, SCALE, colour_of
from labkit.lab.problem import seeded
from labkit.rls import update

POINTS, TRUE = 60, (0.8, -0.5)
FAR = 5.0  # of the plane of the inputs
RULES = {name: colour_of(name) for name in ("RLS", "SGD")}
WIDE, BESIDE, GRID = 2.6, 4.0, 49  # of the plane of the weights: it is wider than high
LENGTH = 0.7  # of the longer of the two arrows
MINUS, STEP = "minus the gradient", "step of RLS"
LEGEND = (*RULES, MINUS)  # what is named below; the rest stands at its place
WORKED = (2.0, 1.0)  # the mean input of the worked example
ROOM = 1.7, 0.6  # half the width and height of the words for the mean input


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
    moved: str = knob(
        "", label="points moved",
        help="number and place of each, such as 7 1.5 -2, 12 0 3; targets stay",
        look_for="An outlier: whose path does it bend, and for how long?")
    # fmt: on

    def __post_init__(self):
        places(self.moved)
        corner_of(self.start)


class Ellipse(NamedTuple):
    """The data of one step before it is taken, and both paths with it."""

    inputs: np.ndarray  # (n, 2)
    targets: np.ndarray  # (n,)
    mean: np.ndarray  # (2,) of the minibatch
    weights: np.ndarray  # (2,) of RLS
    P: np.ndarray  # (2, 2)
    gradient: np.ndarray  # (2,)
    step: np.ndarray  # (2,) what RLS then adds to the weights
    loss: np.ndarray  # (GRID, GRID) of all data, at the plane's points
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


def places(moved: str) -> list[tuple[int, float, float]]:
    """Parse the numbers of points, from 1, and the places they were moved to.

    ValueError, with the format, if this fails.
    """
    parts = [part.split() for part in moved.split(",") if part.strip()]
    try:
        found = [(int(i), float(x), float(y)) for i, x, y in parts]
        if all(1 <= i <= POINTS and abs(x) <= FAR >= abs(y) for i, x, y in found):
            return found
    except ValueError:
        pass
    allowed = f"points 1 to {POINTS} with two inputs from {-FAR} to {FAR}"
    raise ValueError(f"moved must be like '7 1.5 -2, 12 0 3', {allowed}, got {moved!r}")


def data(knobs: EllipseKnobs) -> tuple[Tensor, Tensor]:
    """Return inputs (n, 2) with their mean on the diagonal, and noisy targets (n, 1).

    A point that was moved keeps its target.
    """
    g = seeded(knobs.seed)
    X = torch.randn(POINTS, 2, generator=g) * torch.tensor([1.0, 0.6]) + knobs.mean
    y = X @ torch.tensor([TRUE]).T
    y = y + knobs.noise * torch.randn(POINTS, 1, generator=g)
    for i, *place in places(knobs.moved):
        X[i - 1] = torch.tensor(place)
    return X, y


def surface(X: Tensor, y: Tensor) -> np.ndarray:
    """Compute the loss of all data over the plane of the weights, and beside it."""
    ticks = torch.linspace(-BESIDE, BESIDE, GRID)
    W = torch.cartesian_prod(ticks, ticks)
    losses = (X @ W.T - y).square().mean(0) / 2  # (57); vmap imports for a second
    return losses.view(GRID, GRID).T.numpy()  # a row for each second weight


def ellipse_rows(knobs: EllipseKnobs) -> Iterator[dict]:
    """Yield one row per step, with both rules on the same minibatch."""
    (X, y), g, step = data(knobs), seeded(knobs.seed), 0
    loss, rate, k = surface(X, y), knobs.lr, knobs.mean_weight
    theta, P = torch.tensor([corner_of(knobs.start)]), torch.eye(2)
    weights = {"SGD": theta.clone(), "RLS": theta}  # the last lies above
    paths = {name: [at.numpy()[0].copy()] for name, at in weights.items()}
    while True:
        for rows in torch.randperm(POINTS, generator=g).split(knobs.batch):
            step, x_mean, before = step + 1, X[rows].mean(0), (theta.clone(), P.clone())
            slope = {
                name: gradient(at, X[rows], y[rows]) for name, at in weights.items()
            }
            h = update.rls_step(theta, P, x_mean, slope["RLS"], mean_weight=k, lr=rate)
            weights["SGD"] -= rate * slope["SGD"]
            for name, at in weights.items():
                paths[name].append(at.numpy()[0].copy())
            made = Ellipse(
                inputs=X.numpy(),
                targets=y.numpy()[:, 0],
                mean=x_mean.numpy(),
                weights=before[0].numpy()[0],
                P=before[1].numpy(),
                gradient=slope["RLS"].numpy()[0],
                step=(theta - before[0]).numpy()[0],
                loss=loss,
                paths={name: np.stack(points) for name, points in paths.items()},
            )
            numbers = {
                "k": k,
                "stretch": float(made.mean @ made.P @ made.mean),
                "h": float(h),
                "first": float(made.step[0]),
                "second": float(made.step[1]),
                "degrees": angle_between(made.step, -made.gradient),
            }
            yield {"step": step} | numbers | {"pictures": made}


def gradient(theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Return the gradient (1, 2) of the mean squared error over two, (57)."""
    return (theta @ X.T - y.T) @ X / len(X)


def dragged(
    _now: Ellipse, knobs: EllipseKnobs, name: str, index: int, point: Sequence[float]
) -> dict[str, str]:
    """Return the knob of the start, or of moved points, with what a hand dragged."""
    if name == "start":
        first, second = np.clip(point, -BESIDE, BESIDE)
        return {"start": f"{first:.2f} {second:.2f}"}
    moved = {i: place for i, *place in places(knobs.moved)}
    moved[index + 1] = np.clip(point, -FAR, FAR)
    said = (f"{i} {x:.2f} {y:.2f}" for i, (x, y) in moved.items())
    return {"moved": ", ".join(said)}


CAPTION = (
    "With one step factor for both, SGD jumps across the valley at every step, and RLS "
    "goes down it without crossing: P, the green ellipse, has grown thin along the "
    "mean input, which is the direction across. Both arrows are drawn by one factor."
)


def picture(now: Ellipse | None, before: Ellipse | None) -> dict:
    """Draw the inputs on the left and the weights on the right."""
    wide = ((-WIDE, WIDE),) * 2
    figure = planes(
        ["Inputs, and P (green)", "Loss, paths, P at half size"],
        ["first input", "first weight"],
        ["second input", "second weight"],
        [((-FAR, FAR),) * 2, wide],
        caption=CAPTION,
        square=True,
    )
    if now:
        put(figure, 0, _inputs(now))
        put(figure, 1, [t | {"showlegend": t["name"] in LEGEND} for t in _weights(now)])
    if before:
        pale = path(before.paths["RLS"], GHOST, EARLIER)
        put(figure, 1, [pale | {"showlegend": True}])
    return figure


def _inputs(now: Ellipse) -> list[dict]:
    return [
        dots(now.inputs, INK, color=now.targets, colorscale=SCALE, size=6)
        | {"meta": {"touch": "points"}},
        ellipse((0, 0), now.P, 1.0, RULES["RLS"], width=3) | {"name": ""},
        arrow((0, 0), now.mean, INK) | {"name": ""},
        words(free_place(now), "mean input") | {"textposition": "middle center"},
    ]


def free_place(now: Ellipse) -> np.ndarray:
    """Return where the mean input's name stands, (2,): near it, off the points."""
    ticks = np.arange(-FAR + 1, FAR - 0.9, 0.5)
    places = np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 1, 2)
    shaft = np.linspace(0, 1, 9)[:, None] * now.mean
    edge = ellipse((0, 0), now.P, 1.0, INK)
    drawn = np.concatenate([now.inputs, shaft, np.c_[edge["x"], edge["y"]]])
    hidden = (np.abs(drawn - places) < ROOM).all(-1).sum(1)
    far = np.linalg.norm(places[:, 0] - now.mean, axis=1)
    return places[np.lexsort((far, hidden))[0], 0]


def _weights(now: Ellipse) -> list[dict]:
    ticks = np.linspace(-BESIDE, BESIDE, GRID)
    drawn = [contours(ticks, ticks, now.loss, "loss")]
    for name, points in now.paths.items():
        drawn.append(path(points, RULES[name], name, width=2 + (name == "RLS")))
        drawn.append(dots(points[-1], RULES[name], size=9))
    start = now.paths["RLS"][0]
    drawn.append(dots(start, INK, size=11, symbol="square"))
    drawn.append(handles(start, "start"))
    drawn.append(ellipse(now.weights, 0.25 * now.P, 1.0, RULES["RLS"], "P, half size"))
    longest = max(np.linalg.norm(now.gradient), np.linalg.norm(now.step), 1e-12)
    for vector, colour, name in (
        (-now.gradient, INK, MINUS),
        (now.step, RULES["RLS"], STEP),
    ):
        end = now.weights + LENGTH / longest * vector
        drawn.append(arrow(now.weights, end, colour, name))
    return drawn


def worked(values: Sequence[float]) -> dict:
    """Draw the worked example: P before, the mean input, and P as it is filled in.

    ``values`` are h and the entries 11, 12 and 22 of P, nan where nothing is filled in.
    """
    figure = planes(
        ["P before (grey), and as you fill it in"],
        ["first input"],
        ["second input"],
        [((-2.6, 2.6), (-1.3, 1.6))],
        caption="P becomes thin along the mean input, and stays as it was across it.",
        height=330,
        square=True,
    )
    put(figure, 0, [ellipse((0, 0), np.eye(2), 1.0, GHOST, width=2) | {"name": ""}])
    name = words(WORKED, "mean input") | {"textposition": "top left"}  # has room there
    put(figure, 0, [arrow((0, 0), WORKED, INK), name])
    _, one, between, two = values
    P = np.array([[one, between], [between, two]])
    if np.isfinite(P).all() and np.linalg.eigvalsh(P)[0] > 0:
        put(figure, 0, [ellipse((0, 0), P, 1.0, RULES["RLS"], width=3) | {"name": ""}])
    return figure


def _status(row: dict) -> str:
    return (
        r"$h = 1 + k\,\bar x^\top P\bar x = 1 + {k:.3g} \cdot {stretch:.3g} = {h:.3g}$,"
        r" and the step $-\tfrac{{\eta}}{{h}}\nabla P = ({first:.3f}, {second:.3f})$ is"
        r" {degrees:.0f} degrees off $-\nabla$"
    ).format(**row)


def angle_between(a: np.ndarray, b: np.ndarray) -> float:
    """Return the angle between two vectors in degrees."""
    lengths = max(np.linalg.norm(a) * np.linalg.norm(b), 1e-30)
    return float(np.degrees(np.arccos(np.clip(a @ b / lengths, -1.0, 1.0))))


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
