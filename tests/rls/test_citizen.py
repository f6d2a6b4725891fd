"""What users of torch take for granted: penalties, rates, missing gradients."""

import math

import pytest
import torch
from torch import nn

from labkit.rls import RLS, loss_mse

from .conftest import FORMS, assert_close, batch, randn, snapshot, take
from .test_health import held
from .twins import fcs, randomise

pytestmark = pytest.mark.filterwarnings("ignore:with forgetting < 1")


# What reaches a parameter past its layer: formed by autograd, where the rest is not


def a_penalty_on_a_bias(model, x):
    return (model[0].bias + 1).square().sum()


def a_weight_used_again(model, x):
    return (torch.tanh(model[0](x)) @ model[0].weight).square().mean()


def a_gradient_penalty(model, x):
    """As that of a WGAN's critic."""
    (slope,) = torch.autograd.grad(
        model(x.requires_grad_()).sum(), x, create_graph=True
    )
    return (slope.norm(dim=1) - 1).square().mean()


MORE = a_penalty_on_a_bias, a_weight_used_again, a_gradient_penalty


@pytest.mark.parametrize("rows", [2, 50])
@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU()])
@pytest.mark.parametrize("limit", [math.inf, 0.5])
@pytest.mark.parametrize("more", MORE)
def test_what_comes_past_a_layer_is_stepped_with_and_clipped(
    more, limit, activation, rows
):
    """As where all is formed, and torch clips."""
    found = []
    for own in (None, limit):
        model = fcs()
        model[1] = activation
        optimizer = RLS(model, lr=0.3, momentum=0.5, max_grad_norm=own)
        for s in range(3):
            optimizer.zero_grad()
            x, target = batch(rows, s)
            (loss_mse(model(x), target) + more(model, x)).backward()
            if not own:
                norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
                assert norm > 0.5
            optimizer.step()
        found.append(snapshot(model, optimizer))
    assert_close([optimizer.gradient_norm], [norm], 1e-11)
    assert_close(*found, 1e-11)


def test_a_gradient_penalty_on_one_image():
    optimizer = RLS(nn.Conv2d(1, 2, 3))
    x = torch.rand(1, 5, 5, requires_grad=True)
    loss = optimizer.model(x).norm()
    torch.autograd.grad(loss, x, create_graph=True)[0].norm().backward()


def test_autograd_grad_returns_every_gradient_and_is_differentiable():
    """Also of a layer whose gradient is otherwise not formed."""
    found = []
    for limit in (None, math.inf):
        model = fcs()
        optimizer = RLS(model, lr=0.3, max_grad_norm=limit)
        x, target = batch(2, 0)
        weights = list(model.parameters())
        loss = loss_mse(model(x), target)
        first = torch.autograd.grad(loss, weights, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), weights)
        loss_mse(model(x), target).backward()
        optimizer.step()
        found.append([*first, *second, *weights])
    for one, two in zip(*found, strict=True):
        assert_close(one.detach(), two.detach(), 1e-11)


class Experts(nn.Module):
    """Each row is one expert's; the last may have none."""

    def __init__(self):
        super().__init__()
        self.ways = nn.ModuleList(nn.Linear(5, 30) for _ in range(3))
        randomise(self)

    def forward(self, x):
        parts = x[:1], x[1:], x[:0]
        return torch.cat([f(rows) for f, rows in zip(self.ways, parts, strict=True)])


@FORMS
@pytest.mark.parametrize("kind", [RLS, held(RLS)])
@pytest.mark.parametrize("on_failure", ["raise", "reset"])
def test_a_layer_without_rows_stands_still_and_the_others_step(kind, limit, on_failure):
    model = Experts()
    optimizer = kind(model, momentum=0.5, max_grad_norm=limit, on_failure=on_failure)
    before = [p.detach().clone() for p in model.parameters()]
    for s in range(2):
        optimizer.zero_grad()
        model(randn(4, 5, seed=s)).square().sum().backward()
        optimizer.step()
    optimizer.check()
    same = list(map(torch.equal, before, model.parameters()))
    assert same == [False] * 4 + [True] * 2
    idle = optimizer.state[model.ways[2].weight]
    assert idle["step"] == idle["resets"] == 0
    assert torch.equal(idle["P"], torch.eye(6).double())


# Options


@pytest.mark.parametrize("make", [RLS, held(RLS)])
@pytest.mark.parametrize("limit", [None, 0.5])
def test_a_rate_in_a_tensor_is_the_number(make, limit):
    found = []
    for lr in (0.3, torch.tensor(0.3, dtype=torch.float64)):
        model = fcs()
        optimizer = make(model, lr=lr, momentum=0.5, max_grad_norm=limit)
        for s in range(3):
            take(model, optimizer, *batch(9, s))
            optimizer.param_groups[0]["lr"] = lr / 2
        found.append(snapshot(model, optimizer))
    assert_close(*found)
