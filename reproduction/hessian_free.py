"""Stochastic Hessian-free at the paper's size: USPS of Table 2, and its advice."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from operator import attrgetter, itemgetter

import numpy as np
import pandas as pd
import torch

from labkit import hessian_free as hf
from labkit.lab.books.hessian_free_training import Training, load_images, looks
from labkit.lab.problem import seeded
from labkit.lab.runs.jobs import Checkpoint
from reproduction.criteria import ahead, unless_improving
from reproduction.judges import Judged, by_label, every, words


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
    device: str = "cpu",
    **changes: float,
) -> list[dict]:
    """Train by SHF or Martens' HF, and return a look every ``every`` passes.

    A pass is as much work as the gradient of all rows. The errors are 2 f, the squared
    error of an image; ``train`` is that of all training rows after the step. Every step
    of the first ``dense`` passes has a look. The run ends after ``passes``, or when the
    lowest validation error of a look is more than ``settled`` passes old, unless that
    is 0; with it ``dense`` is above 0. ``changes`` replace constants of the setting.
    """
    problem, start = load_images(data, published=published, device=device), {}
    X, valid, test = problem.parts.values()
    if hidden == "relu":  # at the paper's 1.5 the outputs are saturated at the start
        layers = 2 * (len(problem.setting.encoder) - 1)
        start = {
            "activations": [*(layers - 1) * ["relu"], "logistic"],
            "std": (2 / problem.setting.incoming) ** 0.5,
        }
    net, generator = problem.network(seed, **start)
    signs, setting = seeded(1000 + seed, device), replace(problem.setting, **changes)
    saved = checkpoint.load(classes=(hf.Record,)) or {"past": [], "rows": []}
    past, rows = saved["past"], saved["rows"]
    if rows and rows[-1]["passes"] >= passes:
        return rows
    given = {
        "validation": valid,
        "test": test,
        "generator": generator,
        "past": tuple(past),
    }
    if method == "martens":
        optimizer = hf.MartensHF(net, damping=4.0)
        records = hf.train_martens(net, optimizer, X, chunks=8, **given)
    else:
        optimizer = hf.HessianFree(
            net,
            damping=setting.damping,
            damping_decay=setting.damping_decay,
            gamma=setting.gamma,
            maxiter=setting.maxiter,
            atol=setting.atol,
            ftol=setting.ftol,
            patience=patience,
            preconditioner=preconditioner,
            generator=signs,
        )
        records = hf.train(
            net,
            optimizer,
            X,
            batch_size=setting.batch_size,
            settings=hf.Settings(setting.theta, setting.max_batch_size),
            **given,
        )
    if past:
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        if method != "martens":  # whose rows are shuffled once, at the start
            generator.set_state(saved["generator"])
        signs.set_state(saved["signs"])
    turned = changes | {"preconditioner": preconditioner, "hidden": hidden}
    named = [
        f"{name} {value}"
        for name, value in turned.items()
        if value not in ("random_signs", "logistic")
    ]
    label = ", ".join([method if published else "shf, short runs'", *named])
    used, taken = attrgetter("passes"), sum(row["passes"] >= dense for row in rows)
    for record, due in looks(records, used, passes, every=every, taken=taken):
        past.append(replace(record, merit=()))
        if due or record.passes < dense:
            rows.append(
                {
                    "label": label,
                    "seed": seed,
                    "look": len(rows) + 1,
                    "step": record.step,
                    "passes": record.passes,
                    "n": record.n,
                    "train": float(hf.squared_error(net, X)),
                    "valid": record.validation_error,
                    "test": record.test_error,
                }
            )
        if settled:
            lowest = min(rows, key=itemgetter("valid"))
            if rows[-1]["passes"] - lowest["passes"] > settled:
                break
        state = {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "generator": generator.get_state(),
            "signs": signs.get_state(),
            "past": past,
            "rows": rows,
        }
        checkpoint.save(state)
    return rows


def solved(
    checkpoint: Checkpoint,
    *,
    seed: int,
    steps: int,
    every: int,
    iterations: int,
    data: str = "usps",
) -> Iterator[dict]:
    """Train by SHF, and solve the problem of some steps by LSMR and by CG, from zero.

    A row has ``least``, the lowest f of the validation rows among the iterates of a
    method, and ``k``, its first iteration with an f that both methods reach.
    """
    # the book has the figures' libraries, without which all else here runs
    from labkit.lab.books.hessian_free import freeze, knobs_of, merit, side_by_side

    problem = load_images(data, dtype=torch.float64)
    training = Training(problem, knobs_of(problem.setting, seed=seed), steps=steps)
    for record in training.records:
        if record.step % every:
            continue
        frozen = freeze(training, record.n, record.damping)
        found = pd.DataFrame(
            {name: merit(frozen, training, d) for name, d in pair.items()}
            for pair in islice(side_by_side(frozen), iterations + 1)
        )
        common = found.min().max()
        for name, errors in found.items():
            k = int((errors <= common).idxmax())
            row = {"label": name, "seed": seed, "look": record.step, "k": k}
            yield row | {"least": errors.min()}


# What stands on the page

PARTS = ("train", "valid", "test")
PRINTED = 1.007  # f of Martens' method in training
LEAST = 0.01  # share of the validation error that a run still gains


def in_f(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the longest run of every label and seed, with errors in the paper's f.

    The results hold 2 f, the squared error of an image.
    """
    rows = rows.reset_index(drop=True)
    last = rows.groupby(["label", "seed"])["passes"].idxmax()
    kept = rows[rows["unit"].isin(rows["unit"][last])]
    return kept.assign(**{part: kept[part] / 2 for part in PARTS})


def chosen(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the look at the lowest validation error of every run, as the paper does.

    For Martens' method it is the look at the lowest test error. It has the gap between
    test and training error, and the mean batch of the run.
    """
    by_run = [rows["label"], rows["seed"]]
    lowest = rows["valid"].where(rows["label"] != "martens", rows["test"])
    batch = rows["n"].groupby(by_run).transform("mean")
    looks = rows.assign(gap=rows["test"] - rows["train"], batch=batch)
    return looks.loc[lowest.groupby(by_run, sort=False).idxmin()]


def as_trained(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Martens' test errors where the training error is the printed one."""
    found = tests_at(rows[rows["label"] == "martens"], PRINTED)
    return found.rename("test").reset_index().assign(label="martens")


def grows(rows: pd.DataFrame, *, claim: str, times: float) -> Judged:
    """Judge whether the batch of every run of SHF grows to so many times its first."""
    runs = rows[rows["label"] == "shf"].sort_values("step").groupby("seed")
    if len(runs) and (runs["step"].min() == 1).all():
        grown = runs["n"].max() / runs["n"].first()
        yield claim, words(grown, "times"), every(grown >= times)


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


def advised(rows: pd.DataFrame, *, claim: str, a: str, b: str) -> Judged:
    """Judge whether a has a lower test error than b, and at equal training error."""
    pair = rows[rows["label"].isin((a, b))]
    pair = pair[pair.groupby("seed")["label"].transform("nunique") == 2]
    if pair.empty:
        return
    # the lowest training error that all of these runs reach
    level = pair.groupby(["label", "seed"])["train"].min().max()
    equal = {label: tests_at(runs, level) for label, runs in pair.groupby("label")}
    ends = by_label(chosen(pair), "test"), equal
    for runs, how in zip(ends, ("", ", at equal training error"), strict=True):
        held = ahead(runs[a], runs[b], higher=False, paired=True)
        if not how:
            held = unless_improving(held, pair, "valid", least=LEAST)
        measured = f"{words(runs[a], '', 3)} and {words(runs[b], '', 3)}"
        yield claim.format(how=how), measured, held
