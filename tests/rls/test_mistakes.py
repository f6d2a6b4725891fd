"""Mistakes that people make, and the words in which they are refused."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

from labkit.rls import (
    RLS,
    AveragedRLS,
    KailathRLS,
    RunningMeanRLS,
    loss_mse,
    loss_one_hot,
)

from .conftest import FORMS, backward, batch, identical, randn, snapshot, take
from .twins import fcs


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("forgetting", 0.0, r"in \(0, 1\]"),
        ("lr", math.nan, ">= 0 and finite, or a tensor of one number"),
        ("P0_scale", math.inf, "> 0"),
        ("max_grad_norm", 0, ".* > 0"),
        ("time_steps", 2.5, ".* >= 1"),
        ("on_failure", "ignore", "one of raise, reset"),
    ],
)
def test_options_out_of_range(option, value, allowed):
    message = f"{option} must be {allowed}.*, got '?{value}"
    if option != "time_steps":
        with pytest.raises(ValueError, match="RLS: " + message):
            RLS(fcs(), **{option: value})
    if option not in ("max_grad_norm", "on_failure"):
        with pytest.raises(ValueError, match="layer '2': " + message):
            RLS(fcs(), layers=["0", {"layer": "2", option: value}])


def test_rates_that_are_none():
    for lr in (torch.ones(2), torch.ones((), dtype=torch.int64), "1"):
        with pytest.raises(ValueError, match="lr must be >= 0 and finite, or a tensor"):
            RLS(fcs(), lr=lr)


class Scaled(nn.Linear):
    """A subclass with another forward."""

    def forward(self, x):
        return 2 * super().forward(x)


def patched():
    layer = nn.Linear(3, 3)
    layer.forward = lambda x: x
    return layer


UNKNOWN = "it is a {}, and RLS knows Linear, Conv1d, Conv2d, Conv3d, RNN, LSTM"
REFUSED = [
    (nn.BatchNorm1d(3), UNKNOWN.format("BatchNorm1d")),
    (nn.GRU(3, 3), UNKNOWN.format("GRU")),
    (nn.Conv2d(4, 4, 3, padding_mode="reflect"), "padding_mode='reflect'"),
    (nn.Conv2d(4, 4, 3, groups=2), "groups=2, and RLS has one P for a layer"),
    (nn.LSTM(3, 3, bidirectional=True), "bidirectional=True; use one forward"),
    (nn.LSTM(3, 3, num_layers=2), "num_layers=2; it hides .* stack single layers"),
    (nn.LSTM(3, 3, proj_size=2), "proj_size=2"),
    (nn.Linear(3, 3).bfloat16(), "dtype is torch.bfloat16; .* torch.autocast"),
    (Scaled(3, 3), "Scaled has a forward of its own"),
    (patched(), "a forward of its own"),
    (weight_norm(nn.Linear(3, 3)), "parametrizations make its weight"),
    (nn.LazyLinear(3), "its shape is not known yet; run one forward pass"),
    (nn.MultiheadAttention(4, 2).out_proj, "attention takes its weight"),
]


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(("module", "message"), REFUSED)
def test_layers_that_are_not_known_or_in_another_form(module, message):
    for layers in (None, ["0"]):
        with pytest.raises(ValueError, match=f"cannot train layer '0': .*{message}"):
            RLS(nn.Sequential(module), layers=layers)


def test_parameters_of_the_model_itself():
    model = fcs()
    model.scale = nn.Parameter(torch.ones(()))
    with pytest.raises(ValueError, match="it is a Sequential, and RLS knows"):
        RLS(model)
    RLS(model, layers=["0", "2"])


@pytest.mark.parametrize(("frozen", "which"), [("0", "all"), ("0.bias", "some of")])
def test_a_layer_named_that_is_frozen(frozen, which):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    each = model.get_submodule if frozen == "0" else model.get_parameter
    each(frozen).requires_grad_(False)
    with pytest.raises(ValueError, match=f"'0': {which} its parameters are frozen"):
        RLS(model, layers=["0", "1"])


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (["head"], "no layer 'head'; it has '0', '2'"),
        ([nn.Linear(5, 7)], r"no layer Linear\(.*it has '0', '2'"),
        (["1"], "layer '1': it is a ReLU"),
        (["0", "2", {"layer": "0"}], "'0' is named 2 times"),
        ([{"lr": 0.1}], r'needs the key "layer", got .*lr'),
        ([{"layer": "0", "eta": 0.1}], "no option 'eta'; there are: forgetting"),
        ([], "nothing for RLS to train in"),
        ("0", "layers must be a list of layers, got '0'"),
    ],
)
def test_lists_of_layers_that_say_nothing_or_twice(layers, message):
    with pytest.raises(ValueError, match=message):
        RLS(fcs(), layers=layers)


@pytest.mark.parametrize("bias", [True, False])
def test_a_fan_in_whose_P_would_be_large(bias):
    model = nn.Sequential(nn.Linear(20, 2, bias=bias))
    n = 20 + bias
    message = f"'0' has {n} inputs, .* limit is max_fan_in={n - 1}; pool"
    earlier = RLS(model, max_fan_in=n)
    with pytest.raises(ValueError, match=message):
        RLS(model, max_fan_in=n - 1)
    assert not earlier.captures[0].superseded
    with pytest.raises(ValueError, match=r"8193 inputs, .* would take 0\.3 GiB"):
        RLS(nn.Sequential(nn.Linear(8192, 1)))


def shared():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = layer.weight
    return model


CONV = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
LATER = {"params": [nn.Parameter(torch.ones(2).double())]}
# a mistake -> a call that makes it, and a part of the message
MISTAKES = {
    "time_steps on a CONV layer": (
        lambda: RLS(CONV, layers=[{"layer": "0", "time_steps": 2}]),
        "layer '0' is a Conv2d and has no time_steps",
    ),
    "classes that are not the last axis": (
        lambda: loss_one_hot(randn(2, 3, 3, 3), torch.zeros(2, 3, 3).long()),
        r"\(2, 3, 3, 3\); they must be \(M, N\)",
    ),
    "targets that broadcast": (
        lambda: loss_mse(torch.zeros(4, 3), torch.zeros(4)),
        r"\(4, 3\) and targets \(4,\)",
    ),
    "nothing to train": (
        lambda: RLS(fcs().requires_grad_(False)),
        "nothing for RLS to train in",
    ),
    "parameters in place of the model": (
        lambda: RLS(fcs().parameters()),
        r"takes the model and not its parameters: RLS\(model\); got a generator",
    ),
    "more parameters": (
        lambda: RLS(fcs()).add_param_group(LATER),
        "RLS trains layers, not parameters: make it",
    ),
    "a parameter of two modules": (
        lambda: RLS(shared()),
        r"'0' and '2' share a parameter; .*one mod",
    ),
    "Kailath's form of a CONV layer": (
        lambda: KailathRLS(CONV),
        "'0' is a Conv2d; .* Linear layers only",
    ),
    "the averaged form of a CONV layer": (
        lambda: AveragedRLS(CONV),
        "'0' is a Conv2d; .* Linear layers only",
    ),
    "the averaged form without a bias": (
        lambda: AveragedRLS(fcs(bias=False)),
        "layer '0' has no bias, whose gradient",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake):
    call, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize(("option", "value"), [("forgetting", 0.9), ("l1", 0.1)])
@pytest.mark.filterwarnings("ignore:with forgetting < 1")
def test_running_mean_refuses_what_it_cannot_hold(option, value):
    layers = [{"layer": "0", option: value}, "2"]
    for options in ({option: value}, {"layers": layers}):
        with pytest.raises(ValueError, match=f"{option} must be .*, got {value}"):
            RunningMeanRLS(fcs(), **options)


# Inputs that cannot be read


def test_packed_sequences():
    model = nn.LSTM(3, 4)
    optimizer = RLS(model)
    packed = nn.utils.rnn.pack_padded_sequence(torch.zeros(4, 2, 3), [4, 2])
    with pytest.raises(ValueError, match=r"got a PackedSequence; .* pad the sequences"):
        model(packed)
    with torch.no_grad():
        model(packed)
    del optimizer


def test_inputs_of_more_than_two_dimensions_need_time_steps():
    model = nn.Sequential(nn.Linear(5, 3))
    optimizer = RLS(model)
    with pytest.raises(ValueError, match=r"'0' got .* \(2, 4, 5\); say .*time_steps"):
        model(torch.zeros(2, 4, 5))
    with torch.no_grad():
        model(torch.zeros(2, 4, 5))
    del optimizer


@FORMS
def test_time_steps_must_divide_the_rows(limit):
    model = nn.Sequential(nn.Linear(5, 30))
    layers = [{"layer": "0", "time_steps": 3}]
    optimizer = RLS(model, layers=layers, max_grad_norm=limit)
    with pytest.raises(ValueError, match="time_steps=3 does not divide the 8 rows"):
        model(torch.zeros(2, 4, 5)).sum().backward()
    del optimizer


# Gradients whose inputs were not seen


def by_hand(model, optimizer):
    weights = list(model.parameters())
    loss = model(randn(2, 5)).sum()
    for p, g in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        p.grad = g


def replaced(model, optimizer):
    model[0].weight = nn.Parameter(randn(7, 5))
    model(randn(2, 5)).sum().backward()


def pruned(model, optimizer):
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    model(randn(2, 5)).sum().backward()


def traced(model, optimizer):
    torch.jit.trace(model, randn(2, 5))(randn(2, 5)).sum().backward()


def not_called(model, optimizer):
    x = nn.functional.linear(randn(2, 5), model[0].weight, model[0].bias)
    model[2](x).sum().backward()


def frozen(model, optimizer):
    model[0].bias.requires_grad_(False)
    model(randn(2, 5)).sum().backward()


def superseded(model, optimizer):
    model.keep = [RLS(model)]
    model(randn(2, 5)).sum().backward()


PAST = "it came past the call of the layer, as by nn.functional, a traced model or "
ANEW = "its weight was replaced since RLS was made, as by pruning; make RLS anew"
CAUSES = {
    by_hand: PAST,
    replaced: ANEW,
    pruned: ANEW,
    traced: PAST,
    not_called: PAST,
    frozen: PAST,
    superseded: "another RLS was made for this layer later",
}


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:Converting a tensor")
@pytest.mark.parametrize("way", CAUSES)
def test_a_gradient_without_its_inputs_is_told_the_cause(way):
    model = fcs()
    optimizer = RLS(model)
    take(model, optimizer, *batch(2, 0))
    optimizer.zero_grad()
    way(model, optimizer)
    before = snapshot(model, optimizer)
    with pytest.raises(RuntimeError, match=f"layer '0' .*{CAUSES[way]}"):
        optimizer.step()
    assert identical(before, snapshot(model, optimizer))


def clipped(model, _):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def decayed(model, _):
    for p in model.parameters():
        if p.grad is not None:
            p.grad.add_(p.detach(), alpha=0.1)


def unscaled(_, optimizer):
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)


CHANGES = clipped, decayed, unscaled


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_gradients_that_are_not_formed_are_refused(change):
    model = fcs()
    optimizer = RLS(model, max_grad_norm=1.0)
    backward(model, *batch(2, 0))
    assert model[0].weight.grad is None
    before = snapshot(model, optimizer)
    message = "layer '0' was changed, but under max_grad_norm most of it is not formed"
    with pytest.raises(RuntimeError, match=message):
        change(model, optimizer)
        optimizer.step()
    assert identical(before, snapshot(model, optimizer))
    optimizer.zero_grad()
    take(model, optimizer, *batch(2, 0))


def test_a_bias_without_a_gradient_is_no_mistake():
    model = fcs()
    optimizer = RLS(model)
    scores = model(randn(4, 5))
    (scores[:2] - scores[2:]).sum().backward()  # a pairwise loss
    clipped(model, optimizer)
    optimizer.step()
    assert optimizer.state[model[2].weight]["step"] == 1
