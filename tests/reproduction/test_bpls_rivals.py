"""Gradient descent as the baseline of BPLS: torch.optim, many runs at once."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from labkit.bpls import toy_problem
from labkit.bpls.toy import SIZES, noisy_outputs
from reproduction.bpls_rivals import descend
from tests.bpls.conftest import assert_all_close, blobs, start
from tests.draws import randn, seeded

X, y = blobs()
BEFORE = start(4, 6, 3)
METHODS = {
    "adam": torch.optim.Adam,
    "adagrad": torch.optim.Adagrad,
    "sgd": torch.optim.SGD,
    "nag": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
}


@pytest.mark.parametrize("batch_size", [1, 7, 60, 128])
@pytest.mark.parametrize(
    ("name", "given"),
    [*((name, {}) for name in METHODS), ("nag", {"momentum": 0.5})],
)
def test_descent_is_torch_optim(name, given, batch_size):
    options = {"optimizer": name, "lr": 1e-2, "epochs": 2, "batch_size": batch_size}
    steps = [
        (s.epoch, [W.clone() for W in s.weights])
        for s in descend(X, y, BEFORE, generator=seeded(5), **options, **given)
    ]
    assert len(steps) == 2 * math.ceil(60 / batch_size) and steps[-1][0] == 2
    W1, W2 = (W.clone().requires_grad_() for W in BEFORE)
    method = METHODS[name]([W1, W2], lr=1e-2, **given)
    order = torch.randperm(60, generator=seeded(5))
    for (_, weights), rows in zip(steps, order.split(batch_size), strict=False):
        method.zero_grad()
        F.cross_entropy(torch.sigmoid(X[rows] @ W1) @ W2, y[rows]).backward()
        method.step()
        assert_all_close(weights, (W1.detach(), W2.detach()))


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_descent_of_runs_with_samples_of_their_own_is_each_run_alone(name, labelled):
    inputs = torch.stack([X, X.flip(0), 2 * X])
    wanted = torch.stack([y, y.flip(0), y]) if labelled else randn(3, 60, 3)
    weights = tuple(torch.stack([W, 2 * W, -W]) for W in BEFORE)
    given = {"optimizer": name, "batch_size": 7, "epochs": 2}
    *_, together = descend(inputs, wanted, weights, generator=seeded(5), **given)
    for run in range(3):
        first, own = [W[run] for W in weights], wanted[run]
        *_, alone = descend(inputs[run], own, first, generator=seeded(5), **given)
        assert_all_close([W[run] for W in together.weights], alone.weights)


def test_descent_of_many_runs_at_once_is_each_run_alone():
    toy = toy_problem("nonlinear")
    Y = noisy_outputs(toy, torch.tensor([0.0, 0.1]), 3, generator=seeded(1))
    before = tuple(W.expand(2, *W.shape) for W in start(*SIZES, runs=(3,)))
    options = {"output": "sigmoid", "epochs": 4, "lr": 1e-2}
    *_, together = descend(toy.X, Y, before, generator=seeded(2), **options)
    first = [W[1, 2] for W in before]
    *_, alone = descend(toy.X, Y[1, 2], first, generator=seeded(2), **options)
    assert together.epoch == alone.epoch == 4
    assert_all_close([W[1, 2] for W in together.weights], alone.weights)
