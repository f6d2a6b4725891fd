"""Walks of BPLS on images, live, and what notebook 02 measures of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from labkit import bpls
from labkit.bpls.train import blend
from labkit.bpls.walk import Weights
from labkit.errors import DivergedError
from labkit.lab.books.shared import (
    judged,
    labels_knob,
    live_knob,
    noise_knob,
    seed_knob,
)
from labkit.lab.panels import Experiment, Lines, curves, knob
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.measured import Finding, Measurement
from labkit.lab.problem import Problem, load_problem, percent, seeded, with_noise
from labkit.lab.race import race_rows

ONE_OUTPUT = "one output"  # interpretation (5f), its first output
NAMES = (*bpls.INTERPRETATIONS, ONE_OUTPUT)
INVERTIBLE = tuple(
    activation.name
    for activation in bpls.ACTIVATIONS.values()
    if activation.inverse is not None
)


def interpretation_of(name: str) -> str | int:
    """Return the value that `labkit.bpls` uses for the interpretation of this name."""
    return 0 if name == ONE_OUTPUT else name


def start_weights(problem: Problem, hidden: int, seed: int = 0) -> Weights:
    """Draw weights for a problem, in the dtype and on the device of its inputs."""
    X = problem.fit.inputs
    return bpls.random_weights(
        (X.shape[1], hidden, problem.classes),
        dtype=X.dtype,
        device=X.device,
        generator=seeded(seed),
    )


def walk_rows(knobs: Any, load: Callable[[], Problem]) -> Iterator[dict]:
    """Walk by values of `WalkKnobs`, and yield one row for each solved layer.

    ``load`` returns the data, and is called when a run begins.

    ``accuracy so far`` is that of the network with the layers solved so far, blended as
    line 20 of Algorithm 2 will do; halfway through a walk the layers do not fit each
    other. The names of the other columns end in ``output`` or ``input``, the layer that
    was solved. A run that diverges, or that meets a target without an inverse, ends
    with a row that has a ``note``.
    """
    problem, acts = load(), [bpls.activation(knobs.activation)]
    weights = current = start_weights(problem, knobs.width, knobs.seed)
    settings, level, step = bpls.Settings(max_walks=200), None, 0

    def follow_knobs():
        """Pass the knobs' values to the walks, and noise only between two walks."""
        nonlocal level
        settings.interpretation = interpretation_of(knobs.interpretation)
        settings.clamp, settings.stop = knobs.clamp, knobs.stop
        wanted = {"input_noise": knobs.sigma, "label_noise": knobs.label_noise}
        if level != wanted and current is weights:
            level, noisy = wanted, with_noise(problem, **wanted, seed=knobs.seed).fit
            settings.data = noisy.inputs, noisy.targets

    follow_knobs()
    try:
        for record in bpls.train(*settings.data, weights, acts, settings):
            X, y = settings.data
            step, index = record.step, record.layer - 1
            share = record.samples / len(y)  # all in the first walk, then the misses
            (W,) = blend(weights[index : index + 1], (record.W,), share)
            current = (*current[:index], W, *current[index + 1 :])
            place = "output" if index else "input"
            row = {"step": step, "walk": record.walk, "layer": place}
            row |= {"rows": record.samples, f"condition {place}": record.condition}
            row[f"cosine {place}"] = record.cosine
            if index:
                row["overshoot"] = round(record.overshoot, 4)
                row["clamped"] = 100 * record.clamped
            row["accuracy so far"] = percent(bpls.scores(X, current, acts), y)
            if end := record.end:
                weights = current = end.weights
                S = bpls.scores(problem.test.inputs, weights, acts)
                row |= {"test": percent(S, problem.test.targets), "kept": end.kept}
                row |= {"train": 100 * end.accuracy, "misses": end.misses}
            yield row
            follow_knobs()
    except (ValueError, DivergedError) as error:  # such as a clamp too narrow
        yield {"step": step + 1, "note": str(error)}


@dataclass(frozen=True)
class WalkKnobs:
    """Knobs that can be turned while BPLS walks.

    The stop rule is off, as in line 18 of Algorithm 2, so that the run is long enough.
    """

    # fmt: off
    sigma: float = noise_knob(
        0.0, label="pixel noise", restart=False,
        help="sigma of the training images, from the next walk on",
        about="the number of misses: misses",
        look_for="The misses leap and settle higher; the test, on clean images, holds "
        "up to 0.2.")
    label_noise: float = labels_knob(
        restart=False, about="the test accuracy: test",
        help="labels drawn at random, from the next walk on",
        look_for="The test accuracy falls walk by walk; back at 0 a few walks mend it.")
    interpretation: str = live_knob(
        "min_norm", choices=NAMES, help="of equation (5)", look_for="The overshoot, 1 "
        "for min_norm; a run begun with identity and mean collapses.")
    clamp: float = live_knob(
        1e-2, low=1e-8, high=0.4, log=True, unit="of the range",
        help="distance to the ends", look_for="The share it moves; a run begun at 1e-6 "
        "starts ten points lower, 1e-8 ends it.")
    stop: bool = live_knob(
        False, label="stop rule", help="end at the first walk whose misses do not fall",
        look_for="How soon a run ends, and what more walks gain, or undo under noise.")
    activation: str = knob(
        "sigmoid", choices=INVERTIBLE, help="another network", look_for="Targets moved "
        "by the clamp: none with identity, two thirds at first with softmax.")
    width: int = knob(
        50, low=2, high=200, label="hidden width", unit="neurons",
        about="the test accuracy: test",
        help="another network", look_for="First walk: with identity the same from ten "
        "neurons on, with sigmoid rising to the end.")
    seed: int = seed_knob(
        help="of weights and noise", look_for="Chance: the first "
        "walks of six seeds differ by four points in the test.")
    # fmt: on


def _status(row) -> str:
    if "note" in row:
        return row["note"]
    text = f"walk {row['walk']}, {row['layer']} layer on {row['rows']:,} rows"
    if "misses" in row:
        fate = "kept" if row["kept"] else "not kept"
        text += f": {row['misses']:,} misses, test {row['test']:.1f} %, {fate}"
    return text


def _panel(columns, title, unit, log=False) -> Lines:
    return Lines(columns, title, unit, x_title="layers solved", log=log)


def _both(quantity) -> dict[str, str]:
    return {f"{quantity} {place}": f"{place} layer" for place in ("output", "input")}


_PERCENT = {"accuracy so far": "layer by layer", "train": "walk done", "test": "test"}
_MISSES = {"misses": "misses", "rows": "rows of the walk"}
_CONDITION = _both("condition")
_RATIO = "largest / smallest"
_PANELS = (
    _panel(_PERCENT, "Accuracy", "%"),
    _panel(_MISSES, "Misses, and the rows of a walk", "samples", log=True),
    _panel(_CONDITION, "Condition of the layer's matrix", _RATIO, log=True),
    _panel(("overshoot",), "Overshoot (1: residual repaired once)", "ratio"),
    _panel(("clamped",), "Targets that the clamp moved", "%"),
    _panel(_both("cosine"), "Weight change and negative gradient", "cosine"),
)
_CAPTION = (
    "The first walk solves on all rows, each later one on the misses of the one "
    "before; accuracy counts only when a walk is done, since halfway the layers do not "
    "fit each other."
)
WALK = Experiment(
    "walk",
    WalkKnobs,
    walk_rows,
    _PANELS,
    _CAPTION,
    _status,
    front=("sigma", "label_noise", "interpretation"),
)


LAYERS = {"linear": "identity", "sigmoid": "sigmoid"}
JOINT = "min_norm", "gauss_seidel"  # readings that repair a residual once
SINGLE = "mean", "cyclic", "label", "one output"  # readings by one weight at a time
APART = 20.0  # points of accuracy
WALKS = 8  # on misses


def looks(
    problem: Problem, seed: int, *, layer: str, hidden: int, **options: str | int
) -> Iterator[dict | None]:
    """Yield what a run without the stop rule is like after each walk.

    It yields None after other solved layers.
    """
    weights = start_weights(problem, hidden, seed)
    X, y = problem.fit.inputs, problem.fit.targets
    for record in bpls.train(X, y, weights, layer, stop=False, **options):
        end = record.end
        yield end and {
            "walk": end.walk,
            "overshoot": end.overshoot,
            "accuracy": 100 * end.accuracy,
        }


def readings(
    *, data: str, samples: int, hidden: int, seeds: int, device: str
) -> Iterator[Mapping | float]:
    """Walk by each reading of (5), behind a linear and behind a sigmoid layer."""
    problem = load_problem(data, samples=samples, device=device)
    runners = {}
    for (kind, layer), name in product(LAYERS.items(), NAMES):
        how = {"layer": layer, "interpretation": interpretation_of(name)}
        how |= {"hidden": hidden, "max_walks": WALKS}
        runners[f"{name}, {kind}"] = partial(looks, problem, **how)
    yield from race_rows(runners, seeds=seeds)


def at_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each run's numbers, by label and seed; a run that diverged has no last."""
    runs = rows.groupby(["label", "seed"], sort=False)
    found = runs[["overshoot", "accuracy"]].first()
    return found.assign(last=runs["accuracy"].agg(lambda run: run.iloc[-1]))


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers of :func:`at_ends`, means over the seeds."""
    means = at_ends(rows).groupby(level="label", sort=False).mean()
    return means.set_axis(["overshoot", "first walk [%]", "last walk [%]"], axis=1)


def ruin(rows: pd.DataFrame) -> Finding:
    """Judge by how much readings by one weight end behind those that repair once."""
    last = at_ends(rows)["last"].fillna(0.0).unstack("label")
    worst = last[[f"{name}, linear" for name in JOINT]].min(axis=1)
    best = last[[f"{name}, linear" for name in SINGLE]].max(axis=1)
    return judged("the worse of the two ends {} points above", worst - best, APART)


def readings_figure(rows: pd.DataFrame) -> Figure:
    """Draw accuracy by walk, a curve for each reading and a panel for each layer."""
    means = rows.pivot_table("accuracy", "walk", "label")
    panels = {
        f"Behind a {kind} layer": {
            name: (means.index, means[f"{name}, {kind}"]) for name in NAMES
        }
        for kind in LAYERS
    }
    return curves(
        panels,
        "walk on misses",
        "training accuracy, %",
        caption="Behind a linear layer the readings that divide by single weights "
        "collapse in the walks on misses; behind a sigmoid the clamp hides most of it.",
    )


READINGS = Measurement(
    name="bpls-readings",
    claim="Behind a linear layer (5') and gauss_seidel end, after eight walks on the "
    "misses, over 20 points above every reading that divides by single weights.",
    seconds=10,
    measure=readings,
    judge=ruin,
    figure=readings_figure,
    table=table,
)
