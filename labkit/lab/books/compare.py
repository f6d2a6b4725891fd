"""The live race: all classifiers at once on a plane, and their curves."""

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
from labkit.lab.books.shared import labels_knob, live_knob, noise_knob, seed_knob
from labkit.lab.datasets import Labelled
from labkit.lab.panels import Experiment, Lines
from labkit.lab.panels.figures.captions import describe
from labkit.lab.panels.figures.drawing import panel_title
from labkit.lab.panels.figures.planes import HEIGHT, class_cells, class_map, dots
from labkit.lab.panels.figures.theme import COLOURS, PLAIN, layout
from labkit.lab.problem import Problem, disturb, noisy_labels, percent, seeded
from labkit.lab.race import FAILURES
from labkit.lab.tuning import Sizes

NEWTON = "Hessian-free"
SOLVED = ("BPLS", "BPLS-GN", "broad")
ALL = (
    "SGD",
    "Adam",
    "Muon",
    "RLS",
    "RLS+M",
    "HRLS+M",
    NEWTON,
    *SOLVED,
)
WINDOW = 1500  # newest rows that a rule without minibatches is solved on
EVERY = 4  # steps between two solves
HIDDEN = 32  # units of the networks
CEILING = 1e3  # a loss above it ends a rule
ARMS = 3  # of the spiral
ROWS = 300
WIDE = 2.2  # half of the plane
GRID = 35  # points on a side of it
SHOWN = 32  # newest points in each plane
TINTS = COLOURS[0], COLOURS[1], COLOURS[5]
SIDE = 2 * GRID - 1  # cells of a plane
ACROSS = 5  # planes in a line
GAP = 8  # cells between them
ABOVE = 18  # cells over each, for its title
COLUMN = 112  # pixels of a plane at least, for its title
NOTHING = "rgba(0, 0, 0, 0)"
LOW = 300  # pixels of one line
TICKS = torch.linspace(-WIDE, WIDE, GRID)
PLANE = torch.cartesian_prod(TICKS, TICKS)


@dataclass(frozen=True)
class RaceKnobs:
    """What can be turned while all rules run."""

    # fmt: off
    input_noise: float = noise_knob(
        0.0, restart=False, about="Adam's error: Adam",
        help="of the inputs, on minibatches to come",
        look_for="Which curve rises at once, and which only as noisy rows pile up?")
    label_noise: float = labels_knob(
        restart=False, about="Adam's error: Adam",
        help="of labels drawn at random, in minibatches to come",
        look_for="Put it back to 0: which curve comes down first?")
    gradient_noise: float = live_knob(
        0.0, low=0.0, high=5.0, step=0.25, about="Adam's error: Adam",
        help="sd of noise on each gradient, over its size; not Hessian-free's",
        look_for="Which of Adam, Muon and RLS bears the most noise?")
    batch: int = live_knob(
        32, low=4, high=128, step=4, unit="rows",
        help="of the minibatches to come",
        look_for="Which rule suffers most from small ones?")
    seed: int = seed_knob(
        help="of weights, minibatches and noise",
        look_for="Does the order of the curves survive another seed?")
    # fmt: on


Outputs = Callable[[Tensor], Tensor]


class Regions(NamedTuple):
    """What the rules say of a plane, without those that have failed or not begun."""

    classes: dict[str, np.ndarray]  # by rule, (SIDE, SIDE), a row for each second input
    errors: dict[str, float]  # by rule, of test rows [%]
    points: np.ndarray  # (n, 2), the newest rows as the rules read them
    labels: np.ndarray  # (n,)


def spirals() -> Problem:
    """Make rows with two inputs, in as many arms of a spiral as there are classes."""
    generator = seeded(0)

    def part() -> Labelled:
        y = torch.arange(ROWS) % ARMS
        r = torch.linspace(0.1, 1, ROWS // ARMS).repeat_interleave(ARMS)
        turn = (
            2 * math.pi * y / ARMS
            + 3.5 * r
            + 0.15 * torch.randn(ROWS, generator=generator)
        )
        X = 2 * r[:, None] * torch.stack([turn.cos(), turn.sin()], 1)
        arms = tuple(f"arm {i + 1}" for i in range(ARMS))  # a minibatch may lack one
        return Labelled("spirals", X, y, classes=arms)

    return Problem(part(), part())


def middle_values() -> dict[str, dict]:
    """Return, for every rule, the middle of the ranges that it would be tuned in."""
    return {
        label: {
            name: math.sqrt(low * high)
            for name, (low, high) in CLASSIFIERS[label].ranges.items()
        }
        for label in ALL
    }


def wrong(outputs: Tensor, labels: Tensor) -> float:
    """Return the share of rows [%] whose largest output is not at the label."""
    return 100 - percent(outputs, labels)


@torch.no_grad()
def regions(
    outputs: Mapping[str, Outputs], test: Labelled, X: Tensor, y: Tensor
) -> Regions:
    """Return what rules say of the plane, and the share of test rows they have wrong.

    X (n, 2) and y (n,) are the rows read so far, of which the newest are shown.
    """
    return Regions(
        {label: class_cells(rule(PLANE)) for label, rule in outputs.items()},
        {
            label: wrong(rule(test.inputs), test.targets)
            for label, rule in outputs.items()
        },
        X[-SHOWN:].numpy(),
        y[-SHOWN:].numpy(),
    )


def race_rows(knobs: RaceKnobs, *, rules: Sequence[str] = ALL) -> Iterator[dict]:
    """Train rules on the same minibatches of :func:`spirals`; yield a row for each.

    A row has the errors [%] on clean test rows, and the picture. A rule that fails
    ends, and the others go on. The rules without minibatches are solved anew at every
    fourth minibatch, once every class has occurred.

    Parameters
    ----------
    knobs : RaceKnobs, read before each minibatch; the seed counts at the start alone
    rules : sequence of str, the rules that run
    """
    problem, values, seed = spirals(), middle_values(), knobs.seed
    # Each row by itself, as of images, would leave one bit of two inputs.
    values["broad"] |= {"scaling": "feature"}
    fit = problem.fit
    models = {
        label: network(fit, HIDDEN, seed) for label in rules if label not in SOLVED
    }
    steps = {
        label: step_of(label, model, values[label], fit, seed)
        for label, model in models.items()
    }
    for label, model in models.items():
        if label != NEWTON:
            disturb(model, lambda: knobs.gradient_noise, seeded(seed + 2))
    generator, latest = seeded(seed), {}
    X_read, y_read = fit.inputs[:0], fit.targets[:0]
    for step in count(1):
        X, y = draw(fit, knobs, generator)
        X_read, y_read = (
            torch.cat(pair)[-WINDOW:] for pair in ((X_read, X), (y_read, y))
        )
        for label in list(steps):
            try:
                steps[label](X, y)
            except FAILURES:
                del steps[label]
        if step % EVERY == 1 and len(y_read.unique()) == problem.classes:
            read = replace(fit, inputs=X_read, targets=y_read)
            latest = solved(
                read, {label: values[label] for label in rules if label in SOLVED}, seed
            )
        now = regions(
            {label: models[label] for label in steps} | latest,
            problem.test,
            X_read,
            y_read,
        )
        ended = ", ".join(label for label in models if label not in steps)
        yield {"step": step, "ended": ended, "pictures": now} | now.errors


def step_of(
    name: str, model: nn.Module, values: Mapping[str, float], fit: Labelled, seed: int
) -> Callable[[Tensor, Tensor], None]:
    """Return a function that takes one step of a rule on a minibatch."""
    if name == NEWTON:
        newton = hessian_free.HessianFree(
            model, **KRYLOV | values, generator=seeded(seed)
        )
        classes = fit.outputs  # a minibatch may lack the last of them
        return lambda X, y: newton.step(X, one_hot(y, classes).to(X.dtype))
    training = clipped_outside(CLASSIFIERS[name].training, model, values)

    def step(X: Tensor, y: Tensor) -> None:
        training.optimizer.zero_grad()
        loss = training.loss(model(X), y)
        loss.backward()
        training.optimizer.step()
        if not loss < CEILING:
            raise FloatingPointError(f"the loss of {name} is {loss}")

    return step


def draw(
    fit: Labelled, knobs: RaceKnobs, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw a fresh minibatch with fresh noise."""
    chosen = torch.randint(len(fit.targets), (knobs.batch,), generator=generator)
    X, y = fit.inputs[chosen], fit.targets[chosen]
    X = X + knobs.input_noise * torch.randn(X.shape, generator=generator)
    return X, noisy_labels(y, knobs.label_noise, generator, fit.outputs)


def solved(
    read: Labelled, values: Mapping[str, Mapping[str, float]], seed: int
) -> dict[str, Outputs]:
    """Return the outputs of the rules without minibatches. A failure has none."""
    sizes, outputs = Sizes(passes=4, batch=1, hidden=HIDDEN), {}
    for label, chosen in values.items():
        try:
            *_, last = CLASSIFIERS[label].run(read, sizes, chosen, seed)
            outputs[label] = last[-1]
        except FAILURES:
            pass
    return outputs


def opening(knobs: RaceKnobs, *, rules: Sequence[str] = ALL) -> Regions:
    """Return the first minibatch, and the network that minibatch rules begin with."""
    problem, seed = spirals(), knobs.seed
    model = network(problem.fit, HIDDEN, seed)
    begun = {label: model for label in rules if label not in SOLVED}
    return regions(begun, problem.test, *draw(problem.fit, knobs, seeded(seed)))


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
    columns = min(len(rules), ACROSS)
    wide = _corner(columns - 1, rules)[0] + SIDE
    high = _corner(0, rules)[1] + SIDE
    made = layout(height=HEIGHT if len(rules) > ACROSS else LOW)
    made |= {"annotations": [], "uirevision": True, "showlegend": False}
    made["margin"] |= {"l": 10, "r": 36, "t": 46, "b": 10}
    made["modebar"] = {"orientation": "v"}  # beside the planes, off their titles
    for name, size in (("xaxis", wide), ("yaxis", high)):
        made[name] = PLAIN | {"range": [-0.5, size - 0.5], "showticklabels": False}
    for index, label in enumerate(rules):
        left, low = _corner(index, rules)
        corner = {"x": left / wide, "y": (low + SIDE) / high}
        corner |= {"xanchor": "left", "yanchor": "bottom"}
        title = panel_title(_title(label, now, before), corner)
        made["annotations"].append(title | {"align": "left"})
    drawn = _planes(now, rules, (high, wide)) if now else []
    words = [f"Regions of {', '.join(rules)}"]
    figure = describe({"data": drawn, "layout": made}, CAPTION, words)
    made["meta"]["least"] = columns * COLUMN
    return figure


def _corner(index: int, rules: Sequence[str]) -> tuple[int, int]:
    """Return the lower left cell of a rule's plane: column and row in the map."""
    line, column = divmod(index, ACROSS)
    below = (len(rules) - 1) // ACROSS - line
    return column * (SIDE + GAP), below * (SIDE + ABOVE)


def _title(label: str, now: Regions | None, before: Regions | None) -> str:
    """Name the rule; below it, its error now, and in brackets that of another run."""
    parts = [
        words.format(run.errors[label])
        for run, words in ((now, "{:.0f} %"), (before, "({:.0f} %)"))
        if run and label in run.errors
    ]
    return f"{label}<br>{' '.join(parts)}"


def _planes(now: Regions, rules: Sequence[str], shape: tuple[int, int]) -> list[dict]:
    classes, points = np.zeros(shape, dtype=np.uint8), []
    inside = (np.abs(now.points) <= WIDE).all(1)
    cells = (now.points[inside] + WIDE) * ((SIDE - 1) / (2 * WIDE))
    for index, label in enumerate(rules):
        left, low = corner = _corner(index, rules)
        points.append(cells + np.array(corner))
        if label in now.classes:
            classes[low : low + SIDE, left : left + SIDE] = now.classes[label] + 1
    colours = [TINTS[arm] for arm in now.labels[inside]] * len(rules)
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
        y_range=(0.0, 70.0),
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


def race_of(*rules: str) -> Experiment:
    """Return `RACE` with some rules alone."""
    return replace(
        RACE,
        rows=partial(race_rows, rules=rules),
        panels=[_panel("Test errors", rules)],
        picture=partial(picture, rules=rules),
        opening=partial(opening, rules=rules),
    )
