"""BPLS while it walks: each layer's least squares, and what it pushes back."""

from collections.abc import Callable, Iterator

import torch

from labkit.bpls import activation, random_weights, scores, train
from labkit.bpls.train import blend
from labkit.labs.bpls.knobs import WalkKnobs
from labkit.labs.bpls.problems import Problem, percent, reading_of, with_noise
from labkit.panels import Lines, LiveLab


def walk_lab(
    problem: Problem,
    knobs: WalkKnobs | None = None,
    *,
    interactive=True,
    folder="",
    device="cpu",
    **look,
) -> LiveLab:
    """Knobs, stepper and live figure; a step solves one layer.

    ``look`` are keywords of :class:`~labkit.panels.LiveLab` in place of this lab's own,
    such as ``panels``, ``only``, ``height``.
    """
    return LiveLab(
        knobs or WalkKnobs(),
        lambda now: walk_rows(problem, now),
        name="walk",
        tell=_tell,
        interactive=interactive,
        folder=folder,
        device=device,
        **{"panels": WALK_PANELS, "reading": READING} | look,
    )


def walk_rows(problem: Problem, now: Callable[[], WalkKnobs]) -> Iterator[dict]:
    """One row per layer solved.

    ``accuracy so far`` is of the network with the layers solved up to here put in,
    blended as line 20 of Algorithm 2 will; halfway through a walk the layers do not fit
    each other. Other columns end in ``output``, ``input`` or ``hidden``, the layer
    solved. A walk that no inverse lets through ends with a ``note``.

    Parameters
    ----------
    now : the knobs as they stand. Reading, clamp and ridge are asked for before every
        layer, noise and where to end before every walk, the rest once.
    """
    knobs = now()
    level, noisy = None, problem

    def data():
        """The images and labels, disturbed anew where the noise has changed."""
        nonlocal level, noisy
        wanted = {"sigma": now().sigma, "label_noise": now().label_noise}
        if wanted != level:
            level, noisy = wanted, with_noise(problem, **wanted, seed=knobs.seed)
        return noisy.X, noisy.y

    X, y = data()
    weights = random_weights(
        problem.sizes([knobs.width] * knobs.depth),
        generator=torch.Generator().manual_seed(knobs.seed),
        dtype=X.dtype,
        device=X.device,
    )
    acts = [activation(knobs.activation)] * knobs.depth
    turned = lambda: _options(now())  # noqa: E731
    records = train(X, y, weights, acts, turned=turned, data=data)
    current, step = weights, 0
    try:
        for record in records:
            step, i = record.step, record.layer - 1
            f = record.samples / len(noisy.y)  # all in the first walk, then the misses
            (W,) = blend(weights[i : i + 1], (record.W,), f)
            current = (*current[:i], W, *current[i + 1 :])
            row = _look(record, knobs.depth + 1)
            S = scores(noisy.X, current, acts)
            row["accuracy so far"] = percent(S, noisy.y)
            if record.end:
                weights = current = record.end.weights
                S = scores(noisy.X_test, weights, acts)
                row |= _finish(record.end, percent(S, noisy.y_test))
            yield row
    except ValueError as error:  # a target without inverse: the clamp is too narrow
        yield {"step": step + 1, "note": str(error)}


def _options(knobs) -> dict:
    """What `labkit.bpls.train` takes over while it runs."""
    return {
        "reading": reading_of(knobs.reading),
        "clamp": knobs.clamp,
        "ridge": knobs.ridge,
        "max_walks": knobs.walks,
        "stop": knobs.stop,
    }


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

READING = (
    "The first walk solves on all rows, each later one on the misses of the one "
    "before; accuracy counts only when a walk is done, since halfway the layers do not "
    "fit each other."
)
WALK_PANELS = (
    Lines(
        {
            "accuracy so far": "layer by layer",
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
