"""The live race of notebook 06: all classifiers, while noise is turned up and down."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from labkit import hessian_free
from labkit.lab.compare import rules
from labkit.lab.compare.rules import CLASSES, CLASSIFIERS, CLIP, KRYLOV
from labkit.lab.datasets import Labelled
from labkit.lab.panels import Experiment, Lines, knob
from labkit.lab.problem import Problem, noisy_labels, percent, seeded
from labkit.lab.race import FAILURES
from labkit.lab.tuning import Sizes

NEWTON, SOLVED = "Hessian-free", ("BPLS", "BPLS-GN", "broad")
WINDOW = 1500  # newest rows that a rule without minibatches is solved on
EVERY = 4  # steps between two looks at the test rows, and between two solves
CEILING = 1e3  # a loss above it ends a rule
NEXT = {"low": 0.0, "step": 0.05, "restart": False}


@dataclass(frozen=True)
class RaceKnobs:
    """What can be turned while all rules run."""

    input_noise: float = knob(
        0.0,
        **NEXT | {"high": 1.0, "unit": "sd", "about": "Adam"},
        help="of the pixels' range, on minibatches to come",
        look_for="Which curve rises at once, and which only as noisy rows pile up?",
    )
    label_noise: float = knob(
        0.0,
        **NEXT | {"high": 0.9, "unit": "share", "about": "Adam"},
        help="labels drawn at random, in minibatches to come",
        look_for="Put it back to 0: which curve comes down first?",
    )
    batch: int = knob(
        32,
        **NEXT | {"low": 4, "high": 128, "step": 4, "unit": "rows"},
        help="of the minibatches to come",
        look_for="Which rule suffers most from small ones?",
    )
    seed: int = knob(
        0, low=0, high=99, look_for="Does the order of the curves survive another seed?"
    )


def race_rows(settings, problem: Problem, chosen: Mapping, hidden=64) -> Iterator[dict]:
    """One row per minibatch; errors [%] on clean test rows, at every fourth."""
    for step, ended, outputs, _ in race_looks(settings, problem, chosen, hidden):
        yield {"step": step, "ended": ", ".join(ended)} | errors(outputs, problem.test)


@torch.no_grad()
def errors(outputs: Mapping[str, Callable], test: Labelled) -> dict[str, float]:
    """Share of rows [%] that each rule has wrong."""
    X, y = test.inputs, test.targets
    return {label: 100 - percent(rule(X), y) for label, rule in outputs.items()}


def race_looks(settings, problem, chosen: Mapping, hidden=64, every=EVERY) -> Iterator:
    """Of each minibatch its number, failed rules, outputs of the others, rows so far.

    The rules are those with ``chosen`` values; rows and labels are as they read them.
    Outputs, at so many, are functions of inputs that are valid until it goes on. A rule
    that fails ends, and the others go on. Rules without minibatches are solved anew at
    every fourth, once every class has been seen.
    """
    fit, seed = problem.fit, settings.seed
    names = [label for label in chosen if label not in SOLVED]
    models = {label: rules.network(fit, hidden, seed) for label in names}
    takes = {k: taken(k, model, chosen[k], seed) for k, model in models.items()}
    g = seeded(seed, fit.inputs.device)
    (X_seen, y_seen), ended, latest = (fit.inputs[:0], fit.targets[:0]), [], {}
    for step in count(1):
        X, y = draw(fit, settings, g)
        X_seen, y_seen = (torch.cat(p)[-WINDOW:] for p in ((X_seen, X), (y_seen, y)))
        for label in [label for label in takes if label not in ended]:
            try:
                takes[label](X, y)
            except FAILURES:
                ended.append(label)
        outputs, whole = {}, len(y_seen.unique()) == problem.classes
        if whole and (step % EVERY == 0 or step == 1):
            latest = solved(Labelled("seen", X_seen, y_seen), hidden, chosen, seed)
        if step % every == 0 or step == 1:
            outputs = {k: model.eval() for k, model in models.items() if k not in ended}
            outputs |= latest
        yield step, ended, outputs, (X_seen, y_seen)


def taken(name, model, values, seed) -> Callable[[Tensor, Tensor], None]:
    """How a rule takes a minibatch of rows and labels: one step."""
    if name == NEWTON:
        g = seeded(seed, next(model.parameters()).device)
        newton = hessian_free.HessianFree(model, **KRYLOV | values, generator=g)
        return lambda X, y: newton.step(X, one_hot(y, CLASSES).to(X.dtype))
    training = rules.training_of(name, model, values, CLIP)

    def step(X, y):
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


def draw(fit: Labelled, settings, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """A fresh minibatch with fresh noise."""
    place = {"generator": g, "device": g.device}
    rows = torch.randint(len(fit.targets), (settings.batch,), **place)
    X, y = fit.inputs[rows], fit.targets[rows]
    X = X + settings.input_noise * torch.randn(X.shape, **place).to(X)
    return X, noisy_labels(y, settings.label_noise, g, int(fit.targets.max()) + 1)


def solved(seen: Labelled, hidden, chosen, seed) -> dict[str, Callable]:
    """Outputs of the rules without minibatches; a failure has none."""
    sizes, outputs = Sizes(passes=4, batch=1, hidden=hidden), {}
    for label in [label for label in SOLVED if label in chosen]:
        try:
            *_, last = CLASSIFIERS[label].run(seen, sizes, chosen[label], seed)
            outputs[label] = last[-1]
        except FAILURES:
            pass
    return outputs


def race_status(row: Mapping) -> str:
    """The lowest error, and who has failed."""
    ended = f"; ended by a failure: {row['ended']}" if row["ended"] else ""
    errors = {label: row[label] for label in CLASSIFIERS if label in row}
    best = min(errors, key=errors.get, default=None)
    lowest = f": lowest {best}, {errors[best]:.1f} %" if errors else ""
    return f"minibatch {row['step']}{lowest}{ended}"


PANELS = {
    "Gradients, and a Hessian": ("Adam", "SGD", NEWTON),
    "Recursive least squares, beside Adam": ("Adam", "RLS", "RLS+M", "HRLS+M"),
    "Solved on the rows so far, beside Adam": ("Adam", *SOLVED),
}
LOOK = {"y_title": "test error, %", "x_title": "minibatch"}
LOOK |= {"log": True, "y_range": (1.0, 100.0)}
RACE = Experiment(
    "race",
    RaceKnobs,
    race_rows,
    [Lines(columns, title, **LOOK) for title, columns in PANELS.items()],
    caption="Turn a noise up and down again: in the upper panels a curve follows the "
    "newest minibatches, in the lower one all rows that the rule still has.",
    status=race_status,
    front=("label_noise", "input_noise", "batch"),
)
