"""RLS beside another optimiser: one joint clip, one step."""

import copy
import math
import re
from pathlib import Path

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

DOCS = Path(__file__).parents[2] / "docs" / "rls.md"


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


def test_groups_are_those_of_both():
    model = fcs()
    optimizer = hybrid(model, lr=0.3)
    assert [group.get("lr") for group in optimizer.param_groups] == [0.3, 1e-3]
    assert optimizer.max_grad_norm is None
    optimizer.param_groups[0]["lr"] = 0.1
    assert optimizer.rls.param_groups[0]["lr"] == 0.1


def test_a_parameter_has_one_optimiser():
    model = fcs()
    with pytest.raises(ValueError, match=r"'0\.weight' is trained by two"):
        Hybrid(RLS(model), torch.optim.Adam(model.parameters()))
    with pytest.raises(ValueError, match=r"'2\.bias' is trained by neither"):
        Hybrid(RLS(model, layers=["0"]), torch.optim.Adam([model[2].weight]))
    model[2].bias.requires_grad_(False)
    Hybrid(RLS(model, layers=["0"]), torch.optim.Adam([model[2].weight]))


# A torch.optim.Optimizer


def test_a_second_optimiser_for_more_parameters():
    model = fcs()
    model[2].bias.requires_grad_(False)
    optimizer = hybrid(model)
    later = nn.Parameter(torch.ones(2).double())
    optimizer.add_param_group({"params": [later], "lr": 0.5})
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 1e-3, 0.5]
    with pytest.raises(ValueError, match="RLS trains one of these parameters already"):
        optimizer.add_param_group({"params": model[0].parameters()})
    with pytest.raises(ValueError, match="RLS trains layers, not parameters: make it"):
        optimizer.rls.add_param_group({"params": [later]})


def test_an_optimiser_that_evaluates_again():
    model = fcs()
    with pytest.raises(ValueError, match="LBFGS evaluates the loss again within"):
        Hybrid(RLS(model, layers=["0"]), torch.optim.LBFGS(model[2].parameters()))


@pytest.mark.parametrize("kind", ["hidden", "output", "plain", "order"])
def test_a_checkpoint_of_another_network_is_refused_whole(kind):
    sizes = {"hidden": (6, 7, 3), "output": (5, 7, 4)}.get(kind, (5, 7, 3))
    layers = ("2", "0") if kind == "order" else ("0",)
    own = ("0", "2") if kind == "order" else ("0",)
    wide = nn.Sequential(*fcs(*sizes), nn.ReLU(), nn.Linear(sizes[-1], 3).double())
    model = nn.Sequential(*fcs(), nn.ReLU(), nn.Linear(3, 3).double())
    other, optimizer = hybrid(wide, layers=layers), hybrid(model, layers=own)
    both(wide, other, randn(4, sizes[0]), labels(4, 0))
    both(model, optimizer, randn(4, 5), labels(4, 0))
    state = other.rls.state_dict() if kind == "plain" else other.state_dict()
    before = sides(model, optimizer)
    message = {"plain": "this checkpoint is of 0", "order": "is of layers .'2', '0'"}
    message = message.get(kind, "shape .* in this checkpoint")
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state)
    assert identical(before, sides(model, optimizer))


# One line for a model


BLOCKS = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
CHOSEN = [["block.mlp.0", "block.mlp.2", "head", None], ["0", None]]


def test_the_networks_of_the_documentation_train_in_one_line():
    names = {}
    for code, chosen in zip(BLOCKS, CHOSEN, strict=False):
        exec(code, names)
        groups, losses = names["optimizer"].param_groups, names["losses"]
        assert [group.get("layer") for group in groups] == chosen
        assert losses[-1] < 0.5 * losses[0]
    assert groups[1]["lr"] == 1e-2
    before = [p.detach().clone() for p in names["model"].parameters()]
    exec(BLOCKS[3], names)
    moved = zip(before, names["model"].parameters(), strict=True)
    assert not any(torch.equal(a, b) for a, b in moved)
    exec(BLOCKS[2], names)
    assert names["optimizer"].state


def test_sparse_gradients():
    model = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Linear(4, 3))
    optimizer = Hybrid.for_model(model, torch.optim.SGD)
    model(torch.arange(5)).sum().backward()
    with pytest.raises(ValueError, match=r"dense gradients: .*sparse=False"):
        optimizer.step()


def test_what_layers_share_or_is_too_wide_is_the_other_s():
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 9), nn.Linear(9, 4))
    model.append(nn.Linear(4, 6, bias=False))
    model[3].weight = model[0].weight
    optimizer = Hybrid.for_model(model, max_fan_in=9)
    assert [g.get("layer") for g in optimizer.param_groups] == ["1", None]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Linear(3, 2), {}, r"RLS can train all of this model: take RLS\(model\)"),
        (nn.LayerNorm(3), {}, "nothing for RLS to train in LayerNorm"),
        (fcs(), {"leave": ["head"]}, "no layer 'head'; it has '0', '2'"),
        (fcs(), {"leave": ["0"], "lr": -1}, "lr must be >= 0"),
    ],
)
def test_one_line_that_cannot_be(model, options, message):
    with pytest.raises(ValueError, match=message):
        Hybrid.for_model(model, **options)


@pytest.mark.parametrize("make", [RLS, Hybrid.for_model])
def test_parameters_in_place_of_the_model(make):
    message = r"takes the model and not its parameters: RLS\(model\); got a generator"
    with pytest.raises(TypeError, match=message):
        make(fcs().parameters())
