"""RLS beside another optimiser: one joint clip, one step."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from labkit.rls import RLS, Hybrid, NumericalError

from . import reference as ref
from .conftest import (
    assert_close,
    assert_resumes,
    identical,
    randn,
    snapshot,
)
from .twins import assert_same, fcs, mirror, randomise, theta


def hybrid(model, *, layers=("0",), **options):
    chosen = [model.get_submodule(name) for name in layers]
    mine = {id(p) for layer in chosen for p in layer.parameters()}
    rest = [p for p in model.parameters() if id(p) not in mine]
    return Hybrid(RLS(model, layers=layers, **options), torch.optim.Adam(rest))


def labels(rows, seed):
    return torch.randint(3, (rows,), generator=torch.Generator().manual_seed(seed))


def both(model, optimizer, x, y):
    """One step by the cross-entropy; returns it."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def sides(model, optimizer):
    return snapshot(model, optimizer.rls) + snapshot(model, optimizer.other)


@pytest.mark.parametrize("rows", [2, 9])
def test_twenty_steps_with_some_clipped(rows):
    limit, model = {2: 1.5, 9: 0.45}[rows], fcs()
    net = mirror(model)
    optimizer = hybrid(model, momentum=0.5, l1=1e-4, max_grad_norm=limit)
    first, last = net.parts
    adam = ref.Adam(last)
    net_of_rls = ref.Net(net.layers[:1])
    clipped = []
    for s in range(20):
        x, y = randn(rows, 5, seed=s), labels(rows, s)
        loss = both(model, optimizer, x, y)
        want = net.gradients(x, y, ref.cross_entropy)
        assert math.isclose(loss.item(), want, rel_tol=1e-9)
        assert math.isclose(optimizer.gradient_norm.item(), net.norm(), rel_tol=1e-9)
        factor = net.factor(limit)
        first.step(factor, alpha=0.5, gamma=1e-4)
        adam.step(factor)
        clipped.append(factor < 1)
        assert_same(optimizer.rls, net_of_rls)
        np.testing.assert_allclose(
            theta(model[2].weight, model[2].bias), last.theta, rtol=1e-9, atol=1e-9
        )
    assert any(clipped) and not all(clipped)


def test_a_plain_layer_before_a_residual_one_gets_its_gradient():
    model = fcs(5, 7, 12)
    optimizer = hybrid(model, layers=("2",), max_grad_norm=math.inf)
    x = randn(4, 5, seed=1)
    twin = copy.deepcopy(model)
    model(x).square().sum().backward()
    twin(x).square().sum().backward()
    assert model[2].weight.grad is None
    grads = ([p.grad for p in each[0].parameters()] for each in (model, twin))
    assert_close(*grads)
    optimizer.step()


def test_save_and_load_in_mid_run_continue_to_the_last_bit(tmp_path):
    def make():
        layers = nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)
        model = randomise(nn.Sequential(*layers))
        return model, hybrid(model, momentum=0.5, l1=1e-5, max_grad_norm=0.5)

    def run(model, optimizer, steps):
        for s in steps:
            both(model, optimizer, randn(4, 1, 4, 4, seed=s), labels(4, s))

    assert_resumes(make, run, tmp_path / "run.pt", sides)


def test_a_gradient_that_is_not_finite_changes_nothing_on_either_side():
    model = fcs()
    optimizer = hybrid(model, momentum=0.5, max_grad_norm=1.0)
    for s in range(2):
        both(model, optimizer, randn(4, 5), labels(4, s))
    before = sides(model, optimizer)
    optimizer.zero_grad()
    (model(randn(4, 5)).sum() * math.nan).backward()
    message = r"layer '\(those of Adam\)', step 3: the gradient's norm is nan"
    with pytest.raises(NumericalError, match=message):
        optimizer.step()
    assert identical(before, sides(model, optimizer))


def test_zero_grad_clears_both_sides():
    model = fcs()
    optimizer = hybrid(model, max_grad_norm=1.0)
    model(randn(4, 5)).sum().backward()
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(RuntimeError, match="nothing to do"):
        optimizer.step()


def test_groups_are_those_of_both():
    model = fcs()
    optimizer = hybrid(model, lr=0.3)
    assert [group.get("lr") for group in optimizer.param_groups] == [0.3, 1e-3]
    assert optimizer.max_grad_norm is None
    optimizer.param_groups[0]["lr"] = 0.1
    assert optimizer.rls.param_groups[0]["lr"] == 0.1


def test_a_parameter_has_one_optimiser():
    model = fcs()
    with pytest.raises(ValueError, match=r"'0\.weight' is trained by both"):
        Hybrid(RLS(model), torch.optim.Adam(model.parameters()))
    with pytest.raises(ValueError, match=r"'2\.bias' is trained by neither"):
        Hybrid(RLS(model, layers=["0"]), torch.optim.Adam([model[2].weight]))
    model[2].bias.requires_grad_(False)
    Hybrid(RLS(model, layers=["0"]), torch.optim.Adam([model[2].weight]))
