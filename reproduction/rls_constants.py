"""RLS: its constants k and eta, Figures 4 and 5, at a reduced size."""

import pandas as pd

from labkit.lab.claims import YES
from reproduction.criteria import POINTS, SEEDS, ahead, unless_improving
from reproduction.judges import Judged, by_label, words
from reproduction.rls import LEAST

SWEPT = {"mean_weight": "k", "lr": "eta"}


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with labels that name a constant as the paper does."""
    labels = rows["label"]
    for option, symbol in SWEPT.items():
        labels = labels.str.replace(f", {option} ", f", {symbol} ")
    return rows.assign(label=labels)


def best(rows: pd.DataFrame, *, claim: str, symbol: str, value: str) -> Judged:
    """Judge whether the paper's value of a constant ends above each other one.

    A value with which every run fails counts as worse than one with which none does.
    """
    found, own = swept(rows, symbol), f"RLS, {symbol} {value}"
    for label, other in found.items() if own in found else ():
        if label == own:
            continue
        mine, lost = found[own], other.isna().sum()
        told = f"{words(mine)} and {words(other)}"
        told += f", {lost} of {len(other)} runs" if lost else ""
        held = ahead(mine, other, paired=True, least=POINTS)
        pair = rows[rows["label"].isin((own, label))]
        held = unless_improving(held, pair, "loss", least=LEAST)
        if lost == len(other) >= SEEDS and mine.notna().all():
            held = YES
        yield claim.format(other=label.split()[-1]), told, held


def swept(rows: pd.DataFrame, symbol: str) -> dict[str, pd.Series]:
    """Return the last accuracies, by seed, for each value of a constant."""
    found = by_label(rows, "accuracy")
    return {x: found[x] for x in found if x.startswith(f"RLS, {symbol} ")}


def matters(rows: pd.DataFrame, *, claim: str, a: str, b: str) -> Judged:
    """Judge whether a makes more of a difference than b, of the values that run."""
    gaps = []
    for symbol in (a, b):
        runs = [each for each in swept(rows, symbol).values() if each.notna().all()]
        runs.sort(key=pd.Series.mean)
        gaps += [runs[-1] - runs[0]] if len(runs) > 1 else []
    if len(gaps) == 2:
        told = " and ".join(words(each, "points") for each in gaps)
        yield claim, told, ahead(*gaps, paired=True)
