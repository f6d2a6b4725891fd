"""What users of torch take for granted: penalties, rates, missing gradients."""

import copy
import math

import pytest
import torch
from torch import nn

from labkit.rls import RLS, loss_mse

from .conftest import (
    assert_close,
    backward,
    batch,
    identical,
    randn,
    snapshot,
    take,
)
from .test_health import held
from .twins import fcs, randomise

pytestmark = pytest.mark.filterwarnings("ignore:with forgetting < 1")
FORMS = pytest.mark.parametrize("limit", [None, math.inf])


@FORMS
@pytest.mark.parametrize("to_none", [True, False])
def test_a_step_that_was_skipped_leaves_nothing(limit, to_none):
    """The model's own zero_grad knows nothing of the inputs."""
    found = []
    for skipped in (False, True):
        model = fcs()
        optimizer = RLS(model, max_grad_norm=limit)
        if skipped:
            backward(model, *batch(2, 1))
            model.zero_grad(set_to_none=to_none)
        backward(model, *batch(2, 0))
        optimizer.step()
        found.append(snapshot(model, optimizer))
    assert identical(*found)


# What reaches a parameter past its layer


@pytest.mark.parametrize("rows", [4, 50])
def test_a_penalty_on_a_bias_is_stepped_with_and_clipped(rows):
    """What autograd has put into .grad counts, whether the rest is formed or not."""
    models = [nn.Sequential(nn.Linear(6, 40)) for _ in range(3)]
    limits, norms = (None, 1e9, 1.0), []
    for model, limit in zip(models, limits, strict=True):
        randomise(model)
        nn.init.ones_(model[0].bias)
        optimizer = RLS(model, max_grad_norm=limit)
        loss = loss_mse(model(randn(rows, 6, seed=1)), randn(rows, 40, seed=2))
        (loss + model[0].bias.square().sum()).backward()
        if limit == 1.0:
            twin = copy.deepcopy(models[1])
        optimizer.step()
        norms.append(optimizer.gradient_norm)
    assert_close(models[0].parameters(), models[1].parameters(), 1e-11)
    assert_close(norms[:1] * 2, norms[1:], 1e-11)
    start = randomise(nn.Sequential(nn.Linear(6, 40)))
    nn.init.ones_(start[0].bias)
    moved = zip(*(m.parameters() for m in (start, models[2], twin)), strict=True)
    for first, short, whole in moved:
        assert_close([short - first], [(whole - first) / norms[0]], 1e-6)


def test_a_weight_that_is_used_again_past_its_layer_adds_to_its_gradient():
    """Tied to a head by hand: half of the gradient is formed, half is not."""
    found = []
    for limit in (None, math.inf):
        model = fcs()
        optimizer = RLS(model, max_grad_norm=limit)
        x = randn(2, 5, seed=1)
        y = torch.tanh(model[0](x)) @ model[0].weight
        (loss_mse(y, randn(2, 5, seed=2)) + model(x).square().sum()).backward()
        optimizer.step()
        found.append(snapshot(model, optimizer))
    assert_close(*found, 1e-11)


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
@pytest.mark.parametrize("kind", [RLS, lambda m, **o: held(RLS)(m, **o)])
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


def test_weight_decay_is_decoupled():
    models = fcs(), fcs()
    a = RLS(models[0], lr=0.5, weight_decay=0.1, momentum=0.5)
    b = RLS(models[1], lr=0.5, momentum=0.5)
    for s in range(3):
        for model, optimizer in zip(models, (a, b), strict=True):
            optimizer.zero_grad()
            backward(model, *batch(9, s))
        with torch.no_grad():
            for p in models[1].parameters():
                p.mul_(1 - 0.5 * 0.1)
        a.step(), b.step()
    assert identical(snapshot(models[0], a), snapshot(models[1], b))


@pytest.mark.parametrize("make", [RLS, lambda m, **o: held(RLS)(m, **o)])
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


# A gradient penalty


def critic_step(limit, penalty, activation=nn.Tanh):
    """A step of a WGAN's critic, wide enough to leave its gradient unformed."""
    model = randomise(nn.Sequential(nn.Linear(4, 9), activation(), nn.Linear(9, 1)))
    optimizer = RLS(model, momentum=0.5, max_grad_norm=limit)
    for s in range(3):
        optimizer.zero_grad()
        real, fake = randn(3, 4, seed=s), randn(3, 4, seed=50 + s)
        loss = model(fake).mean() - model(real).mean()
        if penalty:
            x = (0.4 * real + 0.6 * fake).requires_grad_()
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            loss = loss + 10 * (slope.norm(dim=1) - 1).square().mean()
        loss.backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("limit", [math.inf, 0.5])
def test_a_gradient_penalty_under_max_grad_norm(limit, activation):
    formed = critic_step(None, True, activation)
    if limit == math.inf:
        assert_close(critic_step(limit, True, activation), formed, 1e-11)
    assert not identical(formed, critic_step(None, False, activation))
    for p in critic_step(limit, True, activation):
        assert p.isfinite().all()
