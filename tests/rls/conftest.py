"""Models, their NumPy twins, and random states that the tests of this room share."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from labkit.rls import loss_mse, rls_step

from . import reference as ref

RULE = {"forgetting": 0.97, "mean_weight": 0.3, "lr": 0.7, "momentum": 0.6, "l1": 1e-2}
REF_RULE = {"lam": 0.97, "k": 0.3, "eta": 0.7, "alpha": 0.6, "gamma": 1e-2}


def randn(*shape, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)


def spd(n, seed=0, dtype=torch.float64):
    """A random symmetric positive definite matrix, bit-symmetric, far from identity."""
    A = randn(n, n, seed=seed)
    S = A @ A.T / n + 0.2 * torch.eye(n, dtype=torch.float64)
    return ((S + S.T) / 2).to(dtype)


class State(NamedTuple):
    """All that a step of one block changes."""

    theta: Tensor
    velocity: Tensor
    P: Tensor


def stepped(state, x_mean, gradient, **rule):
    """`rls_step` on copies."""
    after = State(*(each.clone() for each in state))
    rls_step(after.theta, after.P, x_mean, gradient, velocity=after.velocity, **rule)
    return after


def backward(model, x, target, scale=1.0):
    """Gradients of the squared error; returns it."""
    loss = scale * loss_mse(model(x), target)
    loss.backward()
    return loss


def take(model, optimizer, x, target, scale=1.0):
    """One step; returns the loss before it."""
    optimizer.zero_grad()
    loss = backward(model, x, target, scale)
    optimizer.step()
    return loss


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


def fcs(inputs, hidden, outputs, bias=True, seed=0):
    return randomise(
        nn.Sequential(
            nn.Linear(inputs, hidden, bias=bias),
            nn.ReLU(),
            nn.Linear(hidden, outputs, bias=bias),
        ),
        seed,
    )


def theta(weight, bias):
    """(n, N) of the paper from torch's layout, as NumPy."""
    W = weight.detach().flatten(1).T
    if bias is not None:
        W = torch.cat([W, bias.detach()[None]])
    return W.double().numpy().copy()


def mirror(model, steps=1):
    """The NumPy twin of a Sequential; ``steps``: T of Linear layers on sequences."""
    layers = []
    for module in model:
        match module:
            case nn.Linear():
                part = ref.Part(theta(module.weight, module.bias), bias_of(module))
                layers.append(ref.Dense(part, steps))
            case nn.Conv2d():
                part = ref.Part(theta(module.weight, module.bias), bias_of(module))
                pads = [(p, p) for p in module.padding]
                layers.append(
                    ref.Conv(
                        part, module.kernel_size, module.stride, pads, module.dilation
                    )
                )
            case nn.RNNBase():
                parts = [
                    ref.Part(
                        theta(
                            getattr(module, f"weight_{kind}_l0"),
                            getattr(module, f"bias_{kind}_l0", None),
                        ),
                        module.bias,
                    )
                    for kind in ("ih", "hh")
                ]
                layers.append(
                    (ref.LSTM if isinstance(module, nn.LSTM) else ref.RNN)(*parts)
                )
            case nn.ReLU():
                layers.append(ref.ReLU())
            case nn.Tanh():
                layers.append(ref.Tanh())
            case nn.Flatten():
                layers.append(ref.Flatten())
            case LastOutput():
                layers.append(ref.Last())
            case Outputs():
                pass
            case _:
                raise TypeError(module)
    return ref.Net(layers)


def bias_of(module):
    return module.bias is not None


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


def snapshot(model, optimizer):
    """A copy of every weight and of the whole state of the optimiser."""
    kept = [p.detach().clone() for p in model.parameters()]
    for state in optimizer.state.values():
        kept += [v.clone() for _, v in sorted(state.items())]
    return kept


def identical(a, b):
    """Whether two snapshots are equal to the last bit."""
    return len(a) == len(b) and all(map(torch.equal, a, b))
