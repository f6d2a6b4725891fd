"""Classify points by BPLS, and show layers as cells, one solved per step."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit import bpls
from labkit.bpls.train import blend
from labkit.bpls.walk import hidden_values, scores
from labkit.errors import DivergedError
from labkit.lab.compare.rules import with_ones
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    class_cells,
    class_map,
    dots,
    path,
    planes,
    put,
)
from labkit.lab.panels.figures.theme import COLOURS, INK
from labkit.lab.problem import noisy_labels, percent, seeded

POINTS, SAMPLES, WIDE = 150, 3, 2.5
APART = SAMPLES + 2  # from layer to layer, in cells
TICKS = torch.linspace(-WIDE, WIDE, 41, dtype=torch.float64)
PLANE = with_ones(torch.cartesian_prod(TICKS, TICKS))
CELLS = np.linspace(-WIDE, WIDE, 2 * len(TICKS) - 1)  # that are drawn
TINTS = COLOURS[0], COLOURS[1]  # of the classes
MARK = COLOURS[4]  # of the layer that is solved, and of what the clamp cut there
HIDDEN, OUTPUT = bpls.activation("sigmoid"), bpls.activation("softmax")


@dataclass(frozen=True)
class LayerKnobs:
    """Knobs of BPLS on two classes; all but the clamp restart the run."""

    # fmt: off
    noise: float = knob(
        0.0, low=0.0, high=0.5, step=0.05, unit="share", label="label noise",
        help="labels drawn at random", about="the error: error",
        look_for="Do later walks mend the border, or undo it?")
    clamp: float = knob(
        1e-2, low=1e-6, high=0.4, log=True, unit="of the range", restart=False,
        help="distance of targets to the ends",
        about="the share of targets cut: clamped",
        look_for="How many crosses are left?")
    width: int = knob(
        6, low=1, high=8, unit="neurons", help="of each hidden layer",
        about="the error: error",
        look_for="With one: can a layer give what is wanted of it?")
    depth: int = knob(
        2, low=1, high=3, unit="layers", label="hidden layers", help="another network",
        about="the error: error",
        look_for="How much of what is wanted is met in the lowest layer?")
    seed: int = knob(0, low=0, high=99, help="of weights and points",
                     look_for="Other weights: does it still find the border?")
    # fmt: on


class Layers(NamedTuple):
    """One solved layer, blended into the network by the share of the walk's rows."""

    layer: int  # l that was solved, from L + 1 down to 1; 0 before the first
    values: list[np.ndarray]  # of layers 0 to L + 1, (samples, N_l)
    wanted: dict[int, np.ndarray]  # of the layers solved in this walk, the same
    cut: dict[int, np.ndarray]  # of the hidden ones, bool: the clamp moved it
    samples: np.ndarray  # rows of the points whose cells are shown
    points: np.ndarray  # (n, 2)
    labels: np.ndarray  # (n,)
    classes: np.ndarray  # (81, 81) what the network says, a row for each second input
    missed: np.ndarray  # (n,) bool, by this network
    solved: np.ndarray  # (n,) bool, what this walk solves on


def moons(seed: int) -> tuple[Tensor, Tensor]:
    """Draw two interlocking half circles: (n, 3) with ones, and (n,) labels."""
    g, y = seeded(seed), torch.arange(POINTS) % 2
    turn = math.pi * torch.rand(POINTS, generator=g, dtype=torch.float64)
    side = 1 - 2 * y
    X = torch.stack([turn.cos() - side / 2, side * (turn.sin() - 0.25)], 1)
    X += 0.15 * torch.randn(X.shape, generator=g, dtype=torch.float64)
    return with_ones(1.3 * X), y


def begin(knobs: LayerKnobs) -> tuple[Tensor, Tensor, list, tuple[Tensor, ...]]:
    """Return the points, their labels, the activations and the first weights."""
    (X, clean), g = moons(knobs.seed), seeded(knobs.seed)
    y = noisy_labels(clean, knobs.noise, g, 2)
    sizes = 3, *[knobs.width] * knobs.depth, 2
    weights = bpls.random_weights(sizes, generator=g, scale=3.0, dtype=X.dtype)
    return X, y, [HIDDEN] * knobs.depth, weights


def said_of(weights: tuple[Tensor, ...], acts: list) -> np.ndarray:
    """Return the class that a network gives to each point of the plane."""
    return class_cells(scores(PLANE, weights, acts))


def opening(knobs: LayerKnobs) -> Layers:
    """Return the network before any layer is solved."""
    X, y, acts, weights = begin(knobs)
    rows = torch.linspace(0, POINTS - 1, SAMPLES).round().long()
    H = hidden_values(X[rows], weights, acts)
    values = [h.numpy() for h in (*H, OUTPUT.value(H[-1] @ weights[-1]))]
    parts = rows.numpy(), X[:, :2].numpy(), y.numpy(), said_of(weights, acts)
    return Layers(0, values, {}, {}, *parts, *np.zeros((2, POINTS), dtype=bool))


def layer_rows(knobs: LayerKnobs) -> Iterator[dict]:
    """Yield one row for each solved layer."""
    (X, y, acts, current), test = begin(knobs), moons(knobs.seed + 100)
    settings = bpls.Settings(clamp=knobs.clamp, stop=False, max_walks=10**6)
    missed, clamp, step = torch.ones(POINTS, dtype=torch.bool), knobs.clamp, 0
    try:
        for record in bpls.train(X, y, current, acts, settings):
            step, i = record.step, record.layer - 1
            if i == knobs.depth:  # a walk begins, the first on all points
                solved, wanted, cut = missed, {}, {}
                rows = solved.nonzero()[:, 0]
                at = torch.linspace(0, len(rows) - 1, SAMPLES).round().long().unique()
            new = blend(current[i : i + 1], (record.W,), record.samples / POINTS)
            current = (*current[:i], *new, *current[i + 1 :])
            missed = scores(X, current, acts).argmax(1) != y
            a = OUTPUT if i == knobs.depth else HIDDEN
            wanted[i + 1] = a.value(record.B[at]).numpy()
            if a is HIDDEN:
                cut[i + 1] = np.abs(wanted[i + 1] - 0.5) > 0.5 - clamp - 1e-9
            name = f"hidden {i + 1}" if a is HIDDEN else "outputs"
            row = {"step": step, "walk": record.walk + 1, "layer": name}
            row |= {"rows": record.samples, "missed": int(missed.sum())}
            if i:
                row["clamped"] = 100 * record.clamped
            else:
                row["error"] = 100 - percent(scores(test[0], current, acts), test[1])
            H = hidden_values(X[rows[at]], current, acts)
            values = [h.numpy() for h in (*H, OUTPUT.value(H[-1] @ current[-1]))]
            parts = rows[at].numpy(), X[:, :2].numpy(), y.numpy()
            parts = *parts, said_of(current, acts), missed.numpy(), solved.numpy()
            yield row | {
                "pictures": Layers(i + 1, values, dict(wanted), dict(cut), *parts)
            }
            clamp, settings.clamp = settings.clamp, knobs.clamp
    except (ValueError, DivergedError) as error:
        yield {"step": step + 1, "note": str(error)}


CAPTION = (
    "Layers: values of three samples, dark is 0 (inputs: -2.5), light 1; below them "
    "what the layer above wants, crossed where the clamp cut it; an arrow is the "
    "residual that is pushed down. The plane: what the network with the layers solved "
    "so far says for every input; this walk solves on the large dots."
)


def picture(now: Layers | None, before: Layers | None) -> dict:
    """Draw the layers on the left and the plane of the inputs on the right."""
    high = max(len(part.T) for part in now.values) if now else 6
    count = len(now.values) if now else 4
    figure = planes(
        ["Layers, and what is wanted", "What the network says"],
        ["", "first input"],
        ["", "second input"],
        [((-1, count * APART - 2), (2 * high + 2, -1.6)), ((-WIDE, WIDE),) * 2],
        caption=CAPTION,
        widths=[0.58, 0.42],
    )
    names = ["inputs", *(f"hidden {i}" for i in range(1, count - 1)), "outputs"]
    middle = [i * APART + 1 for i in range(count)]
    bare = {"showgrid": False, "ticks": "", "showline": False}
    figure["layout"]["xaxis"] |= bare | {"tickvals": middle, "ticktext": names}
    at = {"tickvals": [high / 2 - 0.5, 1.5 * high + 1.5], "ticktext": ["is", "wanted"]}
    figure["layout"]["yaxis"] |= bare | at
    if now:
        put(figure, 0, _layers(now, high + 2))
        put(figure, 1, [trace | {"showlegend": True} for trace in _plane(now)])
    if before:
        border = {"start": 0.5, "end": 0.5, "size": 1, "coloring": "lines"}
        ghost = {"type": "contour", "z": before.classes, "contours": border}
        ghost |= {"x": CELLS, "y": CELLS, "name": "an earlier run"}
        ghost |= {"colorscale": [[0, GHOST], [1, GHOST]], "showscale": False}
        put(figure, 1, [ghost | {"hoverinfo": "skip", "showlegend": True}])
    return figure


def _layers(now: Layers, below: int) -> list[dict]:
    """Draw blocks of cells, the targets ``below`` the values, and mark the layer."""
    drawn, n = [], np.arange(len(now.samples))
    for top, parts in ((0, dict(enumerate(now.values))), (below, now.wanted)):
        for i, part in parts.items():
            heat = {"type": "heatmap", "colorscale": "Viridis", "showscale": False}
            heat |= {"x": i * APART + n, "y": top + np.arange(len(part.T)), "z": part.T}
            heat |= {"zmin": 0 if i else -WIDE, "zmax": 1 if i else WIDE, "xgap": 1}
            drawn.append(heat | {"ygap": 1, "hovertemplate": "%{z:.3f}<extra></extra>"})
        drawn.append(
            _numbers([(i * APART + k, top - 1) for i in parts for k in n], len(n))
        )
    if not now.layer:
        return drawn
    left, height = now.layer * APART - 0.7, len(now.values[now.layer].T)
    right, low = left + SAMPLES + 0.4, below + height - 0.3
    ring = [(left, -0.7), (right, -0.7), (right, low), (left, low), (left, -0.7)]
    drawn.append(path(ring, MARK, "layer solved", width=3))
    if now.layer < len(now.values) - 1:
        ends = (left + APART - 0.1, below + 1), (right + 0.1, below + 1)
        drawn.append(arrow(*ends, INK))
    corners = {i: np.array([i * APART, below]) for i in now.cut}
    at = [corners[i] + np.argwhere(cut) for i, cut in now.cut.items()]
    at = np.concatenate([*at, np.zeros((0, 2))])
    return [*drawn, dots(at, MARK, "cut by the clamp", symbol="x", size=7)]


def _plane(now: Layers) -> list[dict]:
    colours, drawn = np.array(TINTS)[now.labels], []
    for name, rows, size in (("", ~now.solved, 4), ("solved on", now.solved, 8)):
        drawn.append(dots(now.points[rows], colours[rows].tolist(), name, size=size))
    drawn.append(
        dots(
            now.points[now.missed],
            INK,
            "missed",
            symbol="circle-open",
            size=13,
            line={"width": 2},
        )
    )
    drawn.append(
        _numbers(now.points[now.samples], SAMPLES) | {"textposition": "top right"}
    )
    return [class_map(now.classes, TINTS, CELLS), *drawn]


def _numbers(at, samples: int) -> dict:
    """Return a trace with the numbers of the samples at these points."""
    names = [f"<b>{k % samples + 1}</b>" for k in range(len(at))]
    look = {"text": names, "textfont": {"size": 14, "color": INK}, "mode": "text"}
    return dots(at, INK) | look


def _status(row) -> str:
    if "note" in row:
        return row["note"]
    return (
        "walk {walk}: {layer} solved on {rows} points; the network with it misses "
        "{missed}"
    ).format_map(row)


LAYERS = Experiment(
    "layers",
    LayerKnobs,
    layer_rows,
    (),
    CAPTION,
    _status,
    front=("noise", "clamp", "width"),
    playable={"noise": (0.0, 0.3)},
    picture=picture,
    opening=opening,
)
