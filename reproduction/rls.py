"""RLS: learning curves (Figures 2 to 5), at the paper's size or reduced, and cost."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, addmm_flop

from labkit.errors import DataError, DivergedError
from labkit.lab.books.rls_training import (
    CONSTANTS,
    after_each_epoch,
    make_training,
    network,
)
from labkit.lab.claims import NO, YES
from labkit.lab.datasets import Labelled, load_imdb
from labkit.lab.problem import Problem, load_problem, seeded
from labkit.lab.runs.jobs import Checkpoint
from labkit.rls import RLS
from reproduction.criteria import (
    NOT_AT_END,
    POINTS,
    SEEDS,
    ahead,
    of_runs,
    still_improving,
    unless_improving,
)
from reproduction.judges import Judged, by_label, words


def problem_of(data: str, standardised: bool = False, device: str = "cpu") -> Problem:
    """Load a data set; of the film reviews only some, each by its first 100 words.

    ``standardised`` pixels have mean 0 and standard deviation 1 over all training
    images.
    """
    if data == "imdb":
        return Problem(reviews("train", 5_000, device), reviews("test", 2_500, device))
    problem = load_problem(data, device=device)
    if standardised:
        mean, sd = problem.fit.inputs.mean(), problem.fit.inputs.std()
        both = problem.fit, problem.test
        fit, test = (replace(part, inputs=(part.inputs - mean) / sd) for part in both)
        return Problem(fit, test)
    return problem


def reviews(split: str, count: int, device: str) -> Labelled:
    """Draw film reviews, each by its first 100 words."""
    read = load_imdb(split, length=100)
    drawn = torch.randperm(len(read.targets), generator=seeded(0))[:count]
    return replace(
        read,
        inputs=read.inputs[drawn].to(device),
        targets=read.targets[drawn].to(device),
    )


def epochs_of(
    checkpoint: Checkpoint,
    *,
    method: str,
    seed: int,
    epochs: int,
    data: str = "mnist",
    layers: str = "FC",
    hidden: int | None = None,
    standardised: bool = False,
    images: int | None = None,
    device: str = "cpu",
    **options: float,
) -> list[dict]:
    """Train by a method, and return looks after ten epochs and every fifth later.

    The run refuses another number of training ``images``, of CIFAR-10 a fifth.
    """
    problem = problem_of(data, standardised, device)
    found = len(problem.fit.inputs)
    if found != (images or {"cifar10": 10_000}.get(data, found)):
        images = images or 10_000
        raise DataError(
            f"{images:,} training images of {data} are needed, got {found:,}"
        )
    torch.manual_seed(seed)
    model = network(problem, layers, hidden)
    training = make_training(method, model, **CONSTANTS[layers], **options)
    generator, rows, done, seconds = seeded(seed), [], 0, 0.0
    if saved := checkpoint.load():
        rows, done, seconds = saved["rows"], saved["done"], saved["seconds"]
        model.load_state_dict(saved["model"])
        training.optimizer.load_state_dict(saved["optimizer"])
        generator.set_state(saved["generator"])
    named = [f"{name} {value:g}" for name, value in options.items()]
    run = {"label": ", ".join([method, *named]), "seed": seed}
    for epoch in range(done + 1, epochs + 1):
        records = training.run(model, problem, generator=generator)
        try:
            (measured,) = after_each_epoch(records)
        except DivergedError as error:
            return [*rows, run | {"look": epoch, "failed": str(error)}]
        seconds += measured["seconds"]
        if epoch <= 10 or epoch % 5 == 0 or epoch == epochs:
            del measured["epoch"]
            rows.append(run | {"look": epoch} | measured | {"seconds": seconds})
        state = {
            "model": model.state_dict(),
            "optimizer": training.optimizer.state_dict(),
            "generator": generator.get_state(),
            "done": epoch,
            "seconds": seconds,
            "rows": rows,
        }
        checkpoint.save(state)
    return rows


# What stands on the page

EPOCHS = 100  # of the paper's runs
LEAST = 0.02  # share of the loss that a run still gains


def faster(
    rows: pd.DataFrame,
    *,
    a: str,
    b: str,
    goals: Mapping[str, float],
    clocks: Sequence[str],
) -> Judged:
    """Judge whether a is faster than b, and ends better, by paired seeds.

    That is by the time by each clock until a goal is reached, by the best value, by the
    area under the curve over the epochs, and by the last accuracy. Seconds are those of
    one machine, which the paper does not name, and a claim of ours. Of runs that are
    shorter than the paper's and still improve only the times are judged.

    Parameters
    ----------
    goals : mapping, the ``accuracy`` [%] and the ``loss`` whose time is taken
    clocks : sequence of str, ``epoch`` or ``seconds``
    """
    rows = rows[rows["label"].isin((a, b))].assign(epoch=rows["look"])
    if rows["label"].nunique() < 2:
        return
    short = 1 < rows["look"].max() < EPOCHS
    improving = short and still_improving(rows, "loss", least=LEAST)

    head = f"VI-B: {a} converges faster than {b}"
    for column, goal in goals.items():
        higher = column == "accuracy"
        there = rows[column] >= goal if higher else rows[column] <= goal
        for clock in clocks:
            times = by_label(rows.assign(time=rows[clock].where(there)), "time", "min")
            one, two = (times[label].fillna(math.inf) for label in (a, b))
            trifle = 1.0 if clock == "epoch" else None
            held = ahead(one, two, higher=False, paired=True, least=trifle)
            unit = f"{clock.rstrip('s')}s"
            claim = f"{head}, {unit} to {column} {goal:g}"
            claim = f"ours: {claim}" if clock == "seconds" else claim
            yield claim, f"{in_words(one, unit)} and {in_words(two, unit)}", held
        ways = {f"{head}, best {column}": "max" if higher else "min"}
        ways[f"{head}, mean {column} over all epochs"] = "area"
        if higher:
            ways[f"VI-B: {a} ends above {b}, last accuracy"] = "last"
        least, unit = (POINTS, "%") if higher else (None, "")
        for claim, at in ways.items():
            found = by_label(rows, column, at)
            one, two = found[a], found[b]
            held = ahead(one, two, higher=higher, paired=True, least=least)
            if improving and held in (YES, NO):
                held = NOT_AT_END
            yield claim, f"{in_words(one, unit)} and {in_words(two, unit)}", held


def in_words(runs: pd.Series, unit: str) -> str:
    """Return in words the mean and the standard deviation over the seeds that ended."""
    ended = runs[runs < math.inf]
    counts = {"never": (runs == math.inf).sum(), "failed": runs.isna().sum()}
    if ended.empty:
        return "never" if counts["never"] else "failed"
    left = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    mean = words(ended, unit, 2 if ended.mean() >= 1 else 4)
    return mean + (f" ({left})" if left else "")


# The constants k and eta


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with labels that name a constant as the paper does."""
    symbols = {", mean_weight ": ", k ", ", lr ": ", eta "}
    return rows.assign(label=rows["label"].replace(symbols, regex=True))


def best(rows: pd.DataFrame, *, claim: str, symbol: str, value: str) -> Judged:
    """Judge whether the paper's value of a constant ends above each other one.

    A value with which every run fails counts as worse than one with which none does.
    """
    found, own = swept(rows, symbol), f"RLS, {symbol} {value}"
    runs = found.pop(own, None)
    for label, other in found.items() if runs is not None else ():
        lost = other.isna().sum()
        measured = f"{words(runs)} and {words(other)}"
        measured += f", {lost} of {len(other)} runs" if lost else ""
        held = ahead(runs, other, paired=True, least=POINTS)
        pair = rows[rows["label"].isin((own, label))]
        held = unless_improving(held, pair, "loss", least=LEAST)
        for worse, better, verdict in ((other, runs, YES), (runs, other, NO)):
            all_failed = worse.isna().all() and len(worse) >= SEEDS
            if all_failed and better.notna().all():
                held = verdict
        yield claim.format(other=label.split()[-1]), measured, held


def swept(rows: pd.DataFrame, symbol: str) -> dict[str, pd.Series]:
    """Return the last accuracies, by seed, for each value of a constant."""
    chosen = rows["label"].str.startswith(f"RLS, {symbol} ")
    return by_label(rows[chosen], "accuracy")


def matters(rows: pd.DataFrame, *, claim: str) -> Judged:
    """Judge whether eta makes more of a difference than k, of the values that run."""
    gaps = []
    for symbol in ("eta", "k"):
        runs = [each for each in swept(rows, symbol).values() if each.notna().all()]
        runs.sort(key=pd.Series.mean)
        gaps += [runs[-1] - runs[0]] if len(runs) > 1 else []
    if len(gaps) == 2:
        measured = " and ".join(words(each, "points") for each in gaps)
        yield claim, measured, ahead(*gaps, paired=True)


# Seconds


def seconds_of(
    checkpoint: Checkpoint, *, layers: str, data: str, steps: int = 30
) -> list[dict]:
    """Take the processor's seconds of single steps, of all methods in turn.

    Their ratios hardly depend on what else runs on the machine, since a step of each
    method is taken after a step of each other one.
    """
    problem, runs, rows = problem_of(data), {}, []
    for method in TIMED:
        torch.manual_seed(0)
        model = network(problem, layers)
        training = make_training(method, model, **CONSTANTS[layers])
        runs[method] = training.run(model, problem)
    for step in range(steps):
        for method, run in runs.items():
            began = time.process_time()
            next(run)
            spent = time.process_time() - began
            rows.append(
                {
                    "label": f"{method}, {layers}",
                    "seed": step,
                    "look": 1,
                    "seconds_cpu": spent,
                }
            )
    return rows


TIMED = ("Adam", "RLS", "RLS+M", "RLS+M+R")
WARM = 5  # steps that are not counted


def seconds_table(rows: pd.DataFrame, printed: Mapping[str, float]) -> pd.DataFrame:
    """Return the median seconds of a step, and how they compare with Adam's."""
    medians = rows[rows["seed"] >= WARM].groupby("label", sort=False)["seconds_cpu"]
    spent = medians.median()
    layers = spent.index.str.split(", ").str[1]
    times = (spent / spent.reindex("Adam, " + layers).to_numpy()).round(2)
    return pd.DataFrame(
        {
            "seconds of a step": spent.map("{:.3g}".format),
            "times Adam's": times,
            "paper, on its GPU": pd.Series(printed).reindex(spent.index),
        }
    )


def about(
    rows: pd.DataFrame, printed: Mapping[str, float], *, claim: str, margin: float
) -> Judged:
    """Judge whether ratios are at most a margin above those of the paper's GPU."""
    takes = rows.groupby("label")["unit"].nunique()
    for label, row in seconds_table(rows, printed).dropna().iterrows():
        number, here = row["paper, on its GPU"], row["times Adam's"]
        held = of_runs(YES if here <= number + margin else NO, takes[label])
        measured = f"{here:.2f} times on one CPU thread"
        yield claim.format(label=label, number=number), measured, held


# Complexity


def multiplications(
    model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer | None = None
) -> int:
    """Count the multiplications of a forward and backward pass, and of a step."""
    more = {torch.ops.aten.addmm_: addmm_flop}
    with FlopCounterMode(display=False, custom_mapping=more) as counter:
        outputs = model(x)
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        outputs.square().sum().backward()
        if optimizer:
            optimizer.step()
    return counter.get_total_flops() // 2


def complexity(
    checkpoint: Checkpoint,
    *,
    M: int = 128,
    T: int = 32,
    N: int = 512,
    C: int = 64,
    side: int = 16,
) -> list[dict]:
    """Return the time and space of RLS over those of SGD, layer by layer."""
    conv, hat, positions = nn.Conv2d(C, C, 3, padding=1), 9 * C, M * side**2
    image, sequence = (M, C, side, side), (T, M, N)
    step, long = M * N**2, 1 + N / (M * T)
    cases = [  # name, layer, shape of the input, SGD's time, the paper's ratios
        ("FC", nn.Linear(N, N), (M, N), step, 1 + N / M, 2),
        ("FC b", nn.Linear(N, N), sequence, T * step, long, 2),
        ("CONV", conv, image, hat * C * positions, 1 + hat / positions, 1 + hat / C),
        ("RECUR", nn.RNN(N, N), sequence, 2 * T * step, long, 2),
        ("LSTM", nn.LSTM(N, N), sequence, 8 * T * step, long, 1.25),
    ]
    rows = []
    for name, layer, shape, products, paper_time, paper_space in cases:
        layer, x = layer.double(), torch.randn(shape).double()  # no fused kernels
        plain = multiplications(layer, x)
        summed = [{"layer": "", "time_steps": T}] if name == "FC b" else None
        rls = RLS(layer, layers=summed)
        extra = multiplications(layer, x, rls) - plain
        P = sum(state["P"].numel() for state in rls.state.values() if "P" in state)
        weights = sum(parameter.numel() for parameter in layer.parameters())
        rows.append(
            {
                "label": name,
                "time": 1 + extra / products,
                "space": 1 + P / weights,
                "paper, time": paper_time,
                "paper, space": paper_space,
            }
        )
    return rows


def counted(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of Tables I and II beside those that were counted."""
    return rows.set_index("label").drop(columns="unit").round(3)


def counts(rows: pd.DataFrame, *, claim: str, close: float) -> Judged:
    """Judge whether each counted ratio agrees with the paper's formula."""
    for row in rows.to_dict("records"):
        for what, table in (("time", "I"), ("space", "II")):
            here, paper = row[what], row[f"paper, {what}"]
            held = YES if abs(here / paper - 1) <= close else NO
            named = claim.format(
                table=table, label=row["label"], number=paper, what=what
            )
            yield named, f"{here:.3f}", held
