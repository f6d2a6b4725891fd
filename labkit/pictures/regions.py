"""All classifiers on one plane: what each would say of every point."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from labkit.datasets import Labelled
from labkit.labs.compare import RaceKnobs, errors, race_looks, race_status
from labkit.labs.problem import Problem
from labkit.labs.rules import CLASSIFIERS, seeded
from labkit.panels import Experiment
from labkit.panels.captions import panel_text
from labkit.panels.drawing import panel_title
from labkit.panels.theme import COLOURS, layout
from labkit.pictures.planes import HEIGHT, dots

ARMS, ROWS, WIDE, GRID = 3, 300, 2.2, 41
SHOWN = 60  # points in each plane
TINTS = COLOURS[0], COLOURS[1], COLOURS[5]
ACROSS, GAP, ABOVE = 5, 0.02, 0.14  # planes in a line, shares between them
TICKS = torch.linspace(-WIDE, WIDE, GRID)
PLANE = torch.cartesian_prod(TICKS, TICKS)


class Regions(NamedTuple):
    """What the rules say, but for those that have failed or not begun."""

    classes: dict[str, np.ndarray]  # by rule, (GRID, GRID), a row for each second input
    errors: dict[str, float]  # by rule, of test rows [%]
    points: np.ndarray  # (SHOWN, 2)
    labels: np.ndarray  # (SHOWN,)


def spirals(seed: int = 0) -> Problem:
    """Rows to learn from and for the end: as many arms as there are classes."""
    g = seeded(seed)

    def part():
        y = torch.arange(ROWS) % ARMS
        r = torch.linspace(0.1, 1, ROWS // ARMS).repeat_interleave(ARMS)
        turn = 2 * math.pi * y / ARMS + 3.5 * r + 0.15 * torch.randn(ROWS, generator=g)
        X = 2 * r[:, None] * torch.stack([turn.cos(), turn.sin()], 1)
        return Labelled("spirals", X, y)

    return Problem(part(), part())


def values() -> dict[str, dict]:
    """Of each rule, the middle of what it would be tuned in."""
    middle = lambda ends: math.sqrt(math.prod(ends))  # noqa: E731
    ranges = {label: rule.ranges.items() for label, rule in CLASSIFIERS.items()}
    chosen = {k: {name: middle(ends) for name, ends in v} for k, v in ranges.items()}
    # Each row by itself, as of images, would leave one bit of two inputs.
    return chosen | {"broad": chosen["broad"] | {"scaling": "feature"}}


def region_rows(knobs, problem: Problem, hidden: int = 32) -> Iterator[dict]:
    """One row a minibatch; the last three rules are solved anew at every fourth."""
    every = slice(None, None, ROWS // SHOWN)
    points = problem.fit.inputs[every].numpy(), problem.fit.targets[every].numpy()
    looks = race_looks(knobs, problem, values(), hidden, every=1)
    for step, ended, outputs in looks:
        row = {"step": step, "ended": ", ".join(ended)}
        if outputs:
            wrong = errors(outputs, problem.test)
            with torch.no_grad():
                said = {k: rule(PLANE).argmax(1) for k, rule in outputs.items()}
            grids = {k: each.view(GRID, GRID).T.numpy() for k, each in said.items()}
            row |= wrong | {"pictures": Regions(grids, wrong, *points)}
        yield row


CAPTION = (
    "Colours: the class that a rule gives to each point of the plane; dots: points of "
    "the three arms without noise; the number: errors on test points. All rules read "
    "the same minibatches; the last three are solved anew on all rows so far."
)


def picture(now: Regions | None, before: Regions | None) -> dict:
    """Draw a plane for each rule; the error of the run before stands in brackets."""
    look = layout(width=960, height=HEIGHT) | {"annotations": [], "uirevision": True}
    look["margin"] |= {"l": 10, "r": 10, "t": 40, "b": 10}
    look["meta"] = {"caption": CAPTION, "alt": f"{panel_text('Regions', '', '', ())}. "}
    look["meta"]["alt"] += f"{', '.join(CLASSIFIERS)}. {CAPTION}"
    wide = (1 - GAP * (ACROSS - 1)) / ACROSS
    high = (1 - ABOVE) / 2
    drawn = []
    for i, label in enumerate(CLASSIFIERS):
        line, column = divmod(i, ACROSS)
        left, low = column * (wide + GAP), (1 - line) * (high + ABOVE)
        k = str(i + 1) if i else ""
        plain = {"range": [-WIDE, WIDE], "showticklabels": False, "ticks": ""}
        look[f"xaxis{k}"] = plain | {"domain": [left, left + wide], "anchor": f"y{k}"}
        look[f"yaxis{k}"] = plain | {"domain": [low, low + high], "anchor": f"x{k}"}
        corner = {"x": left, "y": low + high, "xanchor": "left", "yanchor": "bottom"}
        look["annotations"].append(panel_title(_title(label, now, before), corner))
        if now:
            place = {"xaxis": f"x{k}", "yaxis": f"y{k}", "showlegend": False}
            drawn += [trace | place for trace in _plane(now, label)]
    return {"data": drawn, "layout": look}


def _title(label: str, now: Regions | None, before: Regions | None) -> str:
    """The rule, its error now, and in brackets that of the run before."""
    parts = [label]
    if now and label in now.errors:
        parts.append(f"{now.errors[label]:.0f} %")
    if before and label in before.errors:
        parts.append(f"({before.errors[label]:.0f} %)")
    return " ".join(parts)


def _plane(now: Regions, label: str) -> list[dict]:
    steps = [[(i + end) / ARMS, TINTS[i]] for i in range(ARMS) for end in (0, 1)]
    heat = {"type": "heatmap", "x": TICKS.numpy(), "y": TICKS.numpy(), "opacity": 0.35}
    heat |= {"colorscale": steps, "zmin": -0.5, "zmax": ARMS - 0.5, "showscale": False}
    shown = []
    if label in now.classes:
        shown.append(heat | {"z": now.classes[label], "hoverinfo": "skip"})
    colours = [TINTS[y] for y in now.labels]
    return [*shown, dots(now.points, colours, size=4)]


REGIONS = Experiment(
    "regions",
    RaceKnobs,
    region_rows,
    (),
    CAPTION,
    race_status,
    front=("label_noise", "input_noise", "batch"),
    recorded={"label_noise": (0.0, 0.5)},
    picture=picture,
)
