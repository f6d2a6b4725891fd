"""The networks that the RLS lab trains, and its optimisers by name."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from labkit.datasets import Labelled, Reviews, load
from labkit.rls import (
    RLS,
    AveragedRLS,
    Hybrid,
    KailathRLS,
    RunningMeanRLS,
    SequenceClassifier,
    dense_network,
    small_cnn,
    squared_error,
    vgg5,
)

LAYERS = ("FC", "CONV", "RNN", "LSTM")
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


@dataclass(frozen=True)
class Problem:
    """A data set, a network for it, and the paper's constants for that network."""

    name: str
    train: Labelled
    test: Labelled
    network: Callable[[], nn.Module]
    clip: float  # joint norm of the gradient
    l1: float  # gamma of +R


def make_problem(
    dataset="digits", layers="FC", *, hidden=None, samples=None, device=None
) -> Problem:
    """Load a data set and choose the network of the given layer kind for it.

    Parameters
    ----------
    dataset : "digits", "mnist", "fashion-mnist", "cifar10" (CONV) or "imdb" (LSTM).
    layers : one of `LAYERS`. Recurrent networks read images row by row.
    hidden : units; 512 for FC, 64 for others, and the paper's for cifar10 and imdb.
    samples : so many training examples, the first ones; None: all.
    """
    if layers not in LAYERS:
        raise ValueError(f"unknown layers {layers!r}; there are {', '.join(LAYERS)}")
    only = {"cifar10": "CONV", "imdb": "LSTM"}.get(dataset, layers)
    if layers != only:
        raise ValueError(f"{dataset} goes with {only} layers here, got {layers!r}")
    train, test = (_labelled(load(dataset, part, device=device)) for part in SPLITS)
    if samples is not None and samples < len(train.inputs):
        train = replace(
            train, inputs=train.inputs[:samples], targets=train.targets[:samples]
        )
    recurrent = layers in ("RNN", "LSTM")

    def network():
        return _network(dataset, layers, train, hidden).to(train.inputs.device)

    return Problem(
        f"{dataset}, {layers}",
        train,
        test,
        network,
        clip=1.0 if recurrent else 5.0,
        l1=1e-6 if recurrent else 1e-5,
    )


SPLITS = ("train", "test")


def _labelled(data):
    return Labelled("imdb", data.tokens, data.targets) if _words(data) else data


def _words(data) -> bool:
    return isinstance(data, Reviews)


def _network(dataset, layers, train, hidden):
    if dataset == "cifar10":
        return vgg5()
    if dataset == "imdb":
        words = int(train.inputs.max()) + 1
        return SequenceClassifier(EMBEDDING, hidden or 512, 2, vocabulary=words)
    features = train.inputs.shape[1]
    side = round(features**0.5)
    if layers == "FC":
        return dense_network(features, hidden or 512)
    if layers == "CONV":
        return small_cnn(side, hidden=hidden or 64)
    cell = nn.LSTM if layers == "LSTM" else nn.RNN
    return SequenceClassifier(side, hidden or 64, cell=cell)


@dataclass(frozen=True)
class Training:
    """What :func:`labkit.rls.train` needs beside model and data."""

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
        """Have the RLS part, if there is one, take its next step by new options.

        They are those of :func:`make_training`, which may have no variant for some. A
        momentum that comes back from 0 starts with no velocity.
        """
        if self.rls is None:
            return
        options = _of_variants(self.variants, **options)
        for group in self.rls.param_groups:
            group.update(options)
        if not options["momentum"]:
            for state in self.rls.state.values():
                state.pop("velocity", None)


def make_training(
    name, model, *, clip, l1=1e-5, momentum=0.5, lr=1e-3, **options
) -> Training:
    """Optimiser and loss called ``name``, such as ``RLS+M`` or ``HRLS+M+R``.

    Parameters
    ----------
    name : one of `KINDS`, then ``+M`` (with ``momentum``) and ``+R`` (with ``l1``); or
        one of `BASELINES`. Hybrids and Adam-CE minimise the cross-entropy, others (57).
    model : the network.  clip : joint norm of the gradient.
    lr : of Adam, also of Adam inside a hybrid; SGD takes 1, as RLS does.
    options : of :class:`~labkit.rls.RLS`, as ``ratio``, ``eta``, ``forgetting``.
    """
    if name in BASELINES:
        if name == "SGD":
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        else:
            optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        entropy = name == "Adam-CE"
        loss = nn.functional.cross_entropy if entropy else squared_error
        return Training(optimizer, loss, clip)
    kind, *variants = name.split("+")
    if kind not in KINDS or not set(variants) <= {"M", "R"}:
        known = ", ".join([*KINDS, *BASELINES])
        raise ValueError(
            f"unknown method {name!r}; write one of {known}, and +M or +R after a RLS"
        )
    options = _of_variants(variants, momentum=momentum, l1=l1, **options)
    options["max_grad_norm"] = clip
    hybrid = kind == "HRLS"
    return Training(
        _optimizer(KINDS[kind], model, lr, hybrid, options),
        nn.functional.cross_entropy if hybrid else squared_error,
        None,
        frozenset(variants),
    )


def _of_variants(variants, *, momentum, l1, **options) -> dict:
    options["momentum"] = momentum if "M" in variants else 0.0
    options["l1"] = l1 if "R" in variants else 0.0
    return options


def _optimizer(kind, model, lr, hybrid, options):
    """RLS over all it can train; Adam over the rest, and the last layer of a hybrid."""
    layers = [name for name, m in model.named_modules() if type(m) in TRAINABLE]
    layers = layers[:-1] if hybrid else layers
    rls = kind(model, layers=layers, **options)
    mine = {id(p) for group in rls.param_groups for p in group["params"]}
    rest = [p for p in model.parameters() if id(p) not in mine]
    return Hybrid(rls, torch.optim.Adam(rest, lr=lr)) if rest else rls


def noisy_labels(labels: Tensor, share: float, *, seed=0) -> Tensor:
    """Replace a share of the labels by labels drawn at random from all classes."""
    g = torch.Generator().manual_seed(seed)
    hit = torch.rand(len(labels), generator=g) < share
    drawn = torch.randint(int(labels.max()) + 1, (len(labels),), generator=g)
    return torch.where(hit.to(labels.device), drawn.to(labels.device), labels)
