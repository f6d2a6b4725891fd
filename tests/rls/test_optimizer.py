"""RLS steps of every layer kind against the NumPy reference."""

import copy
import math

import pytest
import torch

from labkit.rls import RLS, AveragedRLS, KailathRLS, RunningMeanRLS

from .conftest import (
    REF_RULE,
    RULE,
    assert_close,
    backward,
    batch,
    identical,
    in_step,
    randn,
    snapshot,
    take,
)
from .reference import Net
from .twins import CASES, assert_same, fcs, plant

pytestmark = pytest.mark.filterwarnings(
    "ignore:with forgetting < 1", "ignore:Using padding='same'"
)


# rows of the batch: fewer than the units of some Linear layer, more than of all
FEW, MANY = 2, 9


@pytest.mark.parametrize("rows", [FEW, MANY])
@pytest.mark.parametrize("limit", [None, math.inf, 0.05])
@pytest.mark.parametrize("case", CASES)
def test_one_step_equals_the_reference(case, limit, rows):
    model, inputs, outputs, layers = CASES[case]()
    steps = 4 if case == "output at every step" else 1
    optimizer = RLS(model, **RULE, max_grad_norm=limit, layers=layers)
    net = Net(model, steps)
    backward(model, randn(rows, *inputs, seed=7), randn(rows, *outputs, seed=8))
    optimizer.step()  # makes the state
    plant(optimizer, net)
    x = randn(rows, *inputs, seed=1) + 0.5
    target = randn(rows, *outputs, seed=2)
    factor = in_step(model, optimizer, net, x, target, limit, **REF_RULE)
    assert limit is None or limit > 1 or factor < 0.9
    assert_same(optimizer, net)


def test_the_gradient_is_formed_or_not_as_documented():
    cases = [(None, FEW, True), (math.inf, FEW, False), (math.inf, MANY, True)]
    for limit, rows, formed in cases:
        model = fcs()
        optimizer = RLS(model, max_grad_norm=limit)
        backward(model, *batch(rows, 0))
        assert (model[0].weight.grad is not None) == formed
        optimizer.step()


def test_options_of_single_layers_and_changes_of_them_in_mid_run():
    model = fcs()
    net = Net(model)
    layers = [{"layer": "2", "lr": 0.2, "P0_scale": 3.0}, model[0]]
    optimizer = RLS(model, layers=layers, lr=0.9, mean_weight=0.4)
    net.parts[1].P *= 3.0
    etas = {0: 0.9, 1: 0.2}
    for s in range(4):
        if s == 2:
            optimizer.param_groups[0]["lr"] = etas[1] = 0.5
        x, target = batch(MANY, s)
        take(model, optimizer, x, target)
        net.gradients(x, target)
        for i, part in enumerate(net.parts):
            part.step(k=0.4, eta=etas[i])
    net.parts.reverse()
    assert_same(optimizer, net)


@pytest.mark.parametrize("frozen", [False, True])
def test_layers_that_are_frozen_or_not_chosen_stay(frozen):
    model = fcs()
    model[0].requires_grad_(not frozen)
    optimizer = RLS(model, layers=None if frozen else ["2"], max_grad_norm=5.0)
    before = model[0].weight.clone()
    take(model, optimizer, *batch(FEW, 0))
    assert torch.equal(model[0].weight, before)
    assert [block.name for block in optimizer.blocks] == ["2"]


@pytest.mark.parametrize("alphas", [(0, 0, 0.5, 0.5), (0.5, 0.5, 0, 0.5, 0.5)])
def test_momentum_that_starts_later_or_again_starts_from_rest(alphas):
    model = fcs()
    net = Net(model)
    optimizer = RLS(model)
    for s, alpha in enumerate(alphas):
        for group in optimizer.param_groups:
            group["momentum"] = alpha
        in_step(model, optimizer, net, *batch(MANY, s), alpha=alpha)
        for part in net.parts:
            part.omega *= alpha > 0
    assert_same(optimizer, net)


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        (RLS, "conv"),
        (RLS, "lstm"),
        (RLS, "output at every step"),
        (KailathRLS, "fc"),
        (AveragedRLS, "fc"),
        (RunningMeanRLS, "fc"),
    ],
)
def test_save_and_load_in_mid_run_continue_to_the_last_bit(kind, case):
    def run(steps, saved=()):
        model, inputs, outputs, layers = CASES[case]()
        optimizer = kind(model, momentum=0.5, max_grad_norm=0.5, layers=layers)
        for each, state in zip((model, optimizer), saved, strict=False):
            each.load_state_dict(state)
        for s in steps:
            x, target = randn(FEW, *inputs, seed=s), randn(FEW, *outputs, seed=s)
            take(model, optimizer, x, target)
        return model, optimizer

    model, optimizer = run(range(8))
    saved = [each.state_dict() for each in run(range(4))]
    again, resumed = run(range(4, 8), saved)
    assert identical(snapshot(model, optimizer), snapshot(again, resumed))


def test_loaded_options_win():
    model = fcs()
    optimizer = RLS(model, lr=0.3, momentum=0.2)
    other = RLS(copy.deepcopy(model))
    other.load_state_dict(optimizer.state_dict())
    assert [group["lr"] for group in other.param_groups] == [0.3, 0.3]
    assert [group["momentum"] for group in other.param_groups] == [0.2, 0.2]


@pytest.mark.parametrize("limit", [None, 1.0])
def test_a_compiled_model_trains_as_itself(limit):
    torch.compiler.reset()
    model = fcs()
    twin = copy.deepcopy(model)
    a, b = (RLS(each, max_grad_norm=limit) for each in (model, twin))
    compiled = torch.compile(twin, backend="eager")
    for s in range(3):
        take(model, a, *batch(9, s))
        take(compiled, b, *batch(9, s))
    assert identical(snapshot(model, a), snapshot(twin, b))
    explained = torch._dynamo.explain(twin)(batch(9, 0)[0])
    assert explained.graph_break_count <= 2 * len(b.captures)


def test_float32_stays_float32_and_close():
    model = fcs()
    single = copy.deepcopy(model).float()
    a, b = RLS(model, momentum=0.5), RLS(single, momentum=0.5)
    for s in range(5):
        x, target = batch(FEW, s)
        take(model, a, x, target)
        take(single, b, x.float(), target.float())
    for state in b.state.values():
        assert {state[key].dtype for key in ("P", "velocity", "h")} == {torch.float32}
    assert_close(single.double().parameters(), model.parameters(), 1e-5)


def test_forgetting_is_warned_of():
    with pytest.warns(UserWarning, match="P grows without bound"):
        RLS(fcs(), forgetting=0.999)
