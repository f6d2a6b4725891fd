"""What counts as an input of a step, and what does not."""

import copy
import gc
import math
import pickle

import pytest
import torch
from torch import nn

from labkit.rls import RLS, loss_mse

from .conftest import (
    FORMS,
    assert_close,
    backward,
    identical,
    in_step,
    randn,
    snapshot,
    take,
)
from .reference import Net
from .twins import CASES, assert_same, fcs, randomise

ONE = randn(2, 5, seed=1), randn(2, 3, seed=2)  # a minibatch


def plain(model, optimizer):
    backward(model, *ONE)


def passes_that_are_discarded(model, optimizer):
    x = randn(6, 5, seed=3)
    model(x)
    plain(model, optimizer)
    model(x)
    with torch.no_grad():
        model.eval()(x)
    with torch.inference_mode():
        model.train()(x)


def copies_of_the_model_are_trained(model, optimizer):
    plain(model, optimizer)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        twin(randn(6, 5, seed=3)).sum().backward()
        assert twin[0].weight.grad is not None


def zero_grad_between_forward_and_backward(model, optimizer):
    loss = loss_mse(model(ONE[0]), ONE[1])
    optimizer.zero_grad()
    loss.backward()


def zero_grad_after_another_backward(model, optimizer):
    backward(model, randn(4, 5, seed=3), randn(4, 3))
    optimizer.zero_grad()
    backward(model, *ONE)


def a_step_that_is_skipped(model, optimizer):
    """The model's own zero_grad knows nothing of the inputs."""
    for to_none in (True, False):
        backward(model, randn(4, 5, seed=3), randn(4, 3))
        model.zero_grad(to_none)
    plain(model, optimizer)


def a_pass_in_evaluation_mode(model, optimizer):
    plain(model.eval(), optimizer)


def an_activation_in_place_after_a_layer(model, optimizer):
    model[1].inplace = True
    plain(model, optimizer)


def a_buffer_that_is_filled_anew(model, optimizer):
    x = ONE[0].clone()
    backward(model, x, ONE[1])
    x.zero_()


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


PASSES = (
    passes_that_are_discarded,
    copies_of_the_model_are_trained,
    zero_grad_between_forward_and_backward,
    zero_grad_after_another_backward,
    a_step_that_is_skipped,
    a_pass_in_evaluation_mode,
    an_activation_in_place_after_a_layer,
    a_pass_run_again_by_checkpointing,
    a_buffer_that_is_filled_anew,
    a_backward_pass_to_the_inputs,
    a_pass_with_other_weights,
)


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
@pytest.mark.parametrize("case", ["fc", "conv", "lstm", "output at every step"])
def test_two_micro_batches_are_one_batch(case, limit):
    found = []
    for parts in ([slice(None)], [slice(2), slice(2, None)]):
        model, inputs, outputs, layers = CASES[case]()
        optimizer = RLS(model, momentum=0.5, max_grad_norm=limit, layers=layers)
        for s in range(3):
            x, target = randn(4, *inputs, seed=s), randn(4, *outputs, seed=9)
            optimizer.zero_grad()
            for part in parts:
                backward(model, x[part], target[part], 1 / len(parts))
            optimizer.step()
        found.append(snapshot(model, optimizer))
    assert_close(*found, 1e-11)


def test_images_of_a_pass_without_any_add_nothing():
    layer = nn.Conv2d(1, 2, 3)
    optimizer = RLS(layer)
    for images in (0, 4):
        layer(torch.ones(images, 1, 5, 5)).sum().backward()
    assert optimizer.pending()[0].x_mean.eq(1).all()


@pytest.mark.parametrize("leave", [RLS.close, repr])
def test_an_optimiser_that_is_closed_or_dropped_gives_the_model_back(leave):
    model = fcs()
    optimizer = RLS(model, max_grad_norm=1.0)
    backward(model, *ONE)
    assert model[0].weight.grad is None  # left unformed
    leave(optimizer)
    del optimizer
    gc.collect()
    assert not model[0]._forward_hooks
    backward(model, *ONE)
    assert model[0].weight.grad is not None


@FORMS
def test_the_newest_optimiser_of_a_layer_takes_over(limit):
    model = fcs()
    old = RLS(model, max_grad_norm=1.0)
    assert identical(stepped(plain, limit, model), stepped(plain, limit))
    del old


def test_a_single_sequence_without_batch_is_a_batch_of_one():
    layer, found = randomise(nn.LSTM(3, 5)), []
    optimizer, x = RLS(layer), randn(4, 1, 3, seed=1)
    for inputs in (x, x[:, 0]):
        optimizer.zero_grad()
        layer(inputs)[0].sum().backward()
        found.append([step.x_mean for step in optimizer.pending()])
        assert [step.time_steps for step in optimizer.pending()] == [4, 4]
    assert_close(*found)


@FORMS
def test_passes_of_both_forms_add_up(limit):
    """Seven units: three rows leave residuals, nine a gradient."""
    model = fcs()
    net = Net(model)
    optimizer = RLS(model, max_grad_norm=limit)
    x, target = randn(12, 5, seed=1), randn(12, 3, seed=2)
    backward(model, x[:3], target[:3], 3 / 12)
    backward(model, x[3:], target[3:], 9 / 12)
    optimizer.step()
    net.step(x, target)
    assert_same(optimizer, net)


@FORMS
@pytest.mark.parametrize("rows", [2, 9])
def test_a_module_called_twice_sees_all_its_rows(limit, rows):
    layer = randomise(nn.Linear(5, 5))
    model = nn.Sequential(layer, nn.Tanh(), layer)
    optimizer = RLS(model, momentum=0.5, max_grad_norm=limit)
    net = Net(model)
    for s in range(3):
        x, target = randn(rows, 5, seed=s), randn(rows, 5, seed=9)
        in_step(model, optimizer, net, x, target, alpha=0.5)
        assert len(net.parts[0].rows) == 2 * rows
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
    """To the inputs, and to a layer before that is not trained."""
    model = fcs()
    twin, found = copy.deepcopy(model), []
    optimizer = RLS(model, layers=["2"], max_grad_norm=limit)
    for each in (model, twin):
        x = randn(2, 5, seed=1).requires_grad_()
        backward(each, x, ONE[1])
        found.append([x.grad, *(p.grad for p in each[0].parameters())])
    assert (model[2].weight.grad is None) == bool(limit)
    assert_close(*found, 1e-13)
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


@pytest.mark.parametrize("cell", [nn.RNN, nn.LSTM])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_recurrent_inputs_of_either_layout_and_start(cell, batch_first, started):
    M, T, N = 2, 4, 5
    layer = randomise(cell(3, N, batch_first=batch_first))
    optimizer = RLS(layer, momentum=0.5)
    x, target = randn(M, T, 3, seed=1), randn(M, T, N, seed=2)
    net, start = Net(layer), None
    x = x if batch_first else x.transpose(0, 1)
    if started:
        y_0, c_0 = randn(2, 1, M, N, seed=3)
        start = (y_0, c_0) if cell is nn.LSTM else y_0

    def loss(outputs, target):
        y, _ = outputs
        return loss_mse(y if batch_first else y.transpose(0, 1), target)

    for _ in range(2):
        optimizer.zero_grad()
        loss(layer(x, hx=start), target).backward()
        optimizer.step()
        net.step((x, start), target, loss=loss, alpha=0.5)
    assert_same(optimizer, net)


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
