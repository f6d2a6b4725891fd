"""The live race: all classifiers at once, their curves, and on a plane a picture."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from labkit import hessian_free
from labkit.lab.books.rules import (
    CLASSIFIERS,
    KRYLOV,
    clipped_outside,
    network,
)
from labkit.lab.datasets import Labelled
from labkit.lab.panels import Experiment, Lines, knob
from labkit.lab.panels.figures.captions import panel_text
from labkit.lab.panels.figures.drawing import panel_title
from labkit.lab.panels.figures.planes import HEIGHT, class_cells, class_map, dots
from labkit.lab.panels.figures.theme import COLOURS, PLAIN, layout
from labkit.lab.problem import (
    Problem,
    disturb,
    in_classes,
    noisy_labels,
    percent,
    rows,
    seeded,
)
from labkit.lab.race import FAILURES
from labkit.lab.tuning import Sizes

NEWTON, SOLVED = "Hessian-free", ("BPLS", "BPLS-GN", "broad")
ALL = (
    *("SGD", "Adam", "Muon", "RLS", "RLS+M", "HRLS+M", NEWTON),
    *SOLVED,
)
WINDOW = 1500  # newest rows that a rule without minibatches is solved on
EVERY = 4  # steps between two looks at many test rows, and between two solves
CEILING = 1e3  # a loss above it ends a rule
LIVE_TEST = 1000  # test rows at most, since ten rules are tested every few steps
ARMS, ROWS, WIDE, GRID = 3, 300, 2.2, 35
SHOWN = 32  # newest points in each plane
TINTS = COLOURS[0], COLOURS[1], COLOURS[5]
SIDE = 2 * GRID - 1  # cells of a plane
ACROSS, GAP, ABOVE = 5, 8, 18  # planes in a line, cells between them
COLUMN = 112  # pixels of a plane at least, for its title
NOTHING = "rgba(0, 0, 0, 0)"
LOW = 300  # pixels of one line
TICKS = torch.linspace(-WIDE, WIDE, GRID)
PLANE = torch.cartesian_prod(TICKS, TICKS)


@dataclass(frozen=True)
class RaceKnobs:
    """What can be turned while all rules run."""

    # fmt: off
    input_noise: float = knob(
        0.0, low=0.0, high=1.0, step=0.05, unit="sd", restart=False,
        about="Adam's error: Adam",
        help="of the inputs, on minibatches to come",
        look_for="Which curve rises at once, and which only as noisy rows pile up?")
    label_noise: float = knob(
        0.0, low=0.0, high=0.9, step=0.05, unit="share", restart=False,
        about="Adam's error: Adam",
        help="of labels drawn at random, in minibatches to come",
        look_for="Put it back to 0: which curve comes down first?")
    gradient_noise: float = knob(
        0.0, low=0.0, high=5.0, step=0.25, restart=False, about="Adam's error: Adam",
        help="sd of noise on each gradient, over its size; not of rules without one",
        look_for="Which of Adam, Muon and RLS needs the gradient least exactly?")
    batch: int = knob(
        32, low=4, high=128, step=4, unit="rows", restart=False,
        help="of the minibatches to come",
        look_for="Which rule suffers most from small ones?")
    seed: int = knob(
        0, low=0, high=99, help="of weights, minibatches and noise",
        look_for="Does the order of the curves survive another seed?")
    # fmt: on


Values = Mapping[str, Mapping[str, float]]  # of each rule, what is tuned of it
Outputs = Callable[[Tensor], Tensor]


class Regions(NamedTuple):
    """What the rules say of a plane, without those that have failed or not begun."""

    classes: dict[str, np.ndarray]  # by rule, (SIDE, SIDE), a row for each second input
    errors: dict[str, float]  # by rule, of test rows [%]
    points: np.ndarray  # (n, 2), the newest rows as the rules read them
    labels: np.ndarray  # (n,)


def spirals(seed: int = 0) -> Problem:
    """Make rows with two inputs, in as many arms of a spiral as there are classes."""
    g = seeded(seed)

    def part() -> Labelled:
        y = torch.arange(ROWS) % ARMS
        r = torch.linspace(0.1, 1, ROWS // ARMS).repeat_interleave(ARMS)
        turn = 2 * math.pi * y / ARMS + 3.5 * r + 0.15 * torch.randn(ROWS, generator=g)
        X = 2 * r[:, None] * torch.stack([turn.cos(), turn.sin()], 1)
        arms = tuple(f"arm {i + 1}" for i in range(ARMS))  # a minibatch may lack one
        return Labelled("spirals", X, y, classes=arms)

    return Problem(part(), part())


def middle_values() -> dict[str, dict]:
    """Return, for every rule, the middle of the ranges that it would be tuned in."""
    middle = lambda ends: math.sqrt(math.prod(ends))  # noqa: E731
    ranges = {label: CLASSIFIERS[label].ranges.items() for label in ALL}
    chosen = {k: {name: middle(ends) for name, ends in v} for k, v in ranges.items()}
    # Each row by itself, as of images, would leave one bit of two inputs.
    return chosen | {"broad": chosen["broad"] | {"scaling": "feature"}}


def wrong(outputs: Tensor, labels: Tensor) -> float:
    """Return the share of rows [%] whose largest output is not at the label."""
    return 100 - percent(outputs, labels)


@torch.no_grad()
def errors(outputs: Mapping[str, Outputs], test: Labelled) -> dict[str, float]:
    """Return the share of rows [%] that each rule has wrong."""
    X, y = test.inputs, test.targets
    return {label: wrong(rule(X), y) for label, rule in outputs.items()}


def on_a_plane(problem: Problem) -> bool:
    """Say whether a problem has two inputs."""
    return problem.fit.inputs.shape[1:] == (2,)


def race_rows(
    knobs: RaceKnobs,
    problem: Problem,
    chosen: Values | None = None,
    hidden: int = 32,
    *,
    rules: Sequence[str] = ALL,
) -> Iterator[dict]:
    """Train all rules on the same minibatches, and yield a row for each.

    A row has the errors [%] on clean test rows: for a problem with two inputs at every
    minibatch, and with a picture, for any other at every fourth. A rule that fails
    ends, and the others go on. The rules without minibatches are solved anew at every
    fourth minibatch, once every class has occurred.

    Parameters
    ----------
    knobs : RaceKnobs, read before each minibatch; the seed counts at the start alone
    problem : Problem
    chosen : mapping of label to values; by default :func:`middle_values`
    hidden : int, hidden units
    rules : sequence of str, the rules that run
    """
    chosen = middle_values() if chosen is None else chosen
    chosen = {label: chosen[label] for label in rules if label in chosen}
    fit, seed, plane = problem.fit, knobs.seed, on_a_plane(problem)
    models = {k: network(fit, hidden, seed) for k in chosen if k not in SOLVED}
    steps = {k: step_of(k, model, chosen[k], fit, seed) for k, model in models.items()}
    for label in [label for label in steps if label != NEWTON]:
        g = seeded(seed + 2, fit.inputs.device)
        disturb(models[label], lambda: knobs.gradient_noise, g)
    g = seeded(seed, fit.inputs.device)
    (X_read, y_read), ended, latest = (fit.inputs[:0], fit.targets[:0]), [], {}
    for step in count(1):
        X, y = draw(fit, knobs, g)
        X_read, y_read = (torch.cat(p)[-WINDOW:] for p in ((X_read, X), (y_read, y)))
        for label in [label for label in steps if label not in ended]:
            try:
                steps[label](X, y)
            except FAILURES:
                ended.append(label)
        looked = step % EVERY == 0 or step == 1
        if looked and len(y_read.unique()) == problem.classes:
            read = replace(fit, inputs=X_read, targets=y_read)
            latest = solved(read, hidden, chosen, seed)
        row = {"step": step, "ended": ", ".join(ended)}
        if looked or plane:
            outputs = {k: model.eval() for k, model in models.items() if k not in ended}
            outputs |= latest
            row |= (found := errors(outputs, problem.test))
            if plane and outputs:
                points, labels = (part[-SHOWN:].cpu() for part in (X_read, y_read))
                parts = found, points.numpy(), labels.numpy()
                row["pictures"] = Regions(_classes(outputs, X_read), *parts)
        yield row


def step_of(
    name: str, model: nn.Module, values: Mapping[str, float], fit: Labelled, seed: int
) -> Callable[[Tensor, Tensor], None]:
    """Return a function that takes one step of a rule on a minibatch."""
    if name == NEWTON:
        g = seeded(seed, next(model.parameters()).device)
        newton = hessian_free.HessianFree(model, **KRYLOV | values, generator=g)
        classes = fit.outputs  # a minibatch may lack the last of them
        return lambda X, y: newton.step(X, one_hot(y, classes).to(X.dtype))
    training = clipped_outside(CLASSIFIERS[name].training, model, values)

    def step(X: Tensor, y: Tensor) -> None:
        model.train()
        training.optimizer.zero_grad()
        loss = training.loss(model(X), y)
        loss.backward()
        training.optimizer.step()
        if not loss < CEILING:
            raise FloatingPointError(f"the loss of {name} is {loss}")

    return step


def draw(fit: Labelled, knobs: RaceKnobs, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a fresh minibatch with fresh noise."""
    options = {"generator": g, "device": g.device}
    chosen = torch.randint(len(fit.targets), (knobs.batch,), **options)
    X, y = fit.inputs[chosen], fit.targets[chosen]
    X = X + knobs.input_noise * torch.randn(X.shape, **options).to(X)
    return X, noisy_labels(y, knobs.label_noise, g, fit.outputs)


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


def data_rows(
    knobs: RaceKnobs,
    given: Callable[[], Problem],
    chosen: Values | None = None,
    hidden: int = 32,
) -> Iterator[dict]:
    """Yield the rows of :func:`race_rows` on given data, cut into classes."""
    whole = in_classes(given())
    test = rows(whole.test, slice(LIVE_TEST))
    yield from race_rows(knobs, replace(whole, test=test), chosen, hidden)


def opening(
    knobs: RaceKnobs,
    problem: Problem,
    _chosen: Values | None = None,
    hidden: int = 32,
    *,
    rules: Sequence[str] = ALL,
) -> Regions | None:
    """Return the first minibatch, and the network that minibatch rules begin with.

    None for a problem with more than two inputs, which no plane shows.
    """
    fit, seed = problem.fit, knobs.seed
    if not on_a_plane(problem):
        return None
    X, y = draw(fit, knobs, seeded(seed, fit.inputs.device))
    model = network(fit, hidden, seed)
    begun = {label: model for label in rules if label not in SOLVED}
    parts = errors(begun, problem.test), X.cpu().numpy(), y.cpu().numpy()
    return Regions(_classes(begun, X), *parts)


@torch.no_grad()
def _classes(outputs: Mapping[str, Outputs], like: Tensor) -> dict:
    plane = PLANE.to(like)
    return {label: class_cells(rule(plane)) for label, rule in outputs.items()}


CAPTION = (
    "The colours are the classes that a rule gives to the points of the plane; the "
    "dots are the newest rows, with their noise; the number is the share of errors on "
    "test points, which have no noise."
)
CURVES = (
    "Turn a noise up and down again: a rule with minibatches follows the newest rows, "
    "and a rule that is solved anew keeps noisy rows for as long as they are among its "
    "newest 1,500."
)


def picture(
    now: Regions | None, before: Regions | None, *, rules: Sequence[str] = ALL
) -> dict:
    """Draw a plane for each rule; the error of the run before stands in brackets.

    All planes lie on one pair of axes, as one map: nine pairs would take a page longer
    to draw than all that they show.
    """
    wide = _corner(min(len(rules), ACROSS) - 1, rules)[0] + SIDE
    high = _corner(0, rules)[1] + SIDE
    made = layout(height=HEIGHT if len(rules) > ACROSS else LOW)
    made |= {"annotations": [], "uirevision": True, "showlegend": False}
    made["margin"] |= {"l": 10, "r": 36, "t": 46, "b": 10}
    made["modebar"] = {"orientation": "v"}  # beside the planes, off their titles
    words = f"{panel_text('Regions', '', '', ())}. {', '.join(rules)}. {CAPTION}"
    least = min(len(rules), ACROSS) * COLUMN
    made["meta"] = {"caption": CAPTION, "alt": words, "least": least}
    for name, size in (("xaxis", wide), ("yaxis", high)):
        made[name] = PLAIN | {"range": [-0.5, size - 0.5], "showticklabels": False}
    for i, label in enumerate(rules):
        left, low = _corner(i, rules)
        corner = {"x": left / wide, "y": (low + SIDE) / high}
        corner |= {"xanchor": "left", "yanchor": "bottom"}
        title = panel_title(_title(label, now, before), corner)
        made["annotations"].append(title | {"align": "left"})
    return {"data": _planes(now, rules, (high, wide)) if now else [], "layout": made}


def _corner(i: int, rules: Sequence[str]) -> tuple[int, int]:
    """Return the lower left cell of a rule's plane: column and row in the map."""
    line, column = divmod(i, ACROSS)
    below = (len(rules) - 1) // ACROSS - line
    return column * (SIDE + GAP), below * (SIDE + ABOVE)


def _title(label: str, now: Regions | None, before: Regions | None) -> str:
    """Name the rule; below it, its error now, and in brackets that of another run."""
    parts = []
    if now and label in now.errors:
        parts.append(f"{now.errors[label]:.0f} %")
    if before and label in before.errors:
        parts.append(f"({before.errors[label]:.0f} %)")
    return f"{label}<br>{' '.join(parts)}"


def _planes(now: Regions, rules: Sequence[str], shape: tuple[int, int]) -> list[dict]:
    classes, points = np.zeros(shape, dtype=np.uint8), []
    inside = (np.abs(now.points) <= WIDE).all(1)
    cells = (now.points[inside] + WIDE) * ((SIDE - 1) / (2 * WIDE))
    for i, label in enumerate(rules):
        left, low = corner = _corner(i, rules)
        points.append(cells + np.array(corner))
        if label in now.classes:
            classes[low : low + SIDE, left : left + SIDE] = now.classes[label] + 1
    colours = [TINTS[y] for y in now.labels[inside]] * len(rules)
    shown = class_map(classes, (NOTHING, *TINTS))
    return [shown, dots(np.concatenate(points), colours, size=4)]


def race_status(row: Mapping) -> str:
    """Name the rule with the lowest error, and those that have failed."""
    ended = f"; ended by a failure: {row['ended']}" if row["ended"] else ""
    wrong = {label: row[label] for label in CLASSIFIERS if label in row}
    best = min(wrong, key=wrong.get, default=None)
    lowest = f": lowest {best}, {wrong[best]:.1f} %" if wrong else ""
    return f"minibatch {row['step']}{lowest}{ended}"


def _panel(title: str, rules: Sequence[str]) -> Lines:
    """Test errors of some rules over the minibatches."""
    return Lines(
        tuple(rules),
        title,
        y_title="test error, %",
        x_title="minibatch",
        log=True,
        y_range=(1.0, 100.0),
    )


RACE = Experiment(
    "race",
    RaceKnobs,
    race_rows,
    [
        _panel("Gradients, and a Hessian", ("Adam", "SGD", "Muon", NEWTON)),
        _panel(
            "Recursive least squares, beside Adam", ("Adam", "RLS", "RLS+M", "HRLS+M")
        ),
        _panel("Solved on the rows so far, beside Adam", ("Adam", *SOLVED)),
    ],
    CURVES,
    race_status,
    front=("label_noise", "input_noise", "batch"),
    playable={"label_noise": (0.0, 0.5)},
    picture=picture,
    opening=opening,
)


RACE_ON_DATA = replace(
    RACE,
    name="race-on-data",
    rows=data_rows,
    picture=None,
    opening=None,
    playable={},
)


def race_of(*rules: str) -> Experiment:
    """Return `RACE` with some rules alone."""
    parts = race_rows, picture, opening
    rows, drawn, first = (partial(part, rules=rules) for part in parts)
    panels = [_panel("Test errors", rules)]
    return replace(RACE, rows=rows, picture=drawn, opening=first, panels=panels)
