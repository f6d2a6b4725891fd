"""Train BPLS as notebook 02 and its live panels do; nothing is drawn here."""

from collections.abc import Callable, Iterator
from typing import Any

from labkit import bpls
from labkit.bpls.train import blend
from labkit.bpls.walk import Weights
from labkit.errors import DivergedError
from labkit.lab.problem import Problem, percent, seeded, with_noise

MOST_WALKS = 200
ONE_OUTPUT = "one output"  # interpretation (5f), its first output
NAMES = (*bpls.INTERPRETATIONS, ONE_OUTPUT)
INVERTIBLE = tuple(a.name for a in bpls.ACTIVATIONS.values() if a.inverse is not None)


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
    settings, level, step = bpls.Settings(), None, 0

    def follow_knobs():
        """Pass the knobs' values to the walks, and noise only between two walks."""
        nonlocal level
        settings.interpretation = interpretation_of(knobs.interpretation)
        settings.clamp, settings.ridge = knobs.clamp, knobs.ridge
        settings.max_walks, settings.stop = MOST_WALKS, knobs.stop
        wanted = {"input_noise": knobs.sigma, "label_noise": knobs.label_noise}
        if level != wanted and current is weights:
            level, noisy = wanted, with_noise(problem, **wanted, seed=knobs.seed).fit
            settings.data = noisy.inputs, noisy.targets

    follow_knobs()
    try:
        for record in bpls.train(*settings.data, weights, acts, settings):
            X, y = settings.data
            step, i = record.step, record.layer - 1
            f = record.samples / len(y)  # all in the first walk, then the misses
            (W,) = blend(weights[i : i + 1], (record.W,), f)
            current = (*current[:i], W, *current[i + 1 :])
            row = row_of(record)
            row["accuracy so far"] = percent(bpls.scores(X, current, acts), y)
            if record.end:
                weights = current = record.end.weights
                S = bpls.scores(problem.test.inputs, weights, acts)
                row["test"] = percent(S, problem.test.targets)
            yield row
            follow_knobs()
    except (ValueError, DivergedError) as error:  # such as a clamp too narrow
        yield {"step": step + 1, "note": str(error)}


def row_of(record: bpls.Record) -> dict:
    """Write a record as a row whose columns are named after the layer."""
    place = "input" if record.layer == 1 else "output"
    row = {"step": record.step, "walk": record.walk, "layer": place}
    row |= {"rows": record.samples, f"condition {place}": record.condition}
    row[f"cosine {place}"] = record.cosine
    if record.layer > 1:
        row["overshoot"] = round(record.overshoot, 4)
        row["clamped"] = 100 * record.clamped
    if end := record.end:
        row["train"], row["misses"] = 100 * end.accuracy, end.misses
        row["kept"], row["blend"] = end.kept, end.blend
    return row
