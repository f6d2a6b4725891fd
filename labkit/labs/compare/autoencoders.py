"""The autoencoders: Hessian-free beside RLS and Adam, from the same sparse weights."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from labkit.datasets import Labelled
from labkit.hessian_free import Autoencoder, mirrored
from labkit.labs.compare.classifiers import ETA, RATE, SQUARES, newton
from labkit.labs.compare.harness import Data, Job, Look, Rule, Setting, squared_error
from labkit.labs.compare.minibatch import descend, training_of
from labkit.labs.hessian_free.race import as_sequential
from labkit.rls import loss_mse

KRYLOV = {"maxiter": 50, "miniter": 20, "recover": 5}
INCOMING = 10  # nonzero weights of a unit at the start


def autoencoder(fit: Labelled, setting: Setting, seed: int) -> Autoencoder:
    """Pixels - h - h/2 - h/4 - h/2 - h - pixels, logistic."""
    h = setting.hidden
    encoder = (fit.inputs.shape[1], h, max(h // 2, 1), max(h // 4, 1))
    return Autoencoder(
        mirrored(encoder),
        incoming=INCOMING,
        generator=torch.Generator().manual_seed(seed),
        dtype=fit.inputs.dtype,
    ).to(fit.inputs.device)


def by_minibatch(name, fit: Labelled, setting, values, seed) -> Iterator[Look]:
    """Adam or a RLS on half the squared error."""
    model = as_sequential(autoencoder(fit, setting, seed))
    training = training_of(name, model, values, loss=loss_mse)
    yield from descend(model, training, fit, setting, seed)


def hessian_free(fit: Labelled, setting, values, seed) -> Iterator[Look]:
    """Stochastic Hessian-free, the same weights in its own module."""
    net = autoencoder(fit, setting, seed)
    yield from newton(
        net, fit.inputs, fit.targets, setting, values, seed, krylov=KRYLOV
    )


RULES = {
    "Adam": Rule(partial(by_minibatch, "Adam"), {"rate": RATE}, SQUARES),
    "RLS": Rule(partial(by_minibatch, "RLS"), {"eta": ETA, "k": (1e-2, 1.0)}, SQUARES),
    "RLS+M": Rule(
        partial(by_minibatch, "RLS+M"), {"eta": ETA, "momentum": (0.3, 0.9)}, SQUARES
    ),
    "Hessian-free": Rule(
        hessian_free, {"lambda": (0.1, 10.0), "drop": (0.5, 0.95)}, SQUARES
    ),
}


def reconstruction(data: Data, *, passes=8, batch=32, hidden=32) -> Job:
    """Images through a narrow layer: score is the squared error per image."""
    parts = {name: _own_targets(part) for name, part in vars(data).items()}
    setting = Setting(passes, batch, hidden)
    name = f"autoencoder, {data.fit.name}"
    unit = "squared error"
    return Job(name, Data(**parts), RULES, setting, squared_error, unit, False)


def _own_targets(part: Labelled) -> Labelled:
    return replace(part, targets=part.inputs)
