"""RLS at the paper's size: Figures 2 to 5, and Tables I and II."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import pandas as pd
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, addmm_flop

from labkit.errors import DivergedError
from labkit.lab.claims import NO, YES, plus_minus, verdict
from labkit.lab.datasets import load_imdb
from labkit.lab.problem import Problem, load_problem, rows as some
from labkit.lab.race import Race, View, spread
from labkit.lab.rls.training import (
    CONSTANTS,
    after_each_epoch,
    make_training,
    network,
)
from labkit.lab.runs.jobs import Checkpoint
from labkit.rls import RLS
from reproduction.studies import SPREAD, Study

SQUARES = ("Adam", "RLS", "RLS+M", "RLS+R", "RLS+M+R")
ENTROPY = ("Adam-CE", "HRLS", "HRLS+M", "HRLS+R", "HRLS+M+R")


def looked_at(epoch: int) -> bool:
    """Return whether an epoch is kept: the first ten and every fifth are."""
    return epoch <= 10 or epoch % 5 == 0


def problem_of(data: str) -> Problem:
    """Load a data set; of the film reviews only some, each by its first 100 words."""
    if data != "imdb":
        return load_problem(data)
    parts = []
    for split, count in REVIEWS.items():
        read = load_imdb(split, length=100)
        g = torch.Generator().manual_seed(0)
        parts.append(some(read, torch.randperm(len(read.targets), generator=g)[:count]))
    return Problem(*parts)


REVIEWS = {"train": 5_000, "test": 2_500}


def epochs_of(
    checkpoint: Checkpoint,
    *,
    method: str,
    seed: int,
    epochs: int,
    data: str = "mnist",
    layers: str = "FC",
    **options: float,
) -> list[dict]:
    """Train by a method, and return a look after each epoch that `looked_at` keeps."""
    problem = problem_of(data)
    torch.manual_seed(seed)
    model = network(problem, layers)
    training = make_training(method, model, **CONSTANTS[layers], **options)
    g, saved = torch.Generator().manual_seed(seed), checkpoint.load()
    rows, done, seconds = [], 0, 0.0
    if saved:
        rows, done, seconds = saved["rows"], saved["done"], saved["seconds"]
        model.load_state_dict(saved["model"])
        training.optimizer.load_state_dict(saved["optimizer"])
        g.set_state(saved["generator"])
    named = [f"{k} {v:g}" for k, v in options.items()]
    run = {"label": ", ".join([method, *named]), "seed": seed}
    for epoch in range(done + 1, epochs + 1):
        records = training.run(model, problem, generator=g)
        try:
            (measured,) = after_each_epoch(records)
        except DivergedError as error:
            return [*rows, run | {"look": epoch, "failed": str(error)}]
        seconds += measured["seconds"]
        if looked_at(epoch) or epoch == epochs:
            row = run | {"look": epoch, "loss": measured["loss"], "seconds": seconds}
            rows.append(row | {"accuracy": measured["accuracy"]})
        state = {"model": model.state_dict(), "done": epoch, "rows": rows}
        state |= {"optimizer": training.optimizer.state_dict(), "seconds": seconds}
        checkpoint.save(state | {"generator": g.get_state()})
    return rows


def at(rows: pd.DataFrame, look: int) -> pd.DataFrame:
    """Return the looks of one epoch."""
    return rows[rows["look"] == look]


def ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last looks; a run that failed has nan."""
    return Race(rows).last()


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the loss and accuracy after epochs 1 and 10 and the last in words."""
    shown, last = {}, int(rows["look"].max())
    told = {"loss": loss_of, "accuracy": partial(plus_minus, unit="", digits=2)}
    ten = [("10", at(rows, 10))] if last > 10 else []
    for name, looks in (("1", at(rows, 1)), *ten, ("end", ends(rows))):
        for column, words_of in told.items():
            found = spread(looks, column)
            words = [words_of(row) for _, row in found.iterrows()]
            name = str(last) if name == "end" else name
            shown[f"{column}, epoch {name}"] = pd.Series(words, found.index)
    runs = rows.groupby("label").seed.nunique()
    found = pd.DataFrame(shown)
    lost = found.iloc[:, -1] == "failed"  # these have no looks after the failure
    found[lost] = found[lost].fillna("failed")
    return found.assign(runs=runs)


def loss_of(row: Mapping[str, float]) -> str:
    """Return a loss in three significant digits, and its standard deviation in one."""
    if math.isnan(row["mean"]):
        return "failed"
    sd = "" if math.isnan(row["sd"]) else f" ± {row['sd']:.1g}"
    return f"{row['mean']:#.3g}{sd}"


PAIRS = (
    ("RLS", "Adam", "VI-B: RLS above Adam"),
    ("RLS+M", "Adam", "VI-B: RLS+M above Adam"),
    ("RLS+M+R", "Adam", "VI-B: RLS+M+R above Adam"),
    ("RLS+M", "RLS", "VI-B: momentum improves RLS"),
    ("RLS+R", "RLS", "VI-B: L1 improves RLS"),
    ("HRLS", "Adam-CE", "VI-B: HRLS above Adam"),
    ("HRLS+M", "Adam-CE", "VI-B: HRLS+M above Adam"),
    ("HRLS+M+R", "Adam-CE", "VI-B: HRLS+M+R above Adam"),
    ("HRLS+M", "HRLS", "VI-B: momentum improves HRLS"),
    ("HRLS+R", "HRLS", "VI-B: L1 improves HRLS"),
)


def claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge who is ahead by test accuracy, after the first epoch and at the end."""
    for when, looks in (("after epoch 1", at(rows, 1)), ("at the end", ends(rows))):
        found = spread(looks, "accuracy")
        for a, b, claim in PAIRS:
            if a in found.index and b in found.index:
                one, two = found.loc[a], found.loc[b]
                told = f"{plus_minus(one, digits=2)} and {plus_minus(two, digits=2)}"
                yield f"{claim} ({when})", told, verdict(one, two)


VIEWS = (
    View("look", "loss", "Training loss", "epoch", "loss", log_y=True),
    View("look", "accuracy", "Test accuracy", "epoch", "%", log_x=True),
)
MNIST = Study(
    name="rls/fig2a-3a",
    shows="Figures 2(a) and 3(a): MNIST, squared error and cross-entropy",
    claim="VI-B: RLS and the hybrid converge faster than Adam and end better; "
    "momentum and L1 improve them",
    data="MNIST, 60,000 and 10,000 images, pixels in [0, 1]",
    setting="784-512-10, batch 128, 100 epochs, lambda 1, k 0.1, eta 1, alpha 0.5, "
    "gamma 1e-5, clip 5; Adam at its default rate, 1e-3",
    differs="three runs for the paper's five; on one CPU thread; the scale of the "
    "pixels and the last short minibatch are not stated there",
    work=epochs_of,
    units={
        f"{method}-{seed}": {"method": method, "seed": seed, "epochs": 100}
        for seed in range(3)
        for method in (*SQUARES, *ENTROPY)
    },
    small={"method": "HRLS+M+R", "seed": 0, "epochs": 3, "data": "digits"},
    minutes=10,
    memory=1,
    table=table,
    claims=claims,
    views=VIEWS,
)

LEADERS = ("Adam", "RLS", "RLS+M", "Adam-CE", "HRLS+M")
CIFAR = Study(
    name="rls/fig2b-3b",
    shows="Figures 2(b) and 3(b): CIFAR-10",
    claim=MNIST.claim,
    data="CIFAR-10, 10,000 of its 50,000 images to learn from, 1,000 of 10,000 to test",
    setting="five CONV layers of VGG-16 and FC 1024, batch 128, 20 epochs, constants "
    "as on MNIST",
    differs="a fifth of the images, 20 epochs and one run for the paper's 100 and "
    "five; 2 x 2 pooling after the fifth CONV layer, inferred from the printed ratio "
    "of times",
    work=epochs_of,
    units={
        f"{method}-0": {"method": method, "seed": 0, "epochs": 20}
        | {"data": "cifar10", "layers": "CONV"}
        for method in LEADERS
    },
    small={"method": "RLS+M", "seed": 0, "epochs": 2, "data": "digits"}
    | {"layers": "CONV"},
    minutes=45,
    memory=3,
    table=table,
    claims=claims,
    views=VIEWS,
)
IMDB = Study(
    name="rls/fig2c-3c",
    shows="Figures 2(c) and 3(c): IMDB",
    claim=MNIST.claim,
    data="IMDB, 5,000 of 25,000 reviews to learn from, 2,500 of 25,000 to test",
    setting="two LSTM layers of 512, first 100 words of 20,000 known ones, embedded by "
    "Adam, batch 128, 15 epochs, clip 1",
    differs="a fifth of the reviews, 15 epochs and one run for the paper's 100 and "
    "five; words, length and embedding are not stated there",
    work=epochs_of,
    units={
        f"{method}-0": {"method": method, "seed": 0, "epochs": 15}
        | {"data": "imdb", "layers": "LSTM"}
        for method in LEADERS
    },
    small={"method": "HRLS+M", "seed": 0, "epochs": 2, "data": "digits"}
    | {"layers": "LSTM"},
    minutes=45,
    memory=2,
    table=table,
    claims=claims,
    views=VIEWS,
)

SWEPT = {"mean_weight": "k", "lr": "eta"}


def sweep_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge whether the paper's value of each constant is best, and which matters more.

    A value with which every run fails counts as worse than one with which none does.
    """
    last = ends(rows)
    found, failed = spread(last, "accuracy"), last["accuracy"].isna()
    failed = failed.groupby(last["label"]).agg(["sum", "count"])
    matters = {}
    for option, (value, section) in BEST.items():
        mine = found[found.index.str.startswith(f"RLS, {option} ")]
        best = f"RLS, {option} {value:g}"
        if best not in mine.index:
            continue
        for label, other in mine.drop(best).iterrows():
            both, (lost, runs) = (mine.loc[best], other), failed.loc[label]
            told = " and ".join(plus_minus(each, digits=2) for each in both)
            told += f", {lost} of {runs} runs" if lost else ""
            held = verdict(*both)
            if lost == runs and not math.isnan(both[0]["mean"]):
                held = YES
            claim = f"{section}: {SWEPT[option]} = {value:g} ends above"
            yield f"{claim} {label.split()[-1]}", told, held
        ended = mine.dropna(subset="mean").sort_values("mean")
        if len(ended) > 1:
            worst, most = ended.iloc[0], ended.iloc[-1]
            matters[option] = {"mean": most["mean"] - worst["mean"]}
            matters[option] |= {"sd": most["sd"] + worst["sd"]}
    if len(matters) == len(BEST):
        k, eta = matters.values()
        told = " and ".join(plus_minus(each, "points", 2) for each in (eta, k))
        claim = "VI-B: between its best and its worst value that runs eta makes more"
        yield f"{claim} of a difference than k", told, verdict(eta, k)


def swept(runs: int, **given: object) -> dict[str, dict]:
    """Return the units of RLS, in each of which one constant is changed."""
    return {
        f"{SWEPT[option]}-{value:g}-{seed}": {"method": "RLS", "seed": seed}
        | given
        | {option: value}
        for seed in range(runs)
        for option in SWEPT
        for value in (0.01, 0.1, 1.0, 10.0)
    }


BEST = {"mean_weight": (0.1, "VI-B, Fig. 4"), "lr": (1.0, "VI-B, Fig. 5")}
SWEEP = Study(
    name="rls/fig4a-5a",
    shows="Figures 4(a) and 5(a): k and eta, MNIST",
    claim="VI-B: k = 0.1 and eta = 1 are best; too large an eta explodes, too small "
    "an one is slow; eta matters more than k",
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
    table=table,
    claims=sweep_claims,
    criterion=f"{SPREAD}; a value with which every run fails ends below one with "
    "which none does",
    views=VIEWS,
)
CONV_SWEEP = replace(
    SWEEP,
    name="rls/fig4b-5b",
    shows="Figures 4(b) and 5(b): k and eta, CIFAR-10",
    data=CIFAR.data,
    setting="five CONV layers of VGG-16 and FC 1024, RLS, batch 128, 2 epochs, one "
    "constant at a time, the other at k = 0.1, eta = 1",
    differs="a fifth of the images, 2 epochs and two runs for the paper's 100 and "
    "five; eta that of all layers; 2 x 2 pooling as in rls/fig2b-3b",
    units=swept(2, epochs=2, data="cifar10", layers="CONV"),
    small=CIFAR.small | {"method": "RLS", "lr": 0.1},
    minutes=5,
    memory=3,
)

# Complexity


def layers(M: int, T: int, N: int, C: int, side: int) -> Iterator[tuple]:
    """Yield each kind of layer, its input shape, SGD's time and the paper's ratios."""
    conv, hat = nn.Conv2d(C, C, 3, padding=1), 9 * C
    positions = M * side**2
    time = {"FC": N * M * N, "CONV": hat * positions * C, "RECUR": 2 * N * M * T * N}
    yield "FC", nn.Linear(N, N), (M, N), time["FC"], (1 + N / M, 2)
    ratios = 1 + hat / positions, 1 + hat / C
    yield "CONV", conv, (M, C, side, side), time["CONV"], ratios
    recurrent = 1 + 2 * N**2 / (2 * N * M * T)
    yield "RECUR", nn.RNN(N, N), (T, M, N), time["RECUR"], (recurrent, 2)
    yield "LSTM", nn.LSTM(N, N), (T, M, N), 4 * time["RECUR"], (recurrent, 1.25)


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
    rows = []
    for name, layer, shape, time, ratios in layers(M, T, N, C, side):
        layer, x = layer.double(), torch.randn(shape).double()  # no fused kernels
        plain = multiplications(layer, x)
        rls = RLS(layer)
        extra = multiplications(layer, x, rls) - plain
        P = sum(state["P"].numel() for state in rls.state.values() if "P" in state)
        weights = sum(p.numel() for p in layer.parameters())
        here = {"time": 1 + extra / time, "space": 1 + P / weights}
        paper = dict(zip(("paper, time", "paper, space"), ratios, strict=True))
        rows.append({"label": name} | here | paper)
    return rows


def counted(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of Tables I and II beside those that were counted."""
    return rows.set_index("label").drop(columns="unit").round(3)


def count_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge whether each counted ratio agrees with the paper's formula."""
    for row in rows.to_dict("records"):
        for what, table in (("time", "I"), ("space", "II")):
            here, paper = row[what], row[f"paper, {what}"]
            near = YES if abs(here / paper - 1) <= CLOSE else NO
            said = f"{row['label']}: {paper:.3f} times SGD's {what}"
            claim = f"identity: V-A, Table {table}, {said}"
            yield claim, f"{here:.3f}", near


CLOSE = 0.02
COMPLEXITY = Study(
    name="rls/tables1-2",
    shows="Tables I and II: time and space over SGD's",
    claim="V-A: the products of a step and the numbers kept, by layer kind",
    data="none",
    setting="512 units, 64 channels, 3 x 3 filters, 16 x 16 positions, batch 128, 32 "
    "steps in time; multiplications of matrix products, counted while a step runs",
    differs="SGD's time is that of the gradient of the weights, as there; P has a row "
    "for the bias, and the formulas none",
    work=complexity,
    units={"all": {}},
    small={"M": 4, "T": 3, "N": 8, "C": 2, "side": 4},
    minutes=0.1,
    memory=0.5,
    table=counted,
    claims=count_claims,
    criterion=f"yes where both differ by at most {CLOSE:.0%}",
)

STUDIES = (COMPLEXITY, MNIST, SWEEP, CIFAR, IMDB, CONV_SWEEP)
