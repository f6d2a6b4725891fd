"""Noise of online gradients at the paper's size: cosines with the exact gradient."""

from collections.abc import Iterable, Iterator, Mapping

import pandas as pd
import torch
from scipy.stats import t
from torch import Tensor

from labkit.instruments import gradient_cosine, relative_variance
from labkit.lab.claims import UNDECIDED, plus_minus
from labkit.lab.race import View
from labkit.lab.rtrl import (
    Network,
    estimates,
    make_learner,
    new_network,
    train_network,
)
from labkit.lab.runs.jobs import Checkpoint
from labkit.rtrl import TBPTT, CopyTask, train
from labkit.rtrl.learners import label
from reproduction.criteria import NOT_CONTRADICTED, TRIFLE, above, inside, of_runs
from reproduction.rtrl import COPY_RATES, PTB, named
from reproduction.rtrl_online import task_of, text
from reproduction.studies import Study

LEARNED = 4_000  # updates of TBPTT-25 on text before the comparison
LEAST = 1e-4  # norm of the exact gradient, in the Copy task; as in the paper's plots
FASTEST = max(COPY_RATES.values())


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


def means_of(rows: pd.DataFrame, *by: str) -> pd.DataFrame:
    """Return the means over the steps by label; ``sd`` is taken over the draws."""
    grouped = named(rows).groupby(["label", *by], sort=False)
    found = grouped[["cosine", "cosine_sd", "relative_variance"]].mean()
    return found.rename(columns={"cosine": "mean", "cosine_sd": "sd"})


def shown(found: pd.DataFrame) -> pd.DataFrame:
    """Return the cosines and relative variances in three significant digits."""
    names = {"mean": "cosine", "relative_variance": "relative variance"}
    found = found.map(lambda value: f"{float(f'{value:.3g}'):g}")
    return found.rename(columns=names)


def noise_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the means over the steps, a row for each learner."""
    return shown(means_of(rows))


def both_told(both: Iterable[Mapping[str, float]]) -> str:
    """Return two cosines with their standard deviations in words."""
    return " and ".join(plus_minus(each, "", 3) for each in both)


def gap(
    one: Mapping[str, float], other: Mapping[str, float], draws: int
) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two means over so many draws."""
    error = ((one["sd"] ** 2 + other["sd"] ** 2) / draws) ** 0.5
    half = t.ppf(0.975, 2 * draws - 2) * error
    middle = one["mean"] - other["mean"]
    return middle - half, middle + half


def above_by_draws(
    one: Mapping[str, float], other: Mapping[str, float], draws: int
) -> str:
    """Return whether one mean is above another; a trifle decides nothing."""
    if abs(one["mean"] - other["mean"]) <= TRIFLE:
        return UNDECIDED
    return above(gap(one, other, draws))


def noise_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge whether 8-OK's cosine is above that of 8-KF-AVG."""
    found = means_of(rows)
    if {"8-OK", "8-KF-AVG"} <= set(found.index):
        both = found.loc["8-OK"], found.loc["8-KF-AVG"]
        claim = "4.2, Fig. 3: 8-OK's cosine above 8-KF-AVG's"
        networks = rows["seed"].nunique() if "seed" in rows else 1
        yield claim, both_told(both), of_runs(above_by_draws(*both, DRAWS), networks)


DRAWS, FEWER = 20, 8  # independent draws of the signs
METHODS = {"OK": 8, "KF-AVG": 8, "B-OK": 8, "KF-APPROX": 8, "UORO": 1, "KTP": 8}
METHODS |= {"SNAP-1": 1, "TBPTT": 5}
DRAWN = (
    "yes or no where the 95 % interval of the difference of two means over {} draws of "
    "the signs lies on one side of 0, and undecided otherwise or "
    f"where they differ by at most {TRIFLE}; the spread that is told "
    "is the standard deviation of single draws"
)
NETWORK = f"; of one network alone a yes is {NOT_CONTRADICTED!r}, and a no undecided"
VIEWS = (View("look", "cosine", "Cosine", "step", "cosine"),)
NOISE = Study(
    name="rtrl/fig3",
    shows="Figure 3: cosine with the exact gradient",
    claim="4.2: 8-OK's gradient lies closer to the exact one than 8-KF-AVG's",
    data=PTB.data,
    setting="RHN of 256 units, trained, frozen; 1,000 steps, 20 draws",
    differs=f"trained by {LEARNED:,} updates of TBPTT-25 in the paper's place of "
    "1,000,000 steps; every learner, for the paper's two",
    work=noise,
    units={
        label(method, rank): {
            "method": method,
            "rank": rank,
            "hidden": 256,
            "updates": LEARNED,
        }
        for method, rank in [*METHODS.items(), ("OK", 1), ("TBPTT", 25)]
    },
    small={"method": "OK", "rank": 8, "hidden": 8, "updates": 4, "data": "text"}
    | {"steps": 100, "draws": 4},
    minutes=8,
    memory=1.2,
    table=noise_table,
    claims=noise_claims,
    criterion=DRAWN.format(DRAWS) + NETWORK,
    views=VIEWS,
    drawn=named,
)

# Other sizes

NEAR = 0.05  # of a cosine, a twentieth of the scale
ALIKE = (
    f"two means are alike, yes, where the interval of their difference lies within "
    f"{NEAR} on either side, no where it lies outside, undecided otherwise"
)


def named_by_network(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with labels that name the learner and its network."""
    network = rows.units.astype(str) + " units, weights " + rows.seed.astype(str)
    return rows.assign(label=rows.label + ", " + network)


def at_step_100(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and sd over the networks by learner and size, at step 100.

    The networks of a size share their signs, so that ``error``, the standard error of
    the mean, adds the spread over the draws of the signs to that over the networks.
    """
    rows = named(rows[(rows["look"] == 100) & (rows["seed"] < LONG_SEED)])
    grouped = rows.groupby(["label", "units"], sort=False)
    found = grouped["cosine"].agg(mean="mean", sd="std", networks="count")
    signs = grouped["cosine_sd"].mean() ** 2 / DRAWS
    return found.assign(error=(found["sd"] ** 2 / found["networks"] + signs) ** 0.5)


def untrained_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the cosines by size and learner, and the number of networks by size."""
    found = at_step_100(rows)
    told = [f"{row['mean']:.4f} ± {row['error']:.4f}" for _, row in found.iterrows()]
    table = pd.Series(told, found.index).unstack("label", sort=False)
    networks = found["networks"].groupby("units").max()
    return table.sort_index().assign(networks=networks).reset_index()


def untrained_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge whether two terms hold nearly all, and whether the size does not matter."""
    long = rows[rows["seed"] == LONG_SEED]
    if len(long):
        found, enough = means_of(long), {"mean": 0.99, "sd": 0.0}
        two, other = found.loc["2-OK"], found.loc["KF-RTRL"]
        count = f"{int(long['look'].max()):,} steps, 256 units"
        claim = f"7.2, Fig. 6: 2-OK's cosine about 1, above 0.99 ({count})"
        yield claim, plus_minus(two, "", 4), above(gap(two, enough, DRAWS))
        claim = f"7.2, Fig. 6: 2-OK's cosine above KF-RTRL's ({count})"
        yield claim, both_told((two, other)), above_by_draws(two, other, DRAWS)
    found = at_step_100(rows)
    for name, sizes in found.groupby("label", sort=False):
        if len(sizes) > 1:
            sizes = sizes.droplevel("label").sort_index()
            low, high = (
                sizes.loc[f()] for f in (sizes["mean"].idxmin, sizes["mean"].idxmax)
            )
            claim = f"7.2, Fig. 9: {name}'s cosine alike from {sizes.index[0]} to "
            told = f"{low['mean']:.3f} ± {low['error']:.3f} at {low.name} units to "
            told += f"{high['mean']:.3f} ± {high['error']:.3f} at {high.name}"
            middle = high["mean"] - low["mean"]
            half = 2 * (high["error"] ** 2 + low["error"] ** 2) ** 0.5
            held = inside((middle - half, middle + half), NEAR)
            yield f"{claim}{sizes.index[-1]} units", told, held


LONG_SEED = 100  # seed of the network of 256 units that reads 1,000 steps
NETWORKS = {8: 10, 16: 10, 32: 10, 64: 10, 128: 10, 256: 5, 512: 2}
FEW = {"methods": [("OK", 2), ("OK", 1), ("KF-AVG", 2), ("KF-AVG", 1)]}
EARLY = FEW | {"steps": 100, "every": 25}
UNTRAINED = Study(
    name="rtrl/fig6-9",
    shows="Figures 6 and 9: cosine in untrained networks of 8 to 512 units",
    claim="7.2: two terms hold nearly all of an untrained network's gradient, however "
    "many units it has",
    data=PTB.data,
    setting="untrained RHN; means of steps 76 to 100; 20 draws, the same signs in all "
    "networks of a size; one network of 256 units for 1,000 steps",
    differs="5 and 2 networks of 256 and 512 units for the paper's ten, and ten for "
    "its hundred for KF-RTRL, each with 20 draws; 1,000 steps for 10,000",
    work=compared,
    units={
        f"units-{n}": EARLY | {"hidden": n, "seeds": list(range(count))}
        for n, count in NETWORKS.items()
    }
    | {"long": FEW | {"hidden": 256, "seeds": [LONG_SEED]}},
    small=EARLY
    | {"steps": 50, "hidden": 8, "seeds": [0, 1], "data": "text", "draws": 4},
    minutes=20,
    memory=6,
    table=untrained_table,
    claims=untrained_claims,
    criterion=f"{DRAWN.format(DRAWS)}; of Fig. 9, the two sizes that are furthest "
    f"apart: {ALIKE}; the interval is two standard errors, over the networks and over "
    "the draws of the signs, which the networks of a size share; they stand after ±",
    views=(
        View("units", "cosine", "Cosine, steps 76 to 100", "n", "cosine", log_x=True),
    ),
    drawn=lambda rows: (
        at_step_100(rows).reset_index().rename(columns={"mean": "cosine"})
    ),
)


def sized_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the means over the steps, a row for each learner and network."""
    found = shown(means_of(rows, "units", "seed")).reset_index()
    return found.rename(columns={"seed": "weights"})


def copy_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Compare 16-OK with 16-KF-AVG in each network, and each with other networks."""
    found = means_of(rows, "units", "seed")
    networks = dict.fromkeys(zip(rows["units"], rows["seed"], strict=True))
    for n, seed in networks:
        both = [found.loc[(name, n, seed)] for name in ("16-OK", "16-KF-AVG")]
        figure = "10" if n != 128 else "8" if seed else "7"
        claim = f"7.2, Fig. {figure}: 16-OK's cosine above 16-KF-AVG's, {n} units"
        yield f"{claim}, weights {seed}", both_told(both), above_by_draws(*both, FEWER)
    first = (128, 0)
    for other in networks:
        if other != first and first in networks:
            what = "other weights" if other[0] == 128 else f"{other[0]} units"
            figure = "8" if other[0] == 128 else "10"
            for name in ("16-OK", "16-KF-AVG"):
                both = found.loc[(name, *first)], found.loc[(name, *other)]
                claim = f"7.2, Fig. {figure}: {name}'s cosine alike with {what}"
                yield claim, both_told(both), inside(gap(*both, FEWER), NEAR)


LENGTH = 20
TERMS = {"methods": [("OK", 16), ("KF-AVG", 16)], "data": "copy", "every": 20}
COPIED = Study(
    name="rtrl/fig7-8-10",
    shows="Figures 7, 8 and 10: cosine in networks that have learned to copy",
    claim="7.2: later in training 16-OK keeps a good estimate, whichever weights were "
    "learned and however many units there are",
    data="the Copy task, drawn",
    setting=f"RHN of 128 and 256 units, trained until it copies {LENGTH} symbols, "
    "frozen; 400 and 200 steps with an exact gradient of norm 1e-4 or more; 8 draws",
    differs=f"trained to length {LENGTH} for the paper's 40, by TBPTT-50 at 10^-2.5; "
    "256 units for its 512",
    work=compared,
    units={
        f"units-{n}-{seed}": TERMS
        | {"hidden": n, "seeds": [seed], "length": LENGTH, "steps": steps, "draws": 8}
        for n, seed, steps in ((128, 0, 400), (128, 1, 400), (256, 0, 200))
    },
    small=TERMS | {"hidden": 16, "length": 1, "steps": 20, "draws": 4},
    minutes=8,
    memory=1,
    table=sized_table,
    claims=copy_claims,
    criterion=f"{DRAWN.format(FEWER)}; {ALIKE}, over the draws",
    views=VIEWS,
    drawn=named_by_network,
)


def larger_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge what each loses with twice the units, and what is left of OK's lead."""
    found = means_of(rows[rows["look"] > WARM], "units")
    if set(rows["units"]) != {256, 512}:
        return

    def apart(one: tuple, other: tuple) -> dict[str, float]:
        one, other = found.loc[one], found.loc[other]
        sd = (one["sd"] ** 2 + other["sd"] ** 2) ** 0.5
        return {"mean": one["mean"] - other["mean"], "sd": sd}

    drops = [apart((name, 256), (name, 512)) for name in ("8-OK", "8-KF-AVG")]
    claim = "7.2, Fig. 11: with 512 units for 256 8-OK loses more than 8-KF-AVG"
    held = of_runs(above_by_draws(*drops, FEWER), rows["seed"].nunique())
    yield claim, both_told(drops), held
    small, large = (apart(("8-OK", n), ("8-KF-AVG", n)) for n in (256, 512))
    left = {name: value * LEFT for name, value in small.items()}
    claim = f"7.2, Fig. 11: with 512 units less than {LEFT:.0%} of 8-OK's lead is left"
    held = of_runs(above_by_draws(left, large, FEWER), rows["seed"].nunique())
    yield claim, both_told((small, large)), held


LEFT = 0.25  # share of a lead that is "almost completely vanishing"


def larger_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the means over the steps after the first ones, by learner and size."""
    return shown(means_of(rows[rows["look"] > WARM], "units")).reset_index()


WARM = 50  # steps, in which the sums are still exact or nearly so
EIGHT = {"methods": [("OK", 8), ("KF-AVG", 8)], "steps": 150, "every": 25, "draws": 8}
LARGER = Study(
    name="rtrl/fig11",
    shows="Figure 11: cosine on text with 256 and 512 units",
    claim="7.2: in a larger network 8-OK loses more than 8-KF-AVG, and nearly all of "
    "its lead",
    data=PTB.data,
    setting=f"RHN of 256 and 512 units, trained, frozen; steps {WARM + 1} to 150, 8 "
    "draws",
    differs=f"trained by {LEARNED:,} updates of TBPTT-25 in the paper's place of "
    "1,000,000 steps; 150 of 1,000 steps, at whose end the cosines still fall with 512 "
    "units; the caption there says Copy, the text says CHAR-PTB",
    work=compared,
    units={f"units-{n}": EIGHT | {"hidden": n, "updates": LEARNED} for n in (256, 512)},
    small=EIGHT | {"hidden": 8, "updates": 4, "data": "text", "draws": 4, "steps": 75},
    minutes=25,
    memory=6,
    table=larger_table,
    claims=larger_claims,
    criterion=DRAWN.format(FEWER) + NETWORK,
    views=VIEWS,
    drawn=named_by_network,
)

STUDIES = (NOISE, UNTRAINED, COPIED, LARGER)
