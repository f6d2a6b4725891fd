"""Noise of online gradients at the paper's size: cosines with the exact gradient."""

from collections.abc import Iterable, Sequence
from functools import reduce

import pandas as pd

from labkit.instruments import gradient_cosine, relative_variance
from labkit.lab.books.rtrl_training import (
    Network,
    estimates,
    make_learner,
    new_network,
    train_network,
)
from labkit.lab.claims import UNDECIDED, plus_minus
from labkit.lab.problem import seeded
from labkit.lab.runs.jobs import Checkpoint
from labkit.rtrl import TBPTT, CopyTask, train
from labkit.rtrl.learners import label
from reproduction.criteria import TRIFLE, above, inside, interval, of_runs
from reproduction.judges import Judged
from reproduction.rtrl import named
from reproduction.rtrl_online import task_of, text

LEAST = 1e-4  # norm of the exact gradient, in the Copy task; as in the paper's plots
FASTEST = 10**-2.5  # the largest rate of rtrl/fig1-copy


def compared(
    checkpoint: Checkpoint,
    *,
    hidden: int,
    methods: Iterable[tuple[str, int]] = (),
    method: str = "",
    rank: int = 0,
    data: str = "ptb",
    updates: int = 0,
    length: int = 0,
    seeds: Iterable[int] = (0,),
    steps: int = 1_000,
    every: int = 50,
    draws: int = 20,
) -> list[dict]:
    """Train, freeze, then compare with exact RTRL; return means over ``every`` steps.

    The network is trained by ``updates`` of TBPTT-25 on text, or until it copies
    ``length`` symbols, or not at all if both are 0. In the Copy task steps with a tiny
    gradient are left out. All ``methods`` with their ranks are compared, or one.
    """
    rows, least = [], LEAST if data == "copy" else 0.0
    for seed in seeds:
        network = frozen(checkpoint, data, hidden, seed, updates, length)
        learners = {
            label(*each): make_learner(*each, network.cell, batch_size=draws, seed=1)
            for each in methods or [(method, rank)]
        }
        if data == "copy":
            generator = seeded(100 + seed)
            source = CopyTask(1, level=length, fixed=True, generator=generator)
        else:
            source = text(data, "train")
        step, looks = 0, []
        for drawn, truth in estimates(network, learners, source):
            if truth.norm() < least:
                continue
            for name, each in drawn.items():
                cosine = gradient_cosine(each, truth)
                look = {
                    "label": name,
                    "cosine": float(cosine.mean()),
                    "cosine_sd": float(cosine.std()),
                    "relative_variance": float(relative_variance(each, truth)),
                }
                looks.append(look)
            step += 1
            if step % every == 0:
                means = pd.DataFrame(looks).groupby("label", sort=False).mean()
                means = means.assign(units=hidden, seed=seed, look=step)
                rows += means.reset_index().to_dict("records")
                looks = []
            if step == steps:
                break
    return rows


def frozen(
    checkpoint: Checkpoint, data: str, hidden: int, seed: int, updates: int, length: int
) -> Network:
    """Return the network of the comparison, which is trained once and saved.

    Copy is trained by TBPTT-50 until the network reaches strings of this length.
    """
    name, task = f"network-{seed}", task_of(data, 16, seed)
    network = new_network(task.input_size, hidden, seed=seed)
    if saved := checkpoint.load(name):
        network.cell.load_state_dict(saved["cell"])
        network.readout.load_state_dict(saved["readout"])
        return network
    if length:
        learner = TBPTT(network.cell, batch_size=16, horizon=50)
        adam = network.adam(FASTEST)
        records = train(learner, network.readout, task, optimizer=adam)
        next(record for record in records if record.level >= length)
    elif updates:
        read = text(data, "train")
        *_, (_, network) = train_network(read, hidden, updates=updates, seed=seed)
    checkpoint.save(
        {"cell": network.cell.state_dict(), "readout": network.readout.state_dict()},
        name,
        now=True,
    )
    return network


# What stands on the page


def by_network(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with labels that name the learner and its network."""
    network = rows.units.astype(str) + " units, weights " + rows.seed.astype(str)
    return rows.assign(label=named(rows).label + ", " + network)


def means_of(rows: pd.DataFrame, after: int = 0) -> pd.DataFrame:
    """Return the means over the steps after the first; ``sd`` is over the draws."""
    grouped = rows[rows["look"] > after].groupby("label", sort=False)
    found = grouped[["cosine", "cosine_sd", "relative_variance"]].mean()
    return found.rename(columns={"cosine": "mean", "cosine_sd": "sd"})


def noise_table(rows: pd.DataFrame, *, after: int = 0) -> pd.DataFrame:
    """Return the cosines and relative variances in three significant digits."""
    found = means_of(rows, after).map(lambda value: f"{float(f'{value:.3g}'):g}")
    names = {"mean": "cosine", "relative_variance": "relative variance"}
    return found.rename(columns=names)


def apart(one: pd.Series, other: pd.Series) -> pd.Series:
    """Return the difference of two means and its standard deviation."""
    sd = (one["sd"] ** 2 + other["sd"] ** 2) ** 0.5
    return pd.Series({"mean": one["mean"] - other["mean"], "sd": sd})


def over_draws(row: pd.Series, draws: int) -> tuple[float, float]:
    """Return the 95 % interval of a mean or a difference over so many draws."""
    return interval(row["mean"], row["sd"] / draws**0.5, 2 * draws - 2)


def cosines(
    rows: pd.DataFrame,
    *,
    claim: str,
    a: Sequence[str],
    b: Sequence[str] = (),
    draws: int,
    after: int = 0,
    share: float = 1.0,
    level: float = 0.0,
    near: float = 0.0,
    unit: str = "",
    one_network: bool = False,
) -> Judged:
    """Judge whether the mean cosine of a is above that of b, or a level.

    Parameters
    ----------
    a, b : sequence of str, a label, or two, of which the difference is meant
    draws : int, independent draws of the signs
    after : int, steps that are left out
    share : float, which part of a is compared with b
    near : float, the margin on either side, if the two are said to be alike
    unit : str, whose rows alone count, if it is given
    one_network : bool, whether the claim is about one network alone
    """
    found = means_of(rows[rows["unit"] == unit] if unit else rows, after)
    if not {*a, *b} <= set(found.index):
        return
    sides = [
        reduce(apart, [found.loc[label] for label in labels])
        for labels in (a, b)
        if labels
    ]
    measured = " and ".join(plus_minus(side, "", 3) for side in sides)
    difference = reduce(apart, [share * sides[0], *sides[1:]])
    bounds = over_draws(difference, draws)
    held = inside(bounds, near) if near else above(bounds, level)
    if not near and abs(difference["mean"]) <= TRIFLE:
        held = UNDECIDED
    networks = rows["seed"].nunique()
    yield claim, measured, held if one_network else of_runs(held, networks)


# Untrained networks of several sizes

DRAWS = 20
LONG_SEED = 100  # of the network that reads 1,000 steps


def at_step_100(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and sd over the networks by learner and size, at step 100.

    The networks of a size share their signs, so that ``error``, the standard error of
    the mean, adds the spread over the draws of the signs to that over the networks.
    """
    rows = rows[(rows["look"] == 100) & (rows["seed"] < LONG_SEED)]
    grouped = rows.groupby(["label", "units"], sort=False)
    found = grouped["cosine"].agg(cosine="mean", sd="std", networks="count")
    signs = grouped["cosine_sd"].mean() ** 2 / DRAWS
    error = (found["sd"] ** 2 / found["networks"] + signs) ** 0.5
    return found.assign(error=error).reset_index()


def untrained_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the cosines by size and learner, and the number of networks by size."""
    found = at_step_100(rows)
    text = [f"{row.cosine:.4f} ± {row.error:.4f}" for row in found.itertuples()]
    table = found.assign(text=text).pivot(index="units", columns="label", values="text")
    networks = found.groupby("units")["networks"].max()
    return table[found["label"].unique()].assign(networks=networks).reset_index()


def whatever_size(rows: pd.DataFrame, *, claim: str, label: str, near: float) -> Judged:
    """Judge whether the two sizes that are furthest apart have the same cosine."""
    found = at_step_100(rows)
    sizes = found[found["label"] == label]
    if len(sizes) > 1:
        units, means = sizes["units"], sizes["cosine"]
        low, high = sizes.loc[means.idxmin()], sizes.loc[means.idxmax()]
        networks = int(min(low["networks"], high["networks"]))
        measured = (
            f"{low['cosine']:.3f} ± {low['error']:.3f} at {low['units']} units to "
            f"{high['cosine']:.3f} ± {high['error']:.3f} at {high['units']}, "
            f"of {networks} or more networks each"
        )
        half = 2 * (low["error"] ** 2 + high["error"] ** 2) ** 0.5
        middle = high["cosine"] - low["cosine"]
        held = inside((middle - half, middle + half), near)
        named = claim.format(first=units.min(), last=units.max())
        yield named, measured, of_runs(held, networks)
