"""What counts as an input of a step, and what does not."""

import copy
import io
import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from labkit.rls import RLS, loss_mse

from . import reference as ref
from .conftest import (
    assert_close,
    backward,
    batch,
    identical,
    in_step,
    randn,
    snapshot,
    take,
)
from .twins import LastOutput, Outputs, assert_same, fcs, mirror, parts_of, randomise

# with and without the gradient formed, where rows are fewer than units
FORMS = pytest.mark.parametrize("limit", [None, math.inf])
ONE = randn(2, 5, seed=1), randn(2, 3, seed=2)  # a minibatch


def trained(between=lambda model, optimizer, x: None, *, limit=None, steps=3):
    """Three steps of one small network, with something between backward and step."""
    model = fcs()
    optimizer = RLS(model, momentum=0.5, max_grad_norm=limit)
    for s in range(steps):
        optimizer.zero_grad()
        backward(model, *batch(2, s))
        between(model, optimizer, randn(6, 5, seed=100 + s))
        optimizer.step()
    return snapshot(model, optimizer)


def evaluate(model, optimizer, x):
    model.eval()
    model(x)
    model.train()


def look_without_gradients(model, optimizer, x):
    with torch.no_grad():
        model(x)
    with torch.inference_mode():
        model(x)


def discard(model, optimizer, x):
    model(x)


def copy_and_train_the_copy(model, optimizer, x):
    twin = copy.deepcopy(model)
    twin(x).sum().backward()
    assert all(p.grad is not None for p in twin.parameters())


def pickle_and_train_the_copy(model, optimizer, x):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    torch.load(file, weights_only=False)(x).sum().backward()
    pickle.loads(pickle.dumps(model))(x).sum().backward()


COPIES = (copy_and_train_the_copy, pickle_and_train_the_copy)
LOOKS = (evaluate, look_without_gradients, discard)


@FORMS
@pytest.mark.parametrize("between", [*LOOKS, *COPIES])
def test_what_happens_between_backward_and_step_leaves_it_alone(between, limit):
    assert identical(trained(limit=limit), trained(between, limit=limit))


@FORMS
def test_the_newest_optimiser_of_a_layer_takes_over(limit):
    model, twin = fcs(), fcs()
    old = RLS(model, max_grad_norm=1.0)
    new, only = RLS(model, max_grad_norm=limit), RLS(twin, max_grad_norm=limit)
    for each, optimizer in ((model, new), (twin, only)):
        take(each, optimizer, *ONE)
    assert identical(list(model.parameters()), list(twin.parameters()))
    with pytest.raises(RuntimeError, match="another RLS was made for this layer later"):
        backward(model, *batch(9, 0))
        old.step()


def test_a_closed_optimiser_gives_the_model_back():
    model = fcs()
    optimizer = RLS(model, max_grad_norm=1.0)
    backward(model, *ONE)
    assert model[0].weight.grad is None  # left unformed
    optimizer.close()
    backward(model, *ONE)
    assert model[0].weight.grad is not None


@FORMS
@pytest.mark.parametrize("inplace", [False, True])
def test_an_activation_in_place_after_time_steps_hides_no_input(limit, inplace):
    found = []
    for in_place in (False, inplace):
        torch.manual_seed(0)
        relu = nn.ReLU(inplace=in_place)
        model = nn.Sequential(nn.Linear(4, 40), relu, nn.Linear(40, 3)).double()
        layers = [{"layer": name, "time_steps": 5} for name in ("0", "2")]
        optimizer = RLS(model, layers=layers, max_grad_norm=limit)
        model(randn(5, 2, 4)).square().sum().backward()
        assert [int(each.rows) for each in optimizer.pending()] == [10, 10]
        optimizer.step()
        found.append(list(model.parameters()))
    assert identical(*found)


def plain(model, optimizer):
    backward(model, *ONE)


def a_pass_discarded_before(model, optimizer):
    model(randn(6, 5, seed=3))
    backward(model, *ONE)


def zero_grad_between_forward_and_backward(model, optimizer):
    loss = loss_mse(model(ONE[0]), ONE[1])
    optimizer.zero_grad()
    loss.backward()


def zero_grad_after_another_backward(model, optimizer):
    backward(model, randn(4, 5, seed=3), randn(4, 3))
    optimizer.zero_grad()
    backward(model, *ONE)


def a_backward_pass_to_the_inputs(model, optimizer):
    x = randn(6, 5, seed=3).requires_grad_()
    torch.autograd.grad(model(x).sum(), x)
    backward(model, *ONE)
    torch.autograd.grad(model(x).sum(), x)


def a_pass_with_other_weights(model, optimizer):
    others = dict(fcs(seed=2).named_parameters())
    torch.func.functional_call(model, others, randn(6, 5, seed=3)).sum().backward()
    backward(model, *ONE)


def a_pass_run_again_by_checkpointing(model, optimizer):
    y = torch.utils.checkpoint.checkpoint(model, ONE[0], use_reentrant=False)
    loss_mse(y, ONE[1]).backward()


def stepped(passes, limit, model=None):
    """What one step leaves, on what the passes have left."""
    model = model or fcs()
    optimizer = RLS(model, max_grad_norm=limit)
    passes(model, optimizer)
    optimizer.step()
    return snapshot(model, optimizer)


ZEROED = (zero_grad_between_forward_and_backward, zero_grad_after_another_backward)
PASSES = (a_pass_discarded_before, *ZEROED, a_pass_run_again_by_checkpointing)
PASSES += (a_backward_pass_to_the_inputs, a_pass_with_other_weights)


@FORMS
@pytest.mark.parametrize("passes", PASSES)
def test_the_step_is_that_of_the_gradients_there_are(passes, limit):
    assert identical(stepped(passes, limit), stepped(plain, limit))


@FORMS
def test_retained_graph_counts_as_often_as_its_gradients(limit):
    def twice(model, optimizer):
        loss = loss_mse(model(ONE[0]), ONE[1])
        loss.backward(retain_graph=True)
        loss.backward()

    doubled = stepped(lambda model, _: backward(model, *ONE, 2.0), limit)
    assert_close(stepped(twice, limit), doubled, 1e-11)


@FORMS
def test_an_activation_in_place_after_a_layer(limit):
    changed = fcs()
    changed[1] = nn.ReLU(inplace=True)
    assert identical(stepped(plain, limit, changed), stepped(plain, limit))


def conv_model():
    conv = nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*conv, nn.Linear(12, 150), nn.ReLU(), nn.Linear(150, 3))


def lstm_model():
    return nn.Sequential(nn.LSTM(4, 5, batch_first=True), LastOutput(), nn.Linear(5, 3))


MODELS = {conv_model: (1, 4, 4), lstm_model: (4, 4), lambda: fcs(16, 150, 3): (16,)}


@FORMS
@pytest.mark.parametrize(("make", "shape"), MODELS.items())
def test_two_micro_batches_are_one_batch(make, shape, limit):
    model = randomise(make(), scale=0.2)
    twin = copy.deepcopy(model)
    options = {"momentum": 0.5, "l1": 1e-4, "max_grad_norm": limit}
    a, b = RLS(model, **options), RLS(twin, **options)
    for s in range(3):
        x, target = randn(128, *shape, seed=s), randn(128, 3, seed=9)
        a.zero_grad(), b.zero_grad()
        backward(model, x, target)
        for half in (slice(64), slice(64, None)):
            backward(twin, x[half], target[half], 0.5)
        a.step(), b.step()
    assert_close(snapshot(model, a), snapshot(twin, b), 1e-11)


@FORMS
def test_passes_of_both_forms_add_up(limit):
    """Seven units: three rows leave residuals, nine a gradient."""
    model = fcs()
    net = mirror(model)
    optimizer = RLS(model, max_grad_norm=limit)
    x, target = randn(12, 5, seed=1), randn(12, 3, seed=2)
    backward(model, x[:3], target[:3], 3 / 12)
    backward(model, x[3:], target[3:], 9 / 12)
    optimizer.step()
    net.step(x, target)
    assert_same(optimizer, net)


@FORMS
def test_a_short_last_batch_counts_with_its_own_size(limit):
    model = fcs()
    net = mirror(model)
    optimizer = RLS(model, max_grad_norm=limit)
    X, Y = randn(21, 5, seed=1), randn(21, 3, seed=2)
    for x, target in zip(X.split(9), Y.split(9), strict=True):
        in_step(model, optimizer, net, x, target)
    assert_same(optimizer, net)


@FORMS
@pytest.mark.parametrize("rows", [2, 9])
def test_a_module_called_twice_sees_all_its_rows(limit, rows):
    layer = randomise(nn.Linear(5, 5))
    model = nn.Sequential(layer, nn.Tanh(), layer)
    optimizer = RLS(model, momentum=0.5, max_grad_norm=limit)
    (part,) = parts_of(layer)
    net = ref.Net([ref.Dense(part), ref.Tanh(), ref.Dense(part)])
    for s in range(3):
        x, target = randn(rows, 5, seed=s), randn(rows, 5, seed=9)
        in_step(model, optimizer, net, x, target, alpha=0.5)
        assert len(part.rows) == 2 * rows
    assert_same(optimizer, net)


@FORMS
def test_a_pass_counts_once_though_three_outputs_carry_gradients(limit):
    model = nn.Sequential(nn.LSTM(4, 5, batch_first=True)).double()
    optimizer = RLS(model, max_grad_norm=limit)
    y, (h, c) = model(randn(2, 4, 4))
    (y.sum() + h.sum() + c.sum()).backward()
    assert [int(each.rows) for each in optimizer.pending()] == [8, 8]
    assert [each.time_steps for each in optimizer.pending()] == [4, 4]


@FORMS
def test_gradients_flow_through_as_in_plain_layers(limit):
    model = fcs()
    twin = copy.deepcopy(model)
    model[0].requires_grad_(False)
    optimizer = RLS(model, layers=["2"], max_grad_norm=limit)
    x, target = randn(2, 5, seed=1).requires_grad_(), randn(2, 3, seed=2)
    z = x.detach().clone().requires_grad_()
    backward(model, x, target)
    backward(twin, z, target)
    torch.testing.assert_close(x.grad, z.grad, rtol=1e-13, atol=1e-13)
    optimizer.step()


def test_outputs_do_not_change_by_being_watched():
    model = fcs()
    x = randn(2, 5)
    before = model(x)
    optimizer = RLS(model, max_grad_norm=math.inf)
    after = model(x)
    assert torch.equal(before, after) and after.requires_grad
    assert not optimizer.pending()


def test_channels_last_weights_move_like_contiguous_ones():
    def run(memory_format, momentum):
        layers = nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(64, 3)
        model = randomise(nn.Sequential(*layers))
        model[0].to(memory_format=memory_format)
        optimizer = RLS(model, momentum=momentum, l1=1e-3)
        for s in range(3):
            x = randn(4, 3, 4, 4, seed=s).to(memory_format=memory_format)
            take(model, optimizer, x, randn(4, 3, seed=9))
        assert model[0].weight.is_contiguous(memory_format=memory_format)
        return [p.detach() for p in model.parameters()]

    for momentum in (0.0, 0.5):
        forms = torch.contiguous_format, torch.channels_last
        assert_close(*(run(form, momentum) for form in forms))


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    ("kernel", "dilation", "pads"),
    [
        (3, 1, [(1, 1), (1, 1)]),
        ((2, 4), 1, [(0, 1), (1, 2)]),  # odd totals: torch puts the larger part last
        ((2, 3), (3, 2), [(1, 2), (2, 2)]),
    ],
)
def test_padding_same(kernel, dilation, pads):
    layer = nn.Conv2d(2, 3, kernel, padding="same", dilation=dilation)
    model = randomise(nn.Sequential(layer))
    optimizer = RLS(model)
    parts = parts_of(layer)
    net = ref.Net([ref.Conv(*parts, layer.kernel_size, (1, 1), pads, layer.dilation)])
    x, target = randn(2, 2, 5, 6, seed=1), randn(2, 3, 5, 6, seed=2)
    in_step(model, optimizer, net, x, target)
    assert_same(optimizer, net)


def test_padding_valid_is_none():
    mean = []
    for padding in (0, "valid"):
        model = randomise(nn.Sequential(nn.Conv2d(2, 3, 3, padding=padding)))
        optimizer = RLS(model)
        model(randn(2, 2, 5, 6, seed=1)).sum().backward()
        mean.append(optimizer.pending()[0].x_mean)
    assert torch.equal(*mean)


@pytest.mark.parametrize("cell", [nn.RNN, nn.LSTM])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_recurrent_inputs_of_either_layout_and_start(cell, batch_first, started):
    M, T, N = 2, 4, 5
    layer = randomise(cell(3, N, batch_first=batch_first))
    optimizer = RLS(layer, momentum=0.5)
    x, target = randn(M, T, 3, seed=1), randn(M, T, N, seed=2)
    y_0, c_0 = randn(M, N, seed=3), randn(M, N, seed=4)
    start, theirs = None, None
    if started:
        lstm = cell is nn.LSTM
        start = (y_0[None], c_0[None]) if lstm else y_0[None]
        theirs = (y_0.numpy(), c_0.numpy()) if lstm else y_0.numpy()

    parts = mirror(nn.Sequential(layer)).parts
    net = ref.Net([(ref.LSTM if cell is nn.LSTM else ref.RNN)(*parts, theirs)])
    for _ in range(2):
        optimizer.zero_grad()
        y, _ = layer(x if batch_first else x.transpose(0, 1), start)
        loss_mse(y if batch_first else y.transpose(0, 1), target).backward()
        optimizer.step()
        net.step(x, target, alpha=0.5)
    assert_same(optimizer, net)


def test_start_given_by_name_and_a_single_sequence_without_batch():
    layer = randomise(nn.LSTM(3, 5))
    optimizer = RLS(layer)
    x, start = randn(4, 1, 3, seed=1), (randn(1, 1, 5, seed=2), randn(1, 1, 5, seed=3))
    seen = []
    for inputs, hx in ((x, start), (x[:, 0], tuple(s[:, 0] for s in start))):
        optimizer.zero_grad()
        layer(inputs, hx=hx)[0].sum().backward()
        steps = optimizer.pending()
        seen.append([each.x_mean for each in steps])
        assert [each.time_steps for each in steps] == [4, 4]
    assert_close(*seen)
    want = torch.cat([start[0].view(1, 5), layer(x, start)[0][:-1, 0]]).mean(0)
    torch.testing.assert_close(seen[0][1][:-1], want)


@pytest.mark.parametrize("cell", [nn.RNN, nn.LSTM])
def test_the_last_state_serves_as_the_output(cell):
    found = []
    for last in (False, True):
        layer = randomise(cell(3, 5, batch_first=True))
        optimizer = RLS(layer)
        y, state = layer(randn(2, 4, 3, seed=1))
        h = state[0] if cell is nn.LSTM else state
        loss_mse(h[0] if last else y[:, -1], randn(2, 5, seed=2)).backward()
        optimizer.step()
        found.append(snapshot(layer, optimizer))
    assert_close(*found, 1e-13)


@FORMS
@pytest.mark.parametrize("T", [1, 4])
def test_fc_layers_on_sequences_count_the_time_steps_they_are_told(limit, T):
    layer = randomise(nn.Linear(5, 11))
    model = nn.Sequential(layer)
    layers = [{"layer": "0", "time_steps": T}]
    optimizer = RLS(model, layers=layers, max_grad_norm=limit)
    net = mirror(model, steps=T)
    x, target = randn(2, 4, 5, seed=1), randn(2, 4, 11, seed=2)
    in_step(model, optimizer, net, x, target)
    assert_same(optimizer, net)


def test_a_layer_that_no_gradient_reached_stands_still():
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)}).double()
    optimizer = RLS(model, momentum=0.5, l1=1e-3)
    before = model["b"].weight.clone()
    x = randn(2, 3)
    (model["a"](x).sum() + model["b"](x).detach().sum()).backward()
    optimizer.step()
    assert torch.equal(model["b"].weight, before)
    assert not torch.equal(model["a"].weight, before)
    assert not optimizer.state[model["b"].weight]


def test_in_a_stack_the_outputs_of_one_layer_are_the_inputs_of_the_next():
    first, second = nn.RNN(3, 4, batch_first=True), nn.RNN(4, 5, batch_first=True)
    model = randomise(nn.Sequential(first, Outputs(), second))
    optimizer = RLS(model)
    y, _ = model(randn(2, 4, 3))
    y.sum().backward()
    first, _, second, _ = (each.x_mean for each in optimizer.pending())
    hidden = model[0](randn(2, 4, 3))[0].mean((0, 1))
    torch.testing.assert_close(second[:-1], hidden)
    np.testing.assert_allclose(first[:-1], randn(2, 4, 3).mean((0, 1)))
