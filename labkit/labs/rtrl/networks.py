"""The networks that the RTRL lab measures, and its learners by name."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from labkit.datasets import load
from labkit.rtrl import (
    KFRTRL,
    KTP,
    OK,
    RTRL,
    TBPTT,
    UORO,
    CharStream,
    Readout,
    RHNCell,
    train,
)


def read_text(corpus: str, device=None):
    """Load the corpus named by a notebook's parameter: ``text`` or ``ptb``."""
    return load(corpus, split="train", device=device)


# name -> how to make it from a rank; the name is what knobs and tables show
METHODS = {
    "OK": lambda cell, r, **kw: OK(cell, rank=r, **kw),
    "B-OK": lambda cell, r, **kw: OK(cell, rank=r, biased=True, **kw),
    "KF-AVG": lambda cell, r, **kw: KFRTRL(cell, copies=r, **kw),
    "KF-APPROX": lambda cell, r, **kw: KFRTRL(cell, diagonal_rank=r, **kw),
    "KTP": lambda cell, r, **kw: KTP(cell, rank=r, **kw),
    "KTP-SHARED": lambda cell, r, **kw: KTP(cell, rank=r, shared=True, **kw),
    "UORO": lambda cell, r, **kw: UORO(cell, **kw),
    "RTRL": lambda cell, r, **kw: RTRL(cell, **kw),
    "TBPTT": lambda cell, r, **kw: TBPTT(cell, horizon=r, **kw),
}
UNRANKED = ("UORO", "RTRL")


def parse_method(name: str) -> tuple[str, int]:
    """Split a name such as ``8-OK``, ``KF`` (one copy), ``UORO`` or ``25-TBPTT``."""
    number, _, rest = name.partition("-")
    method, rank = (rest, int(number)) if number.isdigit() else (name, 1)
    method = "KF-AVG" if method in ("KF", "KF-RTRL") else method
    if method not in METHODS or rank < 1:
        raise ValueError(
            f"unknown method {name!r}; write r-NAME with r >= 1, or NAME, of "
            f"{', '.join(METHODS)}, KF"
        )
    return method, rank


def method_label(method: str, rank: int) -> str:
    """Inverse of :func:`parse_method`: ``8-OK``, ``UORO``."""
    return method if method in UNRANKED else f"{rank}-{method}"


def make_learner(name: str, cell, *, batch_size: int, seed: int):
    """Make the learner called ``name`` with its own generator seeded with ``seed``."""
    method, rank = parse_method(name)
    generator = torch.Generator(cell.weight.device).manual_seed(seed)
    make = METHODS[method]
    return make(cell, rank, batch_size=batch_size, generator=generator)


@dataclass(frozen=True)
class Network:
    """A cell with its readout, and what was read to get there."""

    cell: RHNCell
    readout: Readout
    bits: float = float("nan")  # mean of the last training steps; nan if untrained


def new_network(inputs, hidden, *, seed=0, device=None, dtype=None) -> Network:
    """Untrained recurrent highway network, weights N(0, 0.01^2)."""
    options = {"device": device, "dtype": dtype}
    g = torch.Generator(device or "cpu").manual_seed(seed)
    cell = RHNCell(inputs, hidden, generator=g, **options)
    return Network(cell, Readout(hidden, inputs, generator=g, **options))


def train_network(
    text, hidden, *, updates, batch=32, horizon=25, lr=3e-3, seed=0, device=None
) -> Iterator[tuple[int, Network]]:
    """Train on text by TBPTT with Adam; yields (update, network) after each update."""
    network = new_network(len(text.symbols), hidden, seed=seed, device=device)
    stream = CharStream(text.tokens, len(text.symbols), batch, device=device)
    learner = TBPTT(network.cell, batch_size=batch, horizon=horizon)
    optimizer = adam(network, lr)
    bits = []
    for record in train(
        learner, network.readout, stream, steps=updates * horizon, optimizer=optimizer
    ):
        bits.append(record.bits)
        if record.updated:
            recent = bits[-20 * horizon :]
            mean = sum(recent) / len(recent)
            yield (
                record.step // horizon,
                Network(network.cell, network.readout, mean),
            )


def trained_network(text, hidden, **options) -> Network:
    """Last network of :func:`train_network`."""
    *_, (_, network) = train_network(text, hidden, **options)
    return network


def adam(network: Network, lr: float) -> torch.optim.Adam:
    """Adam over cell and readout."""
    return torch.optim.Adam([network.cell.weight, network.readout.weight], lr=lr)
