"""RTRL on its bench: networks and learners by name, their noise beside exact RTRL."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.instruments import gradient_cosine, relative_variance
from labkit.lab.datasets import Text
from labkit.lab.panels import Bars, Experiment, Lines, knob
from labkit.rtrl import (
    LEARNERS,
    OK,
    RTRL,
    TBPTT,
    CharStream,
    Learner,
    Readout,
    RHNCell,
    minimum_variance,
    train,
    water_level,
)


@dataclass(frozen=True)
class Network:
    """A cell with its readout, and what was read to get there."""

    cell: RHNCell
    readout: Readout
    bits: float = float("nan")  # mean of the last training steps; nan if untrained

    def adam(self, lr: float = 3e-3) -> torch.optim.Adam:
        """Adam over cell and readout."""
        return torch.optim.Adam([self.cell.weight, self.readout.weight], lr=lr)


def new_network(inputs, hidden, *, seed=0, device=None, dtype=None) -> Network:
    """Untrained recurrent highway network, weights N(0, 0.01^2)."""
    options = {"device": device, "dtype": dtype}
    g = torch.Generator(device or "cpu").manual_seed(seed)
    cell = RHNCell(inputs, hidden, generator=g, **options)
    return Network(cell, Readout(hidden, inputs, generator=g, **options))


def train_network(
    text: Text, hidden: int, *, updates: int, batch=32, horizon=25, seed=0
) -> Iterator[tuple[int, Network]]:
    """Train on text by TBPTT with Adam; yields (update, network) after each update."""
    symbols, device = len(text.symbols), text.tokens.device
    network = new_network(symbols, hidden, seed=seed, device=device)
    stream = CharStream(text.tokens, symbols, batch, device=device)
    learner = TBPTT(network.cell, batch_size=batch, horizon=horizon)
    options = {"steps": updates * horizon, "optimizer": network.adam()}
    bits = []
    for record in train(learner, network.readout, stream, **options):
        bits.append(record.bits)
        if record.updated:
            recent = bits[-20 * horizon :]
            mean = sum(recent) / len(recent)
            yield record.step // horizon, Network(network.cell, network.readout, mean)


def make_learner(
    method: str, rank: int, cell: RHNCell, *, batch_size: int, seed: int
) -> Learner:
    """Make the learner of a row of LEARNERS, with a generator of its own."""
    generator = torch.Generator(cell.weight.device).manual_seed(seed)
    return LEARNERS[method].make(cell, rank, batch_size=batch_size, generator=generator)


def estimates(
    network: Network, learners: Mapping[str, Learner], source, sequences: int = 1
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Gradients of learners and of exact RTRL on a text or a task, weights frozen.

    A learner's batch is that of all its draws, R = batch_size / ``sequences``. They
    read the same sequences and differ in their signs alone, so that one exact learner
    serves all. Yields what was drawn, (R, m, K n) by name, and the truth (m, K n), sums
    over the sequences. Between two steps the caller may change the learners.
    """
    stream, cell, weight = source, network.cell, network.cell.weight
    if isinstance(source, Text):
        options = {"reset_every": 0, "device": weight.device, "dtype": weight.dtype}
        stream = CharStream(source.tokens, cell.input_size, sequences, **options)
    exact = RTRL(cell, batch_size=sequences)
    for x, target, restart in stream:
        exact.reset(restart)
        _, dL_dh, _ = network.readout.loss(exact.step(x), target)
        drawn = {}
        for name, learner in learners.items():
            repeats = learner.batch_size // sequences
            learner.reset(restart.repeat(repeats))
            learner.step(x.repeat(repeats, 1))
            found = learner.per_sequence_gradient(dL_dh.repeat(repeats, 1))
            drawn[name] = found.unflatten(0, (repeats, sequences)).sum(1)
        yield drawn, exact.gradient(dL_dh)


def measure_noise(
    network: Network, learner: Learner, text: Text, sequences: int = 1
) -> Iterator[dict[str, float]]:
    """What :func:`estimates` shows, in numbers.

    ``cosine`` and ``cosine_sd`` over the draws, ``relative_variance`` of the gradient;
    for OK also the spectrum ``d1``, ``d2``, ... (first sequence), its water ``level``,
    and the step's own mixing error relative to |d|^2, ``drawn`` (mean over the draws)
    beside ``theorem``.
    """
    for both, truth in estimates(network, {"": learner}, text, sequences):
        drawn = both[""]
        cosine = gradient_cosine(drawn, truth)
        row = {"cosine": float(cosine.mean()), "cosine_sd": float(cosine.std())}
        row["relative_variance"] = float(relative_variance(drawn, truth))
        yield row | _mixing(learner)


def _mixing(learner: Learner) -> dict[str, float]:
    if not isinstance(learner, OK) or learner.biased:
        return {}
    d, Y, rank = learner.spectrum, learner.mixing, learner.rank
    size = d.square().sum(-1).mean().clamp_min(1e-300)
    error = (Y @ Y.mT - torch.diag_embed(d)).square().sum((-2, -1)).mean()
    values = {f"d{i}": float(v) for i, v in enumerate(d[0], start=1)}
    return values | {
        "level": float(water_level(d[:1], rank)),
        "drawn": float(error / size),
        "theorem": float(minimum_variance(d, rank).mean() / size),
    }


# The live experiment


@dataclass(frozen=True)
class NoiseKnobs:
    """What can be turned in the noise experiment."""

    # fmt: off
    method: str = knob(
        "OK", choices=tuple(LEARNERS), help="how G' is approximated", about="cosine",
        look_for="UORO, KTP: a cosine near 0.1; OK from rank 2 on: near 1.")
    rank: int = knob(
        4, low=1, high=16, unit="terms", help="terms or copies; TBPTT: steps",
        about="relative_variance",
        # Only OK's sum can be written with other terms without bias.
        restart=lambda knobs: LEARNERS[knobs.method].learner is not OK,
        look_for="OK at 1: the variance jumps up by decades; at 16: down to rounding.")
    hidden: int = knob(
        32, low=8, high=64, step=8, unit="units", help="n", about="relative_variance",
        look_for="The spectrum grows; OK's relative variance hardly changes.")
    batch: int = knob(
        1, low=1, high=8, unit="sequences", help="averaged", about="relative_variance",
        look_for="Noise and gradient shrink alike: much the same relative variance.")
    trained: bool = knob(
        False, help="on the text, before", about="relative_variance",
        look_for="A flatter spectrum, and with it more variance.")
    seed: int = knob(
        0, low=0, high=99, label="re-draw signs (seed)", restart=False,
        look_for="Another path at the same level: what is seen is chance.")
    # fmt: on


def prepared(trained: bool, hidden: int, text: Text, networks: dict, updates: int):
    """Yield a row for each update of the training, if there is one to be made.

    Returns how many there were, and the network, kept in ``networks`` by ``hidden``.
    """
    step = 0
    if not trained:
        symbols, device = len(text.symbols), text.tokens.device
        return step, new_network(symbols, hidden, device=device)
    if hidden not in networks:
        for step, network in train_network(text, hidden, updates=updates):
            row = {"step": step, "measured": False, "bits": network.bits}
            yield row | {"updates": updates}
        networks[hidden] = network
    return step, networks[hidden]


def noise_rows(
    knobs, text: Text, networks: dict[int, Network] | None = None, updates=300, draws=20
) -> Iterator[dict]:
    """First training of ``updates`` if asked for, then :func:`measure_noise`.

    Of ``knobs``, ``rank`` and ``seed`` hold from the next step on. ``networks``, by
    ``hidden``, are used and filled; ``draws`` are of the signs.
    """
    networks, hidden = {} if networks is None else networks, knobs.hidden
    step, network = yield from prepared(knobs.trained, hidden, text, networks, updates)
    rank, seed, sequences = knobs.rank, knobs.seed, knobs.batch
    options = {"batch_size": draws * sequences, "seed": seed}
    learner = make_learner(knobs.method, rank, network.cell, **options)
    for row in measure_noise(network, learner, text, sequences):
        step += 1
        yield {"step": step, "measured": True, "draws": draws} | row
        if knobs.seed != seed:
            seed = knobs.seed
            learner.generator.manual_seed(seed)
        if knobs.rank != rank:
            rank = knobs.rank
            learner.change_rank(rank)


def _status(row) -> str:
    if row["measured"]:
        return f"reading with frozen weights, {row['draws']} draws"
    done = f"training: update {row['step']} of {row['updates']}"
    return f"{done}, {row['bits']:.2f} bits per character"


def _log(columns, title, unit, *ends) -> Lines:
    return Lines(columns, title, unit, log=True, y_range=ends)


_SIZE = {"relative_variance": "of the gradient"}
_MIXED = {"drawn": "drawn, mean", "theorem": "theorem s1²/k - s2"}
_D = tuple(f"d{i}" for i in range(1, 18))
_LEVEL = {"level": "level", "level_label": "water level s1/k"}
_PANELS = (
    Lines({"cosine": "mean of the draws"}, "Gradient cosine with exact RTRL", "cosine"),
    _log(_SIZE, "Relative variance of the gradient", "|dW' - dW|² / |dW|²", 1e-10, 1e3),
    _log(_MIXED, "Noise added by this step's mixing", "variance / |d|²", 1e-12, 10),
    Bars(_D, "Spectrum d and the water level", "singular value", **_LEVEL, log=True),
)
_CAPTION = (
    "Above, the estimate beside exact RTRL; below, the noise that OK's mixing adds "
    "lies on the theorem's value, and only the terms under the water level are mixed."
)
FRONT = "method", "rank", "trained"
_LOOK = {"front": FRONT, "playable": {"rank": (1, 2, 4, 8, 16)}}
NOISE = Experiment("noise", NoiseKnobs, noise_rows, _PANELS, _CAPTION, _status, **_LOOK)
