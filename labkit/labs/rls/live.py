"""RLS while it learns: what P has seen, and what it does to the gradient."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import torch

from labkit.instruments import GradientNoise, angle, best_ratio, gradient_cosine
from labkit.labs.rls.methods import (
    LAYERS,
    METHODS,
    Problem,
    Training,
    make_problem,
    make_training,
    noisy_labels,
)
from labkit.panels import Lines, LiveLab, knob
from labkit.rls import RLS, DivergedError, gain, train

EVERY = 10  # steps between two looks at the eigenvalues


@torch.no_grad()
def inspect(
    rls: RLS, totals: dict[str, torch.Tensor], *, spectrum=True
) -> dict[str, float]:
    """Look at every block between ``backward`` and ``step``; changes nothing there.

    Parameters
    ----------
    rls : with a gradient to step along.
    totals : sum of the mean inputs so far, by block; this step's are added.
    spectrum : whether to count the eigenvalues, n^3 operations a block.

    Returns
    -------
    dict, per block named NAME: ``h NAME``; ``angle NAME`` [degrees] between this mean
    input and the running mean; ``cosine NAME`` of the gradient and the preconditioned
    one; ``shrink NAME``, the ratio of their norms, with 1/h; ``below NAME``, how many
    eigenvalues of P are below 0.5; and, where the block keeps its inputs, ``ratio
    NAME``, the best-fitting k.
    """
    row = {}
    for each in rls.gather():
        name, P = each.block.name, each.state["P"]
        G = each.block.gradient()
        _, h = gain(P, each.x_mean, **each.rule)
        total = totals.get(name, each.x_mean)
        row |= {
            f"h {name}": float(h),
            f"angle {name}": float(angle(each.x_mean, total)),
            f"cosine {name}": float(gradient_cosine(G @ P, G)),
            f"shrink {name}": float((G @ P).norm() / (h * G.norm())),
        }
        if spectrum:
            row[f"below {name}"] = int((torch.linalg.eigvalsh(P) < 0.5).sum())
        if each.X is not None:
            row[f"ratio {name}"] = float(best_ratio(each.X)[0])
        totals[name] = each.x_mean + total if name in totals else each.x_mean
    return row


@dataclass(frozen=True)
class TrainingKnobs:
    """What can be turned in the live experiment."""

    method: str = knob(
        "RLS+M+R",
        choices=METHODS,
        help="+M with momentum, +R with L1",
        look_for="Adam and SGD have no P; on FC layers their loss falls more slowly.",
    )
    layers: str = knob(
        "FC",
        choices=LAYERS,
        help="hidden layers",
        look_for="LSTM: the loss falls last, long after that of the others.",
    )
    ratio: float = knob(
        0.1,
        low=1e-3,
        high=100.0,
        log=True,
        label="ratio k",
        restart=False,
        look_for="100: h jumps and falls back; ever more directions are switched off.",
    )
    eta: float = knob(
        1.0,
        low=0.01,
        high=10.0,
        log=True,
        label="step factor eta",
        restart=False,
        look_for="10: the loss runs away within a few steps.",
    )
    forgetting: float = knob(
        1.0,
        low=0.9,
        high=1.0,
        step=0.001,
        label="forgetting lambda",
        restart=False,
        look_for="Below 1: a while later the loss runs away; 0.9 takes thirty steps.",
    )
    batch: int = knob(
        128,
        low=8,
        high=256,
        step=8,
        unit="images",
        restart=False,
        look_for="8: the gradient's variance and the angle jump up.",
    )
    momentum: float = knob(
        0.5,
        low=0.0,
        high=0.95,
        step=0.05,
        help="alpha of +M",
        restart=False,
        look_for="0.95: the gradient's norm grows by about half; the loss still falls.",
    )
    l1: float = knob(
        1e-5,
        low=1e-7,
        high=1e-2,
        log=True,
        help="gamma of +R",
        restart=False,
        look_for="From 1e-3 on the loss rises and the accuracy falls.",
    )
    label_noise: float = knob(
        0.0,
        low=0.0,
        high=0.8,
        step=0.05,
        help="share of labels drawn at random",
        restart=False,
        look_for="Loss and gradient variance jump up; test accuracy loses less.",
    )
    seed: int = knob(
        0,
        low=0,
        high=99,
        help="weights, order, noise",
        look_for="Chance: after 120 steps five seeds are a point apart in the test.",
    )


def training_lab(
    knobs: TrainingKnobs | None = None,
    *,
    dataset="digits",
    samples=None,
    hidden=None,
    epochs=300,
    interactive=True,
    folder="",
    device="cpu",
    problems: dict | None = None,
    **look,
) -> LiveLab:
    """Knobs, stepper and live figure of one network in training.

    Parameters
    ----------
    knobs : where they start.  dataset, samples, hidden, epochs : see
        :func:`make_problem` and :func:`labkit.rls.train`.
    problems : by layer kind, used and filled.
    look : keywords of :class:`~labkit.panels.LiveLab` in place of this lab's own, as
        ``panels``, ``only`` and ``height``.
    """
    problems = {} if problems is None else problems

    def rows(now):
        layers = now().layers
        if layers not in problems:
            problems[layers] = make_problem(
                dataset, layers, hidden=hidden, samples=samples, device=device
            )
        return train_rows(problems[layers], now, epochs=epochs)

    return LiveLab(
        knobs or TrainingKnobs(),
        rows,
        tell=_tell,
        interactive=interactive,
        folder=folder,
        device=device,
        **{"name": "training", "panels": TRAINING_PANELS, "reading": READING} | look,
    )


def train_rows(
    problem: Problem, now: Callable[[], TrainingKnobs], *, epochs
) -> Iterator[dict]:
    """One row per minibatch: loss, accuracy, and :func:`inspect` of first and last.

    Every twentieth minibatch also says how noisy its gradient is, per layer.
    """
    knobs = now()
    torch.manual_seed(knobs.seed)
    model = problem.network()
    training = make_training(
        knobs.method, model, clip=problem.clip, on_failure="reset", **_options(knobs)
    )
    noise = GradientNoise(model)
    labels = problem.train.targets.clone()
    turn = _turner(now, training, labels, problem.train.targets)
    records = train(
        model,
        training.optimizer,
        problem.train.inputs,
        labels,
        loss=training.loss,
        epochs=epochs,
        batch_size=lambda: min(turn().batch, len(labels)),
        generator=torch.Generator().manual_seed(knobs.seed),
        max_grad_norm=training.max_grad_norm,
        test=(problem.test.inputs, problem.test.targets),
        watch=_watch(training.rls),
    )
    clipped = 0
    try:
        for record in records:
            clipped += record.clipped
            row = {"step": record.step, "loss": record.loss, "clipped": clipped}
            row["gradient norm"] = record.gradient_norm
            if record.test_accuracy is not None:
                row["accuracy"] = 100 * record.test_accuracy
            if noise.measured == record.step - 1:
                row |= noise_row(noise)
            yield row | dict(record.watched)
    except DivergedError as error:
        yield {"step": record.step + 1, "clipped": clipped, "note": str(error)}


def _options(knobs: TrainingKnobs) -> dict:
    """What the optimiser is told; it reads it again at each step."""
    names = ("ratio", "eta", "forgetting", "momentum", "l1")
    return {name: getattr(knobs, name) for name in names}


def _turner(now, training: Training, labels, clean) -> Callable[[], TrainingKnobs]:
    """Function to call before each step: puts the knobs as they stand now in force."""
    share = 0.0

    def turn():
        nonlocal share
        knobs = now()
        training.turn(**_options(knobs))
        if knobs.label_noise != share:
            share = knobs.label_noise
            labels.copy_(noisy_labels(clean, share, seed=knobs.seed))
        return knobs

    return turn


def _watch(rls: RLS | None):
    """What :func:`labkit.rls.train` calls to look at RLS; None without it."""
    if rls is None:
        return None
    totals, steps = {}, count()
    blocks = [block.name for block in rls.blocks]
    ends = {blocks[-1]: "last", blocks[0]: "first"}
    return lambda: _ends(inspect(rls, totals, spectrum=next(steps) % EVERY == 0), ends)


def noise_row(noise: GradientNoise) -> dict[str, float]:
    """Of the minibatch just measured, for the first and the last layer.

    ``noise`` is the variance of the minibatch's mean gradient, V / M, and ``scale`` the
    simple noise scale, left out where the minibatch is too small to tell.
    """
    layers = list(noise.per_layer.values())
    row = {"batch": layers[0].examples}
    for end, layer in (("first", layers[0]), ("last", layers[-1])):
        row[f"noise {end}"] = float(layer.variance) / layer.examples
        scale = float(layer.noise_scale)
        if math.isfinite(scale):
            row[f"scale {end}"] = scale
    return row


def _ends(row, ends) -> dict[str, float]:
    """Of a row for all blocks, the first and the last, renamed."""
    split = {key: key.rpartition(" ") for key in row}
    return {
        f"{quantity} {ends[block]}": row[key]
        for key, (quantity, _, block) in split.items()
        if block in ends
    }


def _tell(row) -> str:
    if "note" in row:
        return row["note"]
    ways = f"loss {row['loss']:.4f}, {row['clipped']} steps clipped"
    return ways + (f", test {row['accuracy']:.1f} %" if "accuracy" in row else "")


_FIRST_LAST = {"first": "first layer", "last": "last trained by RLS"}


def _pair(quantity):
    return {f"{quantity} {key}": label for key, label in _FIRST_LAST.items()}


READING = (
    "After the first steps h is 1 and the cosine stays well below it: P has switched "
    "off the direction of the mean input, and hardly any other."
)
TRAINING_PANELS = (
    Lines({"loss": "minibatch"}, "Loss", "loss", log=True),
    Lines({"accuracy": "after each epoch"}, "Test accuracy", "%"),
    Lines(_pair("h"), "Normaliser h (1 is lambda)", "h"),
    Lines(_pair("cosine"), "Gradient and preconditioned gradient", "cosine"),
    Lines(_pair("below"), "Directions that P has switched off", "eigenvalues < 0.5"),
    Lines(_pair("angle"), "Mean input to running mean", "degrees"),
    Lines(
        {"noise first": "first layer", "noise last": "last layer"},
        "Variance of the minibatch gradient",
        "L2 norm²",
        log=True,
    ),
    Lines(
        {"scale first": "first layer", "scale last": "last layer", "batch": "batch"},
        "Noise scale: batch as noisy as its signal",
        "images",
        log=True,
    ),
    Lines({"ratio first": "first layer"}, "Best-fitting k", "k"),
    Lines({"gradient norm": "before clipping"}, "Gradient norm", "L2 norm", log=True),
)
