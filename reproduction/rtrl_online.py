"""Training a recurrent network online, on Copy or on a text, and its bits."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice

import torch
from torch.nn.functional import nll_loss

from labkit.lab.books.rtrl_training import Network, make_learner, new_network
from labkit.lab.datasets import Text, load, load_ptb
from labkit.lab.problem import seeded
from labkit.lab.runs.jobs import Checkpoint
from labkit.rtrl import CharStream, CopyTask, train
from labkit.rtrl.learners import label
from labkit.scale import graphed

CHUNK = 50  # steps between two chances to save; on CUDA, which waits at them, more
LOGGED = 10**-3.5  # the rate of every run that the authors published


@cache
def text(data: str, split: str) -> Text:
    """Load the characters of a split; the Penn Treebank keeps its blanks, as there."""
    return load_ptb(split, blanks=True) if data == "ptb" else load(data, split)


def task_of(
    data: str, batch: int, seed: int, device: str = "cpu"
) -> CopyTask | CharStream:
    """Return the task: Copy, or a text with resets every 100 characters."""
    if data == "copy":
        return CopyTask(batch, generator=seeded(seed, device), device=device)
    read = text(data, "train")
    return CharStream(read.tokens, len(read.symbols), batch, device=device)


@contextmanager
def tensor_cores(used: bool) -> Iterator[None]:
    """Have a GPU round the factors of float32 products to TF32, or not; then restore.

    TF32 has 10 bits after the point, and its products are several times as fast.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = used
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@torch.no_grad()
@tensor_cores(False)
def bits_on(network: Network, data: str, split: str, streams: int = 64) -> float:
    """Return the bits per character of a split that frozen weights read once.

    ``streams`` pointers read the split in parallel; of many steps the predictions are
    made at once. On CUDA these steps are one graph.
    """
    cell, device = network.cell, network.cell.weight.device
    tokens = text(data, split).tokens.to(device)
    steps = len(tokens) // streams
    at = steps * torch.arange(streams, device=device)
    at = at + torch.arange(steps, device=device)[:, None]  # (steps, streams)
    symbols, following = tokens[at], tokens[(at + 1) % len(tokens)]
    eye = torch.eye(cell.input_size, device=device)
    state, losses = cell.initial_state(streams), []

    def read(x, target, state):
        seen = []
        for each in x:
            state = cell.linearise(each, state).state
            seen.append(cell.hidden(state))
        log_p = network.readout(torch.stack(seen)).log_softmax(-1)
        return nll_loss(log_p.mT, target, reduction="none"), state

    if device.type == "cuda":
        read = graphed(read, device=device)
    for some, target in zip(symbols.split(CHUNK), following.split(CHUNK), strict=True):
        loss, state = read(eye[some], target, state)
        losses.append(loss)
    return float(torch.cat(losses).double().mean()) / math.log(2)


def online(
    checkpoint: Checkpoint,
    *,
    data: str,
    method: str,
    rank: int,
    hidden: int,
    batch: int,
    steps: int,
    every: int,
    lr: float = LOGGED,
    clip: float = 1.0,
    seed: int = 0,
    tf32: bool = False,
    device: str = "cpu",
) -> list[dict]:
    """Train online, and return a look every ``every`` steps.

    ``bits`` are those of the training symbols since the look before. On text a look
    also has the bits of the validation split, and the last one those of the test split.
    On CUDA the steps are replayed as graphs where the learner's can be, and ``tf32``
    has it multiply in TF32 as it trains.
    """
    task = task_of(data, batch, seed, device)
    network = new_network(task.input_size, hidden, seed=seed, device=device)
    learner = make_learner(method, rank, network.cell, batch_size=batch, seed=seed)
    recorded = torch.device(device).type == "cuda" and not learner.on_host
    optimizer = network.adam(lr, capturable=recorded, fused=recorded or None)
    saved = checkpoint.load()
    parts = {
        "cell": network.cell,
        "readout": network.readout,
        "task": task,
        "learner": learner,
        "optimizer": optimizer,
    }
    rows, done, recent = [], 0, []
    if saved:
        rows, done, recent = saved["rows"], saved["steps"], saved["recent"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    named = f"{label(method, rank)}, rate {lr:.2g}, batch {batch}"
    if done == steps:
        return rows
    before, left = done, steps - done
    records = train(
        learner,
        network.readout,
        task,
        steps=left,
        optimizer=optimizer,
        clip=clip,
        record=graphed if recorded else None,
    )
    chunk = math.gcd(every, 10 * CHUNK) if recorded else CHUNK
    with tensor_cores(tf32):
        while seen := list(islice(records, chunk)):
            losses = torch.stack([record.mean for record in seen]).double()
            recent = recent + (losses / math.log(2)).tolist()
            done = before + seen[-1].step
            if done % every == 0 or done == steps:
                row = {
                    "label": named,
                    "seed": seed,
                    "look": done,
                    "bits": sum(recent) / len(recent),
                    "level": task.level,
                }
                if data != "copy":
                    row["valid"] = bits_on(network, data, "valid")
                    if done == steps:
                        row["test"] = bits_on(network, data, "test")
                rows, recent = [*rows, row], []
            state = {name: part.state_dict() for name, part in parts.items()}
            checkpoint.save(state | {"rows": rows, "steps": done, "recent": recent})
    return rows
