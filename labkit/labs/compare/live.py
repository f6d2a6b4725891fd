"""All classifiers on the same minibatches, while noise is turned up and down."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.datasets import Labelled
from labkit.hessian_free import HessianFree
from labkit.labs.compare.classifiers import (
    CLASSES,
    KRYLOV,
    RULES,
    broad,
    network,
    refined,
    walks,
)
from labkit.labs.compare.harness import FAILURES, Data, Setting, percent
from labkit.labs.compare.minibatch import training_of
from labkit.panels import Lines, LiveLab, knob

BY_MINIBATCH = {"SGD": "SGD", "Adam": "Adam-CE"} | {
    name: name for name in ("RLS", "RLS+M", "HRLS+M")
}
NEWTON = "Hessian-free"
WHOLE = {"BPLS": walks, "BPLS-GN": refined, "broad": broad}
WINDOW = 1500  # newest rows that a rule without minibatches is solved on
PASSES = 4  # of these rules
CEILING = 1e3  # a loss above it ends the rule
EVERY = 4  # steps between two looks at the test rows, and between two solves

# In the middle of the ranges; the notebook hands over what tuning chose.
VALUES = {
    label: {name: math.sqrt(low * high) for name, (low, high) in rule.knobs.items()}
    for label, rule in RULES.items()
}

READING = (
    "Turn a noise up and down again: in the upper panels a curve follows the newest "
    "minibatches, in the lower one all rows that the rule still has."
)


@dataclass(frozen=True)
class RaceKnobs:
    """What can be turned while all rules run."""

    input_noise: float = knob(
        0.0,
        low=0.0,
        high=1.0,
        step=0.05,
        unit="sd",
        help="of the pixels' range, on minibatches to come",
        look_for="Which curve rises at once, and which only as noisy rows pile up?",
        restart=False,
    )
    label_noise: float = knob(
        0.0,
        low=0.0,
        high=0.9,
        step=0.05,
        unit="share",
        help="labels drawn at random, in minibatches to come",
        look_for="Put it back to 0: which curve comes down first?",
        restart=False,
    )
    batch: int = knob(
        32,
        low=4,
        high=128,
        step=4,
        unit="rows",
        help="of the minibatches to come",
        look_for="Which rule suffers most from small ones?",
        restart=False,
    )
    seed: int = knob(
        0, low=0, high=99, look_for="Does the order of the curves survive another seed?"
    )


def race_lab(
    data: Data,
    knobs: RaceKnobs | None = None,
    *,
    values: Mapping[str, Mapping[str, float]] | None = None,
    hidden=64,
    interactive=True,
    folder="",
    device="cpu",
) -> LiveLab:
    """Knobs, stepper and live figure; a step is one minibatch for every rule.

    Parameters
    ----------
    values : rule -> knobs, as of :func:`labkit.labs.compare.tune`; None: the middle of
        the ranges.
    """
    return LiveLab(
        knobs or RaceKnobs(),
        lambda now: race_rows(data, now, values=values or VALUES, hidden=hidden),
        RACE_PANELS,
        name="race",
        tell=_tell,
        interactive=interactive,
        folder=folder,
        device=device,
        height=700,
        reading=READING,
    )


def race_rows(
    data: Data, now: Callable[[], RaceKnobs], *, values, hidden=64
) -> Iterator[dict]:
    """One row per minibatch; errors [%] on clean test rows, at every fourth.

    A rule that fails keeps its curve up to there, and the others go on. Rules without
    minibatches are solved anew, once every class has been seen.
    """
    seed = now().seed
    g = torch.Generator().manual_seed(seed)
    features, step = data.fit.inputs.shape[1], 0
    models = {
        label: network(features, hidden, seed).to(data.fit.inputs)
        for label in (*BY_MINIBATCH, NEWTON)
    }
    steps = {
        label: _descent(name, models[label], values[label])
        for label, name in BY_MINIBATCH.items()
    }
    steps[NEWTON] = _newton(models[NEWTON], values[NEWTON], seed)
    X_seen, y_seen = data.fit.inputs[:0], data.fit.targets[:0]
    while True:
        knobs, step = now(), step + 1
        X, y = draw(data.fit, knobs, g)
        X_seen, y_seen = (
            torch.cat(pair)[-WINDOW:] for pair in ((X_seen, X), (y_seen, y))
        )
        for label in list(steps):
            try:
                steps[label](X, y)
            except FAILURES:
                del steps[label]
        row = {"step": step, "ended": ", ".join(models.keys() - steps.keys())}
        if step % EVERY == 0 or step == 1:
            outputs = {label: models[label] for label in steps}
            if len(y_seen.unique()) == CLASSES:
                seen = Labelled("seen", X_seen, y_seen)
                outputs |= _solved(seen, values, hidden, seed)
            row |= _errors(outputs, data.test)
        yield row


def _descent(name, model, values) -> Callable[[Tensor, Tensor], None]:
    training = training_of(name, model, values)
    optimizer, clip = training.optimizer, training.max_grad_norm

    def step(X, y):
        model.train()
        optimizer.zero_grad()
        loss = training.loss(model(X), y)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        value = float(loss.detach())
        if not value < CEILING:
            raise FloatingPointError(f"the loss of {name} is {value}")

    return step


def _newton(model, values, seed) -> Callable[[Tensor, Tensor], None]:
    g = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    optimizer = HessianFree(
        model, damp=values["lambda"], drop=values["drop"], generator=g, **KRYLOV
    )
    return lambda X, y: optimizer.step(X, F.one_hot(y, CLASSES).to(X.dtype))


def _solved(seen: Labelled, values, hidden, seed) -> dict[str, Callable]:
    setting, outputs = Setting(passes=PASSES, batch=1, hidden=hidden), {}
    for label, rule in WHOLE.items():
        try:
            *_, last = rule(seen, setting, values[label], seed)
        except FAILURES:
            continue
        outputs[label] = last.outputs
    return outputs


@torch.no_grad()
def _errors(outputs: Mapping[str, Callable], test: Labelled) -> dict[str, float]:
    errors = {}
    for label, rule in outputs.items():
        if isinstance(rule, nn.Module):
            rule.eval()
        errors[label] = 100 - percent(rule(test.inputs), test.targets)
    return errors


def _tell(row) -> str:
    ended = f"; ended by a failure: {row['ended']}" if row["ended"] else ""
    errors = {label: row[label] for label in RULES if label in row}
    if not errors:
        return f"minibatch {row['step']}{ended}"
    best = min(errors, key=errors.get)
    return f"minibatch {row['step']}: lowest {best}, {errors[best]:.1f} %{ended}"


RACE_PANELS = tuple(
    Lines(
        {label: label for label in labels},
        title,
        "test error, %",
        x_title="minibatch",
        log=True,
        y_range=(1.0, 100.0),
    )
    for title, labels in (
        ("Gradients, and a Hessian", ("Adam", "SGD", NEWTON)),
        ("Recursive least squares, beside Adam", ("Adam", "RLS", "RLS+M", "HRLS+M")),
        ("Solved on the rows so far, beside Adam", ("Adam", *WHOLE)),
    )
)


def draw(fit: Labelled, knobs: RaceKnobs, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """A fresh minibatch with fresh noise."""
    rows = torch.randint(len(fit.targets), (knobs.batch,), generator=g)
    X, y = fit.inputs[rows], fit.targets[rows]
    X = X + knobs.input_noise * torch.randn(X.shape, generator=g).to(X)
    hit = torch.rand(len(y), generator=g) < knobs.label_noise
    drawn = torch.randint(CLASSES, (len(y),), generator=g)
    return X, torch.where(hit.to(y.device), drawn.to(y.device), y)
