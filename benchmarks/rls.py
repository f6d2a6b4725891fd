"""RLS beside fused Adam: whole training steps.

    PYTHONPATH=. python benchmarks/rls.py [--device cuda] [--repeats N]

It times forward pass, backward pass, clip and update of each method on one
minibatch, float32, TF32 off, one thread. The methods alternate, so that all see the
same noise of the machine, and the median of each is kept.
"""

from collections.abc import Callable
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

# name -> network, shape of a minibatch, clip, and time of a step over Adam's, at most
SETTINGS = {
    "FNN 784-512-10": (
        dense_network,
        (128, 784),
        5.0,
        {"RLS": 1.8, "RLS+M": 1.95, "RLS+M+R": 4.2},
    ),
    "CNN VGG-5, 32 x 32": (
        vgg5,
        (128, 3, 32, 32),
        5.0,
        {"RLS": 1.4, "RLS+M": 1.4},
    ),
    "LSTM 2 x 512, 32 steps": (
        lambda: SequenceClassifier(128, 512, 2),
        (128, 32, 128),
        1.0,
        {"RLS": 1.15, "RLS+M": 1.15},
    ),
}


def make_step(name, network, shape, clip, device) -> Callable[[], None]:
    """One whole training step of a fresh network, as a function without arguments."""
    torch.manual_seed(0)
    model = network().to(device)
    x = torch.rand(shape, device=device)
    y = torch.randint(2, (len(x),), device=device)
    training = lab.make_training(name, model, clip=clip, l1=1e-6)
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


def main():
    """Print the ratio of each method's step to fused Adam's."""
    args = shared.parser(__doc__, 10).parse_args()
    shared.begin(args)
    for name, (network, shape, clip, bars) in SETTINGS.items():
        methods = ["Adam", *bars]
        steps = [
            make_step(method, network, shape, clip, args.device) for method in methods
        ]
        times = shared.laps(args.device, args.repeats, steps)
        middle = [median(laps) for laps in times]
        for method, seconds in zip(methods, middle, strict=True):
            ratio, bar = seconds / middle[0], bars.get(method)
            shared.tell(f"{name}, {method}", seconds=seconds, ratio=ratio, most=bar)


if __name__ == "__main__":
    main()
