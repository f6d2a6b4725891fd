"""Instruments: what a measured pass adds, and the measures of gradients."""

from functools import partial

from labkit import instruments, rls
from tests.device.rls import batch, network
from tests.device.rows import Row, random


def noise(device, layers, watched=True):
    """A pass with a measurement in it, or without."""
    model = network(layers).to(device)
    X, y = batch(device)
    seen = instruments.GradientNoise(model, every=1) if watched else None

    def step():
        model.zero_grad()
        rls.loss_one_hot(model(X), y).backward()
        return [p.grad for p in model.parameters()], [seen and seen.variance]

    return step


def measured(device, call):
    return partial(call, *random(device, (5, 6, 7), (6, 7)))


def variance(device):
    return partial(instruments.gradient_variance, *random(device, (5, 6, 7)))


def row(layers):
    plain = partial(noise, layers=layers, watched=False)
    yield Row(f"{layers}, forward and backward", plain, 0)
    yield Row(f"{layers}, with GradientNoise", partial(noise, layers=layers), 0)


cosine = partial(measured, call=instruments.gradient_cosine)
ROWS = [
    *row("Linear"),
    *row("Conv2d"),
    *row("RNN"),
    *row("LSTM"),
    Row("gradient_cosine", cosine, 0),
    Row("gradient_variance", variance, 0),
]
