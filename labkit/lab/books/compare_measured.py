"""What notebook 06 measures, and what it claims of it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from labkit.lab.books.compare import middle_values, wrong
from labkit.lab.books.rules import CLASSIFIERS
from labkit.lab.books.shared import judged
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.planes import dots, planes, put
from labkit.lab.panels.figures.theme import COLOURS
from labkit.lab.panels.measured import Finding, Measurement
from labkit.lab.problem import load_problem, squared_error
from labkit.lab.race import Race, View, race_figure, race_rows, spread
from labkit.lab.tuning import TUNING_SEED, Comparison, Rule, Sizes, halton

BATCH = 32
TUNED = "Adam"
DEFAULT = "Adam (default)"
VIEWS = (
    View(
        x="seconds",
        y="error",
        title="Error over time",
        x_title="seconds",
        y_title="test error",
        log_x=True,
    ),
    View(
        x="passes",
        y="error",
        title="Error over rows",
        x_title="passes",
        y_title="test error",
    ),
)


def comparison(
    *,
    data: str,
    target: str,
    samples: int,
    hidden: int,
    passes: int,
    device: str,
    rules: Mapping[str, Rule] = CLASSIFIERS,
) -> Comparison:
    """Load the data, and compare rules on it by their share of wrong test rows [%]."""
    cut = {"tune": 1 / 6, "target": target}
    problem = load_problem(data, samples=samples, device=device, **cut)
    classes = not problem.fit.targets.is_floating_point()
    sizes = Sizes(passes=passes, batch=BATCH, hidden=hidden)
    return Comparison(problem, rules, sizes, wrong if classes else squared_error)


def tuned_race(
    *, trials: int, seeds: int, rules: Mapping[str, Rule] = CLASSIFIERS, **setting
) -> Iterator[Mapping | float]:
    """Give each rule equally many trials on other rows, then race at the best values.

    The keywords are those of :func:`comparison`.
    """
    yield from at_best_values(comparison(rules=rules, **setting), trials, seeds)


def at_best_values(
    task: Comparison, trials: int, seeds: int
) -> Iterator[Mapping | float]:
    """Tune each rule on the rows kept for it, then yield the looks of the race.

    A trial has the whole budget, and its last look counts. The earlier of two equal
    trials is chosen, and the first one if all fail.
    """
    rules = task.rules
    tried = [
        (label, values)
        for label, rule in rules.items()
        for values in halton(rule.ranges, trials)
    ]
    runners = {
        number: task.runner(label, values, on=task.problem.tune, first=TUNING_SEED)
        for number, (label, values) in enumerate(tried)
    }
    looks = []
    for look in race_rows(runners, seeds=1):
        if isinstance(look, Mapping):
            looks.append(look)
        else:
            yield 0.5 * look
    errors = Race(pd.DataFrame(looks)).last()["error"].fillna(math.inf).tolist()
    chosen, words = {}, {}
    for label in rules:
        indices = [index for index, (name, _) in enumerate(tried) if name == label]
        chosen[label] = tried[min(indices, key=lambda index: errors[index])][1]
        values = chosen[label].items()
        words[label] = ", ".join(f"{name} {value:.3g}" for name, value in values)
    for look in race_rows(task.runners(chosen), seeds=seeds):
        if isinstance(look, Mapping):
            yield look | {"values": words[look["label"]]}
        else:
            yield 0.5 + 0.5 * look


def ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last errors, means over the seeds with their sd, best first."""
    last = spread(Race(rows).last(), "error", "seconds", "passes")
    return last.sort_values("mean").rename_axis("rule")


def gap_of(rows: pd.DataFrame, worse: str, better: str) -> Finding:
    """Judge by how much larger one rule's last error is, paired by the seeds."""
    last = Race(rows).last().pivot(index="seed", columns="label", values="error")
    return judged("the gap of the test errors is {}", last[worse] - last[better])


def race_drawn(rows: pd.DataFrame) -> Figure:
    """Draw the test errors over seconds and over rows."""
    caption = (
        "A rule that is solved in closed form starts late in the second panel, since "
        "its first solve takes a whole pass."
    )
    return race_figure(Race(rows), VIEWS, caption=caption, height=520)


RACE_TUNED = Measurement(
    name="compare-race",
    claim="Adam at torch's default rate ends with more errors than Adam that is tuned "
    "by as many trials as all other rules.",
    seconds=10,
    measure=tuned_race,
    judge=partial(gap_of, worse=DEFAULT, better=TUNED),
    figure=race_drawn,
    table=ends,
)
SYMBOLS = ("circle-open", "circle", "square", "x")
KINDS = ("input_noise", "label_noise", "gradient_noise")


def noisy_race(
    *,
    input_noise: float,
    label_noise: float,
    gradient_noise: float,
    seeds: int,
    **setting,
) -> Iterator[Mapping | float]:
    """Race at the middle of all ranges: without noise, and with one kind after another.

    The keywords are those of :func:`comparison`.
    """
    values = middle_values()
    rules = {name: CLASSIFIERS[name] for name in values}
    task = comparison(rules=rules, **setting)
    races = {
        "none": {},
        "input_noise": {"input_noise": input_noise},
        "label_noise": {"label_noise": label_noise},
        "gradient_noise": {"gradient_noise": gradient_noise},
    }
    for place, (kind, noise) in enumerate(races.items()):
        for look in race_rows(task.runners(values, **noise), seeds=seeds):
            if isinstance(look, Mapping):
                yield look | {"noise": kind}
            else:
                yield (place + look) / len(races)


def under_noise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last errors of each rule, a column for each kind of noise."""
    kinds = {kind: ends(part)["mean"] for kind, part in rows.groupby("noise")}
    return pd.DataFrame(kinds)[["none", *KINDS]].sort_values("label_noise")


def momentum_suffers(rows: pd.DataFrame) -> Finding:
    """Judge whether noise on gradients costs RLS+M more errors than Adam."""
    return gap_of(rows[rows["noise"] == "gradient_noise"], "RLS+M", TUNED)


def noise_drawn(rows: pd.DataFrame) -> Figure:
    """Draw the last error of each rule, without noise and with each kind."""
    found = under_noise(rows)[::-1]  # the best one on top
    places = range(len(found))
    figure = planes(
        ["Errors under noise"],
        ["test error"],
        [""],
        [((0, found.max(axis=None)), (-0.5, len(found) - 0.5))],
        caption="Rules from the fewest errors under noise on the labels to the most. "
        "Hessian-free and the rules that are solved get no noise on gradients.",
    )
    names = {"tickvals": [*places], "ticktext": [*found.index], "automargin": True}
    figure["layout"]["yaxis"] |= names
    for place, (kind, symbol) in enumerate(zip(found, SYMBOLS, strict=True)):
        marks = np.c_[found[kind], places]
        put(figure, 0, [dots(marks, COLOURS[place], kind, size=10, symbol=symbol)])
    return figure


RACE_NOISY = Measurement(
    name="compare-noise",
    claim="Noise on each gradient, as long as the gradient itself, costs RLS+M more "
    "errors than Adam.",
    seconds=15,
    measure=noisy_race,
    judge=momentum_suffers,
    figure=noise_drawn,
    table=under_noise,
)


def own_race(rule: Rule) -> Measurement:
    """Return the race of a rule of one's own with Adam, tuned and at its default."""
    rules = {name: CLASSIFIERS[name] for name in (TUNED, DEFAULT)} | {"yours": rule}
    return replace(
        RACE_TUNED,
        name="own/compare",  # no record: it would be of another rule
        claim="Your rule, once tuned, ends with fewer errors than Adam at its default "
        "rate.",
        seconds=5,
        measure=partial(tuned_race, rules=rules),
        judge=partial(gap_of, worse=DEFAULT, better="yours"),
    )
