"""Networks and learners by name, and their gradients compared with exact RTRL."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.errors import DataError
from labkit.instruments import gradient_cosine, relative_variance
from labkit.lab.datasets import Text, load
from labkit.rtrl import (
    LEARNERS,
    OK,
    RTRL,
    TBPTT,
    CharStream,
    Learner,
    Readout,
    RHNCell,
    Symbols,
    minimum_variance,
    train,
    water_level,
)


@dataclass(frozen=True)
class Network:
    """A cell with its readout, and how well they predict after their training."""

    cell: RHNCell
    readout: Readout
    bits: float = float("nan")  # mean of the last training steps; nan if untrained

    def adam(self, lr: float = 3e-3, **options) -> torch.optim.Adam:
        """Return Adam over the weights of the cell and the readout."""
        weights = [self.cell.weight, self.readout.weight]
        return torch.optim.Adam(weights, lr=lr, **options)


def read_text(name: str, device: torch.device | str | None = None) -> Text:
    """Load the part of a text to train on, by name or by the path of a ``.txt``.

    Raises
    ------
    DataError
        If the name stands for rows, such as those of a table, or for a file that is no
        text in UTF-8 or has less than 1,000 characters.
    """
    text = load(name, device=device)
    if not isinstance(text, Text):
        raise DataError(f"{name} has rows, but a text is needed, such as a .txt file")
    return text


def new_network(
    inputs: int,
    hidden: int,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Network:
    """Make an untrained recurrent highway network with weights from N(0, 0.01^2)."""
    options = {"device": device, "dtype": dtype}
    generator = torch.Generator(device or "cpu").manual_seed(seed)
    cell = RHNCell(inputs, hidden, generator=generator, **options)
    return Network(cell, Readout(hidden, inputs, generator=generator, **options))


BATCH = 32  # streams of the text
HORIZON = 25  # steps that TBPTT looks back


def train_network(
    text: Text, hidden: int, *, updates: int, seed: int = 0
) -> Iterator[tuple[int, Network]]:
    """Train on text by TBPTT with Adam; yield (update, network) after each update."""
    symbols, device = len(text.symbols), text.tokens.device
    network = new_network(symbols, hidden, seed=seed, device=device)
    cell, readout, optimizer = network.cell, network.readout, network.adam()
    stream = CharStream(text.tokens, symbols, BATCH, device=device)
    learner, bits = TBPTT(cell, batch_size=BATCH, horizon=HORIZON), []
    steps = updates * HORIZON
    for record in train(learner, readout, stream, steps=steps, optimizer=optimizer):
        bits.append(record.bits)
        if record.updated:
            recent = bits[-20 * HORIZON :]
            mean = sum(recent) / len(recent)
            yield record.step // HORIZON, Network(cell, readout, mean)


def make_learner(
    method: str, rank: int, cell: RHNCell, *, batch_size: int, seed: int
) -> Learner:
    """Make the learner of a row of LEARNERS, with a generator seeded by ``seed``."""
    generator = torch.Generator(cell.weight.device).manual_seed(seed)
    return LEARNERS[method].make(cell, rank, batch_size=batch_size, generator=generator)


def estimates(
    network: Network, learners: Mapping[str, Learner], source: Text | Iterable[Symbols]
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Yield the gradients of learners and of exact RTRL, with frozen weights.

    A learner's batch holds its draws, R = batch_size. They read the same sequence and
    differ only in their signs, so one exact learner serves all. It yields the draws
    (R, m, K n) by name and the exact gradient (m, K n).
    """
    stream, cell, weight = source, network.cell, network.cell.weight
    if isinstance(source, Text):
        options = {"device": weight.device, "dtype": weight.dtype}
        stream = CharStream(source.tokens, cell.input_size, 1, reset_every=0, **options)
    exact = RTRL(cell, batch_size=1)
    for x, target, restart in stream:
        exact.reset(restart)
        _, dL_dh, _ = network.readout.loss(exact.step(x), target)
        drawn = {}
        for name, learner in learners.items():
            draws = learner.batch_size
            learner.reset(restart.repeat(draws))
            learner.step(x.repeat(draws, 1))
            drawn[name] = learner.per_sequence_gradient(dL_dh.repeat(draws, 1))
        yield drawn, exact.gradient(dL_dh)


def noise_numbers(learner: Learner, drawn: Tensor, truth: Tensor) -> dict[str, float]:
    """Return numbers that compare draws (R, m, K n) with the exact gradient.

    They are the draws' mean ``cosine`` and the gradient's ``relative_variance``; for OK
    also the first draw's spectrum ``d1``, ``d2``, ..., its water ``level``, and the
    step's own mixing error relative to |d|^2, ``drawn`` (mean over the draws) beside
    ``theorem``.
    """
    row = {"cosine": float(gradient_cosine(drawn, truth).mean())}
    row["relative_variance"] = float(relative_variance(drawn, truth))
    if not isinstance(learner, OK) or learner.biased:
        return row
    d, Y, rank = learner.spectrum, learner.mixing, learner.rank
    size = d.square().sum(-1).mean().clamp_min(1e-300)
    error = (Y @ Y.mT - torch.diag_embed(d)).square().sum((-2, -1)).mean()
    row |= {f"d{i}": float(value) for i, value in enumerate(d[0], start=1)}
    row |= {"level": float(water_level(d[:1], rank)), "drawn": float(error / size)}
    return row | {"theorem": float(minimum_variance(d, rank).mean() / size)}
