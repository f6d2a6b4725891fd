"""BPLS while it walks: each layer's least squares, and what it pushes back."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from labkit.bpls import ACTIVATIONS, activation, random_weights, scores, train
from labkit.bpls.train import blend
from labkit.labs.bpls.problems import (
    READING_NAMES,
    Problem,
    percent,
    reading_of,
    with_noise,
)
from labkit.panels import Lines, LiveLab, knob

INVERTIBLE = tuple(a.name for a in ACTIVATIONS.values() if a.inverse is not None)


@dataclass(frozen=True)
class WalkKnobs:
    """What can be turned in the live experiment."""

    reading: str = knob("min_norm", choices=READING_NAMES, help="of equation (5)")
    activation: str = knob("sigmoid", choices=INVERTIBLE, help="of hidden layers")
    clamp: float = knob(
        1e-2, low=1e-8, high=0.4, log=True, help="distance to the range's ends"
    )
    ridge: float = knob(1e-4, low=1e-10, high=1e-1, log=True, help="relative")
    width: int = knob(50, low=2, high=200, label="hidden width", unit="neurons")
    depth: int = knob(1, low=1, high=4, label="hidden layers")
    sigma: float = knob(
        0.0, low=0.0, high=1.0, step=0.05, label="pixel noise sigma", help="training"
    )
    label_noise: float = knob(
        0.0, low=0.0, high=0.8, step=0.05, help="share of labels drawn at random"
    )
    walks: int = knob(12, low=0, high=40, help="walks on the misses at most")
    stop: bool = knob(True, label="stop rule", help="at the first walk that fails")
    seed: int = knob(0, low=0, high=99)


def walk_lab(
    problem: Problem,
    knobs: WalkKnobs | None = None,
    *,
    interactive=True,
    folder="",
    device="cpu",
) -> LiveLab:
    """Knobs, stepper and live figure; a step solves one layer."""
    return LiveLab(
        knobs or WalkKnobs(),
        lambda now: walk_rows(problem, now()),
        WALK_PANELS,
        name="walk",
        tell=_tell,
        interactive=interactive,
        folder=folder,
        device=device,
        height=1000,
    )


def walk_rows(problem: Problem, knobs: WalkKnobs) -> Iterator[dict]:
    """One row per layer solved.

    ``accuracy so far`` is of the network with the layers solved up to here put in,
    blended as line 20 of Algorithm 2 will; halfway through a walk the layers do not fit
    each other. Other columns end in ``output``, ``input`` or ``hidden``, the layer
    solved. A walk that no inverse lets through ends with a ``note``.
    """
    noisy = with_noise(
        problem, sigma=knobs.sigma, label_noise=knobs.label_noise, seed=knobs.seed
    )
    X, y = noisy.X, noisy.y
    hidden = [knobs.width] * knobs.depth
    weights = random_weights(
        noisy.sizes(hidden),
        generator=torch.Generator().manual_seed(knobs.seed),
        dtype=X.dtype,
        device=X.device,
    )
    acts = [activation(knobs.activation)] * knobs.depth
    records = train(
        X,
        y,
        weights,
        acts,
        reading=reading_of(knobs.reading),
        clamp=knobs.clamp,
        ridge=knobs.ridge,
        max_walks=knobs.walks,
        stop=knobs.stop,
    )
    now, f, step = weights, 1.0, 0
    try:
        for record in records:
            step, i = record.step, record.layer - 1
            (W,) = blend(weights[i : i + 1], (record.W,), f)
            now = (*now[:i], W, *now[i + 1 :])
            row = _look(record, knobs.depth + 1)
            row["accuracy so far"] = percent(scores(X, now, acts), y)
            if record.end:
                weights = now = record.end.weights
                f = record.end.misses / len(y)
                S = scores(noisy.X_test, weights, acts)
                row |= _finish(record.end, percent(S, noisy.y_test))
            yield row
    except ValueError as error:  # a target without inverse: the clamp is too narrow
        yield {"step": step + 1, "note": str(error)}


def _look(record, top) -> dict:
    """A record as a row, its columns named after the layer."""
    place = {1: "input", top: "output"}.get(record.layer, "hidden")
    row = {
        "step": record.step,
        "walk": record.walk,
        "layer": record.layer,
        "rows": record.samples,
        f"condition {place}": record.condition,
        f"cosine {place}": record.cosine,
        f"residual {place}": record.residual,
    }
    if record.layer > 1:
        row[f"overshoot {place}"] = round(record.overshoot, 4)
        row[f"clamped {place}"] = 100 * record.clamped
    return row


def _finish(end, test) -> dict:
    return {
        "train": 100 * end.accuracy,
        "test": test,
        "misses": end.misses,
        "kept": end.kept,
        "blend": end.blend,
    }


def _tell(row) -> str:
    if "note" in row:
        return row["note"]
    text = f"walk {row['walk']}, layer {row['layer']} on {row['rows']:,} rows"
    if "misses" in row:
        fate = "kept" if row["kept"] else "not kept"
        text += f": {row['misses']:,} misses, test {row['test']:.1f} %, {fate}"
    return text


def _at(quantity, *places):
    return {f"{quantity} {place}": f"{place} layer" for place in places}


_ALL, _UPPER = ("output", "hidden", "input"), ("output", "hidden")

WALK_PANELS = (
    Lines(
        {
            "accuracy so far": "train, layer by layer",
            "train": "walk done",
            "test": "test",
        },
        "Accuracy",
        "%",
        x_title="layers solved",
    ),
    Lines(
        {"misses": "misses", "rows": "rows of the walk"},
        "Misses, and the rows of a walk",
        "samples",
        x_title="layers solved",
        log=True,
    ),
    Lines(
        _at("condition", *_ALL),
        "Condition of the layer's matrix",
        "largest / smallest",
        x_title="layers solved",
        log=True,
    ),
    Lines(
        _at("overshoot", *_UPPER),
        "Overshoot (1: residual repaired once)",
        "ratio",
        x_title="layers solved",
    ),
    Lines(
        _at("clamped", *_UPPER),
        "Targets that the clamp moved",
        "%",
        x_title="layers solved",
    ),
    Lines(
        _at("cosine", *_ALL),
        "Weight change and negative gradient",
        "cosine",
        x_title="layers solved",
    ),
)
