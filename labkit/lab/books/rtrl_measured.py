"""What notebook 05 measures, and what it claims of it."""

from collections.abc import Iterator, Mapping
from itertools import islice

import pandas as pd

from labkit.instruments import gradient_cosine
from labkit.lab.books.rtrl_training import (
    Network,
    estimates,
    make_learner,
    new_network,
    read_text,
    train_network,
)
from labkit.lab.books.shared import judged
from labkit.lab.datasets import Text
from labkit.lab.panels import curves
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.measured import Finding, Measurement
from labkit.rtrl.learners import label

WARM = 40  # characters that are read before
STEPS = 60  # characters that are measured
SHARE = 0.1  # of the variance of averaged copies
TRAINED = "trained"
UNTRAINED = "untrained"
VARIANCE = "relative variance"


def methods_at(rank: int) -> list[tuple[str, int]]:
    """Return the methods that are measured, with their terms, copies or steps."""
    ends = sorted({1, rank})
    methods = [("OK", terms) for terms in sorted({1, 2, rank})]
    methods += [("KF-AVG", copies) for copies in ends] + [("UORO", 1), ("KTP", rank)]
    return methods + [("B-OK", terms) for terms in ends] + [("SNAP-1", 1), ("TBPTT", 5)]


def noise_of(
    network: Network, text: Text, method: str, rank: int, *, draws: int, seed: int
) -> Iterator[dict | None]:
    """Yield None after each character, and then the means of each draw."""
    learner = make_learner(method, rank, network.cell, batch_size=draws, seed=seed)
    cosines = errors = 0
    steps = islice(estimates(network, {method: learner}, text), WARM + STEPS)
    for step, (drawn, exact) in enumerate(steps):
        if step >= WARM:
            missed = (drawn[method] - exact).square().sum((1, 2))
            cosines = cosines + gradient_cosine(drawn[method], exact) / STEPS
            errors = errors + missed / exact.square().sum() / STEPS
        yield None
    for draw, (cosine, error) in enumerate(zip(cosines, errors, strict=True)):
        yield {"draw": draw, "cosine": float(cosine), VARIANCE: float(error)}


def all_methods(
    *,
    corpus: str,
    hidden: int,
    rank: int,
    updates: int,
    repeats: int,
    seed: int,
    device: str,
) -> Iterator[Mapping | float]:
    """Measure all methods beside exact RTRL, on a network before and after training."""
    text = read_text(corpus, device)
    networks = {}
    fresh = new_network(len(text.symbols), hidden, seed=seed, device=device)
    networks[UNTRAINED], methods = fresh, methods_at(rank)
    for update, network in train_network(text, hidden, updates=updates, seed=seed):
        networks[TRAINED] = network
        yield 0.5 * update / updates
    for of, network in networks.items():
        for place, (method, terms) in enumerate(methods):
            known = {"network": of, "method": label(method, terms), "terms": terms}
            options = {"draws": repeats, "seed": seed}
            for row in noise_of(network, text, method, terms, **options):
                done = 0.5 + 0.25 * ((of == TRAINED) + place / len(methods))
                yield done if row is None else known | row


def less_noise(rows: pd.DataFrame) -> Finding:
    """Judge whether OK's terms are worth more than as many averaged copies."""
    rank = int(rows.loc[rows["method"].str.endswith("KF-AVG"), "terms"].max())
    trained = rows[rows["network"] == TRAINED].pivot(
        index="draw", columns="method", values=VARIANCE
    )
    ok, copies = (trained[label(name, rank)] for name in ("OK", "KF-AVG"))
    words = f"{ok.name} has {ok.mean():.3g}, {copies.name} {copies.mean():.3g}: "
    return judged(words + "a tenth of that is {} more", SHARE * copies - ok)


def figure(rows: pd.DataFrame) -> Figure:
    """Draw the relative variance by terms, before and after training."""
    named = rows.assign(name=rows["method"].str.replace(r"^\d+-", "", regex=True))
    means = named.groupby(["network", "name", "terms"], sort=False)[VARIANCE].mean()
    panels = {
        of.capitalize(): {
            name: (found.index.get_level_values("terms"), found)
            for name, found in means[of].groupby("name", sort=False)
        }
        for of in (UNTRAINED, TRAINED)
    }
    return curves(
        panels,
        "terms, copies or steps",
        VARIANCE,
        log_y=True,
        caption="OK's terms are worth far more than as many averaged copies of "
        "KF-RTRL. Training makes the gradient harder to follow for each method.",
    )


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means over the draws, with their sd."""
    found = rows.groupby(["network", "method"], sort=False)[["cosine", VARIANCE]]
    return found.agg(["mean", "std"])


ALL_METHODS = Measurement(
    name="rtrl-all-methods",
    claim="On the trained network OK has less than a tenth of the relative variance "
    "that as many averaged copies of KF-RTRL have.",
    seconds=20,
    measure=all_methods,
    judge=less_noise,
    figure=figure,
    table=table,
)
