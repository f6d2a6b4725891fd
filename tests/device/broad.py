"""Starts and updates of the broad solvers, and their factorisations."""

from functools import partial

import torch

from labkit import broad
from labkit.broad import factor as factors, ldl as rootless
from labkit.broad.solvers import SOLVERS
from tests.device.rows import Row, estimator, random


def update(device, name):
    A, H, Y = random(device, (20, 6), (20, 3), (20, 2))
    solver = SOLVERS[name]
    state = solver.start(A, Y, 0.1)
    return lambda: solver.update(state, A, H, Y)


def start(device, name):
    A, Y = random(device, (20, 6), (20, 2))
    return lambda: SOLVERS[name].start(A, Y, 0.1)


def factor(device, call=factors.inverse_cholesky):
    (A,) = random(device, (20, 7))
    return partial(call, A.T @ A)


def shared(device):
    """Three nodes more, and the score of some weights."""
    X, W = random(device, (30, 4), (8, 3))
    y = (torch.arange(30) % 3).to(device)
    columns = broad.SharedColumns((X, y), (X, y), 40)
    columns.add(broad.Update(2, 3, 0))
    return lambda: (columns.add(broad.Update(0, 0, 3)), columns.score(W))


def row(make, name):
    title = f"{name}, {make.__name__}"
    waits = 2 if title == "orig, update" else 1
    return Row(title, partial(make, name=name), waits)


ldl = partial(factor, call=rootless.inverse_ldl)
division_free = partial(factor, call=rootless.division_free_inverse_ldl)
values = partial(estimator, make=partial(broad.BroadLearningRegressor, 2, 3, 5))
labels = partial(
    estimator, make=partial(broad.BroadLearningClassifier, 2, 3, 5), classes=True
)
added = partial(values, change="add_nodes")
ROWS = [
    # whether a pivot was lost, once for all; of orig also whether C is 0
    *(row(make, name) for make in (update, start) for name in SOLVERS),
    Row("inverse_cholesky", factor, 1),
    Row("inverse_ldl, 7 columns", ldl, 1),
    Row("division_free_inverse_ldl, 7 columns", division_free, 1),
    # rows, seed, scales; nodes and their check; the ridge that is chosen; as below
    Row("BroadLearningRegressor, fit and predict", values, 18),
    Row("BroadLearningClassifier, fit and predict", labels, 18),
    # nodes, pivots, the residual; rows and predictions
    Row("BroadLearningRegressor, add_nodes and predict", added, 5),
    # rows come from the host, predictions go to it
    Row("BroadLearningRegressor, predict", partial(values, change=""), 2),
    # new nodes go there; the score
    Row("SharedColumns, add and score", shared, 2),
]
