"""RLS beside another optimiser: one joint clip, two steps."""

import math

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from labkit.rls import RLS, Hybrid, NumericalError
from tests.draws import seeded

from .conftest import (
    identical,
    randn,
    snapshot,
)
from .reference import Net, theta
from .twins import assert_same, fcs


def hybrid(model, *, layers=("0",), **options):
    chosen = [model.get_submodule(name) for name in layers]
    trained = {id(p) for layer in chosen for p in layer.parameters()}
    rest = [p for p in model.parameters() if id(p) not in trained]
    return Hybrid(RLS(model, layers=layers, **options), torch.optim.Adam(rest))


def labels(rows, seed):
    return torch.randint(3, (rows,), generator=seeded(seed))


def both(model, optimizer, x, y):
    """One step by the cross-entropy; returns it."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("rows", [2, 9])
def test_twenty_steps_with_some_clipped(rows):
    limit, model = {2: 1.5, 9: 0.45}[rows], fcs()
    net = Net(model)
    optimizer = hybrid(model, momentum=0.5, l1=1e-4, max_grad_norm=limit)
    first, last = net.parts
    weights = nn.Parameter(torch.from_numpy(last.theta))  # in the same memory
    adam = torch.optim.Adam([weights])
    clipped = []
    for s in range(20):
        x, y = randn(rows, 5, seed=s), labels(rows, s)
        loss = both(model, optimizer, x, y)
        want = net.gradients(x, y, nn.functional.cross_entropy)
        assert math.isclose(loss.item(), want, rel_tol=1e-9)
        assert math.isclose(optimizer.gradient_norm.item(), net.norm(), rel_tol=1e-9)
        factor = net.factor(limit)
        first.step(factor, alpha=0.5, gamma=1e-4)
        weights.grad = torch.from_numpy(factor * last.grad)
        adam.step()
        clipped.append(factor < 1)
        assert_allclose(
            theta(model[2].weight, model[2].bias), last.theta, rtol=1e-9, atol=1e-9
        )
    net.parts.remove(last)
    assert_same(optimizer.rls, net)
    assert any(clipped) and not all(clipped)


@pytest.mark.parametrize(
    ("spoiled", "named"), [("0", "0"), ("2", r"\(those of Adam\)")]
)
def test_a_gradient_that_is_not_finite_changes_nothing_on_either_side(spoiled, named):
    model = fcs()
    optimizer = hybrid(model, momentum=0.5, max_grad_norm=1.0)
    for s in range(2):
        both(model, optimizer, randn(4, 5), labels(4, s))
    before = snapshot(model, optimizer)
    optimizer.zero_grad()
    y = model[1](model[0](randn(4, 5)))
    (y.sum() + model[2](y.detach()).sum()).backward()
    model.get_submodule(spoiled).bias.grad[0] = math.nan
    optimizer.rls.captures[0].last = None  # as if autograd had left it
    message = f"layer '{named}', step 3: the gradient's norm is nan"
    with pytest.raises(NumericalError, match=message):
        optimizer.step()
    assert identical(before, snapshot(model, optimizer))


def test_what_reaches_only_the_other_part_steps_there():
    """A batch that reaches the head alone, since the trunk stands behind a detach."""
    model = fcs()
    optimizer = hybrid(model, momentum=0.5, l1=1e-3)
    before = [p.clone() for p in model.parameters()]
    model[2](model[0](randn(2, 5)).detach()).sum().backward()
    optimizer.step()
    pairs = zip(model.parameters(), before, strict=True)
    assert [torch.equal(*pair) for pair in pairs] == [True, True, False, False]


def test_more_parameters_go_to_the_other_part():
    model, late = fcs(), nn.Parameter(torch.zeros(3))
    optimizer = hybrid(model)
    optimizer.add_param_group({"params": late})
    (model(randn(4, 5)) + late).sum().backward()
    optimizer.step()
    assert late.all()
    with pytest.raises(ValueError, match="trained by two optimizers"):
        optimizer.add_param_group({"params": model[0].weight})


def test_a_checkpoint_of_layers_in_another_order_is_refused_whole():
    made = []
    for layers in (["2", "0"], ["0", "2"]):
        model = nn.Sequential(*fcs(), nn.ReLU(), nn.Linear(3, 3).double())
        optimizer = hybrid(model, layers=layers)
        both(model, optimizer, randn(4, 5), labels(4, 0))
        made.append(optimizer)
    before = snapshot(model, optimizer)
    with pytest.raises(ValueError, match=r"is of layers .'2', '0'"):
        optimizer.load_state_dict(made[0].state_dict())
    assert identical(before, snapshot(model, optimizer))


def sparse():
    model = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Linear(4, 3))
    sgd = torch.optim.SGD(model[0].parameters())
    model(torch.arange(5)).sum().backward()
    Hybrid(RLS(model, layers=["1"]), sgd).step()


def shared():
    model = fcs()
    Hybrid(RLS(model), torch.optim.Adam(model.parameters()))


def left():
    model = fcs()
    Hybrid(RLS(model, layers=["0"]), torch.optim.Adam([model[2].weight]))


def again():
    model = fcs()
    Hybrid(RLS(model, layers=["0"]), torch.optim.LBFGS(model[2].parameters()))


MISTAKES = {
    sparse: r"dense gradients: .*sparse=False",
    shared: r"'0\.weight' is trained by two",
    left: r"'2\.bias' is trained by neither",
    again: "LBFGS evaluates the loss again within",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake):
    with pytest.raises(ValueError, match=MISTAKES[mistake]):
        mistake()


def test_what_is_frozen_needs_no_optimiser():
    model = fcs()
    model[2].bias.requires_grad_(False)
    Hybrid(RLS(model, layers=["0"]), torch.optim.Adam([model[2].weight]))
