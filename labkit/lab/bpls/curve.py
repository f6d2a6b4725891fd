"""Fit a curve by BPLS, and show the fit and the targets after each layer's solve."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
import torch

from labkit import bpls
from labkit.bpls.walk import hidden_values, output_targets, walk
from labkit.errors import DivergedError
from labkit.lab.bpls.training import INVERTIBLE, interpretation_of
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.planes import GHOST, arrow, dots, path, planes, put
from labkit.lab.panels.figures.theme import COLOURS, INK
from labkit.lab.problem import seeded

POINTS, SHOWN, ARROWS, WALKS = 60, 4, 12, 30
GRID = torch.linspace(-2, 2, 121, dtype=torch.float64)
TINTS = COLOURS[1:5]  # of neurons; the fit has the first
NAMED = "fit", "before this layer", "wanted", "cut by the clamp"  # in the legend
_live = partial(knob, restart=False)


@dataclass(frozen=True)
class CurveKnobs:
    """Knobs of BPLS on a curve; noise and network restart the run."""

    # fmt: off
    noise: float = knob(
        0.1, low=0.0, high=1.0, step=0.05, unit="sd", label="noise sigma",
        help="on the points", about="the fit's error: error",
        look_for="Does the fit follow the noise, or the curve?")
    clamp: float = _live(
        1e-2, low=1e-6, high=0.4, log=True, unit="of the range",
        help="distance of targets to the ends",
        about="the share of targets cut: clamped",
        look_for="How many crosses are left?")
    ridge: float = _live(
        1e-6, low=1e-8, high=1.0, log=True, unit="relative", help="of each solve",
        about="the misfit of the points: misfit",
        look_for="At 0.01: does walking on mend the fit, or make it worse?")
    width: int = knob(
        8, low=1, high=30, unit="neurons", help="hidden",
        about="the misfit of the points: misfit",
        look_for="Do many neurons share the residual, so that the arrows shorten?")
    again: bool = _live(
        True, label="solve again", help="each layer on the corrected values",
        about="the misfit of the points: misfit",
        look_for="Off: does solving the layer below undo the fit?")
    depth: int = knob(
        1, low=1, high=3, unit="layers", label="hidden layers", help="another network",
        about="the fit's error: error",
        look_for="Does a second layer help the fit, or harm it?")
    interpretation: str = _live(
        "min_norm", choices=tuple(bpls.INTERPRETATIONS), help="of equation (5)",
        look_for="Whose arrows are long, and who lands far from the points?")
    activation: str = knob(
        "sigmoid", choices=[a for a in INVERTIBLE if a != "softmax"],
        help="another network", look_for="identity: is anything clamped, or learned?")
    seed: int = knob(0, low=0, high=99, help="of weights and noise",
                     look_for="Other weights: is the first fit as good?")
    # fmt: on


class Curve(NamedTuple):
    """One solved layer of a network with one input."""

    layer: str  # what was solved; empty before the first
    points: np.ndarray  # (n, 2)
    fit: np.ndarray  # (121, 2), with the layers solved so far put in
    was: np.ndarray  # (121, 2), before this layer
    x: np.ndarray  # (n,) inputs
    now: np.ndarray  # (n, SHOWN) values of the last hidden layer before the walk
    wanted: np.ndarray  # (n, SHOWN) corrected ones, clamped
    cut: np.ndarray  # (n, SHOWN) bool, where the clamp moved them
    got: np.ndarray  # (n, SHOWN) what the layers solved so far make of them


def curve(x: torch.Tensor) -> torch.Tensor:
    """Return the noise-free values of the curve at x."""
    return np.sin(2.5 * x) + 0.3 * x


def with_one(x: torch.Tensor) -> torch.Tensor:
    """Return inputs (n,) with a column of ones, the only bias of BPLS: (n, 2)."""
    x = torch.as_tensor(x, dtype=torch.float64)
    return torch.stack([x, torch.ones_like(x)], 1)


def begin(knobs: CurveKnobs) -> tuple[np.ndarray, np.ndarray, list, tuple]:
    """Return the points x (n,) and y (n,), the activations and the first weights."""
    draw = np.random.default_rng(knobs.seed)
    x = np.sort(draw.uniform(-2, 2, POINTS))
    y = curve(x) + knobs.noise * draw.standard_normal(POINTS)
    sizes, g = (2, *[knobs.width] * knobs.depth, 1), seeded(knobs.seed)
    weights = bpls.random_weights(sizes, generator=g, dtype=torch.float64, scale=2.0)
    return x, y, [bpls.activation(knobs.activation)] * knobs.depth, weights


def opening(knobs: CurveKnobs) -> Curve:
    """Return the network before anything is solved."""
    x, y, acts, weights = begin(knobs)
    fit = np.c_[GRID, bpls.scores(with_one(GRID), weights, acts)[:, 0]]
    values = hidden_values(with_one(x), weights, acts)[-1][:, :SHOWN].numpy()
    kept = np.zeros(values.shape, dtype=bool)
    return Curve("", np.c_[x, y], fit, fit, x, values, values, kept, values)


def curve_rows(knobs: CurveKnobs) -> Iterator[dict]:
    """Yield one row for each solved layer; a walk begins where the last one ended."""
    x, y, acts, weights = begin(knobs)
    X, B = with_one(x), output_targets(torch.as_tensor(y)[:, None])
    steps, settings = count(1), bpls.Settings()
    outputs = lambda W, x: bpls.scores(with_one(x), W, acts)[:, 0].numpy()  # noqa: E731
    try:
        for walked in range(1, WALKS + 1):
            settings.clamp, settings.ridge = knobs.clamp, knobs.ridge
            settings.interpretation = interpretation_of(knobs.interpretation)
            H, current = hidden_values(X, weights, acts), weights
            for solved in walk(H, B, acts, settings, second_solve=knobs.again):
                i, was = solved.layer - 1, current
                current = (*current[:i], solved.W, *current[i + 1 :])
                if i == knobs.depth:  # the output layer: these are its targets
                    wanted, cut = solved.C, solved.C != solved.T
                parts = wanted, cut, hidden_values(X, current, acts)[-1]
                shown = (part[:, :SHOWN].numpy() for part in (H[-1], *parts))
                name = "output layer" if i == knobs.depth else f"hidden layer {i + 1}"
                fits = (np.c_[GRID, outputs(W, GRID)] for W in (current, was))
                made = Curve(name, np.c_[x, y], *fits, x, *shown)
                row = {"step": next(steps), "walk": walked, "layer": solved.layer}
                errors = outputs(current, x) - y, outputs(current, GRID) - made_of(GRID)
                row |= {"misfit": rms(errors[0]), "error": rms(errors[1])}
                row["clamped"] = 100 * float(cut.double().mean())
                yield row | {"pictures": made}
            weights = current
    except (ValueError, DivergedError) as error:
        yield {"step": next(steps), "note": str(error)}


def made_of(grid: torch.Tensor) -> np.ndarray:
    """Return the curve without noise on a grid."""
    return curve(np.asarray(grid))


def rms(values: np.ndarray) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


CAPTION = (
    "Fit: noisy points, the curve without noise (dotted), and the fit with the layers "
    "solved so far, grey before this one. Last hidden layer: the values of four "
    "neurons at the points, dotted before the walk, and arrows to what the layer above "
    "wants of them; a cross is a target that the clamp cut."
)


def picture(now: Curve | None, before: Curve | None) -> dict:
    """Draw the curve on the left and the hidden layer on the right."""
    wanted = [[0.0], [1.0]] if now is None else [now.wanted, now.now, now.got]
    low, high = min(map(np.min, wanted)), max(map(np.max, wanted))
    room = 0.08 * (high - low) + 1e-6
    solved = f": {now.layer} solved" if now and now.layer else ""
    figure = planes(
        [f"Fit{solved}", "Last hidden layer, and what is wanted"],
        ["input", "input"],
        ["output", "value of a neuron"],
        [((-2, 2), (-2.5, 2.5)), ((-2, 2), (low - room, high + room))],
        caption=CAPTION,
    )
    if now:
        fits = [dots(now.points, COLOURS[5], "noisy points")]
        fits.append(
            path(np.c_[GRID, made_of(GRID)], INK, "without noise", dash="dot", width=1)
        )
        if now.layer:
            fits.append(path(now.was, GHOST, "before this layer", width=3))
        fits.append(path(now.fit, COLOURS[0], "fit", width=4))
        for column, drawn in enumerate((fits, _hidden(now))):
            told = (t | {"showlegend": t["name"] in NAMED} for t in drawn)
            put(figure, column, list(told))
    if before:
        ghost = path(before.fit, GHOST, "an earlier run", dash="dash", width=2)
        put(figure, 0, [ghost])
    return figure


def _hidden(now: Curve) -> list[dict]:
    drawn, at = [], np.linspace(0, len(now.x) - 1, ARROWS).round().astype(int)
    for j, tint in enumerate(TINTS[: now.now.shape[1]]):
        named = {0: ("before the walk", "wanted", "with the layers solved")}
        values, wanted, got = named.get(j, ("",) * 3)
        x = now.x
        drawn.append(path(np.c_[x, now.now[:, j]], tint, values, width=1, dash="dot"))
        drawn.append(path(np.c_[x, now.got[:, j]], tint, got, width=2))
        ends = (np.c_[x, each[:, j]][at] for each in (now.now, now.wanted))
        if now.layer:
            drawn.append(arrow(*ends, tint, wanted, width=1, head=8))
        cut = now.cut[:, j]
        points = np.c_[x[cut], now.wanted[cut, j]]
        drawn.append(dots(points, tint, "" if j else "cut by the clamp", symbol="x"))
    return drawn


def _status(row) -> str:
    if "note" in row:
        return row["note"]
    return (
        "walk {walk}: misfit of the points {misfit:.3f}, error of the curve "
        "{error:.3f}; {clamped:.0f} % of the targets cut"
    ).format_map(row)


CURVE = Experiment(
    "curve",
    CurveKnobs,
    curve_rows,
    (),
    CAPTION,
    _status,
    front=("noise", "ridge", "clamp"),
    playable={"noise": (0.0, 0.6)},
    picture=picture,
    opening=opening,
    at_once=True,
)
