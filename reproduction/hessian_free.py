"""Stochastic Hessian-free at the paper's size: USPS of Table 2, and its advice."""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from labkit import hessian_free as hf
from labkit.lab.books.hessian_free_training import load_images, looks
from labkit.lab.runs.jobs import Checkpoint
from reproduction.criteria import ahead, unless_improving
from reproduction.judges import Judged, by_label, every, words

MARTENS_DAMPING, CHUNKS = 4.0, 8
SHORT = "shf, short runs'"
START = ("damping", "damping_decay", "gamma", "maxiter", "atol", "ftol")


def trained(
    checkpoint: Checkpoint,
    *,
    method: str,
    seed: int,
    passes: float,
    every: float = 50.0,
    dense: float = 0.0,
    settled: float = 0.0,
    published: bool = True,
    data: str = "usps",
    patience: int = 100,
    preconditioner: str = "random_signs",
    hidden: str = "logistic",
    **changes: float,
) -> list[dict]:
    """Train by SHF or Martens' HF, and return a look every ``every`` passes.

    A pass is as much work as the gradient of all rows. The errors are 2 f, the squared
    error of an image; ``train`` is that of all training rows after the step. Every step
    of the first ``dense`` passes has a look. The run ends after ``passes``, or when the
    lowest validation error of a look is more than ``settled`` passes old, unless that
    is 0. ``changes`` replace constants of the setting.
    """
    problem = load_images(data, published=published)
    X, valid, test = problem.parts.values()
    layers = 2 * (len(problem.setting.encoder) - 1)
    start = {"activations": (*(layers - 1) * (hidden,), "logistic")}
    if hidden == "relu":  # at the paper's 1.5 the outputs are saturated at the start
        start["std"] = (2 / problem.setting.incoming) ** 0.5
    net, g = problem.network(seed, **start)
    signs = torch.Generator().manual_seed(1000 + seed)
    given = {"validation": valid, "test": test, "generator": g}
    setting = replace(problem.setting, **changes)
    saved = checkpoint.load(classes=(hf.Record,))
    if method == "martens":
        optimizer = hf.MartensHF(net, damping=MARTENS_DAMPING)
        train, given = hf.train_martens, given | {"chunks": CHUNKS}
    else:
        start = {name: getattr(setting, name) for name in START}
        start |= {"patience": patience, "preconditioner": preconditioner}
        optimizer = hf.HessianFree(net, **start, generator=signs)
        settings = hf.Settings(setting.theta, setting.max_batch_size)
        sizes = {"batch_size": setting.batch_size, "settings": settings}
        train, given = hf.train, given | sizes
    past, rows = [], []
    if saved:
        past, rows = saved["past"], saved["rows"]
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        if method != "martens":  # whose rows are shuffled once, at the start
            g.set_state(saved["generator"])
        signs.set_state(saved["signs"])
    label = method if method == "martens" or published else SHORT
    turned = changes | {"preconditioner": preconditioner, "hidden": hidden}
    told = [
        f"{k} {v}" for k, v in turned.items() if v not in ("random_signs", "logistic")
    ]
    label = ", ".join([label, *told])
    records = train(net, optimizer, X, past=tuple(past), **given)
    used, taken = (lambda r: r.passes), sum(row["passes"] >= dense for row in rows)
    for record, due in looks(records, used, passes, every=every, taken=taken):
        past.append(replace(record, merit=()))
        if due or record.passes < dense:
            row = {"label": label, "seed": seed, "look": len(rows) + 1}
            row |= {"step": record.step, "passes": record.passes, "n": record.n}
            errors = hf.squared_error(net, X), record.validation_error
            errors = *map(float, errors), record.test_error
            rows.append(row | dict(zip(PARTS, errors, strict=True)))
        if record.passes >= passes or (settled and age(rows) > settled):
            return rows
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
        state |= {"generator": g.get_state(), "signs": signs.get_state()}
        checkpoint.save(state | {"past": past, "rows": rows})
    return rows


def age(rows: list[dict]) -> float:
    """Return how many passes ago the lowest validation error was seen."""
    lowest = min(rows, key=lambda row: row["valid"], default={"passes": 0.0})
    return rows[-1]["passes"] - lowest["passes"] if rows else 0.0


# What stands on the page

PARTS = ("train", "valid", "test")
PRINTED = 1.007  # f of Martens' method in training
LEAST = 0.01  # share of the validation error that a run still gains


def in_f(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the longest run of every label and seed, with errors in the paper's f.

    The results hold 2 f, the squared error of an image.
    """
    last = rows.groupby(["label", "seed", "unit"])["passes"].max().reset_index()
    ends = last.loc[last.groupby(["label", "seed"])["passes"].idxmax(), "unit"]
    kept = rows[rows["unit"].isin(ends)].reset_index(drop=True)
    return kept.assign(**{part: kept[part] / 2 for part in PARTS})


def chosen(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the look at the lowest validation error of every run, as the paper does.

    For Martens' method it is the look at the lowest test error. It has the gap between
    test and training error, and the mean batch of the run.
    """
    found = []
    for (label, _), runs in rows.groupby(["label", "seed"], sort=False):
        by = "test" if label == "martens" else "valid"
        look = runs.loc[[runs[by].idxmin()]]
        gap, batch = look["test"] - look["train"], runs["n"].mean()
        found.append(look.assign(gap=gap, batch=batch))
    return pd.concat(found)


def as_trained(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Martens' test errors where the training error is the printed one."""
    found = tests_at(rows[rows["label"] == "martens"], PRINTED)
    return found.rename("test").reset_index().assign(label="martens")


def grows(rows: pd.DataFrame, *, claim: str, times: float) -> Judged:
    """Judge whether the batch of every run of SHF grows to so many times its first."""
    ours = rows[rows["label"] == "shf"].sort_values("step")
    if len(ours) and (by_label(ours, "step", "min")["shf"] == 1).all():
        first, last = (by_label(ours, "n", at)["shf"] for at in ("first", "max"))
        grown = last / first
        told = f"{grown.min():.1f} to {grown.max():.1f} times"
        yield claim, told, every(grown >= times)


def tests_at(rows: pd.DataFrame, level: float) -> pd.Series:
    """Return each seed's test error where its training error first is at a level.

    It is interpolated between two looks. A run that does not come so far is left out.
    """
    found = {}
    for seed, run in rows.groupby("seed"):
        there = run["train"] <= level
        if there.any():
            i = int(there.argmax())
            two = run.iloc[max(i - 1, 0) : i + 1][::-1]  # the lower error first
            found[seed] = float(np.interp(level, two["train"], two["test"]))
    return pd.Series(found, dtype=float).rename_axis("seed")


def levelled(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the test errors by label, at the training error that all runs reach.

    It is the lowest such, and each test error is interpolated between the first look of
    a run whose training error is that low and the look before it.
    """
    level = rows.groupby(["label", "seed"], sort=False)["train"].min().max()
    return {label: tests_at(mine, level) for label, mine in rows.groupby("label")}


def advised(rows: pd.DataFrame, *, claim: str, a: str, b: str) -> Judged:
    """Judge whether a has a lower test error than b, and at equal training error."""
    mine = rows[rows["label"].isin((a, b))]
    mine = mine[mine.groupby("seed")["label"].transform("nunique") == 2]
    if mine.empty:
        return
    ends = by_label(chosen(mine), "test"), levelled(mine)
    for runs, how in zip(ends, ("", ", at equal training error"), strict=True):
        held = ahead(runs[a], runs[b], higher=False, paired=True)
        if not how:
            held = unless_improving(held, mine, "valid", least=LEAST)
        told = f"{words(runs[a], '', 3)} and {words(runs[b], '', 3)}"
        yield claim.format(how=how), told, held
