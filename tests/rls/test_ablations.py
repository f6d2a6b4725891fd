"""The relatives of RLS against their formulas."""

import copy

import pytest
import torch
from torch import nn

from labkit.rls import RLS, AveragedRLS, KailathRLS, RunningMeanRLS, loss_mse

from .conftest import (
    assert_close,
    assert_resumes,
    batch,
    randn,
    take,
)
from .twins import CASES, fcs, randomise

pytestmark = pytest.mark.filterwarnings("ignore:with forgetting < 1")


def joined(layer):
    """A copy of weight and bias, (N, n)."""
    columns = [] if layer.bias is None else [layer.bias[:, None]]
    return torch.cat([layer.weight.flatten(1), *columns], 1).detach().clone()


def gradients(model, x, target):
    """(N, n) of every Linear layer by plain autograd, and its augmented inputs."""
    twin, found, inputs, y = copy.deepcopy(model), [], [], x
    linear = [module for module in twin if isinstance(module, nn.Linear)]
    for module in twin:
        if module in linear:
            ones = [] if module.bias is None else [torch.ones(len(y), 1)]
            inputs.append(torch.cat([y.detach(), *ones], 1))
        y = module(y)
    loss_mse(y, target).backward()
    for module in linear:
        columns = [] if module.bias is None else [module.bias.grad[:, None]]
        found.append(torch.cat([module.weight.grad, *columns], 1))
    return found, inputs


@pytest.mark.parametrize("rows", [2, 9])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("forgetting", [1.0, 0.97])
def test_kailath_keeps_the_exact_inverse_and_steps_by_it(forgetting, bias, rows):
    eta, alpha = 0.3, 0.5
    model = fcs(5, 7, 3, bias=bias)
    layers = [model[0], model[2]]
    options = {"forgetting": forgetting, "momentum": alpha, "P0_scale": 2.0}
    options["mean_weight"] = 7.0  # is not used
    optimizer = KailathRLS(model, lr=eta, **options)
    A = [torch.eye(joined(layer).shape[1]).double() / 2.0 for layer in layers]
    omega = [torch.zeros_like(joined(layer)) for layer in layers]
    for s in range(4):
        grads, inputs = gradients(model, *batch(rows, s))
        before = [joined(layer) for layer in layers]
        take(model, optimizer, *batch(rows, s))
        for i, layer in enumerate(layers):
            A[i] = forgetting * A[i] + inputs[i].T @ inputs[i] / rows  # (27)
            P = optimizer.state[layer.weight]["P"]
            assert torch.equal(P, P.T)
            inverse = torch.linalg.inv(A[i])
            omega[i] = alpha * omega[i] - eta * grads[i] @ inverse
            assert_close((P, joined(layer)), (inverse, before[i] + omega[i]), 1e-9)


@pytest.mark.parametrize("rows", [2, 9])
def test_averaged_form_is_a_product_of_two_means(rows):
    k, eta, lam = 0.4, 0.7, 0.97
    model = fcs()
    layers = [model[0], model[2]]
    optimizer = AveragedRLS(model, mean_weight=k, lr=eta, forgetting=lam)
    P = [torch.eye(joined(layer).shape[1]).double() for layer in layers]
    for s in range(4):
        x, target = batch(rows, s)
        before = [joined(layer) for layer in layers]
        twin = copy.deepcopy(model)
        z_0 = twin[0](x)
        y_0 = twin[1](z_0)
        z_1 = twin[2](y_0)
        dZ = torch.autograd.grad(loss_mse(z_1, target), (z_0, z_1))
        take(model, optimizer, x, target)
        for i, X in enumerate((x, y_0.detach())):
            x_mean = torch.cat([X, torch.ones(rows, 1)], 1).mean(0)
            u = P[i] @ x_mean  # (54)
            h = lam + k * x_mean @ u  # (55)
            mean = (eta * rows * dZ[i]).mean(0)  # the average vector of eta M dZ
            want = before[i] - k / h * torch.outer(mean, u)  # (56)
            torch.testing.assert_close(joined(layers[i]), want, rtol=1e-9, atol=1e-10)
            A = lam * torch.linalg.inv(P[i]) + k * torch.outer(x_mean, x_mean)
            P[i] = torch.linalg.inv(A)


def test_averaged_form_is_rls_for_one_sample_and_ratio_one():
    found = []
    for kind in (RLS, AveragedRLS):
        model = fcs()
        optimizer = kind(model, mean_weight=1.0, momentum=0.5)
        for s in range(4):
            take(model, optimizer, *batch(1, s))
        found.append(joined(model[0]))
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


def same_mean(rows, seed):
    x = randn(rows, 5, seed=seed)
    return x - x.mean(0) + torch.tensor([1.0, -0.5, 2.0, 0.0, 0.3]).double()


@pytest.mark.parametrize("limit", [None, 1.0])
def test_running_mean_is_rls_where_every_batch_has_the_same_mean(limit):
    found = []
    for kind in (RLS, RunningMeanRLS):
        model = nn.Sequential(randomise(nn.Linear(5, 7)))
        options = {"mean_weight": 0.3, "momentum": 0.5, "P0_scale": 1.5}
        optimizer = kind(model, max_grad_norm=limit, **options)
        for s in range(8):
            take(model, optimizer, same_mean(4, s), randn(4, 7, seed=9))
        found.append((joined(model[0]), optimizer.state[model[0].weight]["h"]))
    assert_close(*found, 1e-10)


def test_running_mean_uses_the_inverse_of_its_definition():
    k, eta, start = 0.3, 0.7, 1.5
    model = nn.Sequential(randomise(nn.Linear(5, 7)))
    optimizer = RunningMeanRLS(model, mean_weight=k, lr=eta, P0_scale=start)
    seen = []
    for s in range(6):
        x, target = randn(4, 5, seed=s) + 1, randn(4, 7, seed=9)
        (G,), (X,) = gradients(model, x, target)
        before = joined(model[0])
        take(model, optimizer, x, target)
        mu = sum(seen) / s if s else torch.zeros(6).double()
        A = torch.eye(6).double() / start + k * s * torch.outer(mu, mu)
        P = torch.linalg.inv(A)
        h = 1 + k * X.mean(0) @ P @ X.mean(0)
        want = before - eta / h * G @ P
        torch.testing.assert_close(joined(model[0]), want, rtol=1e-10, atol=1e-11)
        seen.append(X.mean(0))


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


@pytest.mark.parametrize("kind", [KailathRLS, AveragedRLS, RunningMeanRLS])
def test_save_and_load_in_mid_run_continue_to_the_last_bit(kind, tmp_path):
    def make():
        model = fcs()
        return model, kind(model, momentum=0.5)

    def run(model, optimizer, steps):
        for s in steps:
            take(model, optimizer, *batch(4, s))

    assert_resumes(make, run, tmp_path / "run.pt")
