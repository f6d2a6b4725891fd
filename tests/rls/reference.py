"""RLS written out in NumPy float64, from the paper's equations.

Gradients are autograd's, of a copy of the model that no optimiser watches. Parameters
are (n, N) as in the paper, the bias in the last row.
"""

import copy
from functools import partial

import numpy as np
import torch
from torch import nn


class Part:
    """One parameter matrix, its P and velocity, and what the last pass left."""

    def __init__(self, theta):
        self.theta = theta
        self.P, self.omega = np.eye(len(theta)), np.zeros_like(theta)
        self.T = 1  # summed time steps
        self.rows, self.grad, self.h = [], None, None

    def step(self, factor=1.0, *, lam=1.0, k=0.1, eta=1.0, alpha=0.0, gamma=0.0):
        x = sum(self.rows) / len(self.rows)
        self.h = lam + k * self.T * x @ self.P @ x
        self.omega = alpha * self.omega - eta / self.h * self.P @ (factor * self.grad)
        # the update of P by its definition: the inverse of A_s, (35), (74), (82)
        A = lam * np.linalg.inv(self.P) + k * self.T * np.outer(x, x)
        self.P = np.linalg.inv(A)
        self.theta = self.theta + self.omega - gamma * self.P @ np.sign(self.theta)


def theta(weight, bias):
    """(n, N) of the paper from torch's layout, as NumPy."""
    W = weight.detach().flatten(1).T
    if bias is not None:
        W = torch.cat([W, bias.detach()[None]])
    return W.double().numpy().copy()


def inputs(layer, x, y, start):
    """The rows (..., n) that each weight of a layer multiplies, with the time first."""
    if isinstance(layer, nn.RNNBase):
        if layer.batch_first:
            x, y = x.transpose(0, 1), y.transpose(0, 1)
        h = start[0] if isinstance(start, tuple) else start
        h = torch.zeros_like(y[:1]) if h is None else h
        return x, torch.cat([h, y[:-1]])
    if not isinstance(layer, nn.Linear):  # fields, (3) to (6), by one kernel an entry
        form = layer.weight[0].shape
        one_hot = torch.eye(form.numel(), dtype=x.dtype).view(-1, *form)
        x = layer._conv_forward(x, one_hot, None).movedim(1, -1)
    return (x,)


def note(parts, layer, args, output):
    """Keep the rows of a call; a hook."""
    y = output[0] if isinstance(output, tuple) else output
    found = inputs(layer, args[0].detach(), y.detach(), *args[1:] or (None,))
    for part, x in zip(parts, found, strict=True):
        if isinstance(layer, nn.RNNBase):
            part.T = len(x)
        if len(part.theta) > x.shape[-1]:
            x = nn.functional.pad(x, (0, 1), value=1.0)
        part.rows += [*x.flatten(0, -2).numpy()]


def squared_error(Z, target):
    """(57), (87): a mean over the batch, sums over the rest."""
    return ((Z - target) ** 2).sum() / (2 * len(Z))


class Net:
    """The twin of a model, with one joint clip; ``steps``: T of its Linear layers."""

    def __init__(self, model, steps=1):
        self.model, self.parts, self.pairs = copy.deepcopy(model), [], []
        for layer in self.model.modules():
            own = []
            for name in ("weight", "weight_ih_l0", "weight_hh_l0"):
                if hasattr(layer, name):
                    bias = getattr(layer, name.replace("weight", "bias"), None)
                    self.pairs.append((getattr(layer, name), bias))
                    own.append(Part(theta(*self.pairs[-1])))
                    own[-1].T = steps
            if own:
                layer.register_forward_hook(partial(note, own))
                self.parts += own

    def gradients(self, x, target, loss=squared_error):
        """Leave gradient and rows in every part; return the loss."""
        for part, (weight, bias) in zip(self.parts, self.pairs, strict=True):
            part.rows, found = [], torch.from_numpy(part.theta)
            with torch.no_grad():
                weight.copy_(found[: weight[0].numel()].T.reshape(weight.shape))
                if bias is not None:
                    bias.copy_(found[-1])
        self.model.zero_grad()
        value = loss(self.model(*(x if isinstance(x, tuple) else (x,))), target)
        value.backward()
        for part, (weight, bias) in zip(self.parts, self.pairs, strict=True):
            part.grad = theta(weight.grad, None if bias is None else bias.grad)
        return value.item()

    def norm(self):
        return np.sqrt(sum((part.grad**2).sum() for part in self.parts))

    def factor(self, limit):
        """As torch clips, with 1e-6 beside the norm."""
        return 1.0 if limit is None else min(1.0, limit / (self.norm() + 1e-6))

    def step(self, x, target, limit=None, loss=squared_error, **rule):
        """One step of every part; return the loss and the factor of the clip."""
        value = self.gradients(x, target, loss)
        for part in self.parts:
            part.step(self.factor(limit), **rule)
        return value, self.factor(limit)
