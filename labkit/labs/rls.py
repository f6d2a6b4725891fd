"""RLS on its bench: its networks and optimisers by name, and the live experiment."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import torch
from torch import Tensor, nn

from labkit.errors import DivergedError
from labkit.instruments import GradientNoise, angle, best_ratio, gradient_cosine
from labkit.labs.problem import Problem, with_noise
from labkit.panels import Experiment, Lines, knob
from labkit.rls import (
    RLS,
    AveragedRLS,
    Hybrid,
    KailathRLS,
    Record,
    Residuals,
    RunningMeanRLS,
    SequenceClassifier,
    Settings,
    dense_network,
    loss_one_hot,
    small_cnn,
    train,
    vgg5,
)
from labkit.rls.blocks import BlockStep

LAYERS = ("FC", "CONV", "RNN", "LSTM")
# The paper's constants by layer kind: joint norm of the gradient, gamma of +R.
CONSTANTS = {layers: {"clip": 5.0, "l1": 1e-5} for layers in ("FC", "CONV")}
CONSTANTS |= {layers: {"clip": 1.0, "l1": 1e-6} for layers in ("RNN", "LSTM")}
# name -> optimiser class; "+M" and "+R" may follow, and HRLS stands for a hybrid
KINDS = {
    "RLS": RLS,
    "HRLS": RLS,
    "exact RLS": KailathRLS,
    "averaged RLS": AveragedRLS,
    "running-mean RLS": RunningMeanRLS,
}
BASELINES = ("Adam", "Adam-CE", "SGD")
METHODS = ("RLS", "RLS+M", "RLS+R", "RLS+M+R", "HRLS", "HRLS+M", "HRLS+M+R", *BASELINES)
TRAINABLE = (nn.Linear, nn.Conv2d, nn.RNN, nn.LSTM)
EMBEDDING = 128  # of words; the paper names none
EVERY = 10  # steps between two looks at the eigenvalues


def network(problem: Problem, layers: str = "FC", hidden: int | None = None):
    """A new network for a data set, weights from torch's global generator.

    Parameters
    ----------
    layers : one of `LAYERS`
        Recurrent networks read images row by row. CIFAR-10 goes with CONV layers, IMDB
        with LSTM.
    hidden : int
        Units; 512 for FC and for words, 64 for others, and the paper's for CIFAR-10.
    """
    only = {"cifar10": "CONV", "imdb": "LSTM"}.get(problem.name, layers)
    if layers not in LAYERS or layers != only:
        allowed = ", ".join(LAYERS) if layers == only else only
        raise ValueError(f"{problem.name} goes with {allowed} layers, got {layers!r}")
    data, classes = problem.fit, problem.classes
    side = math.isqrt(data.inputs[0].numel())
    if problem.name == "cifar10":
        made = vgg5()
    elif problem.name == "imdb":
        words = {"vocabulary": len(data.vocabulary)}
        made = SequenceClassifier(EMBEDDING, hidden or 512, classes, **words)
    elif layers == "FC":
        made = dense_network(data.inputs.shape[1], hidden or 512, classes)
    elif layers == "CONV":
        made = small_cnn(side, (16, 32), hidden or 64, classes)
    else:
        cell = nn.LSTM if layers == "LSTM" else nn.RNN
        made = SequenceClassifier(side, hidden or 64, classes, cell=cell)
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
        if isinstance(self.optimizer, Hybrid):
            return self.optimizer.rls
        return self.optimizer if isinstance(self.optimizer, RLS) else None

    def turn(self, **options):
        """Set options of the RLS part, if there is one, from its next step on.

        They are those of :func:`make_training`, which may have no variant for some.
        """
        for group in self.rls.param_groups if self.rls else ():
            group.update(_of_variants(self.variants, **options))

    def run(self, model, problem: Problem, *, seed=0, **options) -> Iterator[Record]:
        """:func:`labkit.rls.train` on a problem, the order of samples by ``seed``."""
        return train(
            *(model, self.optimizer, problem.fit.inputs, problem.fit.targets),
            loss=self.loss,
            generator=torch.Generator().manual_seed(seed),
            max_grad_norm=self.max_grad_norm,
            test=(problem.test.inputs, problem.test.targets),
            **options,
        )


def make_training(
    name: str,
    model: nn.Module,
    *,
    clip: float,
    lr=1.0,
    adam_lr=1e-3,
    l1=1e-5,
    momentum=0.5,
    **options,
) -> Training:
    """Optimiser and loss called ``name``, such as ``RLS+M`` or ``HRLS+M+R``.

    Parameters
    ----------
    name : str
        One of `KINDS`, then ``+M`` (with ``momentum``) and ``+R`` (with ``l1``); or one
        of `BASELINES`. Hybrids and Adam-CE minimise the cross-entropy, others (57).
    model : nn.Module
    clip : float
        Joint norm of the gradient.
    lr : float
        Of RLS, and of SGD, which takes 1 as RLS does.
    adam_lr : float
        Of Adam, also inside a hybrid.
    options : of :class:`~labkit.rls.RLS`
        As ``mean_weight`` and ``forgetting``.
    """
    adam = partial(torch.optim.Adam, lr=adam_lr)
    if name in BASELINES:
        kind = partial(torch.optim.SGD, lr=lr) if name == "SGD" else adam
        loss = nn.functional.cross_entropy if name == "Adam-CE" else loss_one_hot
        return Training(kind(model.parameters()), loss, clip)
    kind, *variants = name.split("+")
    if kind not in KINDS or not set(variants) <= {"M", "R"}:
        known = ", ".join([*KINDS, *BASELINES])
        raise ValueError(
            f"unknown method {name!r}; write one of {known}, and +M or +R after a RLS"
        )
    options |= _of_variants(variants, lr=lr, momentum=momentum, l1=l1)
    hybrid = kind == "HRLS"
    layers = trainable(model)
    layers = layers[:-1] if hybrid else layers
    rls = KINDS[kind](model, layers=layers, max_grad_norm=clip, **options)
    mine = {id(p) for group in rls.param_groups for p in group["params"]}
    rest = [p for p in model.parameters() if id(p) not in mine]
    return Training(
        Hybrid(rls, adam(rest)) if rest else rls,
        nn.functional.cross_entropy if hybrid else loss_one_hot,
        None,
        frozenset(variants),
    )


def trainable(model: nn.Module) -> list[str]:
    """Names of the layers that RLS can train."""
    return [name for name, m in model.named_modules() if type(m) in TRAINABLE]


def _of_variants(variants, *, momentum, l1, **options) -> dict:
    momentum, l1 = momentum * ("M" in variants), l1 * ("R" in variants)
    return options | {"momentum": momentum, "l1": l1}


@dataclass(frozen=True)
class BlockLook:
    """What RLS is about to do to one block, between ``backward`` and ``step``."""

    h: float
    angle: float  # [degrees] of this mean input to the running mean
    cosine: float  # of the gradient and the preconditioned one
    shrink: float  # ratio of their norms, with 1/h
    below: int | None  # eigenvalues of P below 0.5, if counted
    best_k: float | None  # the best-fitting k, where inputs are kept


@torch.no_grad()
def look(each: BlockStep, total: Tensor, *, spectrum=True) -> BlockLook:
    """Look at a block of :meth:`labkit.rls.RLS.collect`; changes nothing.

    Parameters
    ----------
    total : (n,) tensor
        Sum of the mean inputs before this one.
    spectrum : bool
        Whether to count the eigenvalues, n^3 operations.
    """
    P, G = each.state["P"], each.block.gradient()
    GP, kept = G @ P, isinstance(each.gradient, Residuals)
    return BlockLook(
        float(each.h),
        float(angle(each.x_mean, total)),
        float(gradient_cosine(GP, G)),
        float(GP.norm() / (each.h * G.norm())),
        int((torch.linalg.eigvalsh(P) < 0.5).sum()) if spectrum else None,
        float(best_ratio(each.gradient.X)[0]) if kept else None,
    )


def watcher(rls: RLS) -> Callable[[], dict[str, BlockLook]]:
    """What `train` calls to look at the first block and the last, once a step."""
    names = [block.name for block in rls.blocks]
    ends = {names[-1]: "last", names[0]: "first"}
    totals: dict[str, Tensor] = {}
    calls = count()

    def watch():
        looks, spectrum = {}, next(calls) % EVERY == 0
        for each in rls.collect():
            if end := ends.get(each.block.name):
                total = totals.get(end, each.x_mean)
                looks[end] = look(each, total, spectrum=spectrum)
                totals[end] = each.x_mean + (total if end in totals else 0)
        return looks

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


def _knob(name, default, low=None, high=None, *, restart=False, **more):
    bounds = {"low": low, "high": high, "restart": restart}
    return knob(default, look_for=LOOK_FOR[name], **bounds, **more)


def _log(name, default, low, high, **more):
    return _knob(name, default, low, high, log=True, **more)


VARIANTS = "+M with momentum, +R with L1"
NOISE = "share of labels drawn at random"


@dataclass(frozen=True)
class Knobs:
    """What can be turned in the live experiment."""

    method: str = _knob(
        "method", "RLS+M+R", choices=METHODS, restart=True, help=VARIANTS
    )
    layers: str = _knob(
        "layers", "FC", choices=LAYERS, restart=True, help="hidden layers"
    )
    mean_weight: float = _log("mean_weight", 0.1, 1e-3, 100.0, label="mean weight k")
    lr: float = _log("lr", 1.0, 0.01, 10.0, label="step factor eta")
    forgetting: float = _knob(
        "forgetting", 1.0, 0.9, 1.0, step=0.001, label="forgetting lambda"
    )
    batch: int = _knob("batch", 128, 8, 256, step=8, unit="images")
    momentum: float = _knob("momentum", 0.5, 0.0, 0.95, step=0.05, help="alpha of +M")
    l1: float = _log("l1", 1e-5, 1e-7, 1e-2, help="gamma of +R")
    label_noise: float = _knob("label_noise", 0.0, 0.0, 0.8, step=0.05, help=NOISE)
    seed: int = _knob("seed", 0, 0, 99, restart=True, help="weights, order, noise")


def training_rows(
    settings, problems: Mapping[str, Problem], hidden=None, epochs=300
) -> Iterator[dict]:
    """Train one network; a row per minibatch with a look at RLS and its gradient.

    ``problems`` are by layer kind, and ``hidden`` are units of the FC network.
    """
    layers, seed = settings.layers, settings.seed
    clean = problems[layers]
    labels = clean.fit.targets.clone()
    problem = replace(clean, fit=replace(clean.fit, targets=labels))
    torch.manual_seed(seed)
    model = network(problem, layers, hidden if layers == "FC" else None)
    clip, options = CONSTANTS[layers]["clip"], _options(settings)
    training = make_training(
        settings.method, model, clip=clip, on_failure="reset", **options
    )
    noise, size = GradientNoise(model, layers=trainable(model)), Settings()

    def turn():
        training.turn(**_options(settings))
        size.batch_size = min(settings.batch, len(labels))
        noisy = with_noise(clean, labels=settings.label_noise, seed=seed)
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


def _options(settings) -> dict:
    names = ("mean_weight", "lr", "forgetting", "momentum", "l1")
    return {name: getattr(settings, name) for name in names}


def _row(record: Record, noise: GradientNoise) -> dict:
    """What was measured at one step, by column."""
    row = {"step": record.step, "loss": record.loss}
    row["gradient norm"] = record.gradient_norm
    if record.test_accuracy is not None:
        row["accuracy"] = 100 * record.test_accuracy
    for end, seen in (record.watched or {}).items():
        values = {name: v for name, v in vars(seen).items() if v is not None}
        row |= {f"{name} {end}": value for name, value in values.items()}
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
    said = f"loss {row['loss']:.4f}, {row['clipped']} steps clipped"
    return said + (f", test {row['accuracy']:.1f} %" if "accuracy" in row else "")


def _ends(quantity, title, y_title, last="last trained by RLS", log=False):
    labels = {f"{quantity} first": "first layer", f"{quantity} last": last}
    return Lines(labels, title, y_title, log=log)


OF_ALL = "last layer"
TRAINING = Experiment(
    "training",
    Knobs,
    training_rows,
    panels=(
        Lines({"loss": "minibatch"}, "Loss", "loss", log=True),
        Lines({"accuracy": "after each epoch"}, "Test accuracy", "%"),
        _ends("h", "Normaliser h (1 is lambda)", "h"),
        _ends("cosine", "Gradient and preconditioned gradient", "cosine"),
        _ends("below", "Directions that P has switched off", "eigenvalues < 0.5"),
        _ends("angle", "Mean input to running mean", "degrees"),
        _ends("noise", "Variance of the minibatch gradient", "L2 norm²", OF_ALL, True),
        Lines(
            {"scale first": "first layer", "scale last": OF_ALL, "batch": "batch"},
            "Noise scale: batch as noisy as its signal",
            "images",
            log=True,
        ),
        Lines({"best_k first": "first layer"}, "Best-fitting k", "k"),
        Lines(
            {"gradient norm": "before clipping"}, "Gradient norm", "L2 norm", log=True
        ),
    ),
    caption="After the first steps h is 1 and the cosine stays well below it: P has "
    "switched off the direction of the mean input, and hardly any other.",
    status=_status,
)
