"""Networks, optimisers and runs of RLS by name; nothing is drawn here.

The paper's three networks (section VI) are plain modules, with torch's default weights
from the global generator.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labkit.lab.problem import Problem
from labkit.rls import RLS, AveragedRLS, Hybrid, KailathRLS, RunningMeanRLS
from labkit.rls.inputs import KINDS as TRAINABLE
from labkit.rls.train import Record, train
from labkit.rls.update import loss_one_hot

# Networks


def dense_network(
    inputs: int = 784, hidden: int = 512, classes: int = 10
) -> nn.Sequential:
    """Build an FNN, (M, inputs) -> (M, classes), by default the paper's for MNIST."""
    first = nn.Linear(inputs, hidden)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(hidden, classes))


def vgg5() -> nn.Sequential:
    """Build the paper's CNN for CIFAR-10, (M, 3, 32, 32) -> (M, 10).

    It has the first five CONV layers of VGG-16 and a hidden layer of 1024 units. There
    is a pooling after the second, the fourth and, unlike in VGG-16, the fifth CONV
    layer, since otherwise the P of the hidden layer would have 16,385 rows.
    """
    layers, before = [], 3
    for after, poolings in ((64, 0), (64, 1), (128, 0), (128, 1), (256, 1)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] * poolings
        before = after
    return nn.Sequential(*layers, nn.Flatten(), *dense_network(256 * 16, 1024))


class SequenceClassifier(nn.Module):
    """Stacked recurrent layers with a classifier of the last output of the last layer.

    The input is (M, T, inputs), or words (M, T); the output is (M, classes).

    Parameters
    ----------
    inputs : int, features per time step; with ``vocabulary``, width of the embedding.
    hidden, layers, classes : units per layer, layers, outputs. The paper: 512, 2, 2.
    cell : nn.LSTM or nn.RNN, one module a layer, so that RLS sees each one's inputs.
    vocabulary : int, words of an embedding in front, which RLS cannot train.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int = 64,
        classes: int = 10,
        *,
        layers: int = 2,
        cell: type[nn.Module] = nn.LSTM,
        vocabulary: int | None = None,
    ):
        super().__init__()
        self.embedding = vocabulary and nn.Embedding(vocabulary, inputs)
        widths = [inputs, *[hidden] * layers]
        self.layers = nn.ModuleList(
            cell(input_size, hidden_size, batch_first=True)
            for input_size, hidden_size in pairwise(widths)
        )
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs, (M, classes)."""
        y = self.embedding(x) if self.embedding else x
        for layer in self.layers:
            y, _ = layer(y)
        return self.head(y[:, -1])


# Optimisers and runs by name

# The paper's constants by layer kind: joint norm of the gradient, gamma of +R.
CONSTANTS = {layers: {"clip": 5.0, "l1": 1e-5} for layers in ("FC", "CONV")}
CONSTANTS["LSTM"] = {"clip": 1.0, "l1": 1e-6}
# name -> optimiser class; "+M" and "+R" may follow, and HRLS stands for a hybrid
KINDS = {"RLS": RLS, "HRLS": RLS, "exact RLS": KailathRLS}
KINDS |= {"averaged RLS": AveragedRLS, "running-mean RLS": RunningMeanRLS}
BASELINES = ("Adam", "Adam-CE", "SGD")
METHODS = ("RLS", "RLS+M", "RLS+R", "RLS+M+R", "HRLS", "HRLS+M", "HRLS+M+R", *BASELINES)


def network(
    problem: Problem, layers: str = "FC", hidden: int | None = None
) -> nn.Module:
    """Make the paper's network, with weights from torch's global generator.

    ``layers`` are CONV for CIFAR-10, LSTM for words, and FC for all other data;
    ``hidden`` is the number of units, by default 512, and CIFAR-10 needs none.
    """
    data, classes, hidden = problem.fit, problem.classes, hidden or 512
    if layers == "CONV":
        made = vgg5()
    elif layers == "LSTM":
        made = SequenceClassifier(128, hidden, classes, vocabulary=len(data.vocabulary))
    else:
        made = dense_network(data.inputs.shape[1], hidden, classes)
    return made.to(data.inputs.device)


@dataclass(frozen=True)
class TrainingSetup:
    """The optimiser, the loss and the clip of a training."""

    optimizer: torch.optim.Optimizer
    loss: Callable[[Tensor, Tensor], Tensor]
    max_grad_norm: float | None  # for optimisers that do not clip themselves

    @property
    def rls(self) -> RLS | None:
        """Return the RLS part, or None if there is none."""
        part = getattr(self.optimizer, "rls", self.optimizer)
        return part if isinstance(part, RLS) else None

    def run(
        self,
        model: nn.Module,
        problem: Problem,
        **options,
    ) -> Iterator[Record]:
        """Train by :func:`labkit.rls.train` on a problem, and test after each epoch.

        ``options`` are those of :func:`labkit.rls.train`; the ``generator`` determines
        the order of samples.
        """
        fit, test = problem.fit, problem.test
        return train(
            model,
            self.optimizer,
            fit.inputs,
            fit.targets,
            loss=self.loss,
            max_grad_norm=self.max_grad_norm,
            test=(test.inputs, test.targets),
            **options,
        )


def by_epoch(records: Iterable[Record]) -> Iterator[dict[str, float] | None]:
    """Go through a run with a test set; yield measurements after each epoch, else None.

    These are the number of the epoch, its mean loss, the test accuracy [%], and the
    seconds of all steps so far.
    """
    seconds = 0.0
    for record in records:
        seconds += record.seconds
        if record.epoch_loss is None:
            yield None
            continue
        yield {
            "epoch": record.epoch,
            "loss": record.epoch_loss,
            "accuracy": 100 * record.test_accuracy,
            "seconds": seconds,
        }


def after_each_epoch(records: Iterable[Record]) -> Iterator[dict[str, float]]:
    """Yield the measurements of :func:`by_epoch` alone."""
    return filter(None, by_epoch(records))


def make_training(
    name: str,
    model: nn.Module,
    *,
    clip: float | None,
    lr: float = 1.0,
    adam_lr: float = 1e-3,
    l1: float = 1e-5,
    momentum: float = 0.5,
    **options,
) -> TrainingSetup:
    """Make the optimiser and the loss called ``name``, such as ``RLS+M``.

    Parameters
    ----------
    name : str
        One of `KINDS`, then ``+M`` (with ``momentum``) and ``+R`` (with ``l1``); or one
        of `BASELINES`. Hybrids and Adam-CE minimise the cross-entropy, all others (57).
    clip : float, joint norm that the gradient is clipped to
    lr : float, of RLS, and of SGD, which takes 1 as RLS does
    adam_lr : float, of Adam, also in a hybrid
    **options : of :class:`labkit.rls.RLS`
    """
    adam = partial(torch.optim.Adam, lr=adam_lr)
    if name in BASELINES:
        kind = partial(torch.optim.SGD, lr=lr) if name == "SGD" else adam
        loss = cross_entropy if name == "Adam-CE" else loss_one_hot
        return TrainingSetup(kind(model.parameters()), loss, clip)
    kind, *variants = name.split("+")
    if kind not in KINDS or not set(variants) <= {"M", "R"}:
        known = ", ".join([*KINDS, *BASELINES])
        raise ValueError(
            f"unknown method {name!r}; write one of {known}, and +M or +R after an RLS"
        )
    options |= {"momentum": momentum * ("M" in variants), "l1": l1 * ("R" in variants)}
    hybrid, layers = kind == "HRLS", trainable(model)
    layers = layers[:-1] if hybrid else layers
    rls = KINDS[kind](model, layers=layers, lr=lr, max_grad_norm=clip, **options)
    trained = {
        id(parameter) for group in rls.param_groups for parameter in group["params"]
    }
    rest = [
        parameter for parameter in model.parameters() if id(parameter) not in trained
    ]
    optimizer = Hybrid(rls, adam(rest)) if rest else rls
    loss = cross_entropy if hybrid else loss_one_hot
    return TrainingSetup(optimizer, loss, None)


def trainable(model: nn.Module) -> list[str]:
    """Return the names of the layers that RLS can train."""
    return [name for name, module in model.named_modules() if type(module) in TRAINABLE]
