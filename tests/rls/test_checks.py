"""What is refused at the door, and in which words."""

import math

import pytest
import torch
from torch import nn

from labkit.rls import RLS
from labkit.rls.blocks import joint_norm

from .conftest import randn
from .twins import fcs

NAN = math.nan


@pytest.mark.parametrize(
    ("option", "values", "allowed"),
    [
        ("forgetting", (0.0, 1.5, -1.0, NAN), r"in \(0, 1\]"),
        ("mean_weight", (0.0, -0.1, math.inf, NAN), "> 0"),
        ("lr", (-1.0, math.inf, NAN), ">= 0 and finite, or a tensor of one number"),
        ("weight_decay", (-1e-5, math.inf, NAN), ">= 0"),
        ("momentum", (1.0, -0.1, NAN), r"in \[0, 1\)"),
        ("l1", (-1e-5, math.inf, NAN), ">= 0"),
        ("P0_scale", (0.0, -1.0, math.inf, NAN), "> 0"),
        ("max_grad_norm", (0, -5.0, NAN), ".* > 0"),
        ("time_steps", (0, -1, 2.5), ".* >= 1"),
        ("on_failure", ("ignore",), "one of raise, reset"),
    ],
)
def test_options_out_of_range(option, values, allowed):
    for value in values:
        message = f"{option} must be {allowed}.*, got '?{value}"
        if option != "time_steps":
            with pytest.raises(ValueError, match="RLS: " + message):
                RLS(fcs(), **{option: value})
        if option not in ("max_grad_norm", "on_failure"):
            with pytest.raises(ValueError, match="layer '2': " + message):
                RLS(fcs(), layers=["0", {"layer": "2", option: value}])


@pytest.mark.parametrize(
    "model", [nn.ReLU(), nn.Sequential(), fcs(2, 2, 2).requires_grad_(False)]
)
def test_nothing_to_train(model):
    with pytest.raises(ValueError, match="nothing for RLS to train in"):
        RLS(model)


UNKNOWN = (nn.BatchNorm1d(3), nn.Embedding(5, 3), nn.GRUCell(3, 3))


@pytest.mark.parametrize("module", [*UNKNOWN, nn.LayerNorm(3)])
def test_layers_that_are_not_known(module):
    kind = type(module).__name__
    message = f"cannot train layer '1': it is a {kind}, and RLS knows Linear, Conv1d, "
    with pytest.raises(ValueError, match=message):
        RLS(nn.Sequential(nn.Linear(3, 3), module))


def test_parameters_of_the_model_itself():
    model = fcs()
    model.scale = nn.Parameter(torch.ones(()))
    with pytest.raises(ValueError, match="it is a Sequential, and RLS knows"):
        RLS(model)
    RLS(model, layers=["0", "2"])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Conv2d(4, 4, 3, padding_mode="reflect"), "padding_mode='reflect'"),
        (
            nn.LSTM(3, 3, bidirectional=True),
            "bidirectional=True; use one forward",
        ),
        (nn.RNN(3, 3, bidirectional=True), "bidirectional"),
        (nn.LSTM(3, 3, num_layers=2), "num_layers=2; it hides .* stack single layers"),
        (nn.LSTM(3, 3, proj_size=2), "proj_size=2"),
        (nn.Linear(3, 3).to(torch.cfloat), "dtype is torch.complex64; RLS trains"),
        (nn.Conv1d(3, 3, 1).to(torch.cdouble), "dtype is torch.complex128; RLS trains"),
    ],
)
def test_forms_of_known_layers_that_are_not_written(module, message):
    for layers in (None, ["0"]):
        with pytest.raises(ValueError, match=f"cannot train layer '0': .*{message}"):
            RLS(nn.Sequential(module), layers=layers)


@pytest.mark.parametrize(("frozen", "which"), [("0", "all"), ("0.bias", "some of")])
def test_a_layer_named_that_is_frozen(frozen, which):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    each = model.get_submodule if frozen == "0" else model.get_parameter
    each(frozen).requires_grad_(False)
    with pytest.raises(ValueError, match=f"'0': {which} its parameters are frozen"):
        RLS(model, layers=["0", "1"])


def test_known_layers_pass():
    for module in (nn.Linear(2, 2), nn.Conv2d(2, 2, 2), nn.RNN(2, 2), nn.LSTM(2, 2)):
        RLS(module)


def test_packed_sequences():
    model = nn.LSTM(3, 4)
    optimizer = RLS(model)
    packed = nn.utils.rnn.pack_padded_sequence(torch.zeros(4, 2, 3), [4, 2])
    with pytest.raises(ValueError, match=r"got a PackedSequence; .* pad the sequences"):
        model(packed)
    model.eval()(packed)
    del optimizer


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (["head"], "no layer 'head'; it has '0', '2'"),
        ([nn.Linear(5, 7)], r"no layer Linear\(.*it has '0', '2'"),
        (["1"], "layer '1': it is a ReLU"),
        (["0", "0"], "'0' is named 2 times"),
        (["0", "2", {"layer": "0"}], "'0' is named 2 times"),
        ([{"lr": 0.1}], r'needs the key "layer", got .*lr'),
        ([{"layer": "0", "eta": 0.1}], "no option 'eta'; there are: forgetting"),
        ([], "nothing for RLS to train in"),
    ],
)
def test_lists_of_layers_that_say_nothing_or_twice(layers, message):
    with pytest.raises(ValueError, match=message):
        RLS(fcs(), layers=layers)


def test_a_layer_named_by_itself_and_by_its_name():
    model = fcs()
    with pytest.raises(ValueError, match="'0' is named 2 times"):
        RLS(model, layers=["0", model[0]])


def test_a_parameter_of_two_modules():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    message = r"'0' and '2' share a parameter; .*one module"
    with pytest.raises(ValueError, match=message):
        RLS(model)


@pytest.mark.parametrize("bias", [True, False])
def test_a_fan_in_whose_P_would_be_large(bias):
    model = nn.Sequential(nn.Linear(20, 2, bias=bias))
    n = 20 + bias
    message = f"'0' has {n} inputs, .* limit is max_fan_in={n - 1}; pool"
    with pytest.raises(ValueError, match=message):
        RLS(model, max_fan_in=n - 1)
    RLS(model, max_fan_in=n)


def test_the_default_limit_and_what_P_would_take():
    with pytest.raises(ValueError, match=r"8193 inputs, .* would take 0\.3 GiB"):
        RLS(nn.Sequential(nn.Linear(8192, 1)))


def test_step_after_a_pass_in_evaluation_mode():
    model = fcs().eval()
    optimizer = RLS(model)
    model(randn(2, 5)).sum().backward()
    with pytest.raises(RuntimeError, match=r"'0' has a gradient, .*model\.train\(\)"):
        optimizer.step()


@pytest.mark.parametrize("limit", [None, math.inf])
@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_a_gradient_partly_of_a_pass_in_evaluation_mode(order, limit):
    model = fcs()
    optimizer = RLS(model, max_grad_norm=limit)
    for training in order:
        model.train(training)(randn(2, 5)).sum().backward()
    with pytest.raises(RuntimeError, match="but no input of a part of it was seen"):
        optimizer.step()
    optimizer.zero_grad()
    model.train()(randn(2, 5)).sum().backward()
    x = randn(2, 5).requires_grad_()
    torch.autograd.grad(model.eval()(x).sum(), x)  # as for an adversarial example
    optimizer.step()


def test_gradients_on_several_devices():
    with pytest.raises(ValueError, match=r"one device, and .* on cpu and meta"):
        joint_norm([torch.ones(2), torch.ones(2, device="meta")])


def test_an_option_that_cannot_change_any_more():
    model = fcs()
    optimizer = RLS(model)
    optimizer.param_groups[1]["time_steps"] = 2
    model(randn(2, 5)).sum().backward()
    message = "time_steps of layer '2' is None since RLS was made; it cannot become 2"
    with pytest.raises(ValueError, match=message):
        optimizer.step()
