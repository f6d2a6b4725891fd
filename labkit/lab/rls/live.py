"""Define the live experiment of RLS: its knobs, a row for each step, and its panels."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from labkit.errors import DivergedError
from labkit.instruments import GradientNoise, angle, best_ratio, gradient_cosine
from labkit.lab.panels import Experiment, Lines, knob
from labkit.lab.problem import Problem, with_noise
from labkit.lab.rls.training import (
    CONSTANTS,
    LAYERS,
    METHODS,
    make_training,
    network,
    trainable,
)
from labkit.rls import RLS
from labkit.rls.train import Settings
from labkit.rls.update import Residuals


def watcher(rls: RLS) -> Callable[[], dict[str, float]]:
    """Return a function for `train` that measures the first block of RLS.

    It measures h, the angle of this mean input to the running mean [degrees], the
    cosine between the preconditioned and the plain gradient, and the best-fitting k if
    inputs are kept. It changes nothing.
    """
    total = torch.zeros(())

    @torch.no_grad()
    def watch():
        nonlocal total
        each = rls.pending()[0]
        G, mean, fitting = each.gradient, each.x_mean, {}
        if isinstance(G, Residuals):  # in the place of a formed gradient
            X = torch.nn.functional.pad(G.X[:-1, :-1], (0, 1), value=1)
            fitting, G = {"best k": float(best_ratio(X)[0])}, G.formed()
        total = mean + total.to(mean)
        return fitting | {
            "h": float(each.h),
            "angle": float(angle(mean, total)),
            "cosine": float(gradient_cosine(G @ each.state["P"], G)),
        }

    return watch


LIVE = ("mean_weight", "lr", "forgetting")  # options of RLS


@dataclass(frozen=True)
class Knobs:
    """Knobs of the live experiment."""

    # fmt: off
    method: str = knob(
        "RLS+M+R", choices=METHODS, help="+M with momentum, +R with L1",
        about="the loss: loss",
        look_for="Whose loss falls fastest? Adam and SGD have no P to look at.")
    layers: str = knob(
        "FC", choices=LAYERS, help="hidden layers", look_for="Which loss falls last?")
    mean_weight: float = knob(
        0.1, low=1e-3, high=100.0, log=True, label="mean weight k", restart=False,
        about="the cosine: cosine",
        look_for="100: watch h, and how the cosine falls further.")
    lr: float = knob(
        1.0, low=0.01, high=10.0, log=True, label="step factor eta", restart=False,
        about="the loss: loss", look_for="10: how many steps until the loss runs away?")
    forgetting: float = knob(
        1.0, low=0.9, high=1.0, step=0.001, label="forgetting lambda", restart=False,
        look_for="Below 1: wait, and see how the run ends.")
    batch: int = knob(
        128, low=8, high=256, step=8, unit="images", restart=False,
        about="the gradient's noise: noise",
        look_for="8: watch the gradient's variance and the angle.")
    label_noise: float = knob(
        0.0, low=0.0, high=0.8, step=0.05, help="share of labels drawn at random",
        restart=False, about="the loss: loss",
        look_for="What loses more: the loss, or accuracy on clean labels?")
    seed: int = knob(
        0, low=0, high=99, help="weights, order, noise",
        look_for="Chance: how far apart do two seeds end?")
    # fmt: on


def training_rows(
    settings: Knobs,
    problem_of: Callable[[str], Problem],
    hidden: int | None = None,
) -> Iterator[dict]:
    """Train on the problem of a layer kind and yield a row for each step.

    The ``settings`` are read again before each step; ``hidden`` is the width of FC
    layers. ``problem_of`` loads the problem of a layer kind when a run begins.
    """
    layers, seed = settings.layers, settings.seed
    clean = problem_of(layers)
    labels = clean.fit.targets.clone()
    problem = replace(clean, fit=replace(clean.fit, targets=labels))
    torch.manual_seed(seed)
    model = network(problem, layers, hidden if layers == "FC" else None)
    clip = CONSTANTS[layers]["clip"]
    training = make_training(settings.method, model, clip=clip, on_failure="reset")
    rls, size = training.rls, Settings()
    noise = GradientNoise(model, layers=trainable(model)[:1])

    def turn():
        for group in rls.param_groups if rls else ():
            group.update({name: getattr(settings, name) for name in LIVE})
        size.batch_size = min(settings.batch, len(labels))
        noisy = with_noise(clean, label_noise=settings.label_noise, seed=seed)
        labels.copy_(noisy.fit.targets)

    watch = watcher(rls) if rls else None
    clipped, step = 0, 0
    turn()
    try:
        for record in training.run(
            model, problem, seed=seed, epochs=300, batch_size=size, watch=watch
        ):
            clipped, step = clipped + record.clipped, record.step
            row = {"step": step, "loss": record.loss, "clipped": clipped}
            if record.test_accuracy is not None:
                row["accuracy"] = 100 * record.test_accuracy
            row |= record.watched or {}
            row |= _noise(noise) if noise.measured == step - 1 else {}
            yield row
            turn()
    except DivergedError as error:
        yield {"step": step + 1, "clipped": clipped, "note": str(error)}


def _noise(noise: GradientNoise) -> dict:
    """Return what is measured of the first layer's gradient, by column."""
    (layer,) = noise.per_layer.values()
    row = {"batch": layer.examples, "noise": float(layer.variance) / layer.examples}
    scale = float(layer.noise_scale)
    # Not finite where the minibatch is too small to tell.
    return row | ({"scale": scale} if math.isfinite(scale) else {})


def _status(row) -> str:
    if "note" in row:
        return row["note"]
    right = f", test {row['accuracy']:.1f} %" if "accuracy" in row else ""
    return f"loss {row['loss']:.4f}, {row['clipped']} steps clipped{right}"


SCALES = {"scale": "noise scale", "batch": "batch"}
PANELS = (
    Lines(("loss",), "Loss of the minibatch", "loss", log=True),
    Lines(("accuracy",), "Test accuracy", "%"),
    Lines(("h",), "Normaliser h (1 is lambda)", "h"),
    Lines(("cosine",), "Gradient and gradient times P", "cosine"),
    Lines(("angle",), "Mean input to running mean", "degrees"),
    Lines(("best k",), "Best-fitting k", "k"),
    Lines(("noise",), "Variance of the gradient", "L2 norm²", log=True),
    Lines(SCALES, "Noise scale, and the batch", "images", log=True),
)
CAPTION = (
    "After the first steps h is near 1 and the cosine stays well below it: P has taken "
    "something large out of the gradient of the first layer, of which all is but loss "
    "and accuracy."
)
TRAINING = Experiment(
    "training",
    Knobs,
    training_rows,
    PANELS,
    CAPTION,
    _status,
    front=("label_noise", "method", "mean_weight"),
    playable={"label_noise": (0.0, 0.2, 0.4, 0.8)},
)
