"""The relatives of RLS against their formulas."""

import numpy as np
import pytest
from torch import nn

from labkit.rls import RLS, AveragedRLS, KailathRLS, RunningMeanRLS

from .conftest import (
    assert_close,
    backward,
    batch,
    in_step,
    randn,
    snapshot,
    take,
)
from .reference import Net, theta
from .twins import CASES, assert_same, fcs, randomise

pytestmark = pytest.mark.filterwarnings("ignore:with forgetting < 1")


def parts_of_steps(model, optimizer, net, rows):
    """The parts of the twin, to be stepped, in four steps that are then compared."""
    for s in range(4):
        take(model, optimizer, *batch(rows, s))
        net.gradients(*batch(rows, s))
        yield from net.parts
        assert_same(optimizer, net, atol=1e-10)


@pytest.mark.parametrize("rows", [2, 9])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("forgetting", [1.0, 0.97])
def test_kailath_keeps_the_exact_inverse_and_steps_by_it(forgetting, bias, rows):
    eta, alpha = 0.3, 0.5
    model = fcs(bias=bias)
    net = Net(model)
    options = {"forgetting": forgetting, "momentum": alpha, "P0_scale": 2.0}
    options["mean_weight"] = 7.0  # is not used
    optimizer = KailathRLS(model, lr=eta, **options)
    for part in net.parts:
        part.P, part.h = 2.0 * part.P, 1
    for part in parts_of_steps(model, optimizer, net, rows):
        X = np.array(part.rows)
        A = forgetting * np.linalg.inv(part.P) + X.T @ X / rows  # (27)
        part.P = np.linalg.inv(A)
        part.omega = alpha * part.omega - eta * part.P @ part.grad
        part.theta = part.theta + part.omega


def test_kailath_forgets_the_rows_of_a_gradient_that_was_cleared():
    model = fcs()
    optimizer = KailathRLS(model)
    for s in range(2):
        model.zero_grad()
        backward(model, *batch(2, s))
    optimizer.step()


@pytest.mark.parametrize("rows", [2, 9])
def test_averaged_form_is_a_product_of_two_means(rows):
    k, eta, lam = 0.4, 0.7, 0.97
    model = fcs()
    net = Net(model)
    optimizer = AveragedRLS(model, mean_weight=k, lr=eta, forgetting=lam)
    for part in parts_of_steps(model, optimizer, net, rows):
        error = part.grad[-1]  # of the bias: the mean of M dZ
        part.grad = k * np.outer(np.mean(part.rows, 0), error)  # (56)
        part.step(lam=lam, k=k, eta=eta)


def test_averaged_form_is_rls_for_one_sample_and_ratio_one():
    found = []
    for kind in (RLS, AveragedRLS):
        model = fcs()
        optimizer = kind(model, mean_weight=1.0, momentum=0.5)
        for s in range(4):
            take(model, optimizer, *batch(1, s))
        found.append(snapshot(model, optimizer))
    assert_close(*found, 1e-11)


def same_mean(rows, seed):
    x = randn(rows, 5, seed=seed)
    return x - x.mean(0) + randn(5, seed=99)


@pytest.mark.parametrize("limit", [None, 1.0])
def test_running_mean_is_rls_where_every_batch_has_the_same_mean(limit):
    found = []
    for kind in (RLS, RunningMeanRLS):
        model = nn.Sequential(randomise(nn.Linear(5, 7)))
        options = {"mean_weight": 0.3, "momentum": 0.5, "P0_scale": 1.5}
        optimizer = kind(model, max_grad_norm=limit, **options)
        for s in range(8):
            take(model, optimizer, same_mean(4, s), randn(4, 7, seed=9))
        h = optimizer.state[model[0].weight]["h"]
        found.append([h, *(p.detach() for p in model.parameters())])
    assert_close(*found, 1e-10)


def test_running_mean_uses_the_inverse_of_its_definition():
    k, eta, start = 0.3, 0.7, 1.5
    model = nn.Sequential(randomise(nn.Linear(5, 7)))
    net, seen = Net(model), []
    (part,) = net.parts
    optimizer = RunningMeanRLS(model, mean_weight=k, lr=eta, P0_scale=start)
    for s in range(6):
        x, target = randn(4, 5, seed=s) + 1, randn(4, 7, seed=9)
        mu = np.mean(seen, 0) if seen else np.zeros(6)
        part.P = np.linalg.inv(np.eye(6) / start + k * s * np.outer(mu, mu))
        in_step(model, optimizer, net, x, target, k=k, eta=eta)
        found = theta(model[0].weight, model[0].bias)
        np.testing.assert_allclose(found, part.theta, rtol=1e-10, atol=1e-11)
        seen.append(np.mean(part.rows, 0))


@pytest.mark.parametrize("case", ["conv", "lstm", "rnn"])
def test_two_steps_of_any_layer_kind_are_those_of_rls(case):
    """After one batch, the running mean is all that P has seen."""
    found = []
    for kind in (RLS, RunningMeanRLS):
        model, inputs, outputs, _ = CASES[case]()
        optimizer = kind(model, mean_weight=0.3)
        for s in range(2):
            take(model, optimizer, randn(4, *inputs, seed=s), randn(4, *outputs))
        found.append([p.detach() for p in model.parameters()])
    assert_close(*found, 1e-11)


def test_running_mean_holds_vectors_only():
    model = fcs()
    optimizer = RunningMeanRLS(model)
    take(model, optimizer, *batch(4, 0))
    for state in optimizer.state.values():
        assert all(value.ndim < 2 for value in state.values())
