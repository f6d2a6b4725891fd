"""The cost of RLS: its running time over Adam's, and Tables I and II."""

import math
import time
from collections.abc import Iterator

import pandas as pd
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, addmm_flop

from labkit.lab.books.rls_training import CONSTANTS, make_training, network
from labkit.lab.claims import NO, YES
from labkit.lab.runs.jobs import Checkpoint
from labkit.rls import RLS
from reproduction.criteria import NOT_CONTRADICTED, SEEDS, of_runs
from reproduction.rls import problem_of
from reproduction.studies import Study

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
        g = torch.Generator().manual_seed(0)
        runs[method] = training.run(model, problem, generator=g)
    for step in range(steps):
        for method, run in runs.items():
            began = time.process_time()
            next(run)
            spent = time.process_time() - began
            row = {"label": f"{method}, {layers}", "seed": step, "look": 1}
            rows.append(row | {"seconds_cpu": spent})
    return rows


def seconds_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the median seconds of a step, and how they compare with Adam's."""
    medians = rows[rows["seed"] >= WARM].groupby("label", sort=False)["seconds_cpu"]
    shown = medians.median().rename("seconds of a step").to_frame()
    layers = shown.index.str.split(", ").str[1]
    adam = [shown.loc[f"Adam, {each}", "seconds of a step"] for each in layers]
    shown["times Adam's"] = (shown["seconds of a step"] / adam).round(2)
    paper = [
        RUNNING[each] if not label.startswith("Adam") else None
        for label, each in zip(shown.index, layers, strict=True)
    ]
    shown["seconds of a step"] = shown["seconds of a step"].map("{:.3g}".format)
    return shown.assign(**{"paper, on its GPU": paper})


def seconds_claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Compare the ratios with those of the paper, which has them from a GPU."""
    takes = rows.groupby("label")["unit"].nunique()
    for label, row in seconds_table(rows).iterrows():
        said, here = row["paper, on its GPU"], row["times Adam's"]
        if not math.isnan(said):
            held = of_runs(YES if here <= said + 0.1 else NO, takes[label])
            claim = f"VI-B: {label}: about {said:.1f} times Adam's running time"
            yield claim, f"{here:.2f} times on one CPU thread", held


TIMED = ("Adam", "RLS", "RLS+M", "RLS+M+R")
RUNNING = {"FC": 1.1, "CONV": 1.4, "LSTM": 1.1}  # VI-B, on a GTX 1080 Ti
WARM = 5  # steps that are not counted
SECONDS = Study(
    name="rls/seconds",
    shows="VI-B: running time over Adam's",
    claim="VI-B: RLS takes 1.1, 1.4 and 1.1 times Adam's time on FNNs, CNNs and LSTMs",
    data="MNIST, CIFAR-10 and IMDB",
    setting="the networks of Figures 2(a) to 2(c), batch 128, 30 steps of each method "
    "in turn, the processor's seconds of one thread, medians after 5 steps",
    differs="one CPU thread for the paper's GTX 1080 Ti",
    work=seconds_of,
    units={
        "FC": {"layers": "FC", "data": "mnist"},
        "CONV": {"layers": "CONV", "data": "cifar10"},
        "LSTM": {"layers": "LSTM", "data": "imdb"},
    },
    small={"layers": "FC", "data": "digits", "steps": 8},
    minutes=4,
    memory=3,
    old=seconds_table,
    judges=seconds_claims,
    criterion="yes where the ratio is at most 0.1 above the paper's, else no; of fewer "
    f"than {SEEDS} units, each of which is one take on one machine, a yes is "
    f"{NOT_CONTRADICTED!r} and a no undecided; the paper's numbers are those of a GPU",
)

# Complexity


def layers(M: int, T: int, N: int, C: int, side: int) -> Iterator[tuple]:
    """Yield each kind of layer, its input shape, SGD's time and the paper's ratios."""
    conv, hat = nn.Conv2d(C, C, 3, padding=1), 9 * C
    positions = M * side**2
    products = {"FC": N * M * N, "CONV": hat * positions * C}
    products["RECUR"] = 2 * N * M * T * N
    yield "FC", nn.Linear(N, N), (M, N), products["FC"], (1 + N / M, 2)
    ratios = 1 + N / (M * T), 2
    yield "FC b", nn.Linear(N, N), (T, M, N), T * products["FC"], ratios
    ratios = 1 + hat / positions, 1 + hat / C
    yield "CONV", conv, (M, C, side, side), products["CONV"], ratios
    recurrent = 1 + 2 * N**2 / (2 * N * M * T)
    yield "RECUR", nn.RNN(N, N), (T, M, N), products["RECUR"], (recurrent, 2)
    yield "LSTM", nn.LSTM(N, N), (T, M, N), 4 * products["RECUR"], (recurrent, 1.25)


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
    for name, layer, shape, products, ratios in layers(M, T, N, C, side):
        layer, x = layer.double(), torch.randn(shape).double()  # no fused kernels
        plain = multiplications(layer, x)
        summed = [{"layer": "", "time_steps": T}] if name == "FC b" else None
        rls = RLS(layer, layers=summed)
        extra = multiplications(layer, x, rls) - plain
        P = sum(state["P"].numel() for state in rls.state.values() if "P" in state)
        weights = sum(p.numel() for p in layer.parameters())
        here = {"time": 1 + extra / products, "space": 1 + P / weights}
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
    old=counted,
    judges=count_claims,
    criterion=f"yes where both differ by at most {CLOSE:.0%}",
    version=2,
)

STUDIES = (COMPLEXITY, SECONDS)
