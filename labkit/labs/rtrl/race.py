"""Methods side by side while they learn: the Copy race, text."""

import time
from collections.abc import Sequence

import pandas as pd
import torch

from labkit.instruments import Trace
from labkit.labs.rtrl.networks import adam, make_learner, new_network
from labkit.panels import Lines, LivePlot
from labkit.rtrl import CharStream, CopyTask, train


def copy_race(
    names: Sequence[str],
    *,
    hidden,
    batch,
    steps,
    lr=3e-3,
    seed=0,
    path=None,
    device=None,
    every=20,
) -> Trace:
    """Train every method on the Copy task, in turn symbol by symbol.

    Logged every ``every`` symbols: ``level NAME``, ``error NAME`` (running bits per
    symbol) and ``seconds NAME``, the time that this method alone has taken.
    """

    def task():
        generator = torch.Generator().manual_seed(seed)  # the same symbols for all
        return CopyTask(batch, generator=generator, device=device)

    tasks = {name: task() for name in names}
    options = {"hidden": hidden, "steps": steps, "lr": lr, "seed": seed}
    runs = {name: _training(name, tasks[name], **options) for name in names}
    parameters = options | {"batch": batch, "methods": ", ".join(names)}
    trace = Trace(path, parameters=parameters, device=str(device or "cpu"), seed=seed)
    seconds = dict.fromkeys(names, 0.0)
    with trace:
        for step in range(every, steps + 1, every):
            row = {}
            for name, records in runs.items():
                begin = time.perf_counter()
                for _ in range(every):
                    next(records)
                seconds[name] += time.perf_counter() - begin
                row[f"level {name}"] = tasks[name].level
                row[f"error {name}"] = tasks[name].error
                row[f"seconds {name}"] = seconds[name]
            trace.log(step, **row)
    return trace


def _training(name, task, *, hidden, steps, lr, seed):
    """Online training of a fresh network by the method called ``name``."""
    network = new_network(task.input_size, hidden, seed=seed, device=task.device)
    learner = make_learner(name, network.cell, batch_size=task.batch_size, seed=seed)
    return train(
        learner, network.readout, task, steps=steps, optimizer=adam(network, lr)
    )


def race_table(trace: Trace, names: Sequence[str]) -> pd.DataFrame:
    """Levels at equal data, and at the time that the fastest method needed for it."""
    frame = trace.frame()
    budget = min(frame[f"seconds {name}"].iloc[-1] for name in names)
    rows = {}
    for name in names:
        in_time = frame[frame[f"seconds {name}"] <= budget]
        rows[name] = {
            "level at equal data": int(frame[f"level {name}"].iloc[-1]),
            "symbols in equal time": int(in_time.index[-1]) if len(in_time) else 0,
            "level in equal time": int(in_time[f"level {name}"].iloc[-1])
            if len(in_time)
            else 1,
            "ms per symbol": 1e3 * frame[f"seconds {name}"].iloc[-1] / frame.index[-1],
        }
    return pd.DataFrame(rows).T.rename_axis("method")


def race_plot(trace: Trace, names: Sequence[str], *, interactive=True) -> LivePlot:
    """Level and running error of a Copy race against symbols read."""
    levels = Lines(
        {f"level {n}": n for n in names}, "Length reached", "T", x_title="symbols read"
    )
    errors = Lines(
        {f"error {n}": n for n in names},
        "Running error",
        "bits per symbol",
        x_title="symbols read",
    )
    return LivePlot(
        trace,
        (levels, errors),
        reading="Who gets the running error below 0.15 bits goes on to a longer "
        "string; at sizes that fit a notebook most of the order is noise of the seed.",
        interactive=interactive,
    )


def learn_text(
    names: Sequence[str],
    text,
    *,
    hidden,
    batch,
    steps,
    lr=3e-3,
    seed=0,
    path=None,
    device=None,
    every=25,
) -> Trace:
    """Train every method online on text; logs ``bits NAME``, means over ``every``."""

    def stream():
        return CharStream(text.tokens, len(text.symbols), batch, device=device)

    options = {"hidden": hidden, "steps": steps, "lr": lr, "seed": seed}
    runs = {name: _training(name, stream(), **options) for name in names}
    parameters = options | {
        "batch": batch,
        "methods": ", ".join(names),
        "text": text.name,
    }
    trace = Trace(path, parameters=parameters, device=str(device or "cpu"), seed=seed)
    with trace:
        for step in range(every, steps + 1, every):
            row = {
                f"bits {name}": sum(next(records).bits for _ in range(every)) / every
                for name, records in runs.items()
            }
            trace.log(step, **row)
    return trace


def text_plot(trace: Trace, names: Sequence[str], *, interactive=True) -> LivePlot:
    """Bits per character against characters read."""
    panel = Lines(
        {f"bits {n}": n for n in names},
        "Text, learned online",
        "bits per character",
        x_title="characters read by each stream",
    )
    return LivePlot(
        trace,
        (panel,),
        reading="The early fall is the letter frequencies: learning them needs no "
        "memory, so even a noisy gradient does it.",
        interactive=interactive,
        columns=1,
    )
