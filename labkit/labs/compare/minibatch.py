"""Rules that take the data minibatch by minibatch: SGD, Adam, RLS and its hybrids."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from labkit.datasets import Labelled
from labkit.labs.compare.harness import Look, Setting
from labkit.labs.rls import make_training
from labkit.labs.rls.methods import Training
from labkit.rls import train

LOOKS = 12  # at a run, closer together at its start
MOMENTUM = 0.9  # of SGD
CLIP = 5.0  # joint norm of the gradient, of dense networks
# a knob's name here -> the option of make_training
OPTIONS = {"rate": "lr", "k": "ratio"}


def training_of(name, model, values, *, clip=CLIP, loss=None) -> Training:
    """Optimiser and loss of ``name`` at these values.

    Parameters
    ----------
    name : "SGD", or as of :func:`labkit.labs.rls.make_training`.
    values : knobs, "rate", "momentum", "eta" or "k".
    loss : in place of the rule's own.
    """
    if name == "SGD":
        optimizer = torch.optim.SGD(
            model.parameters(), lr=values["rate"], momentum=MOMENTUM
        )
        return Training(optimizer, loss or nn.functional.cross_entropy, clip)
    options = {OPTIONS.get(key, key): value for key, value in values.items()}
    made = make_training(name, model, clip=clip, **options)
    return Training(made.optimizer, loss or made.loss, made.max_grad_norm)


def descend(
    model: nn.Module,
    training: Training,
    fit: Labelled,
    setting: Setting,
    seed: int,
    *,
    drop_last=False,
) -> Iterator[Look]:
    """Train for the passes of the setting; a look now and then, at the end too."""
    N, batch = len(fit.inputs), min(setting.batch, len(fit.inputs))
    steps = N // batch if drop_last else math.ceil(N / batch)
    rows = steps * batch if drop_last else N
    epochs = int(setting.passes)
    at = look_steps(steps * epochs)
    records = train(
        model,
        training.optimizer,
        fit.inputs,
        fit.targets,
        loss=training.loss,
        epochs=epochs,
        batch_size=batch,
        drop_last=drop_last,
        generator=torch.Generator().manual_seed(seed),
        max_grad_norm=training.max_grad_norm,
    )
    seconds = 0.0
    for record in records:
        seconds += record.seconds
        if record.step in at:
            whole, part = divmod(record.step, steps)
            drawn = whole * rows + part * batch
            model.eval()
            yield Look(drawn / N, seconds, model)


def look_steps(steps: int) -> set[int]:
    """Steps at which to look, of 1 .. steps: dense at first, and the last one.

    >>> sorted(look_steps(8))
    [1, 2, 3, 4, 5, 7, 8]
    """
    return set(np.unique(np.geomspace(1, steps, LOOKS).round().astype(int)).tolist())
