"""The readings of equation (5) and the clamp, side by side; later walks."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch

from labkit.bpls import (
    activation,
    hidden_values,
    layer_step,
    output_targets,
    random_weights,
    scores,
    train,
)
from labkit.bpls.train import WalkEnd
from labkit.labs.bpls.figures import heat_maps
from labkit.labs.bpls.problems import (
    READING_NAMES,
    Problem,
    percent,
    reading_of,
    with_noise,
)
from labkit.panels.curves import curves, legend_below
from labkit.panels.theme import COLOURS


def start_weights(problem: Problem, width, seed, depth=1):
    """Random weights of a network with so many hidden layers of one width."""
    return random_weights(
        problem.sizes([width] * depth),
        generator=torch.Generator().manual_seed(seed),
        dtype=problem.X.dtype,
        device=problem.X.device,
    )


def walks(problem: Problem, hidden="sigmoid", *, width=50, depth=1, seed=0, **options):
    """The ends of all walks; ``options`` as of `labkit.bpls.train`."""
    start = start_weights(problem, width, seed, depth)
    records = train(problem.X, problem.y, start, hidden, **options)
    return [record.end for record in records if record.end]


def reading_table(
    problem: Problem,
    activations: Iterable[str] = ("identity", "sigmoid"),
    *,
    readings: Iterable[str] = READING_NAMES,
    width=50,
    seeds=3,
    later=8,
) -> pd.DataFrame:
    """Every reading: overshoot and accuracies in %, means over the seeds.

    ``kept`` is what the stop rule keeps, ``later`` what comes after so many walks on
    misses without it; both training accuracies.
    """
    rows = {}
    for hidden in activations:
        for name in readings:
            options = {"width": width, "reading": reading_of(name)}
            rows[hidden, name] = _mean_row(problem, hidden, options, seeds, later)
    table = pd.DataFrame(rows).T
    return table.rename_axis(["hidden layer", "reading of (5)"])


def clamp_table(
    problem: Problem,
    clamps: Iterable[float],
    activations: Iterable[str] = ("sigmoid", "softmax"),
    *,
    width=50,
    seeds=3,
    later=8,
) -> pd.DataFrame:
    """The same for widths of the clamp, with reading (5')."""
    rows = {}
    for hidden in activations:
        for clamp in clamps:
            options = {"width": width, "clamp": clamp}
            rows[hidden, f"{clamp:g}"] = _mean_row(
                problem, hidden, options, seeds, later
            )
    return pd.DataFrame(rows).T.rename_axis(["hidden layer", "clamp"])


def depth_table(
    problem: Problem,
    depths: Iterable[int],
    activations: Iterable[str] = ("identity", "sigmoid", "tanh"),
    *,
    width=50,
    seeds=3,
) -> pd.DataFrame:
    """Training accuracy in % by depth: first walk and kept, means over the seeds."""
    rows = {}
    for hidden in activations:
        for depth in depths:
            runs = [
                walks(problem, hidden, width=width, depth=depth, seed=seed)
                for seed in range(seeds)
            ]
            rows[hidden, depth] = {
                "first walk [%]": np.mean([100 * ends[0].accuracy for ends in runs]),
                "kept [%]": np.mean([100 * max(e.accuracy for e in r) for r in runs]),
            }
    return pd.DataFrame(rows).T.rename_axis(["hidden layers", "depth"])


def _mean_row(problem, hidden, options, seeds, later) -> pd.Series:
    """One pass without the stop rule tells what the rule would have kept."""
    found = []
    for seed in range(seeds):
        options = options | {"seed": seed, "max_walks": later, "stop": False}
        ends = walks(problem, hidden, **options)
        last = stopped(ends)
        test = percent(
            scores(problem.X_test, last.weights, [activation(hidden)]), problem.y_test
        )
        found.append(
            {
                "overshoot": ends[0].overshoot,
                "clamped [%]": 100 * ends[0].clamped,
                "first walk [%]": 100 * ends[0].accuracy,
                "kept [%]": 100 * last.accuracy,
                "test [%]": test,
                "walks kept": 1 + last.walk,
                f"after {later} more [%]": 100 * ends[-1].accuracy,
            }
        )
    return pd.DataFrame(found).mean()


def stopped(ends: list[WalkEnd]) -> WalkEnd:
    """The walk that the stop rule keeps, of walks made without it."""
    for end, after in pairwise(ends):
        if not after.kept:
            return end
    return ends[-1]


def collapse(
    problem: Problem, hidden="identity", *, sigmas=(0.0,), width=50, later=12, seed=0
) -> pd.DataFrame:
    """Training accuracy in % of every walk without the stop rule, by pixel noise."""
    paths = {}
    for sigma in sigmas:
        noisy = with_noise(problem, sigma=sigma, seed=seed)
        ends = walks(noisy, hidden, width=width, seed=seed, max_walks=later, stop=False)
        paths[f"sigma = {sigma:g}"] = pd.Series(
            {e.walk: 100 * e.accuracy for e in ends}
        )
    return pd.DataFrame(paths).rename_axis("walk on misses")


def collapse_figure(paths: pd.DataFrame) -> go.Figure:
    """Training accuracy against walks; a star where the stop rule ends."""
    lines = {name: (path.index, path) for name, path in paths.items()}
    panel = {"Training accuracy without the stop rule": lines}
    figure = curves(
        panel,
        "walk on misses",
        "%",
        width=720,
        reading="Walking on past the star costs accuracy where the pixels are noisy: "
        "the stop rule keeps the walk before the first that is no better.",
    )
    for i, path in enumerate(paths):
        kept = kept_walk(paths[path])
        star = go.Scatter(
            x=[kept],
            y=[paths[path][kept]],
            mode="markers",
            marker={"symbol": "star", "size": 16, "color": COLOURS[-1]},
            name="stop rule keeps this",
            showlegend=i == 0,
        )
        figure.add_trace(star)
    look = {"margin": figure.layout.margin.to_plotly_json()}
    legend_below(look, ["stop rule keeps this"])
    return figure.update_layout(look)


def kept_walk(path: pd.Series) -> int:
    """The walk before the first that is no better than all before it."""
    path = path.dropna()
    worse = path[path <= path.cummax().shift()]
    return int(worse.index[0] - 1 if len(worse) else path.index[-1])


def layer_picture(problem: Problem, hidden="sigmoid", *, width=20, samples=30, seed=0):
    """Heat maps of one layer pushed back: values, corrected, clamped, inverted."""
    start = start_weights(problem, width, seed)
    a = activation(hidden)
    H = hidden_values(problem.X, start, [a])[-1]
    classes = start[-1].shape[1]
    B = output_targets(problem.y, classes=classes, dtype=H.dtype)
    step = layer_step(2, H, B, a)
    maps = {
        "values H": H,
        "corrected (5')": step.T,
        "clamped": step.C,
        "target, inverted": step.B,
    }
    maps = {title: values[:samples].cpu().numpy() for title, values in maps.items()}
    return heat_maps(
        maps,
        "neuron",
        "sample",
        reading="The correction asks for values that a sigmoid cannot give; the clamp "
        "cuts them off, and near its ends the inverse makes large targets of them.",
    )
