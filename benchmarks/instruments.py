"""What the live noise of a gradient costs: whole training steps, side by side.

    PYTHONPATH=. python benchmarks/instruments.py [--repeats N] [--device cuda]

A step is zero_grad, forward pass, backward pass and update (SGD, fused). It is timed
plain, measured at every step, and at the default schedule, in whole periods of it.
The methods alternate, so that all see the same noise of the machine; the ratio is the
median over the rounds, each to the plain steps of its round. float32, TF32 off, one
thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import shared
from labkit.instruments import GradientNoise
from labkit.instruments.gradient_noise import EVERY
from labkit.lab.books.rls_training import (
    SequenceClassifier,
    dense_network,
    small_cnn,
)

BARS = {"every step": 2.2, f"every {EVERY}": 1.1}


@dataclass(frozen=True)
class Setting:
    """One network on one minibatch, and what can watch it."""

    name: str
    network: Callable[[], nn.Module]
    inputs: tuple[int, ...]


SETTINGS = [
    Setting("784-512-10", dense_network, (128, 784)),
    Setting("CNN 16-32, 28 x 28", lambda: small_cnn(28), (128, 784)),
    Setting(
        "LSTM 64-128, 32 steps",
        lambda: SequenceClassifier(64, 128, layers=1),
        (128, 32, 64),
    ),
]


def make_step(method, setting, device):
    """One training step of a fresh network, as a function without arguments."""
    torch.manual_seed(0)
    model = setting.network().to(device)
    x = torch.randn(setting.inputs, device=device)
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
        found = noise.variance if noise else None
        optimizer.step()
        return found

    return step


def period(step) -> None:
    """Take as many steps as the default schedule has in a period."""
    for _ in range(EVERY):
        step()


def compare(setting, repeats, device):
    """Print each method's step, its ratio to the plain one, and what it found."""
    methods = ["plain", *BARS]
    steps = {method: make_step(method, setting, device) for method in methods}
    found = {method: step() for method, step in steps.items()}
    period = [
        lambda step=step: [step() for _ in range(EVERY)] for step in steps.values()
    ]
    times = dict(zip(methods, shared.laps(device, repeats, *period), strict=True))
    for method, laps in times.items():
        ms = 1e3 * median(laps) / EVERY
        pairs = zip(laps, times["plain"], strict=True)
        ratio = median(lap / plain for lap, plain in pairs)
        line, bar = (
            f"{setting.name:24}{method:12}{ms:9.3f}{ratio:8.2f}",
            BARS.get(method),
        )
        line += f"{bar:6.1f}  {'yes' if ratio <= bar else 'NO':6}" if bar else " " * 14
        print(line + (f"{found[method]:.6g}" if found[method] is not None else ""))
        shared.note(f"{setting.name}, {method}", ms=ms, ratio=ratio)


def main():
    """Read the command line and print the table."""
    args = shared.parser(__doc__, 6).parse_args()
    shared.begin(args, f"median of {args.repeats}")
    print(
        f"{'network, batch 128':24}{'method':12}{'ms':>9}{'ratio':>8}{'bar':>6}"
        "  holds V"
    )
    for setting in SETTINGS:
        compare(setting, args.repeats, args.device)


if __name__ == "__main__":
    main()
