"""Long runs, lost definiteness, gradients that are not finite."""

import math

import pytest
import torch
from torch import nn

from labkit.rls import RLS, NumericalError, RunningMeanRLS, rls_step
from tests.draws import seeded

from .conftest import FORMS, assert_close, batch, identical, randn, snapshot, take
from .twins import fcs

pytestmark = pytest.mark.filterwarnings("ignore:with forgetting < 1")


def test_collinear_inputs_wear_out_one_direction():
    v, steps = torch.tensor([3.0, -1.0, 2.0, 1.0]), 10_000
    P, theta = torch.eye(4), torch.zeros(1, 4)
    sizes = 0.5 + torch.rand(steps, generator=seeded(0))
    for size in sizes:
        rls_step(theta, P, size * v, theta)
    assert torch.equal(P, P.T)
    A = torch.eye(4) + 0.1 * sizes.square().sum() * torch.outer(v, v)
    wanted = torch.linalg.inv(A.double())
    torch.testing.assert_close(P.double(), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [0, 1])
def test_forgetting_on_one_direction_or_none_ends_with_a_word(size):
    model = nn.Sequential(nn.Linear(3, 2, bias=False))
    optimizer = RLS(model, forgetting=0.99)
    x = size * torch.tensor([[1.0, 2.0, -1.0]])
    words = "(wound up|at least)" if size else "wound up"
    with pytest.raises(NumericalError, match=f"'0', step .*{words}"):
        for _ in range(100_000):
            take(model, optimizer, x, torch.zeros(1, 2))
    state = optimizer.state[model[0].weight]
    assert state["P"].isfinite().all() and torch.equal(state["P"], state["P"].T)
    assert model[0].weight.isfinite().all()
    # the unexcited directions grow by 1 / 0.99 a step: at 3 / eps P is worthless
    eps = torch.finfo(torch.float32).eps
    grown = (3 - size) * 0.99 ** -int(state["step"]) * eps / 3
    assert 0.05 < grown < 1.1


OPTIONS = {"momentum": 0.5, "l1": 1e-3, "P0_scale": 2.0}


def again(model, optimizer, seed=4, scale=1.0):
    """A step on other rows; a scale that is not finite spoils its gradient."""
    take(model, optimizer, *batch(2, seed), scale)


def running(steps=3, kind=RLS, **options):
    """A network in mid-run."""
    model = fcs()
    optimizer = kind(model, **options)
    for s in range(steps):
        again(model, optimizer, s)
    return model, optimizer


@FORMS
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("more", [{}, {"forgetting": 0.97}, {"on_failure": "reset"}])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_gradient_that_is_not_finite_changes_nothing(bad, limit, more, steps):
    options = {**OPTIONS, "max_grad_norm": limit, **more}
    model, optimizer = running(steps, **options)
    before = snapshot(model, optimizer)
    name = f"'0', step {steps + 1}"
    message = f"{name}: the gradient's norm is {bad}|{name}: .* is nan"
    with pytest.raises(NumericalError, match=message) as error:
        again(model, optimizer, scale=bad)
    assert (error.value.layer, error.value.step) == ("0", steps + 1)
    assert not math.isfinite(error.value.value)
    assert identical(before, snapshot(model, optimizer))
    again(model, optimizer)
    twin, other = running(steps, **options)
    again(twin, other)
    assert identical(snapshot(model, optimizer), snapshot(twin, other))


@FORMS
def test_a_gradient_of_the_second_layer_is_named(limit):
    model, optimizer = running(**OPTIONS, max_grad_norm=limit)
    optimizer.zero_grad()
    y = model[1](model[0](randn(2, 5)))
    (y.sum() + model[2](y.detach()).sum() * math.nan).backward()
    with pytest.raises(NumericalError, match="layer '2', step 4"):
        optimizer.step()


def spoil(optimizer, model):
    """Lose the definiteness of the last layer's P."""
    optimizer.state[model[2].weight]["P"].neg_()


@FORMS
def test_lost_definiteness_is_named_and_changes_nothing(limit):
    model, optimizer = running(**OPTIONS, max_grad_norm=limit)
    spoil(optimizer, model)
    before = snapshot(model, optimizer)
    message = r"'2', step 4: h, which must be at least forgetting = 1\.0, is "
    with pytest.raises(NumericalError, match=message) as error:
        again(model, optimizer)
    assert error.value.value < 1
    assert identical(before, snapshot(model, optimizer))


@FORMS
def test_a_reset_starts_P_again_and_skips_the_block(limit):
    options = {**OPTIONS, "max_grad_norm": limit, "on_failure": "reset"}
    model, optimizer = running(**options)
    spoil(optimizer, model)
    twin, other = running(**options)
    state = optimizer.state[model[2].weight]
    still = lambda: (model[2].weight, model[2].bias, state["velocity"])  # noqa: E731
    before = [each.clone() for each in still()]
    for each, stepper in ((model, optimizer), (twin, other)):
        again(each, stepper)
    assert identical(before, still())
    assert torch.equal(state["P"], 2.0 * torch.eye(8).double())
    assert state["resets"] == 1
    assert torch.equal(model[0].weight, twin[0].weight)  # the others went on
    assert optimizer.state[model[0].weight]["resets"] == 0
    again(model, optimizer, 5)
    assert state["resets"] == 1 and not torch.equal(model[2].weight, before[0])


@pytest.mark.parametrize("forgetting", [1.0, 0.99])
def test_a_large_P_from_the_start_is_no_growth(forgetting):
    running(P0_scale=1e17, forgetting=forgetting, lr=0.0)


# What a step does on an accelerator, where it must not wait: here on the CPU


def held(kind):
    class Held(kind):
        @staticmethod
        def _on_cpu(value):
            return False

    return Held


def weights_and_P(model, optimizer):
    """All that must stand still."""
    kept = [p.detach().clone() for p in model.parameters()]
    for state in optimizer.state.values():
        kept += [state[key].clone() for key in ("P", "total") if key in state]
    return kept


SETTINGS = {
    "plain": {},
    "momentum": {"momentum": 0.5},
    "l1": {"l1": 1e-3},
    "forgetting": {"forgetting": 0.97},
    "no limit": {"max_grad_norm": math.inf},
    "clip": {"max_grad_norm": 5.0},
}
EVERY_SETTING = pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)


@EVERY_SETTING
@pytest.mark.parametrize("on_failure", ["raise", "reset"])
def test_masked_steps_equal_checked_ones_while_all_is_well(options, on_failure):
    found = []
    for kind in (RLS, held(RLS)):
        model, optimizer = running(5, kind, **options, on_failure=on_failure)
        optimizer.check()
        found.append(snapshot(model, optimizer))
    assert_close(*found)


@EVERY_SETTING
@pytest.mark.parametrize("on_failure", ["raise", "reset"])
@pytest.mark.parametrize("where", ["loss", "input"])
def test_masked_gradient_that_is_not_finite(options, on_failure, where):
    model, optimizer = running(kind=held(RLS), **options, on_failure=on_failure)
    before = weights_and_P(model, optimizer)
    x, target = batch(2, 4)
    x[1, 3] *= math.nan if where == "input" else 1.0
    take(model, optimizer, x, target, math.nan if where == "loss" else 1.0)
    assert identical(before, weights_and_P(model, optimizer))
    with pytest.raises(NumericalError, match="layer '0', step 4"):
        optimizer.check()


@EVERY_SETTING
def test_masked_P_that_is_lost_stands_still(options):
    model, optimizer = running(kind=held(RLS), **options)
    spoil(optimizer, model)
    weight, bias = model[2].parameters()
    still = weight, bias, optimizer.state[weight]["P"]
    before = [each.clone() for each in still]
    again(model, optimizer)
    assert identical(before, still)
    with pytest.raises(NumericalError, match="layer '2', step 4"):
        optimizer.check()


@EVERY_SETTING
@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_masked_reset_is_the_checked_one(options, value):
    found = []
    for kind in (RLS, held(RLS)):
        fixed = {"P0_scale": 2.0, "on_failure": "reset"}
        model, optimizer = running(kind=kind, **options, **fixed)
        optimizer.state[model[2].weight]["P"].mul_(value)
        again(model, optimizer)
        optimizer.check()
        assert optimizer.state[model[2].weight]["resets"] == 1
        assert optimizer.state[model[0].weight]["resets"] == 0
        found.append(weights_and_P(model, optimizer))
    assert_close(*found)


def test_masks_of_a_relative():
    model, optimizer = running(kind=held(RunningMeanRLS))
    before = weights_and_P(model, optimizer)
    again(model, optimizer, scale=math.nan)
    assert identical(before, weights_and_P(model, optimizer))
    with pytest.raises(NumericalError, match="step 4"):
        optimizer.check()


def test_check_names_the_first_failure_and_survives_a_reload():
    model, optimizer = running(kind=held(RLS))
    for s in range(2):
        again(model, optimizer, s, math.nan)
    again(model, optimizer)
    resumed = RLS(fcs())
    resumed.load_state_dict(optimizer.state_dict())
    for each in (optimizer, resumed):
        with pytest.raises(NumericalError, match="step 4"):
            each.check()
