"""What notebook 02 measures, and what it claims of it."""

from collections.abc import Iterator, Mapping
from functools import partial

import pandas as pd

from labkit import bpls
from labkit.lab.books.shared import judged
from labkit.lab.bpls.training import NAMES, interpretation_of, start_weights
from labkit.lab.panels import curves
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.measured import Finding, Measurement
from labkit.lab.problem import Problem, load_problem, percent, with_noise
from labkit.lab.race import race_rows

LAYERS = {"linear": "identity", "sigmoid": "sigmoid"}
JOINT = "min_norm", "gauss_seidel"  # readings that repair a residual once
SINGLE = "mean", "cyclic", "label", "one output"  # readings by one weight at a time
APART, LOST = 20.0, 1.0  # points of accuracy
WALKS, LATER = 8, 12  # on misses
BLENDED = {
    "accuracy": "weights blended, (20)",
    "outputs": "outputs blended",
    "alone": "the walk's own network",
}


def looks(
    problem: Problem, seed: int, *, layer: str, hidden: int, **options: str | int
) -> Iterator[dict | None]:
    """Yield what a run without the stop rule is like after each walk.

    It yields None after other solved layers. ``alone`` is the training accuracy of the
    walk's own weights, and ``outputs`` that of the outputs before the walk and by these
    weights, blended as line 20 blends weights.
    """
    acts, own = [bpls.activation(layer)], {}
    current = start_weights(problem, hidden, seed=seed)
    X, y = problem.fit.inputs, problem.fit.targets
    for record in bpls.train(X, y, current, acts, stop=False, **options):
        own[record.layer], end = record.W, record.end
        if end is None:
            yield None
            continue
        before = bpls.scores(X, current, acts)
        after = bpls.scores(X, (own[1], own[2]), acts)
        yield {
            "walk": end.walk,
            "share": 100 * end.blend,
            "overshoot": end.overshoot,
            "accuracy": 100 * end.accuracy,
            "outputs": percent((1 - end.blend) * before + end.blend * after, y),
            "alone": percent(after, y),
        }
        current = end.weights


def readings(
    *, data: str, samples: int, hidden: int, seeds: int, device: str
) -> Iterator[Mapping | float]:
    """Walk by each reading of (5), behind a linear and behind a sigmoid layer."""
    problem = load_problem(data, samples=samples, device=device)
    runners = {
        f"{name}, {kind}": partial(
            looks,
            problem,
            layer=layer,
            hidden=hidden,
            interpretation=interpretation_of(name),
            max_walks=WALKS,
        )
        for kind, layer in LAYERS.items()
        for name in NAMES
    }
    yield from race_rows(runners, seeds=seeds)


def later(
    *, data: str, samples: int, hidden: int, noise: float, seeds: int, device: str
) -> Iterator[Mapping | float]:
    """Walk on behind a linear layer, with clean and with noisy pixels."""
    clean = load_problem(data, samples=samples, device=device)
    how = {"layer": "identity", "hidden": hidden, "max_walks": LATER}
    runners = {
        f"noise {sigma:g}": lambda seed, sigma=sigma: looks(
            with_noise(clean, input_noise=sigma, seed=seed), seed, **how
        )
        for sigma in (0.0, noise / 2, noise)
    }
    yield from race_rows(runners, seeds=seeds)


def by_walk(rows: pd.DataFrame, column: str) -> dict[str, tuple]:
    """Return curves by label: walks, and means over the seeds."""
    means = rows.dropna(subset=column).groupby(["label", "walk"], sort=False)[column]
    made = {}
    for label, found in means.mean().groupby("label", sort=False):
        made[label] = found.index.get_level_values("walk"), found
    return made


def at_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each run's numbers, by label and seed; one that diverged ends at chance.

    ``kept`` is what the stop rule keeps: the accuracy before the first walk that does
    not raise it.
    """
    keys = ["label", "seed"]
    accuracy = rows.set_index(keys)["accuracy"]
    walks = accuracy.groupby(keys, sort=False)
    fell = (walks.diff() <= 0).groupby(keys, sort=False).cummax()
    found = {
        "overshoot": rows.groupby(keys, sort=False)["overshoot"].first(),
        "first walk [%]": walks.first(),
        "kept [%]": accuracy.mask(fell).groupby(keys, sort=False).last(),
        "last walk [%]": walks.agg(lambda run: run.iloc[-1]),
    }
    return pd.DataFrame(found)


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers of :func:`at_ends`, means over the seeds."""
    return at_ends(rows).groupby(level="label", sort=False).mean()


def ruin(rows: pd.DataFrame) -> Finding:
    """Judge by how much readings by one weight end behind those that repair once."""
    last = at_ends(rows)["last walk [%]"].fillna(0.0).unstack("label")
    worst = last[[f"{name}, linear" for name in JOINT]].min(axis=1)
    best = last[[f"{name}, linear" for name in SINGLE]].max(axis=1)
    return judged("the worse of the two ends {} points above", worst - best, APART)


def undone(rows: pd.DataFrame) -> Finding:
    """Judge what walking on past the stop rule costs with the most noise."""
    noisiest = at_ends(rows).loc[rows["label"].iloc[-1]]
    lost = noisiest["kept [%]"] - noisiest["last walk [%]"]
    return judged("the last walk ends {} points below", lost, LOST)


def readings_figure(rows: pd.DataFrame) -> Figure:
    """Draw accuracy by walk, a curve for each reading and a panel for each layer."""
    found = by_walk(rows, "accuracy")
    panels = {
        f"Behind a {kind} layer": {name: found[f"{name}, {kind}"] for name in NAMES}
        for kind in LAYERS
    }
    return curves(
        panels,
        "walk on misses",
        "training accuracy, %",
        caption="Behind a linear layer the readings that divide by single weights "
        "collapse in the walks on misses; behind a sigmoid the clamp hides most of it.",
    )


def later_figure(rows: pd.DataFrame) -> Figure:
    """Draw accuracy by walk, and what line 20 blends where the noise is largest."""
    noisiest = rows["label"].iloc[-1]
    own = rows[rows["label"] == noisiest]
    blends = {name: by_walk(own, c)[noisiest] for c, name in BLENDED.items()}
    panels = {"Without the stop rule": by_walk(rows, "accuracy")}
    return curves(
        panels | {f"Of {noisiest}: what is blended": blends},
        "walk on misses",
        "training accuracy, %",
        caption="With noise, walking on costs accuracy. A walk's own network, fitted "
        "to the misses alone, gets half of all rows wrong, or more. To blend outputs "
        "in place of weights would not help.",
    )


READINGS = Measurement(
    "bpls-readings",
    "Behind a linear layer (5') and gauss_seidel end, after eight walks on the misses, "
    "over 20 points above every reading that divides by single weights.",
    10,
    readings,
    ruin,
    readings_figure,
    table,
)
LATER_WALKS = Measurement(
    "bpls-later-walks",
    "With noisy pixels twelve walks on the misses end over one point below what the "
    "stop rule keeps.",
    5,
    later,
    undone,
    later_figure,
    table,
)
