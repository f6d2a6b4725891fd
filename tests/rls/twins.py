"""Models, and their twins in NumPy."""

import numpy as np
import torch
from torch import nn

from . import reference as ref
from .conftest import randn, spd


class Outputs(nn.Module):
    """(y, state) of a recurrent layer -> y."""

    def forward(self, pair):
        return pair[0]


class LastOutput(nn.Module):
    """(y, state) of a recurrent layer in batch_first -> y at the last step."""

    def forward(self, pair):
        return pair[0][:, -1]


def randomise(module, seed=0, scale=0.5):
    """Parameters in float64 from a seed; some exact zeros, whose sign is 0."""
    module.double()
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(scale * randn(*p.shape, seed=1000 * seed + i))
            p.view(-1)[0] = 0.0
    return module


def fcs(inputs=5, hidden=7, outputs=3, bias=True, seed=0):
    first = nn.Linear(inputs, hidden, bias=bias)
    last = nn.Linear(hidden, outputs, bias=bias)
    return randomise(nn.Sequential(first, nn.ReLU(), last), seed)


def theta(weight, bias):
    """(n, N) of the paper from torch's layout, as NumPy."""
    W = weight.detach().flatten(1).T
    if bias is not None:
        W = torch.cat([W, bias.detach()[None]])
    return W.double().numpy().copy()


def parts_of(module):
    """The twins of a layer's blocks; none of a module without weights."""
    for name in ("weight", "weight_ih_l0", "weight_hh_l0"):
        if hasattr(module, name):
            bias = getattr(module, name.replace("weight", "bias"), None)
            yield ref.Part(theta(getattr(module, name), bias), bias is not None)


TWINS = {nn.RNN: ref.RNN, nn.LSTM: ref.LSTM, nn.ReLU: ref.ReLU, nn.Tanh: ref.Tanh}
TWINS |= {nn.Flatten: ref.Flatten, LastOutput: ref.Last}


def mirror(model, steps=1):
    """The NumPy twin of a Sequential; ``steps``: T of Linear layers on sequences."""
    layers = []
    for module in model:
        parts = list(parts_of(module))
        if isinstance(module, nn.Linear):
            layers.append(ref.Dense(*parts, steps))
        elif isinstance(module, nn.Conv2d):
            form = module.kernel_size, module.stride, [(p, p) for p in module.padding]
            layers.append(ref.Conv(*parts, *form, module.dilation))
        elif not isinstance(module, Outputs):
            layers.append(TWINS[type(module)](*parts))
    return ref.Net(layers)


def plant(optimizer, net, seed=50):
    """Random P and velocity in the optimiser's state and in its twin's."""
    for i, (block, part) in enumerate(
        zip(optimizer.blocks, net.parts, strict=True), start=seed
    ):
        state = optimizer.state[block.weight]
        state["P"].copy_(spd(block.fan_in, seed=i))
        state["velocity"].copy_(randn(*state["velocity"].shape, seed=i + 500))
        part.P = state["P"].numpy().copy()
        part.omega = state["velocity"].numpy().T.copy()
        part.theta = theta(block.weight, block.bias)


def assert_same(optimizer, net, rtol=1e-9, atol=1e-9):
    """Parameters and state of every block equal the twin's."""
    for block, part in zip(optimizer.blocks, net.parts, strict=True):
        state = optimizer.state[block.weight]
        close = {"rtol": rtol, "atol": atol, "err_msg": block.name}
        np.testing.assert_allclose(theta(block.weight, block.bias), part.theta, **close)
        np.testing.assert_allclose(state["P"], part.P, **close)
        np.testing.assert_allclose(state["h"], part.h, **close)
        if "velocity" in state:
            np.testing.assert_allclose(state["velocity"].T, part.omega, **close)
        assert torch.equal(state["P"], state["P"].T)
