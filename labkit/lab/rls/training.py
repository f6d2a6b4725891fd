"""RLS on its bench: its networks and optimisers by name, and the live experiment."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labkit.errors import DivergedError
from labkit.instruments import GradientNoise, angle, best_ratio, gradient_cosine
from labkit.lab.panels import Experiment, Lines, knob
from labkit.lab.problem import Problem, with_noise
from labkit.rls import RLS, AveragedRLS, Hybrid, KailathRLS, RunningMeanRLS
from labkit.rls.layers import KINDS as TRAINABLE
from labkit.rls.networks import SequenceClassifier, dense_network, small_cnn, vgg5
from labkit.rls.train import Record, Settings, train
from labkit.rls.update import Residuals, loss_one_hot

LAYERS = ("FC", "CONV", "RNN", "LSTM")
# The paper's constants by layer kind: joint norm of the gradient, gamma of +R.
CONSTANTS = {layers: {"clip": 5.0, "l1": 1e-5} for layers in ("FC", "CONV")}
CONSTANTS |= {layers: {"clip": 1.0, "l1": 1e-6} for layers in ("RNN", "LSTM")}
# name -> optimiser class; "+M" and "+R" may follow, and HRLS stands for a hybrid
KINDS = {"RLS": RLS, "HRLS": RLS, "exact RLS": KailathRLS}
KINDS |= {"averaged RLS": AveragedRLS, "running-mean RLS": RunningMeanRLS}
BASELINES = ("Adam", "Adam-CE", "SGD")
METHODS = ("RLS", "RLS+M", "RLS+R", "RLS+M+R", "HRLS", "HRLS+M", "HRLS+M+R", *BASELINES)


def network(problem: Problem, layers: str = "FC", hidden: int | None = None):
    """A new network of a kind of `LAYERS`, weights from torch's global generator.

    Recurrent networks read images row by row, and words as 128 numbers. ``hidden``
    units: 512 for FC and words, else 64; CIFAR-10 has the paper's network.
    """
    allowed = {"cifar10": ("CONV",), "imdb": ("LSTM",)}.get(problem.name, LAYERS)
    if layers not in allowed:
        known = ", ".join(allowed)
        raise ValueError(f"{problem.name} goes with {known} layers, got {layers!r}")
    data, classes = problem.fit, problem.classes
    side, words = math.isqrt(data.inputs[0].numel()), problem.name == "imdb"
    hidden = hidden or (512 if words or layers == "FC" else 64)
    if problem.name == "cifar10":
        made = vgg5()
    elif words:
        made = SequenceClassifier(128, hidden, classes, vocabulary=len(data.vocabulary))
    elif layers == "FC":
        made = dense_network(data.inputs.shape[1], hidden, classes)
    elif layers == "CONV":
        made = small_cnn(side, (16, 32), hidden, classes)
    else:
        cell = nn.LSTM if layers == "LSTM" else nn.RNN
        made = SequenceClassifier(side, hidden, classes, cell=cell)
    return made.to(data.inputs.device)


@dataclass(frozen=True)
class Training:
    """What training needs beside model and data."""

    optimizer: object
    loss: Callable[[Tensor, Tensor], Tensor]
    max_grad_norm: float | None  # for optimisers that do not clip themselves
    variants: frozenset[str] = frozenset()  # of "M" and "R"

    @property
    def rls(self) -> RLS | None:
        """The RLS part, if there is one."""
        part = getattr(self.optimizer, "rls", self.optimizer)
        return part if isinstance(part, RLS) else None

    def turn(self, **options):
        """From the next step of RLS on; for options of variants that it lacks, none."""
        for group in self.rls.param_groups if self.rls else ():
            group.update(_of_variants(self.variants, **options))

    def run(self, model, problem: Problem, *, seed=0, **options) -> Iterator[Record]:
        """:func:`labkit.rls.train` on a problem, the order of samples by ``seed``."""
        fit, test = problem.fit, problem.test
        options |= {"loss": self.loss, "max_grad_norm": self.max_grad_norm}
        options |= {"generator": torch.Generator().manual_seed(seed)}
        options |= {"test": (test.inputs, test.targets)}
        return train(model, self.optimizer, fit.inputs, fit.targets, **options)


def make_training(
    name, model, *, clip, lr=1.0, adam_lr=1e-3, l1=1e-5, momentum=0.5, **options
) -> Training:
    """Optimiser and loss called ``name``, such as ``RLS+M`` or ``HRLS+M+R``.

    One of `KINDS`, then ``+M`` (with ``momentum``) and ``+R`` (with ``l1``); or one of
    `BASELINES`. Hybrids and Adam-CE minimise the cross-entropy, others (57). ``clip``
    is the gradient's joint norm; ``lr`` is of RLS, and of SGD, which takes 1 as RLS
    does; ``adam_lr`` of Adam, also in a hybrid; ``options`` are those of RLS.
    """
    adam = partial(torch.optim.Adam, lr=adam_lr)
    if name in BASELINES:
        kind = partial(torch.optim.SGD, lr=lr) if name == "SGD" else adam
        loss = cross_entropy if name == "Adam-CE" else loss_one_hot
        return Training(kind(model.parameters()), loss, clip)
    kind, *variants = name.split("+")
    if kind not in KINDS or not set(variants) <= {"M", "R"}:
        known = ", ".join([*KINDS, *BASELINES])
        raise ValueError(
            f"unknown method {name!r}; write one of {known}, and +M or +R after a RLS"
        )
    options |= _of_variants(variants, lr=lr, momentum=momentum, l1=l1)
    hybrid, layers = kind == "HRLS", trainable(model)
    layers = layers[:-1] if hybrid else layers
    rls = KINDS[kind](model, layers=layers, max_grad_norm=clip, **options)
    mine = {id(p) for group in rls.param_groups for p in group["params"]}
    rest = [p for p in model.parameters() if id(p) not in mine]
    optimizer = Hybrid(rls, adam(rest)) if rest else rls
    loss = cross_entropy if hybrid else loss_one_hot
    return Training(optimizer, loss, None, frozenset(variants))


def trainable(model: nn.Module) -> list[str]:
    """Names of the layers that RLS can train."""
    return [name for name, m in model.named_modules() if type(m) in TRAINABLE]


def _of_variants(variants, *, momentum, l1, **options) -> dict:
    momentum, l1 = momentum * ("M" in variants), l1 * ("R" in variants)
    return options | {"momentum": momentum, "l1": l1}


def watcher(rls: RLS) -> Callable[[], dict[str, float]]:
    """What `train` calls to look at the first and the last block; changes nothing.

    h, the angle of this mean input to the running mean [degrees], the cosine and the
    ratio of norms of the preconditioned and the plain gradient, every ten steps the
    eigenvalues of P below 0.5, and the best-fitting k where inputs are kept.
    """
    ends = {rls.blocks[-1].name: "last", rls.blocks[0].name: "first"}
    totals, calls = {}, count()

    @torch.no_grad()
    def watch():
        seen, spectrum = {}, next(calls) % 10 == 0
        for each in rls.pending():
            if not (end := ends.get(each.block.name)):
                continue
            P, G, x_mean = each.state["P"], each.block.gradient(), each.x_mean
            GP = G @ P
            seen[f"h {end}"] = each.h
            seen[f"angle {end}"] = angle(x_mean, totals.get(end, x_mean))
            seen[f"cosine {end}"] = gradient_cosine(GP, G)
            seen[f"shrink {end}"] = GP.norm() / (each.h * G.norm())
            if spectrum:
                seen[f"below {end}"] = (torch.linalg.eigvalsh(P) < 0.5).sum()
            if isinstance(each.gradient, Residuals):
                X = each.block.with_ones(each.gradient.X)
                seen[f"best_k {end}"] = best_ratio(X)[0]
            totals[end] = x_mean + totals.get(end, 0)
        return {name: value.item() for name, value in seen.items()}

    return watch


LOOK_FOR = {
    "method": "Whose loss falls fastest? Adam and SGD have no P to look at.",
    "layers": "Which loss falls last?",
    "mean_weight": "100: watch h, and how many directions are switched off.",
    "lr": "10: how many steps until the loss runs away?",
    "forgetting": "Below 1: wait, and see how the run ends.",
    "batch": "8: watch the gradient's variance and the angle.",
    "momentum": "0.95: does the gradient's norm grow? Does the loss still fall?",
    "l1": "From which value on do loss and accuracy suffer?",
    "label_noise": "What loses more: the loss, or accuracy on clean labels?",
    "seed": "Chance: how far apart do two seeds end?",
}


def _knob(name, default, low=None, high=None, **more):
    more |= {"look_for": LOOK_FOR[name], "restart": name in AFRESH}
    more["about"] = ABOUT.get(name, "")
    return knob(default, low=low, high=high, **more)


ABOUT = dict.fromkeys(("label_noise", "lr", "momentum", "l1", "method"), "loss")
ABOUT |= {"mean_weight": "cosine first", "batch": "noise first"}
AFRESH = ("method", "layers", "seed")  # they begin a run anew
LIVE = ("mean_weight", "lr", "forgetting", "momentum", "l1")  # options of RLS
VARIANTS = "+M with momentum, +R with L1"
NOISE = "share of labels drawn at random"


@dataclass(frozen=True)
class Knobs:
    """What can be turned in the live experiment."""

    method: str = _knob("method", "RLS+M+R", choices=METHODS, help=VARIANTS)
    layers: str = _knob("layers", "FC", choices=LAYERS, help="hidden layers")
    mean_weight: float = _knob(
        "mean_weight", 0.1, 1e-3, 100.0, log=True, label="mean weight k"
    )
    lr: float = _knob("lr", 1.0, 0.01, 10.0, log=True, label="step factor eta")
    forgetting: float = _knob(
        "forgetting", 1.0, 0.9, 1.0, step=0.001, label="forgetting lambda"
    )
    batch: int = _knob("batch", 128, 8, 256, step=8, unit="images")
    momentum: float = _knob("momentum", 0.5, 0.0, 0.95, step=0.05, help="alpha of +M")
    l1: float = _knob("l1", 1e-5, 1e-7, 1e-2, log=True, help="gamma of +R")
    label_noise: float = _knob("label_noise", 0.0, 0.0, 0.8, step=0.05, help=NOISE)
    seed: int = _knob("seed", 0, 0, 99, help="weights, order, noise")


def training_rows(settings, problems: Mapping[str, Problem], hidden=None, epochs=300):
    """Train on the problem of a layer kind, FC with ``hidden`` units: a row a step."""
    layers, seed = settings.layers, settings.seed
    clean = problems[layers]
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
    """What was measured at one step, by column."""
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
FRONT = "label_noise", "method", "mean_weight"
_SHOWN = PANELS, CAPTION, _status
_LOOK = {"front": FRONT, "playable": {"label_noise": (0.0, 0.2, 0.4, 0.8)}}
TRAINING = Experiment("training", Knobs, training_rows, *_SHOWN, **_LOOK)
