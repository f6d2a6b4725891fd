"""Models, and how they are compared with their twins in NumPy."""

import torch
from numpy.testing import assert_allclose
from torch import nn

from .conftest import randn, spd
from .reference import theta


class Outputs(nn.Module):
    """(y, state) of a recurrent layer -> y."""

    def forward(self, pair):
        return pair[0]


class LastOutput(nn.Module):
    """(y, state) of a recurrent layer in batch_first -> y at the last step."""

    def forward(self, pair):
        return pair[0][:, -1]


def randomise(module, seed=0):
    """Parameters in float64 from a seed; some exact zeros, whose sign is 0."""
    module.double()
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(0.5 * randn(*p.shape, seed=1000 * seed + i))
            p.view(-1)[0] = 0.0
    return module


def fcs(bias=True, seed=0):
    first, last = nn.Linear(5, 7, bias=bias), nn.Linear(7, 3, bias=bias)
    return randomise(nn.Sequential(first, nn.ReLU(), last), seed)


def fc(bias=True):
    return fcs(bias=bias), (5,), (3,), None


def conv(bias=True):
    first = nn.Conv2d(2, 3, 3, stride=2, padding=1, bias=bias), nn.Tanh()
    second = nn.Conv2d(3, 4, (2, 3), bias=bias), nn.Tanh(), nn.Flatten()
    model = nn.Sequential(*first, *second, nn.Linear(4 * 3 * 2, 3, bias=bias))
    return randomise(model), (2, 8, 8), (3,), None


def dilated():
    form = {"stride": (1, 2), "padding": (2, 1), "dilation": (2, 3)}
    layers = nn.Conv2d(2, 3, (3, 2), **form), nn.ReLU(), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(3 * 7 * 3, 2))
    return randomise(model), (2, 7, 6), (2,), None


class Named(nn.Linear):
    """A subclass that computes what Linear computes."""


def conv1d():
    first = nn.Conv1d(2, 3, 4, padding="same", dilation=3), nn.Tanh()
    second = nn.Conv1d(3, 2, 3, stride=2, padding=1), nn.Flatten()
    return randomise(nn.Sequential(*first, *second, Named(6, 3))), (2, 6), (3,), None


def conv3d():
    first = nn.Conv3d(2, 3, (2, 1, 3), stride=(1, 2, 1), padding="valid")
    model = nn.Sequential(first, nn.Flatten(), nn.Linear(12, 2))
    return randomise(model), (2, 3, 4, 3), (2,), None


def recurrent(cell, bias=True, steps=4):
    form = {"batch_first": True, "bias": bias}
    layers = cell(3, 5, **form), Outputs(), cell(5, 4, **form), LastOutput()
    model = nn.Sequential(*layers, nn.Linear(4, 3, bias=bias))
    return randomise(model), (steps, 3), (3,), None


def predictor():
    """An output at every one of four time steps, (8) with t_0 = 1."""
    model = nn.Sequential(nn.LSTM(3, 5, batch_first=True), Outputs(), nn.Linear(5, 9))
    layers = ["0", {"layer": "2", "time_steps": 4}]
    return randomise(model), (4, 3), (4, 9), layers


# layer kind -> model, shapes of inputs and targets, and the layers to train
CASES = {
    "fc": fc,
    "fc without bias": lambda: fc(bias=False),
    "conv": conv,
    "conv without bias": lambda: conv(bias=False),
    "conv dilated": dilated,
    "conv1d": conv1d,
    "conv3d": conv3d,
    "rnn": lambda: recurrent(nn.RNN),
    "rnn of one step": lambda: recurrent(nn.RNN, steps=1),
    "rnn without bias": lambda: recurrent(nn.RNN, bias=False),
    "lstm": lambda: recurrent(nn.LSTM),
    "lstm without bias": lambda: recurrent(nn.LSTM, bias=False),
    "output at every step": predictor,
}


def plant(optimizer, net):
    """Random P and velocity in the optimiser's state and in its twin's."""
    for i, (block, part) in enumerate(
        zip(optimizer.blocks, net.parts, strict=True), start=50
    ):
        state = optimizer.state[block.weight]
        state["P"].copy_(spd(block.fan_in, seed=i))
        state["velocity"].copy_(randn(*state["velocity"].shape, seed=i + 500))
        part.P = state["P"].numpy().copy()
        part.omega = state["velocity"].numpy().T.copy()
        part.theta = theta(block.weight, block.bias)


def assert_same(optimizer, net, atol=1e-9):
    """Parameters and state of every block equal the twin's."""
    for block, part in zip(optimizer.blocks, net.parts, strict=True):
        state = optimizer.state[block.weight]
        close = {"rtol": 1e-9, "atol": atol, "err_msg": block.name}
        assert_allclose(theta(block.weight, block.bias), part.theta, **close)
        assert_allclose(state["P"], part.P, **close)
        assert_allclose(state["h"], part.h, **close)
        if "velocity" in state:
            assert_allclose(state["velocity"].T, part.omega, **close)
        assert torch.equal(state["P"], state["P"].T)
