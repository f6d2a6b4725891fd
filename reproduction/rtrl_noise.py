"""Noise of online gradients at the paper's size: cosines with the exact gradient."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
import torch
from scipy.stats import t
from torch import Tensor

from labkit.instruments import gradient_cosine, relative_variance
from labkit.lab.books.rtrl_training import (
    Network,
    estimates,
    make_learner,
    new_network,
    train_network,
)
from labkit.lab.claims import UNDECIDED, plus_minus
from labkit.lab.runs.jobs import Checkpoint
from labkit.rtrl import TBPTT, CopyTask, train
from labkit.rtrl.learners import label
from reproduction.criteria import TRIFLE, above, inside, of_runs
from reproduction.judges import Judged
from reproduction.rtrl import named
from reproduction.rtrl_online import task_of, text

LEAST = 1e-4  # norm of the exact gradient, in the Copy task; as in the paper's plots
FASTEST = 10**-2.5  # the largest rate of rtrl/fig1-copy


def noise(
    checkpoint: Checkpoint,
    *,
    method: str,
    rank: int,
    data: str = "ptb",
    **options: object,
) -> list[dict]:
    """Compare one learner with exact RTRL; see :func:`compared`."""
    return compared(checkpoint, methods=[(method, rank)], data=data, **options)


def compared(
    checkpoint: Checkpoint,
    *,
    methods: Iterable[tuple[str, int]],
    hidden: int,
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
    gradient are left out.
    """
    rows, least = [], LEAST if data == "copy" else 0.0
    for seed in seeds:
        network = frozen(checkpoint, data, hidden, seed, updates, length)
        learners = {
            label(*each): make_learner(*each, network.cell, batch_size=draws, seed=1)
            for each in methods
        }
        source = text(data, "train") if data != "copy" else fixed_task(length, seed)
        step, looks = 0, []
        for drawn, truth in estimates(network, learners, source):
            if truth.norm() < least:
                continue
            looks += [look_at(name, each, truth) for name, each in drawn.items()]
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
    """Return the network of the comparison, which is trained once and saved."""
    name = f"network-{seed}"
    read = None if data == "copy" else text(data, "train")
    inputs = len(CopyTask.symbols if read is None else read.symbols)
    network, saved = new_network(inputs, hidden, seed=seed), checkpoint.load(name)
    if saved is None and (updates or length):
        if read is None:
            network = copying(network, length, seed)
        else:
            *_, (_, network) = train_network(read, hidden, updates=updates, seed=seed)
        saved = {"cell": network.cell.state_dict()}
        saved |= {"readout": network.readout.state_dict()}
        checkpoint.save(saved, name, now=True)
    if saved is not None:
        network.cell.load_state_dict(saved["cell"])
        network.readout.load_state_dict(saved["readout"])
    return network


def copying(network: Network, length: int, seed: int) -> Network:
    """Train by TBPTT-50 until the network reaches strings of this length."""
    learner = TBPTT(network.cell, batch_size=16, horizon=50)
    task, optimizer = task_of("copy", 16, seed), network.adam(FASTEST)
    records = train(learner, network.readout, task, optimizer=optimizer)
    next(record for record in records if record.level >= length)
    return network


def fixed_task(length: int, seed: int) -> CopyTask:
    """Return a Copy task of one sequence at a time, whose level stays fixed."""
    g = torch.Generator().manual_seed(100 + seed)
    return CopyTask(1, level=length, fixed=True, generator=g)


def look_at(name: str, drawn: Tensor, truth: Tensor) -> dict:
    """Return what is measured of a learner's draws at one step."""
    cosine = gradient_cosine(drawn, truth)
    row = {"label": name, "cosine": float(cosine.mean())}
    row["cosine_sd"] = float(cosine.std())
    return row | {"relative_variance": float(relative_variance(drawn, truth))}


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


def gap(
    one: Mapping[str, float], other: Mapping[str, float], draws: int
) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two means over so many draws."""
    half = t.ppf(0.975, 2 * draws - 2) * apart(one, other)["sd"] / draws**0.5
    middle = one["mean"] - other["mean"]
    return middle - half, middle + half


def apart(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return the difference of two means and its standard deviation."""
    sd = (one["sd"] ** 2 + other["sd"] ** 2) ** 0.5
    return {"mean": one["mean"] - other["mean"], "sd": sd}


def cosines(
    rows: pd.DataFrame,
    *,
    claim: str,
    a: Sequence[str],
    b: Sequence[str],
    draws: int,
    after: int = 0,
    share: float = 1.0,
    near: float = 0.0,
    unit: str = "",
    one_network: bool = False,
) -> Judged:
    """Judge whether the mean cosine of a is above that of b, over the draws.

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
    both = []
    for first, *other in a, b:
        both.append(found.loc[first])
        if other:
            both[-1] = apart(both[-1], found.loc[other[0]])
    told = " and ".join(plus_minus(each, "", 3) for each in both)
    one, two = {name: share * both[0][name] for name in ("mean", "sd")}, both[1]
    held = inside(gap(one, two, draws), near) if near else above(gap(one, two, draws))
    if not near and abs(one["mean"] - two["mean"]) <= TRIFLE:
        held = UNDECIDED
    networks = rows["seed"].nunique() if "seed" in rows else 1
    yield claim, told, held if one_network else of_runs(held, networks)


def above_level(
    rows: pd.DataFrame,
    *,
    claim: str,
    label: str,
    unit: str,
    level: float,
    draws: int,
) -> Judged:
    """Judge whether the mean cosine in one network is above a level."""
    found = means_of(rows[rows["unit"] == unit])
    if label in found.index:
        row, least = found.loc[label], {"mean": level, "sd": 0.0}
        yield claim, plus_minus(row, "", 4), above(gap(row, least, draws))


# Untrained networks of several sizes

DRAWS, LONG_SEED = 20, 100  # the network that reads 1,000 steps


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
    told = [f"{row.cosine:.4f} ± {row.error:.4f}" for row in found.itertuples()]
    table = found.assign(told=told).pivot(index="units", columns="label", values="told")
    networks = found.groupby("units")["networks"].max()
    return table[found["label"].unique()].assign(networks=networks).reset_index()


def whatever_size(rows: pd.DataFrame, *, claim: str, near: float) -> Judged:
    """Judge whether the two sizes that are furthest apart have the same cosine."""
    for name, sizes in at_step_100(rows).groupby("label", sort=False):
        if len(sizes) > 1:
            sizes = sizes.set_index("units").sort_index()
            ends = sizes.loc[[sizes["cosine"].idxmin(), sizes["cosine"].idxmax()]]
            told = " to ".join(
                f"{row['cosine']:.3f} ± {row['error']:.3f} at {n}{{}}"
                for n, row in ends.iterrows()
            ).format(" units", "")
            middle = ends["cosine"].iloc[1] - ends["cosine"].iloc[0]
            half = 2 * (ends["error"] ** 2).sum() ** 0.5
            said = claim.format(label=name, first=sizes.index[0], last=sizes.index[-1])
            yield said, told, inside((middle - half, middle + half), near)
