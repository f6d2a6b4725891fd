"""Steps of BPLS: layers, walks, estimators."""

from functools import partial

import torch

from labkit import bpls
from tests.device.rows import Row, estimator, random, seeded


def problem(device):
    (X,) = random(device, (40, 6))
    Y = (torch.arange(40) % 3).to(device)
    weights = bpls.random_weights((6, 5, 4, 3), generator=seeded(), dtype=X.dtype)
    return X, Y, tuple(W.to(device) for W in weights)


def train(device, values=False, **options):
    """A walk over three layers, on all samples; the second step is on the misses."""
    X, Y, weights = problem(device)
    if values:
        Y = torch.nn.functional.one_hot(Y).to(X)
    given = {} if values else {"max_walks": 9, "stop": False}
    records = bpls.train(X, Y, weights, **given | options)
    return records if values else lambda: [next(records) for _ in weights]


def layer(device, **options):
    """The second record, of a hidden layer."""
    return partial(next, train(device, True, **options))


def row(name, waits):
    make = partial(layer, interpretation=name)
    return Row(f"train, a layer, {name}", make, waits)


values = partial(estimator, make=partial(bpls.BPLSRegressor, (5,)))
labels = partial(estimator, make=partial(bpls.BPLSClassifier, (5,)), classes=True)
ROWS = [
    # whether the solve and its inverse were possible, and the record's numbers
    row("min_norm", 4),
    row("per_neuron", 3),
    row("gauss_seidel", 3),
    row("mean", 3),
    row("cyclic", 3),
    Row("train, a walk of 3 layers", train, 12),
    # rows, targets, first weights come; a record a layer; predictions go
    Row("BPLSRegressor, fit and predict", values, 13),
    Row("BPLSClassifier, fit and predict", labels, 21),
    # rows come from the host, predictions go to it
    Row("BPLSRegressor, predict", partial(values, change=""), 2),
]
