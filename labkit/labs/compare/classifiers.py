"""The classifiers: one hidden layer of tanh or sigmoid units, and a broad network."""

import time
from collections.abc import Iterator
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from labkit.bpls import (
    activation,
    random_weights,
    refine,
    refined_scores,
    scores,
    train,
)
from labkit.bpls.refine import SCALE
from labkit.broad import BroadLearningClassifier
from labkit.datasets import Labelled
from labkit.hessian_free import HessianFree
from labkit.hessian_free import train as train_newton
from labkit.labs.compare.harness import Data, Job, Look, Rule, Setting, percent
from labkit.labs.compare.minibatch import descend, training_of

CLASSES = 10
MERIT_SHARE = 6  # Hessian-free watches one in so many of its own rows
FIRST_BATCH = 200  # of Hessian-free
# Krylov iterations: the paper's 150, 60 and 100 are for long runs of deep networks.
KRYLOV = {"maxiter": 20, "miniter": 10, "recover": 5}
GROUPS, NODES = 8, 10  # feature nodes of broad learning
COLUMNS = 2000  # of broad learning at most
GROWTHS = 3  # half of its enhancement nodes come in so many updates


def network(features: int, hidden: int, seed: int) -> nn.Sequential:
    """Features - hidden tanh - classes; the same weights for every rule."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES)
    )


def by_minibatch(name, fit: Labelled, setting, values, seed) -> Iterator[Look]:
    """SGD, Adam or a RLS."""
    model = network(fit.inputs.shape[1], setting.hidden, seed).to(fit.inputs.device)
    yield from descend(model, training_of(name, model, values), fit, setting, seed)


def newton(
    model, inputs, targets, setting: Setting, values, seed, *, krylov=KRYLOV
) -> Iterator[Look]:
    """Hessian-free on squared error; the rows of its merit come out of its own."""
    N = len(inputs)
    n = N - N // MERIT_SHARE
    optimizer = HessianFree(
        model,
        damp=values["lambda"],
        drop=values["drop"],
        generator=torch.Generator(inputs.device).manual_seed(seed + 1),
        **krylov,
    )
    records = train_newton(
        model,
        optimizer,
        inputs[:n],
        targets=targets[:n],
        validation=(inputs[n:], targets[n:]),
        batch_size=min(FIRST_BATCH, n),
        max_batch_size=max(n // 2, min(FIRST_BATCH, n)),
        generator=torch.Generator().manual_seed(seed),
    )
    for record in records:
        yield Look(record.rows / N, record.seconds, model)
        if record.rows + record.n_next > setting.passes * N:
            return


def hessian_free(fit: Labelled, setting, values, seed) -> Iterator[Look]:
    """Hessian-free on the same network, towards one-hot targets."""
    model = network(fit.inputs.shape[1], setting.hidden, seed).to(fit.inputs.device)
    targets = F.one_hot(fit.targets, CLASSES).to(fit.inputs.dtype)
    yield from newton(model, fit.inputs, targets, setting, values, seed)


def with_ones(X):
    """A column of ones, the only bias of BPLS."""
    return F.pad(X, (0, 1), value=1)


def walks(fit: Labelled, setting: Setting, values, seed) -> Iterator[Look]:
    """BPLS: a walk over all rows, then over the misses; the best is kept."""
    X, hidden = with_ones(fit.inputs), [activation("sigmoid")]
    start = random_weights(
        (X.shape[1], setting.hidden, CLASSES),
        generator=torch.Generator().manual_seed(seed),
        dtype=X.dtype,
        device=X.device,
    )
    seconds = rows = 0
    for record in train(X, fit.targets, start, hidden, **values):
        end = record.end
        if end is None:
            continue
        rows += end.samples
        if rows > setting.passes * len(X):
            return
        seconds += end.seconds
        yield Look(
            rows / len(X),
            seconds,
            lambda x, W=end.best: scores(with_ones(x), W, hidden),
        )


def refined(fit: Labelled, setting: Setting, values, seed) -> Iterator[Look]:
    """The Gauss-Newton refinement of BPLS (ours); every sweep reads all rows."""
    X = with_ones(fit.inputs)
    (W1, _) = random_weights(
        (X.shape[1], setting.hidden, 1),
        scale=SCALE,
        generator=torch.Generator().manual_seed(seed),
        dtype=X.dtype,
        device=X.device,
    )
    seconds = 0.0
    sweeps = int(setting.passes) - 1
    for end in refine(X, fit.targets, W1, "tanh", sweeps=sweeps, **values):
        seconds += end.seconds
        yield Look(
            end.walk + 1.0,
            seconds,
            lambda x, W=end.best: refined_scores(with_ones(x), W, "tanh"),
        )


def broad(fit: Labelled, setting: Setting, values, seed) -> Iterator[Look]:
    """Broad learning, half of its enhancement nodes added to the fitted rest.

    As many output weights as the network has weights, but for `COLUMNS`.
    """
    sizes = network(fit.inputs.shape[1], setting.hidden, seed).parameters()
    columns = min(sum(p.numel() for p in sizes) // CLASSES, COLUMNS)
    n = max(columns - GROUPS * NODES, 2 * GROWTHS)
    each = n // 2 // GROWTHS
    model = BroadLearningClassifier(
        GROUPS,
        NODES,
        n - GROWTHS * each,
        random_state=seed,
        device=fit.inputs.device.type,
        **values,
    )
    X, y = fit.inputs.double().cpu().numpy(), fit.targets.cpu().numpy()
    clock = 0.0
    for step in range(min(GROWTHS, int(setting.passes) - 1) + 1):
        began = time.perf_counter()
        model.add_nodes(each) if step else model.fit(X, y)
        clock += time.perf_counter() - began
        yield Look(step + 1.0, clock, partial(_decide, model))


def _decide(model, X):
    raw = model.decision_function(X.double().cpu().numpy())
    return torch.as_tensor(raw, device=X.device)


RATE, ETA, ENTROPY, SQUARES = (1e-3, 0.1), (0.1, 10.0), "cross-entropy", "squares"
RULES = {
    "SGD": Rule(partial(by_minibatch, "SGD"), {"rate": (3e-3, 1.0)}, ENTROPY),
    "Adam": Rule(partial(by_minibatch, "Adam-CE"), {"rate": RATE}, ENTROPY),
    "RLS": Rule(partial(by_minibatch, "RLS"), {"eta": ETA, "k": (1e-2, 1.0)}, SQUARES),
    "RLS+M": Rule(
        partial(by_minibatch, "RLS+M"), {"eta": ETA, "momentum": (0.3, 0.9)}, SQUARES
    ),
    "HRLS+M": Rule(
        partial(by_minibatch, "HRLS+M"), {"eta": ETA, "rate": RATE}, ENTROPY
    ),
    "Hessian-free": Rule(
        hessian_free, {"lambda": (0.1, 10.0), "drop": (0.5, 0.95)}, SQUARES
    ),
    "BPLS": Rule(walks, {"clamp": (1e-3, 0.3), "ridge": (1e-6, 1e-2)}, "targets"),
    "BPLS-GN": Rule(refined, {"mu": (1e-3, 1.0), "ridge": (1e-5, 0.1)}, SQUARES),
    "broad": Rule(broad, {"ridge": (1e-4, 10.0), "shrink": (0.1, 3.0)}, SQUARES),
}


def classification(data: Data, *, passes=5, batch=32, hidden=64) -> Job:
    """Which digit it is: score is the share of rows classified right."""
    setting = Setting(passes, batch, hidden)
    name = f"classification, {data.fit.name}"
    return Job(name, data, RULES, setting, percent, "%", True)
