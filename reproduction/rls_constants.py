"""RLS: its constants k and eta, Figures 4 and 5, at a reduced size."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from labkit.lab.claims import YES, plus_minus
from labkit.lab.race import spread
from reproduction.criteria import (
    AHEAD,
    NOT_AT_END,
    POINTS,
    SEEDS,
    ahead,
    unless_improving,
)
from reproduction.drawing import Chart
from reproduction.rls import (
    ACCURACY,
    CIFAR,
    IMDB,
    LEAST,
    LOSS,
    MNIST,
    ends,
    epochs_of,
    table,
)
from reproduction.studies import Study

VALUES = (0.01, 0.1, 1.0, 10.0)  # of k and of eta
SWEPT = {"mean_weight": "k", "lr": "eta"}


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with labels that name a constant as the paper does."""
    labels = rows["label"]
    for option, symbol in SWEPT.items():
        labels = labels.str.replace(f", {option} ", f", {symbol} ")
    return rows.assign(label=labels)


def sweep_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of a sweep, with the constants as the paper names them."""
    return table(named(rows))


def sweep_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge whether the paper's value of each constant is best, and which matters more.

    A value with which every run fails counts as worse than one with which none does.
    """
    rows = named(rows)
    last = ends(rows)
    found, failed = spread(last, "accuracy"), last["accuracy"].isna()
    runs = {each: r.set_index("seed")["accuracy"] for each, r in last.groupby("label")}
    failed = failed.groupby(last["label"]).agg(["sum", "count"])
    matters = {}
    for symbol, (value, section) in BEST.items():
        mine = found[found.index.str.startswith(f"RLS, {symbol} ")]
        best = f"RLS, {symbol} {value:g}"
        if best not in mine.index:
            continue
        for label, other in mine.drop(best).iterrows():
            both, (lost, count) = (mine.loc[best], other), failed.loc[label]
            told = " and ".join(plus_minus(each, digits=2) for each in both)
            told += f", {lost} of {count} runs" if lost else ""
            held = ahead(runs[best], runs[label], paired=True, least=POINTS)
            pair = rows[rows["label"].isin((best, label))]
            held = unless_improving(held, pair, "loss", least=LEAST)
            if lost == count >= SEEDS and not math.isnan(both[0]["mean"]):
                held = YES
            claim = f"{section}: {symbol} = {value:g} ends above"
            yield f"{claim} {label.split()[-1]}", told, held
        ended = mine.dropna(subset="mean").sort_values("mean").index
        if len(ended) > 1:
            matters[symbol] = runs[ended[-1]] - runs[ended[0]]
    if len(matters) == len(BEST):
        k, eta = matters.values()
        rows = ({"mean": each.mean(), "sd": each.std()} for each in (eta, k))
        told = " and ".join(plus_minus(each, "points", 2) for each in rows)
        claim = "VI-B: between its best and its worst value that runs eta makes more"
        yield f"{claim} of a difference than k", told, ahead(eta, k, paired=True)


def swept(runs: int, **given: object) -> dict[str, dict]:
    """Return the units of RLS, in each of which one constant is changed."""
    return {
        f"{SWEPT[option]}-{value:g}-{seed}": {"method": "RLS", "seed": seed}
        | given
        | {option: value}
        for seed in range(runs)
        for option in SWEPT
        for value in VALUES
    }


SWEEPS = tuple(
    Chart(view=view, only=tuple(f"{symbol} {value:g}" for value in VALUES))
    for symbol in ("k", "eta")
    for view in (LOSS, ACCURACY)
)
BEST = {"k": (0.1, "VI-B, Fig. 4"), "eta": (1.0, "VI-B, Fig. 5")}
SWEEP = Study(
    name="rls/fig4a-5a",
    shows="Figures 4(a) and 5(a): k and eta, MNIST",
    claim="VI-B: k = 0.1 and eta = 1 are best; too large an eta explodes, too small "
    "a one is slow; eta matters more than k",
    data=MNIST.data,
    setting="784-512-10, RLS, batch 128, 20 epochs, one constant at a time, the other "
    "at k = 0.1, eta = 1",
    differs="20 epochs and three runs for the paper's 100 and five; eta is that of all "
    "layers",
    work=epochs_of,
    units=swept(3, epochs=20),
    small=MNIST.small | {"method": "RLS", "mean_weight": 1.0},
    minutes=1.2,
    memory=1,
    old=sweep_table,
    judges=sweep_claims,
    criterion=f"{AHEAD}; the margin is 0 and the seeds are paired; a value with which "
    f"all of {SEEDS} runs fail ends below one with which none does; a no becomes "
    f"{NOT_AT_END!r} where the loss of a run fell by more than {LEAST:.0%} in the last "
    "tenth of its looks",
    views=SWEEPS,
    figure=named,
)
CONV_SWEEP = replace(
    SWEEP,
    name="rls/fig4b-5b",
    shows="Figures 4(b) and 5(b): k and eta, CIFAR-10",
    data=CIFAR.data,
    setting="five CONV layers of VGG-16 and FC 1024, RLS, batch 128, 2 epochs, one "
    "constant at a time, the other at k = 0.1, eta = 1",
    differs="a fifth of the images, 2 epochs and three runs for the paper's 100 and "
    "five; eta that of all layers; 2 x 2 pooling as in rls/fig2b-3b",
    units=swept(3, epochs=2, data="cifar10", layers="CONV"),
    small=CIFAR.small | {"method": "RLS", "lr": 0.1},
    minutes=5,
    memory=3,
)
LSTM_SWEEP = replace(
    SWEEP,
    name="rls/fig4c-5c",
    shows="Figures 4(c) and 5(c): k and eta, IMDB",
    data=IMDB.data,
    setting="two LSTM layers of 128, RLS, batch 128, 4 epochs, one constant at a time, "
    "the other at k = 0.1, eta = 1; words, embedding and clip as in rls/fig2c-3c",
    differs="a quarter of the units, a fifth of the reviews, 4 epochs and three runs "
    "for the paper's 100 and five; eta that of all layers",
    units=swept(3, epochs=4, data="imdb", layers="LSTM", hidden=128),
    small=IMDB.small | {"method": "RLS", "mean_weight": 1.0},
    minutes=1.6,
    memory=2,
)
STUDIES = (SWEEP, CONV_SWEEP, LSTM_SWEEP)
