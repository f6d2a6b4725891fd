"""What the live noise of a gradient costs: whole training steps, side by side.

    PYTHONPATH=. python benchmarks/instruments.py [--repeats N] [--device cuda]

A step is zero_grad, forward pass, backward pass and update (SGD, fused). It is timed
plain, measured at every step, and at the default schedule, in whole periods of it.
The methods alternate, so that all see the same noise of the machine; the ratio is the
median over the rounds, each to the plain steps of its round. float32, TF32 off, one
thread.
"""

from functools import partial
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import shared
from labkit.instruments import GradientNoise
from labkit.instruments.gradient_noise import EVERY
from labkit.lab.books.rls_training import SequenceClassifier, dense_network

BARS = {"every step": 2.2, f"every {EVERY}": 1.1}


def small_cnn() -> nn.Sequential:
    """Two CONV layers of 16 and 32 filters, for gray images of 28 x 28 as rows."""
    layers = [nn.Unflatten(1, (1, 28, 28))]
    for before, after in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), *dense_network(32 * 49, 64))


SETTINGS = {  # name -> network, and the shape of a minibatch
    "784-512-10": (dense_network, (128, 784)),
    "CNN 16-32, 28 x 28": (small_cnn, (128, 784)),
    "LSTM 64-128, 32 steps": (
        lambda: SequenceClassifier(64, 128, layers=1),
        (128, 32, 64),
    ),
}


def make_step(method, network, shape, device):
    """One training step of a fresh network, as a function without arguments."""
    torch.manual_seed(0)
    model = network().to(device)
    x = torch.randn(shape, device=device)
    y = torch.arange(len(x), device=device) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    noise = None
    if method == "every step":
        noise = GradientNoise(model, every=1)
    elif method == f"every {EVERY}":
        noise = GradientNoise(model)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        found = noise and noise.variance
        optimizer.step()
        return found

    return step


def period(step) -> None:
    """Take as many steps as the default schedule has in a period."""
    for _ in range(EVERY):
        step()


def compare(name, repeats, device):
    """Print each method's step and its ratio to the plain one."""
    methods = ["plain", *BARS]
    steps = {method: make_step(method, *SETTINGS[name], device) for method in methods}
    periods = [partial(period, step) for step in steps.values()]
    times = dict(zip(methods, shared.laps(device, repeats, periods), strict=True))
    for method, laps in times.items():
        seconds = median(laps) / EVERY
        pairs = zip(laps, times["plain"], strict=True)
        ratio = median(lap / plain for lap, plain in pairs)
        words, bar = f"{name}, {method}", BARS.get(method)
        shared.tell(words, seconds=seconds, ratio=ratio, most=bar)


def main():
    """Read the command line and print the table."""
    args = shared.parser(__doc__, 6).parse_args()
    shared.begin(args, f"median of {args.repeats}")
    for name in SETTINGS:
        compare(name, args.repeats, args.device)


if __name__ == "__main__":
    main()
