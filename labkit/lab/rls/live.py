"""Define the live experiment of RLS: its knobs, a row for each step, and its panels."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

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
from labkit.rls.train import Record, Settings
from labkit.rls.update import Residuals


def watcher(rls: RLS) -> Callable[[], dict[str, float]]:
    """Return a function for `train` that measures the first and last block of RLS.

    It measures h, the angle of this mean input to the running mean [degrees], the
    cosine between the preconditioned and the plain gradient and the ratio of their
    norms, every ten steps the number of eigenvalues of P below 0.5, and the
    best-fitting k if inputs are kept. It changes nothing.
    """
    ends = {rls.blocks[-1].name: "last", rls.blocks[0].name: "first"}
    totals, calls = {}, count()

    @torch.no_grad()
    def watch():
        measured, spectrum = {}, next(calls) % 10 == 0
        for each in rls.pending():
            if not (end := ends.get(each.block.name)):
                continue
            P, G, x_mean = each.state["P"], each.gradient, each.x_mean
            if isinstance(G, Residuals):  # in the place of a formed gradient
                X = torch.nn.functional.pad(G.X[:-1, :-1], (0, 1), value=1)
                measured[f"best_k {end}"] = best_ratio(X)[0]
                G = G.formed()
            GP = G @ P
            measured[f"h {end}"] = each.h
            measured[f"angle {end}"] = angle(x_mean, totals.get(end, x_mean))
            measured[f"cosine {end}"] = gradient_cosine(GP, G)
            measured[f"shrink {end}"] = GP.norm() / (each.h * G.norm())
            if spectrum:
                measured[f"below {end}"] = (torch.linalg.eigvalsh(P) < 0.5).sum()
            totals[end] = x_mean + totals.get(end, 0)
        return {name: value.item() for name, value in measured.items()}

    return watch


LIVE = ("mean_weight", "lr", "forgetting", "momentum", "l1")  # options of RLS


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
        about="the cosine in the first layer: cosine first",
        look_for="100: watch h, and how many directions are switched off.")
    lr: float = knob(
        1.0, low=0.01, high=10.0, log=True, label="step factor eta", restart=False,
        about="the loss: loss", look_for="10: how many steps until the loss runs away?")
    forgetting: float = knob(
        1.0, low=0.9, high=1.0, step=0.001, label="forgetting lambda", restart=False,
        look_for="Below 1: wait, and see how the run ends.")
    batch: int = knob(
        128, low=8, high=256, step=8, unit="images", restart=False,
        about="the first layer's noise: noise first",
        look_for="8: watch the gradient's variance and the angle.")
    momentum: float = knob(
        0.5, low=0.0, high=0.95, step=0.05, help="alpha of +M", restart=False,
        about="the loss: loss",
        look_for="0.95: does the gradient's norm grow? Does the loss still fall?")
    l1: float = knob(
        1e-5, low=1e-7, high=1e-2, log=True, help="gamma of +R", restart=False,
        about="the loss: loss",
        look_for="From which value on do loss and accuracy suffer?")
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
    epochs: int = 300,
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
    options = {name: getattr(settings, name) for name in LIVE}
    options |= {"clip": CONSTANTS[layers]["clip"], "on_failure": "reset"}
    training = make_training(settings.method, model, **options)
    noise, size = GradientNoise(model, layers=trainable(model)), Settings()

    def turn():
        training.turn(**{name: getattr(settings, name) for name in LIVE})
        size.batch_size = min(settings.batch, len(labels))
        noisy = with_noise(clean, label_noise=settings.label_noise, seed=seed)
        labels.copy_(noisy.fit.targets)

    watch = watcher(training.rls) if training.rls else None
    options = {"epochs": epochs, "batch_size": size, "watch": watch}
    clipped, step = 0, 0
    turn()
    try:
        for record in training.run(model, problem, seed=seed, **options):
            clipped, step = clipped + record.clipped, record.step
            yield _row(record, noise) | {"clipped": clipped}
            turn()
    except DivergedError as error:
        yield {"step": step + 1, "clipped": clipped, "note": str(error)}


def _row(record: Record, noise: GradientNoise) -> dict:
    """Return the measurements of one step, by column."""
    row = {"step": record.step, "loss": record.loss}
    row["gradient norm"] = record.gradient_norm
    if record.test_accuracy is not None:
        row["accuracy"] = 100 * record.test_accuracy
    row |= record.watched or {}
    if noise.measured == record.step - 1:  # of this minibatch
        layers = list(noise.per_layer.values())
        row["batch"] = layers[0].examples
        for end, layer in (("first", layers[0]), ("last", layers[-1])):
            row[f"noise {end}"] = float(layer.variance) / layer.examples
            scale = float(layer.noise_scale)
            if math.isfinite(scale):  # else the minibatch is too small to tell
                row[f"scale {end}"] = scale
    return row


def _status(row) -> str:
    if "note" in row:
        return row["note"]
    right = f", test {row['accuracy']:.1f} %" if "accuracy" in row else ""
    return f"loss {row['loss']:.4f}, {row['clipped']} steps clipped{right}"


def _ends(quantity, title, y_title, last="last trained by RLS", log=False):
    labels = {f"{quantity} first": "first layer", f"{quantity} last": last}
    return Lines(labels, title, y_title, log=log)


OF_ALL = "last layer"
SCALES = {"scale first": "first layer", "scale last": OF_ALL, "batch": "batch"}
NORM = {"gradient norm": "before clipping"}
PANELS = (
    Lines({"loss": "minibatch"}, "Loss", "loss", log=True),
    Lines({"accuracy": "after each epoch"}, "Test accuracy", "%"),
    _ends("h", "Normaliser h (1 is lambda)", "h"),
    _ends("cosine", "Gradient and preconditioned gradient", "cosine"),
    _ends("below", "Directions that P has switched off", "eigenvalues < 0.5"),
    _ends("angle", "Mean input to running mean", "degrees"),
    _ends("noise", "Variance of the minibatch gradient", "L2 norm²", OF_ALL, True),
    Lines(SCALES, "Noise scale: batch as noisy as its signal", "images", log=True),
    Lines({"best_k first": "first layer"}, "Best-fitting k", "k"),
    Lines(NORM, "Gradient norm", "L2 norm", log=True),
)
CAPTION = (
    "After the first steps h is 1 and the cosine stays well below it: P has switched "
    "off the direction of the mean input, and hardly any other."
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
