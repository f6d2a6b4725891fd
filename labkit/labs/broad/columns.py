"""The data and the columns that all solvers of a comparison share."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from labkit.broad import Update
from labkit.broad.nodes import (
    CHUNK,
    Nodes,
    Preparation,
    Recipe,
    add_enhancement,
    add_features,
)
from labkit.datasets import load
from labkit.labs.rls import noisy_labels

DATASETS = ("digits", "mnist", "fashion-mnist")
RECIPE = Recipe()


@dataclass(frozen=True, eq=False)
class Problem:
    """Images and labels."""

    name: str
    X: Tensor  # (l, d) training images
    Y: Tensor  # (l, classes) their labels, coded -1 / +1
    tests: Tensor  # (t, d)
    targets: Tensor  # (t,) classes


@dataclass(frozen=True, eq=False)
class Columns:
    """Expanded inputs, and the widths that they were grown through so far."""

    name: str
    A: Tensor  # (l, room) of the training images; the last width is how far it is made
    Y: Tensor  # (l, classes)
    B: Tensor  # (t, room) of the test images
    targets: Tensor  # (t,)
    widths: tuple[int, ...]  # columns at the start and after every update

    def score(self, W: Tensor) -> float:
        """Test accuracy of W (k, classes) [%]; k may be any of the widths."""
        right = (self.B[:, : len(W)] @ W).argmax(1) == self.targets
        return 100 * float(right.double().mean())


def make_problem(
    dataset="digits",
    *,
    samples=None,
    input_noise=0.0,
    label_noise=0.0,
    seed=0,
    dtype=torch.float64,
    device=None,
) -> Problem:
    """Load a data set; noise goes to the training part only.

    Parameters
    ----------
    dataset : one of `DATASETS`.
    samples : so many training images, the first ones; None: all.
    input_noise : standard deviation of noise added to pixels in [0, 1].
    label_noise : share of the labels drawn at random.
    seed : of the noise.
    dtype : of all that comes of it; drawn and added is in float64 first.
    """
    if dataset not in DATASETS:
        raise ValueError(
            f"unknown data set {dataset!r}; there are {', '.join(DATASETS)}"
        )
    train, test = (load(dataset, part, dtype=torch.float64) for part in SPLITS)
    X, labels = train.inputs[:samples], train.targets[:samples]
    g = torch.Generator().manual_seed(seed)
    X = X + input_noise * torch.randn(X.shape, generator=g, dtype=X.dtype)
    Y = 2 * one_hot(noisy_labels(labels, label_noise, seed=seed), 10).double() - 1
    parts = (part.to(device, dtype) for part in (X, Y, test.inputs))
    return Problem(dataset, *parts, test.targets.to(device))


SPLITS = ("train", "test")


def make_columns(
    problem: Problem,
    updates: Sequence[Update],
    *,
    groups=1,
    nodes_per_group=10,
    enhancement=100,
    seed=0,
) -> Columns:
    """Draw all nodes of a start and its updates, and expand both parts by them.

    Solvers that grow apart have other nodes; over these columns they can be compared.

    Parameters
    ----------
    updates : see :class:`labkit.broad.Update` and :func:`paper_updates`.
    groups, nodes_per_group, enhancement : of the start.  seed : of all weights.
    """
    start = {"groups": groups, "nodes_per_group": nodes_per_group}
    start |= {"enhancement": enhancement}
    room = groups * nodes_per_group + enhancement
    room += sum(each.features + each.own + each.extra for each in updates)
    *_, last = grow_columns(problem, updates, room=room, seed=seed, **start)
    return last


def grow_columns(
    problem: Problem,
    updates: Iterable[Update],
    *,
    room: int,
    groups=1,
    nodes_per_group=10,
    enhancement=100,
    seed=0,
) -> Iterator[Columns]:
    """Yield the columns of the start, then those after each update, when asked for.

    All share their memory, which has ``room`` columns; an update is read from
    ``updates`` only when its columns are asked for. See :func:`make_columns`.
    """
    X, g = problem.X, torch.Generator().manual_seed(seed)
    A, B = (part.new_empty(len(part), room) for part in (X, problem.tests))
    nodes = Nodes(Preparation.fit("sample", X))
    prepared, Z = nodes.prepare(X).split(CHUNK), X.new_zeros(len(X), 0)
    for _ in range(groups):
        nodes, Z = add_features(nodes, prepared, Z, nodes_per_group, RECIPE, g)
    widths, since, tests = (), 0, nodes.features_of(problem.tests)
    for update in chain([Update(extra=enhancement)], updates):
        if update.features:
            nodes, Z = add_features(nodes, prepared, Z, update.features, RECIPE, g)
            tests = nodes.features_of(problem.tests)
        if update.own:
            new = (Z.shape[1] - update.features, Z.shape[1])
            nodes = add_enhancement(nodes, Z, update.own, RECIPE, g, reads=new)
        if update.extra:
            nodes = add_enhancement(nodes, Z, update.extra, RECIPE, g)
        added = slice(widths[-1] if widths else 0, nodes.columns)
        nodes.expand(Z, out=A[:, added], since=since)
        nodes.expand(tests, out=B[:, added], since=since)
        widths, since = (*widths, nodes.columns), len(nodes.groups)
        yield Columns(problem.name, A, problem.Y, B, problem.targets, widths)


def paper_updates(count: int, budget: int, features: int = 0) -> list[Update]:
    """``count`` updates of ``budget`` nodes each, divided as in the paper.

    Its updates have 10 feature nodes, 750 enhancement nodes of these and 1250 of all:
    what is left beside the features is divided 3 to 5. Without features all nodes are
    enhancement nodes of all features.
    """
    if not 0 <= features < budget:
        raise ValueError(
            f"features must be from 0 to {budget - 1}, of {budget}, got {features}"
        )
    own = (budget - features) * 3 // 8 if features else 0
    return [Update(features, own, budget - features - own)] * count
