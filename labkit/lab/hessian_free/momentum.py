"""Show two steps, the second of which is damped towards its warm start."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from labkit.lab.hessian_free.bowl import OTHER, ROWS, START, STEP, bowls, data
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    dots,
    ellipse,
    path,
    planes,
    put,
)
from labkit.lab.panels.figures.theme import COLOURS, INK
from labkit.lab.problem import seeded

BATCH = 100
LIMITS = ((-1.8, 2.4), (-1.5, 2.0))
ROUND = 0.05  # the height at which the second bowl is drawn


@dataclass(frozen=True)
class MomentumKnobs:
    """The knobs of the two steps."""

    # fmt: off
    gamma: float = knob(
        0.7, low=0.0, high=1.0, step=0.05, help="share of the last step",
        look_for="At 0 both ends of the second step are one.")
    damping: float = knob(
        0.3, low=0.01, high=3.0, log=True, label="damping lambda", help="of both steps",
        look_for="At 0.01 nothing of the last step is kept, at 3 nearly gamma of it.")
    noise: float = knob(
        0.3, low=0.0, high=1.0, step=0.05, unit="sd", help="on the targets",
        look_for="Is the second step turned, and what is kept of the first?")
    seed: int = knob(0, low=0, high=99, help="of the rows", look_for="Is it chance?")
    # fmt: on


class Steps(NamedTuple):
    """The weights that two steps lead to."""

    first: np.ndarray  # (2,) after the first step
    stated: np.ndarray  # (2,) after a second one, damped towards 0
    kept: np.ndarray  # (2,) the same, damped towards gamma times the first step
    curvature: np.ndarray  # (2, 2) of the second bowl, B


def momentum_rows(knobs: MomentumKnobs) -> Iterator[dict]:
    r"""Yield the one row: both second steps.

    With $B = A^T A + \lambda^2 I$, the step that is damped towards $d_0$ is
    $d = -B^{-1} \nabla f + \lambda^2 B^{-1} d_0$.
    """
    X, Y = data(knobs)
    batches = torch.rand(1, ROWS, generator=seeded(knobs.seed)).argsort(1)
    one, two = batches[:, :BATCH], batches[:, BATCH : 2 * BATCH]
    _, _, first = bowls(X, Y, one, knobs.damping)
    B, _, stated = bowls(X, Y, two, knobs.damping, tuple(first[0].tolist()))
    step = first[0] - torch.tensor(START)
    added = knobs.damping**2 * torch.linalg.solve(B[0], knobs.gamma * step)
    points = first[0], stated[0], stated[0] + added, B[0]
    made = Steps._make(each.numpy() for each in points)
    curvatures = torch.linalg.eigvalsh(B[0])
    kept = {
        name: 100 * float(knobs.gamma * knobs.damping**2 / value)
        for name, value in zip(("flat", "steep"), curvatures, strict=True)
    }
    numbers = {"added 0": float(added[0]), "added 1": float(added[1])}
    yield {"step": 2} | numbers | kept | {"pictures": made}


CAPTION = (
    "Without a warm start the second step ends at the tip of the light blue arrow. "
    "Damped towards the warm start, gamma times the first step d, it gets a part of d "
    "on top: a large one along the long axis of the bowl, where it is flat, and hardly "
    "any across it."
)


def picture(now: Steps | None, before: Steps | None) -> dict:
    """Draw both steps from the weights at the start."""
    figure = planes(
        ["Two steps in the plane of the weights"],
        ["first weight"],
        ["second weight"],
        [LIMITS],
        caption=CAPTION,
        height=600,
        square=True,
    )
    if before:
        put(figure, 0, [path([START, before.first, before.kept], GHOST, EARLIER)])
    if now:
        added = arrow(now.stated, now.kept, COLOURS[4], "momentum: lambda² B⁻¹ gamma d")
        drawn = [
            arrow(START, now.first, INK, "first step d"),
            arrow(now.first, now.kept, STEP, "second step, damped towards gamma d"),
            arrow(now.first, now.stated, OTHER, "second step, damped towards 0"),
            added,
            ellipse(now.first, ROUND * np.linalg.inv(now.curvature), 1.0, COLOURS[0])
            | {"name": "shape of the second bowl"},
            dots(START, INK, size=9),
        ]
        put(figure, 0, drawn)
    return figure


def _status(row: dict) -> str:
    return (
        r"$d_2 = -B^{{-1}}\nabla f + \lambda^2 B^{{-1}}\,\gamma d_1$, of it "
        r"$\lambda^2 B^{{-1}}\,\gamma d_1 = ({added 0:.2f}, {added 1:.2f})$: {flat:.0f}"
        " % of $d_1$ along the flat direction of the bowl, {steep:.0f} % across it"
    ).format(**row)


MOMENTUM = Experiment(
    "momentum",
    MomentumKnobs,
    momentum_rows,
    (),
    CAPTION,
    _status,
    front=("gamma", "damping", "noise"),
    playable={"gamma": (0.0, 0.35, 1.0), "damping": (0.01, 0.1, 1.0, 3.0)},
    picture=picture,
)
