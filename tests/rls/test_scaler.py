"""Mixed precision: the GradScaler's scale, skipped steps, autocast."""

import copy
import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from labkit.rls import RLS, Hybrid, loss_mse

from .conftest import assert_close, backward, batch, identical, randn, snapshot, take
from .twins import LastOutput, fcs

FORMS = pytest.mark.parametrize("limit", [None, math.inf, 0.3])


def scaler():
    return torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=2)


def rls(model, limit):
    return RLS(model, momentum=0.5, max_grad_norm=limit)


def hybrid(model, limit):
    first = RLS(model, layers=["0"], max_grad_norm=limit)
    return Hybrid(first, torch.optim.SGD(model[2].parameters(), lr=0.1))


def weights(model):
    return list(model.parameters())


@FORMS
@pytest.mark.parametrize("make", [rls, hybrid])
def test_a_scaled_loss_changes_nothing(make, limit):
    """Two rows for seven units: under a limit residuals are kept."""
    model, scale = fcs(), scaler()
    twin = copy.deepcopy(model)
    a, b = make(model, limit), make(twin, limit)
    for s in range(4):
        take(model, a, *batch(2, s))
        b.zero_grad()
        scale.scale(loss_mse(twin(batch(2, s)[0]), batch(2, s)[1])).backward()
        scale.step(b)
        scale.update()
    assert scale.get_scale() == 2.0**14
    assert_close([*weights(twin), b.gradient_norm], [*weights(model), a.gradient_norm])


@pytest.mark.parametrize("make", [rls, hybrid])
@pytest.mark.parametrize("clear", ["model", "optimizer"])
def test_a_step_that_overflowed_is_skipped_whole(make, clear):
    model, scale = fcs(), scaler()
    twin = copy.deepcopy(model)
    a, b = make(model, 1.0), make(twin, 1.0)
    for s in range(3):
        take(model, a, *batch(2, s))
        x, target = batch(2, s)
        for factor in (math.inf, 1.0):
            b.zero_grad() if clear == "optimizer" else twin.zero_grad()
            before = weights(copy.deepcopy(twin))
            scale.scale(factor * loss_mse(twin(x), target)).backward()
            scale.step(b)
            scale.update()
            assert identical(before, weights(twin)) == (factor == math.inf)
    assert_close(weights(twin), weights(model))


@pytest.mark.parametrize("make", [rls, hybrid])
def test_gradients_unscaled_by_hand_where_factors_are_kept(make):
    model, scale = fcs(), scaler()
    optimizer = make(model, 1.0)
    before = weights(copy.deepcopy(model))
    scale.scale(backward_loss(model)).backward()
    scale.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"layer '0', .*leave it out: scaler\.step"):
        scale.step(optimizer)
    assert identical(before, weights(model))
    scale.update()
    optimizer.zero_grad()
    backward_loss(model).backward()
    optimizer.step()


def backward_loss(model):
    return loss_mse(model(batch(2, 0)[0]), batch(2, 0)[1])


def test_gradients_unscaled_and_clipped_by_hand_where_all_are_formed():
    model, scale = fcs(), scaler()
    twin = copy.deepcopy(model)
    a, b = RLS(model, max_grad_norm=0.3), RLS(twin)
    take(model, a, *batch(2, 0))
    scale.scale(backward_loss(twin)).backward()
    scale.unscale_(b)
    nn.utils.clip_grad_norm_(twin.parameters(), 0.3)
    scale.step(b)
    assert_close(weights(twin), weights(model))


CLEARED = {
    "model.zero_grad": lambda model: model.zero_grad(),
    "to zero": lambda model: model.zero_grad(set_to_none=False),
    "by hand": lambda model: [setattr(p, "grad", None) for p in model.parameters()],
    "zeros by hand": lambda model: put_zeros(p for p in model.parameters() if has(p)),
}


def has(p):
    return p.grad is not None


def put_zeros(parameters):
    for p in parameters:
        p.grad = torch.zeros_like(p)


@FORMS
@pytest.mark.parametrize("how", CLEARED)
@pytest.mark.parametrize("bias", [True, False])
def test_inputs_go_with_the_gradients_of_a_skipped_step(how, bias, limit):
    models = fcs(bias=bias), fcs(bias=bias)
    a, b = (RLS(model, max_grad_norm=limit) for model in models)
    backward(models[0], *batch(2, 5))  # and no step
    CLEARED[how](models[0])
    for model, optimizer in zip(models, (a, b), strict=True):
        backward(model, *batch(2, 0))
        optimizer.step()
    assert identical(snapshot(models[0], a), snapshot(models[1], b))


TO_ZERO = [CLEARED["to zero"], lambda model: put_zeros(model.parameters())]


@FORMS
@pytest.mark.parametrize("clear", TO_ZERO)
@pytest.mark.parametrize("make", [rls, hybrid])
def test_a_step_after_setting_gradients_to_zero_moves_nothing(make, clear, limit):
    model = fcs()
    optimizer = make(model, limit)
    take(model, optimizer, *batch(2, 0))
    before = snapshot(model, getattr(optimizer, "rls", optimizer))
    backward(model, *batch(2, 5))
    clear(model)
    optimizer.step()
    assert identical(before, snapshot(model, getattr(optimizer, "rls", optimizer)))
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()  # of a gradient of 0 no input is needed
    assert identical(before, snapshot(model, getattr(optimizer, "rls", optimizer)))


@FORMS
@pytest.mark.parametrize("clear", TO_ZERO)
def test_of_two_layers_the_one_with_a_gradient_moves(clear, limit):
    model = fcs()
    optimizer = RLS(model, max_grad_norm=limit)
    backward(model, *batch(2, 5))
    clear(model[0])
    before = [p.clone() for p in model.parameters()]
    optimizer.step()
    pairs = zip(model.parameters(), before, strict=True)
    moved = [not torch.equal(p, q) for p, q in pairs]
    assert moved == [False, False, True, True]
    assert model[0].weight not in optimizer.state


@FORMS
def test_a_gradient_made_by_hand_needs_inputs_of_its_own(limit):
    """Those of a pass whose step was taken are gone."""
    model = fcs()
    optimizer = RLS(model, max_grad_norm=limit)
    take(model, optimizer, *batch(2, 0))
    optimizer.zero_grad()
    before = snapshot(model, optimizer)
    for p in model[0].parameters():
        p.grad = torch.ones_like(p)
    with pytest.raises(RuntimeError, match="no input of it was seen"):
        optimizer.step()
    assert identical(before, snapshot(model, optimizer))


@pytest.mark.parametrize("bias", [True, False])
def test_a_gradient_put_in_place_of_the_formed_one_goes_with_its_inputs(bias):
    models = fcs(bias=bias), fcs(bias=bias)
    a, b = map(RLS, models)
    for model in models:
        backward(model, *batch(2, 0))
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        p.grad.mul_(0.5)
        q.grad = 0.5 * q.grad
    a.step(), b.step()
    assert identical(snapshot(models[0], a), snapshot(models[1], b))
    assert a.state[models[0][0].weight]["step"] == 1


@pytest.mark.parametrize("still", ["weight", "bias"])
def test_a_layer_with_half_of_its_gradient_at_zero_steps(still):
    model = fcs()
    optimizer = RLS(model)
    backward(model, *batch(2, 0))
    getattr(model[0], still).grad.zero_()
    optimizer.step()
    assert optimizer.state[model[0].weight]["step"] == 1


@FORMS
def test_clipping_between_accumulated_passes_keeps_their_inputs(limit):
    models = fcs(), fcs()
    optimizers = [RLS(model, max_grad_norm=limit) for model in models]
    for model, optimizer, factor in zip(models, optimizers, (1e9, None), strict=True):
        for s in (0, 1):
            backward(model, *batch(9, s))
            if factor:
                nn.utils.clip_grad_norm_(model.parameters(), factor)
        assert [block.inputs.rows for block in optimizer.blocks] == [18, 18]


@pytest.fixture
def onednn():
    """As the processor has it: without AVX-512 torch 2.13's LSTM in bfloat16 raises."""
    able = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with nullcontext() if able else torch.backends.mkldnn.flags(enabled=False):
        yield


RECURRENT = {"batch_first": True}
MODELS = {
    "Linear": (lambda: nn.Sequential(nn.Linear(6, 24), nn.ReLU()), (6,)),
    "Conv2d": (lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten()), (1, 5, 5)),
    "LSTM": (
        lambda: nn.Sequential(nn.LSTM(6, 5, **RECURRENT), LastOutput()),
        (4, 6),
    ),
    "GRU": (
        lambda: nn.Sequential(nn.GRU(6, 5, **RECURRENT), LastOutput()),
        (4, 6),
    ),
}


@pytest.mark.parametrize("limit", [None, 1.0])
@pytest.mark.parametrize("case", MODELS)
def test_autocast_to_half_precision_keeps_P_in_single(case, limit, onednn):
    make, shape = MODELS[case]
    torch.manual_seed(0)
    features = make()
    width = features(torch.zeros(1, *shape)).shape[1]
    model = nn.Sequential(features, nn.Linear(width, 3))
    twin = copy.deepcopy(model)
    a, b = (RLS(each, max_grad_norm=limit) for each in (model, twin))
    x, target = randn(8, *shape, dtype=torch.float32), randn(8, 3, dtype=torch.float32)
    for each, optimizer in ((model, a), (twin, b)):
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=each is model):
                y = each(x)
            assert (y.dtype == torch.bfloat16) == (each is model)
            loss_mse(y.float(), target).backward()
            optimizer.step()
    for state, wanted in zip(a.state.values(), b.state.values(), strict=True):
        assert state["P"].dtype == state["h"].dtype == torch.float32
        assert torch.equal(state["P"], state["P"].T)
        # bfloat16 has 8 bits
        torch.testing.assert_close(state["P"], wanted["P"], rtol=0.02, atol=0.02)
    assert_close(weights(model), weights(twin), 0.05)
