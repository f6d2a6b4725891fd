"""Instruments: what a measured pass adds, and the measures of gradients."""

from functools import partial

from labkit import instruments, rls
from tests.device.rls import batch, network
from tests.device.rows import Row, random


def noise(device, layers):
    """A pass with a measurement in it."""
    model = network(layers).to(device)
    X, y = batch(device)
    seen = instruments.GradientNoise(model, every=1)

    def step():
        model.zero_grad()
        rls.loss_one_hot(model(X), y).backward()
        return [p.grad for p in model.parameters()], seen.variance

    return step


def measured(device, call):
    return partial(call, *random(device, (5, 6, 7), (6, 7)))


def variance(device):
    return partial(instruments.gradient_variance, *random(device, (5, 6, 7)))


cosine = partial(measured, call=instruments.gradient_cosine)
ROWS = [
    *(
        Row(f"{layers}, with GradientNoise", partial(noise, layers=layers))
        for layers in ("Linear", "Conv2d", "RNN", "LSTM")
    ),
    Row("gradient_cosine", cosine),
    Row("gradient_variance", variance),
]
