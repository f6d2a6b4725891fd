"""All classifiers on the same minibatches, while noise is turned up and down."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from labkit import hessian_free
from labkit.lab.compare import rules
from labkit.lab.compare.rules import CLASSIFIERS, CLIP, KRYLOV
from labkit.lab.datasets import Labelled
from labkit.lab.problem import Problem, noisy_labels, percent, seeded
from labkit.lab.race import FAILURES
from labkit.lab.tuning import Sizes

NEWTON, SOLVED = "Hessian-free", ("BPLS", "BPLS-GN", "broad")
WINDOW = 1500  # newest rows that a rule without minibatches is solved on
EVERY = 4  # steps between two looks at the test rows, and between two solves
CEILING = 1e3  # a loss above it ends a rule

Values = Mapping[str, Mapping[str, float]]  # of each rule, what is tuned of it
Outputs = Callable[[Tensor], Tensor]


class Settings(Protocol):
    """What is read before each minibatch; the seed counts at the start alone."""

    input_noise: float
    label_noise: float
    gradient_noise: float
    batch: int
    seed: int


@torch.no_grad()
def errors(outputs: Mapping[str, Outputs], test: Labelled) -> dict[str, float]:
    """Return the share of rows [%] that each rule has wrong."""
    X, y = test.inputs, test.targets
    return {label: 100 - percent(rule(X), y) for label, rule in outputs.items()}


def race_looks(
    settings: Settings,
    problem: Problem,
    chosen: Values,
    hidden: int = 64,
    every: int = EVERY,
) -> Iterator[tuple[int, list[str], dict[str, Outputs], tuple[Tensor, Tensor]]]:
    """Train all rules on the same minibatches, and yield a look after each.

    A rule that fails ends, and the others go on. The rules without minibatches are
    solved anew at every fourth minibatch, once every class has occurred.

    Parameters
    ----------
    settings : Settings, read before each minibatch
    problem : Problem
    chosen : mapping of label to values, the rules that run
    hidden : int, hidden units
    every : int, minibatches between two looks that have outputs

    Yields
    ------
    step : int, number of the minibatch
    ended : list of str, rules that have failed
    outputs : dict of label to function, valid until the next step
    read : (inputs, labels), the newest rows as the rules read them, noise included
    """
    fit, seed = problem.fit, settings.seed
    names = [label for label in chosen if label not in SOLVED]
    models = {label: rules.network(fit, hidden, seed) for label in names}
    steps = {k: step_of(k, model, chosen[k], fit, seed) for k, model in models.items()}
    for label in [label for label in steps if label != NEWTON]:
        g = seeded(seed + 2, fit.inputs.device)
        rules.disturb(models[label], lambda: settings.gradient_noise, g)
    g = seeded(seed, fit.inputs.device)
    (X_read, y_read), ended, latest = (fit.inputs[:0], fit.targets[:0]), [], {}
    for step in count(1):
        X, y = draw(fit, settings, g)
        X_read, y_read = (torch.cat(p)[-WINDOW:] for p in ((X_read, X), (y_read, y)))
        for label in [label for label in steps if label not in ended]:
            try:
                steps[label](X, y)
            except FAILURES:
                ended.append(label)
        outputs, whole = {}, len(y_read.unique()) == problem.classes
        if whole and (step % EVERY == 0 or step == 1):
            latest = solved(
                replace(fit, inputs=X_read, targets=y_read), hidden, chosen, seed
            )
        if step % every == 0 or step == 1:
            outputs = {k: model.eval() for k, model in models.items() if k not in ended}
            outputs |= latest
        yield step, ended, outputs, (X_read, y_read)


def step_of(
    name: str,
    model: nn.Module,
    values: Mapping[str, float],
    fit: Labelled,
    seed: int,
) -> Callable[[Tensor, Tensor], None]:
    """Return a function that takes one step of a rule on a minibatch."""
    if name == NEWTON:
        g = seeded(seed, next(model.parameters()).device)
        newton = hessian_free.HessianFree(model, **KRYLOV | values, generator=g)
        classes = fit.outputs  # a minibatch may lack the last of them
        return lambda X, y: newton.step(X, one_hot(y, classes).to(X.dtype))
    make = CLASSIFIERS[name].training
    training = rules.clipped_outside(make, model, values, CLIP)

    def step(X: Tensor, y: Tensor) -> None:
        model.train()
        training.optimizer.zero_grad()
        loss = training.loss(model(X), y)
        loss.backward()
        if training.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), training.max_grad_norm)
        training.optimizer.step()
        if not loss < CEILING:
            raise FloatingPointError(f"the loss of {name} is {loss}")

    return step


def draw(
    fit: Labelled, settings: Settings, g: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw a fresh minibatch with fresh noise."""
    options = {"generator": g, "device": g.device}
    rows = torch.randint(len(fit.targets), (settings.batch,), **options)
    X, y = fit.inputs[rows], fit.targets[rows]
    X = X + settings.input_noise * torch.randn(X.shape, **options).to(X)
    return X, noisy_labels(y, settings.label_noise, g, fit.outputs)


def solved(
    read: Labelled, hidden: int, chosen: Values, seed: int
) -> dict[str, Outputs]:
    """Return the outputs of the rules without minibatches. A failure has none."""
    sizes, outputs = Sizes(passes=4, batch=1, hidden=hidden), {}
    for label in [label for label in SOLVED if label in chosen]:
        try:
            *_, last = CLASSIFIERS[label].run(read, sizes, chosen[label], seed)
            outputs[label] = last[-1]
        except FAILURES:
            pass
    return outputs
