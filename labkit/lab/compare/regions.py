"""Classifiers on one plane: what each would say of every point."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from labkit.lab.compare.live import RaceKnobs, errors, race_looks, race_status
from labkit.lab.compare.rules import CLASSIFIERS
from labkit.lab.datasets import Labelled
from labkit.lab.panels import Experiment
from labkit.lab.panels.figures.captions import panel_text
from labkit.lab.panels.figures.drawing import panel_title
from labkit.lab.panels.figures.planes import HEIGHT, class_map, dots
from labkit.lab.panels.figures.theme import COLOURS, PLAIN, layout
from labkit.lab.problem import Problem, seeded

ARMS, ROWS, WIDE, GRID = 3, 300, 2.2, 35
SHOWN = 32  # newest points in each plane
ALL = tuple(CLASSIFIERS)
TINTS = COLOURS[0], COLOURS[1], COLOURS[5]
ACROSS, GAP, ABOVE = 5, 4, 9  # planes in a line, cells between them
NOTHING = "rgba(0, 0, 0, 0)"
LOW = 300  # pixels of one line
TICKS = torch.linspace(-WIDE, WIDE, GRID)
PLANE = torch.cartesian_prod(TICKS, TICKS)


class Regions(NamedTuple):
    """What the rules say, but for those that have failed or not begun."""

    classes: dict[str, np.ndarray]  # by rule, (GRID, GRID), a row for each second input
    errors: dict[str, float]  # by rule, of test rows [%]
    points: np.ndarray  # (n, 2), the newest rows as the rules read them
    labels: np.ndarray  # (n,)


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


def region_rows(
    knobs, problem: Problem, hidden: int = 32, *, rules: Sequence[str] = ALL
) -> Iterator[dict]:
    """One row a minibatch; the last three of all rules are solved at every fourth."""
    chosen = {label: given for label, given in values().items() if label in rules}
    looks = race_looks(knobs, problem, chosen, hidden, every=1)
    for step, ended, outputs, read in looks:
        row = {"step": step, "ended": ", ".join(ended)}
        if outputs:
            wrong = errors(outputs, problem.test)
            with torch.no_grad():
                said = {k: rule(PLANE).argmax(1) for k, rule in outputs.items()}
            grids = {k: each.view(GRID, GRID).T.numpy() for k, each in said.items()}
            points = (part[-SHOWN:].numpy() for part in read)
            row |= wrong | {"pictures": Regions(grids, wrong, *points)}
        yield row


CAPTION = (
    "Colours: the class that a rule gives to each point of the plane; dots: the newest "
    "rows, as all rules read them, noise included; the number: errors on test points, "
    "which have none."
)


def picture(
    now: Regions | None, before: Regions | None, *, rules: Sequence[str] = ALL
) -> dict:
    """Draw a plane for each rule; the error of the run before stands in brackets.

    All planes lie on one pair of axes, as one map: nine pairs would take a page longer
    to draw than all that they show.
    """
    wide = _corner(min(len(rules), ACROSS) - 1, rules)[0] + GRID
    high = _corner(0, rules)[1] + GRID
    look = {"annotations": [], "uirevision": True, "showlegend": False}
    look |= layout(width=960, height=HEIGHT if len(rules) > ACROSS else LOW)
    look["margin"] |= {"l": 10, "r": 10, "t": 40, "b": 10}
    look["meta"] = {"caption": CAPTION, "alt": f"{panel_text('Regions', '', '', ())}. "}
    look["meta"]["alt"] += f"{', '.join(rules)}. {CAPTION}"
    for name, size in (("xaxis", wide), ("yaxis", high)):
        ends = {"range": [-0.5, size - 0.5], "showticklabels": False}
        look[name] = PLAIN | ends
    for i, label in enumerate(rules):
        left, low = _corner(i, rules)
        place = {"x": left / wide, "y": (low + GRID) / high}
        place |= {"xanchor": "left", "yanchor": "bottom"}
        look["annotations"].append(panel_title(_title(label, now, before), place))
    return {"data": _planes(now, rules, (high, wide)) if now else [], "layout": look}


def _corner(i: int, rules: Sequence[str]) -> tuple[int, int]:
    """The lower left cell of a rule's plane: column and row in the map of all."""
    line, column = divmod(i, ACROSS)
    below = (len(rules) - 1) // ACROSS - line
    return column * (GRID + GAP), below * (GRID + ABOVE)


def _title(label: str, now: Regions | None, before: Regions | None) -> str:
    """The rule, its error now, and in brackets that of the run before."""
    parts = [label]
    if now and label in now.errors:
        parts.append(f"{now.errors[label]:.0f} %")
    if before and label in before.errors:
        parts.append(f"({before.errors[label]:.0f} %)")
    return " ".join(parts)


def _planes(now: Regions, rules: Sequence[str], shape: tuple[int, int]) -> list[dict]:
    said, places = np.zeros(shape, dtype=np.uint8), []
    inside = (np.abs(now.points) <= WIDE).all(1)
    cells = (now.points[inside] + WIDE) * ((GRID - 1) / (2 * WIDE))
    for i, label in enumerate(rules):
        left, low = corner = _corner(i, rules)
        places.append(cells + np.array(corner))
        if label in now.classes:
            said[low : low + GRID, left : left + GRID] = now.classes[label] + 1
    colours = [TINTS[y] for y in now.labels[inside]] * len(rules)
    shown = class_map(said, (NOTHING, *TINTS))
    return [shown, dots(np.concatenate(places), colours, size=4)]


REGIONS = Experiment(
    "regions",
    RaceKnobs,
    region_rows,
    (),
    CAPTION,
    race_status,
    front=("label_noise", "input_noise", "batch"),
    playable={"label_noise": (0.0, 0.5)},
    picture=picture,
)


def regions_of(*rules: str) -> Experiment:
    """`REGIONS` of some rules alone."""
    rows, draw = (partial(part, rules=rules) for part in (region_rows, picture))
    return replace(REGIONS, rows=rows, picture=draw)
