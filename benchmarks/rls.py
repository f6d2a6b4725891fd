"""RLS beside fused Adam: whole training steps.

    PYTHONPATH=. python benchmarks/rls.py [--device cuda] [--repeats N]

It times forward pass, backward pass, clip and update of each method on one
minibatch, float32, TF32 off, one thread. The methods alternate, so that all see the
same noise of the machine, and the median of each is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from benchmarks import shared
from labkit.lab.books import rls_training as lab
from labkit.lab.books.rls_training import (
    SequenceClassifier,
    dense_network,
    vgg5,
)


@dataclass(frozen=True)
class Setting:
    """One network on one minibatch."""

    name: str
    network: Callable[[], nn.Module]
    inputs: tuple[int, ...]  # shape of a minibatch
    clip: float
    targets: dict[str, float]  # method -> time of a step over Adam's, at most


SETTINGS = [
    Setting(
        "FNN 784-512-10",
        dense_network,
        (128, 784),
        5.0,
        {"RLS": 1.8, "RLS+M": 1.95, "RLS+M+R": 4.2},
    ),
    Setting(
        "CNN VGG-5, 32 x 32", vgg5, (128, 3, 32, 32), 5.0, {"RLS": 1.4, "RLS+M": 1.4}
    ),
    Setting(
        "LSTM 2 x 512, 32 steps",
        lambda: SequenceClassifier(128, 512, 2),
        (128, 32, 128),
        1.0,
        {"RLS": 1.15, "RLS+M": 1.15},
    ),
]


def make_step(name, setting, device) -> Callable[[], None]:
    """One whole training step of a fresh network, as a function without arguments."""
    torch.manual_seed(0)
    model = setting.network().to(device)
    x = torch.rand(setting.inputs, device=device)
    y = torch.randint(2, (len(x),), device=device)
    training = lab.make_training(name, model, clip=setting.clip, l1=1e-6)
    optimizer, clip = training.optimizer, training.max_grad_norm
    if name == "Adam":
        optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step():
        optimizer.zero_grad()
        training.loss(model(x), y).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()

    return step


def speed(args):
    """Print the ratio of each method's step to fused Adam's."""
    print(f"{'network':24}{'method':10}{'ms':>9}{'ratio':>8}{'target':>8}")
    for setting in SETTINGS:
        names = ["Adam", *setting.targets]
        steps = {name: make_step(name, setting, args.device) for name in names}
        repeats = args.repeats // (8 if setting.inputs[1:] == (3, 32, 32) else 1)
        times = shared.laps(args.device, max(3, repeats), steps.values())
        middle = {n: median(laps) for n, laps in zip(names, times, strict=True)}
        for name in names:
            ratio = middle[name] / middle["Adam"]
            target = setting.targets.get(name)
            bar = f"{target:8.2f}" if target else f"{'':8}"
            verdict = "" if target is None or ratio <= target else "  missed"
            ms = 1e3 * middle[name]
            print(f"{setting.name:24}{name:10}{ms:9.2f}{ratio:8.2f}{bar}{verdict}")
            shared.note(f"{setting.name}, {name}", ms=ms, ratio=ratio)


def main():
    """Read the command line and time the steps."""
    args = shared.parser(__doc__, 80).parse_args()
    shared.begin(args)
    speed(args)


if __name__ == "__main__":
    main()
