"""The cost of RLS: its running time over Adam's, and Tables I and II."""

import time
from collections.abc import Iterator, Mapping

import pandas as pd
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, addmm_flop

from labkit.lab.books.rls_training import CONSTANTS, make_training, network
from labkit.lab.claims import NO, YES
from labkit.lab.runs.jobs import Checkpoint
from labkit.rls import RLS
from reproduction.criteria import of_runs
from reproduction.judges import Judged
from reproduction.rls import problem_of

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


TIMED = ("Adam", "RLS", "RLS+M", "RLS+M+R")
WARM = 5  # steps that are not counted


def seconds_table(rows: pd.DataFrame, printed: Mapping[str, float]) -> pd.DataFrame:
    """Return the median seconds of a step, and how they compare with Adam's."""
    medians = rows[rows["seed"] >= WARM].groupby("label", sort=False)["seconds_cpu"]
    spent = medians.median()
    layers = spent.index.str.split(", ").str[1]
    times = (spent / spent.reindex("Adam, " + layers).to_numpy()).round(2)
    paper = pd.Series(layers.map(printed), spent.index)
    paper[spent.index.str.startswith("Adam")] = None
    shown = {"seconds of a step": spent.map("{:.3g}".format), "times Adam's": times}
    return pd.DataFrame(shown | {"paper, on its GPU": paper})


def about(
    rows: pd.DataFrame, printed: Mapping[str, float], *, claim: str, margin: float
) -> Judged:
    """Judge whether ratios are at most a margin above those of the paper's GPU."""
    takes = rows.groupby("label")["unit"].nunique()
    for label, row in seconds_table(rows, printed).dropna().iterrows():
        number, here = row["paper, on its GPU"], row["times Adam's"]
        held = of_runs(YES if here <= number + margin else NO, takes[label])
        told = f"{here:.2f} times on one CPU thread"
        yield claim.format(label=label, number=number), told, held


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


def counts(rows: pd.DataFrame, *, claim: str, close: float) -> Judged:
    """Judge whether each counted ratio agrees with the paper's formula."""
    for row in rows.to_dict("records"):
        for what, table in (("time", "I"), ("space", "II")):
            here, paper = row[what], row[f"paper, {what}"]
            held = YES if abs(here / paper - 1) <= close else NO
            said = claim.format(
                table=table, label=row["label"], number=paper, what=what
            )
            yield said, f"{here:.3f}", held
