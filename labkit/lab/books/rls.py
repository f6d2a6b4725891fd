"""Notebook 01: the opening and the live experiment."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.errors import DivergedError
from labkit.instruments import GradientNoise, angle, gradient_cosine
from labkit.lab.books.rls_training import (
    CONSTANTS,
    METHODS,
    make_training,
    network,
    trainable,
)
from labkit.lab.books.shared import (
    labels_knob,
    live_knob,
    noise_knob,
    place_dragged,
    place_of,
    seed_knob,
)
from labkit.lab.panels import Experiment, Lines, knob
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
from labkit.lab.problem import Problem, seeded, with_noise
from labkit.rls import RLS, rls_step
from labkit.rls.train import Settings
from labkit.rls.update import Residuals

POINTS = 60
BATCH = 16
TRUE = (0.8, -0.5)
RULES = {name: colour_of(name) for name in ("RLS", "SGD")}
GREEN = RULES["RLS"]
FAR = 5.0  # half of the plane of the inputs
WIDE = 2.6  # half of the plane of the weights
BESIDE = 4.0  # the farthest start, beyond that plane
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
    noise: float = noise_knob(
        0.3, help="on the targets",
        look_for="Which path trembles at the end?")
    seed: int = seed_knob(help="of the data", look_for="Is it chance?")
    start: str = knob(
        "1.9 0.9", help="of both paths: two weights; drag the square",
        look_for="Begin on the valley's floor: is SGD still worse?")
    # fmt: on

    def __post_init__(self):
        place_of("start", self.start, BESIDE)


class Ellipse(NamedTuple):
    """One step: what P was before it, and both paths up to its end."""

    inputs: np.ndarray  # (n, 2)
    mean: np.ndarray  # (2,) of the minibatch
    P: np.ndarray  # (2, 2)
    gradient: np.ndarray  # (2,)
    loss: np.ndarray  # (49, 49) of all data, at the plane's points
    paths: dict[str, np.ndarray]  # by rule, (steps + 1, 2)


def data(knobs: EllipseKnobs) -> tuple[Tensor, Tensor]:
    """Return inputs (n, 2), their mean on the diagonal, and noisy targets (n, 1)."""
    generator = seeded(knobs.seed)
    X = (
        torch.randn(POINTS, 2, generator=generator) * torch.tensor([1.0, 0.6])
        + knobs.mean
    )
    y = X @ torch.tensor([TRUE]).T
    return X, y + knobs.noise * torch.randn(POINTS, 1, generator=generator)


def surface(X: Tensor, y: Tensor) -> np.ndarray:
    """Compute the loss of all data over the plane of the weights, and beside it."""
    ticks = torch.tensor(TICKS, dtype=X.dtype)
    W = torch.cartesian_prod(ticks, ticks)
    losses = (X @ W.T - y).square().mean(0) / 2  # (57)
    return losses.view(len(ticks), -1).T.numpy()  # a row for each second weight


def ellipse_rows(knobs: EllipseKnobs) -> Iterator[dict]:
    """Yield one row per step, with both rules on the same minibatch."""
    (X, y), generator, step = data(knobs), seeded(knobs.seed), 0
    loss, rate, k = surface(X, y), knobs.lr, knobs.mean_weight
    start = place_of("start", knobs.start, BESIDE)
    theta, P = torch.tensor(start[None], dtype=X.dtype), torch.eye(2)
    weights = {"SGD": theta.clone(), "RLS": theta}  # the last lies above
    paths = {name: at.numpy().copy() for name, at in weights.items()}
    while True:
        for rows in torch.randperm(POINTS, generator=generator).split(BATCH):
            step, x_mean, P_before = step + 1, X[rows].mean(0), P.clone()
            slope, other = (
                gradient(weights[name], X[rows], y[rows]) for name in ("RLS", "SGD")
            )
            weights["SGD"] -= rate * other
            h = rls_step(theta, P, x_mean, slope, mean_weight=k, lr=rate)
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
                    inputs=X.numpy(),
                    mean=x_mean.numpy(),
                    P=P_before.numpy(),
                    gradient=slope.numpy()[0],
                    loss=loss,
                    paths=paths,
                ),
            }


def gradient(theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Return the gradient (1, 2) of the mean squared error over two, (57)."""
    return (theta @ X.T - y.T) @ X / len(X)


CAPTION = (
    "With one step factor for both, SGD jumps across the valley at every step, and RLS "
    "goes down it without crossing: P, the green ellipse, has grown thin along the "
    "mean input, which is the direction across. Both arrows are drawn at one scale."
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
            dots(now.inputs, INK, size=6, opacity=0.5),
            ellipse((0, 0), now.P, 1.0, GREEN, width=3),
            arrow((0, 0), now.mean, INK, "mean input"),
        ]
        put(figure, 0, inputs)
        drawn = _weights(now)
    if before:
        drawn.append(path(before.paths["RLS"], GHOST, EARLIER))
    put(figure, 1, drawn)
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
    drag=partial(place_dragged, low=-BESIDE, high=BESIDE),
)


# The live experiment


def watcher(rls: RLS) -> Callable[[], dict[str, float]]:
    """Return a function for `train` that measures the first block of RLS.

    It measures h, the angle of this mean input to the running mean [degrees], and the
    cosine between the preconditioned and the plain gradient. It changes nothing.
    """
    total = torch.zeros(())

    @torch.no_grad()
    def watch():
        nonlocal total
        each = rls.pending()[0]
        G, mean = each.gradient, each.x_mean
        G = G.formed() if isinstance(G, Residuals) else G
        total = mean + total.to(mean)
        return {
            "h": float(each.h),
            "angle": float(angle(mean, total)),
            "cosine": float(gradient_cosine(G @ each.state["P"], G)),
        }

    return watch


@dataclass(frozen=True)
class Knobs:
    """Knobs of the live experiment."""

    # fmt: off
    method: str = knob(
        "RLS+M+R", choices=METHODS, help="+M with momentum, +R with L1",
        about="the loss: loss",
        look_for="Whose loss falls fastest? Adam and SGD have no P to look at.")
    mean_weight: float = live_knob(
        0.1, low=1e-3, high=100.0, log=True, label="mean weight k",
        about="the cosine: cosine",
        look_for="100: watch h, and how the cosine falls further.")
    lr: float = live_knob(
        1.0, low=0.01, high=10.0, log=True, label="step factor eta",
        help="of RLS; SGD stays at 1, Adam at 0.001", about="the loss: loss",
        look_for="10: how many steps until the loss runs away?")
    forgetting: float = live_knob(
        1.0, low=0.9, high=1.0, step=0.001, label="forgetting lambda",
        look_for="Below 1: wait, and see how the run ends.")
    batch: int = live_knob(
        128, low=8, high=256, step=8, unit="images",
        about="the gradient's noise: noise",
        look_for="8: watch the gradient's variance and the angle.")
    label_noise: float = labels_knob(
        restart=False, about="the loss: loss", help="labels drawn at random",
        look_for="What loses more: the loss, or accuracy on clean labels?")
    seed: int = seed_knob(
        help="weights, order, noise",
        look_for="Chance: how far apart do two seeds end?")
    # fmt: on


def training_rows(
    settings: Knobs, read: Callable[[], Problem], hidden: int
) -> Iterator[dict]:
    """Train an FC network of ``hidden`` units, and yield a row for each step.

    The ``settings`` are read again before each step, and the problem, by ``read``, when
    a run begins.
    """
    seed, clean = settings.seed, read()
    labels = clean.fit.targets.clone()
    problem = replace(clean, fit=replace(clean.fit, targets=labels))
    torch.manual_seed(seed)
    model = network(problem, hidden=hidden)
    training = make_training(
        settings.method, model, **CONSTANTS["FC"], on_failure="reset"
    )
    rls, size = training.rls, Settings()
    noise = GradientNoise(model, layers=trainable(model)[:1])

    def turn():
        for group in rls.param_groups if rls else ():
            group["mean_weight"], group["lr"] = settings.mean_weight, settings.lr
            group["forgetting"] = settings.forgetting
        size.batch_size = min(settings.batch, len(labels))
        noisy = with_noise(clean, label_noise=settings.label_noise, seed=seed)
        labels.copy_(noisy.fit.targets)

    watch = watcher(rls) if rls else None
    step = 0
    turn()
    try:
        for record in training.run(
            model,
            problem,
            generator=seeded(seed),
            epochs=300,
            batch_size=size,
            watch=watch,
        ):
            step = record.step
            row = {"step": step, "loss": record.loss}
            if record.test_accuracy is not None:
                row["accuracy"] = 100 * record.test_accuracy
            row |= record.watched or {}
            row |= _noise(noise) if noise.measured == step - 1 else {}
            yield row
            turn()
    except DivergedError as error:
        yield {"step": step + 1, "note": str(error)}


def _noise(noise: GradientNoise) -> dict:
    """Return what is measured of the first layer's gradient, by column."""
    (layer,) = noise.per_layer.values()
    row = {"batch": layer.examples, "noise": float(layer.variance) / layer.examples}
    scale = float(layer.noise_scale)
    # Not finite where the minibatch is too small to tell.
    return row | ({"scale": scale} if math.isfinite(scale) else {})


def _live_status(row) -> str:
    if "note" in row:
        return row["note"]
    right = f", test {row['accuracy']:.1f} %" if "accuracy" in row else ""
    return f"loss {row['loss']:.4f}{right}"


SCALES = {"scale": "noise scale", "batch": "batch"}
PANELS = (
    Lines(("loss",), "Loss of the minibatch", "loss", log=True),
    Lines(("accuracy",), "Test accuracy", "%"),
    Lines(("h",), "Normaliser h (1 is lambda)", "h"),
    Lines(("cosine",), "Gradient and gradient times P", "cosine"),
    Lines(("angle",), "Mean input to running mean", "degrees"),
    Lines(("noise",), "Variance of the gradient", "L2 norm²", log=True),
    Lines(SCALES, "Noise scale, and the batch", "images", log=True),
)
LIVE_CAPTION = (
    "After the first steps h is near 1 and the cosine stays well below it: P has taken "
    "something large out of the first layer's gradient. All but loss and accuracy is "
    "of this layer."
)
TRAINING = Experiment(
    "training",
    Knobs,
    training_rows,
    PANELS,
    LIVE_CAPTION,
    _live_status,
    front=("label_noise", "method", "mean_weight"),
)
