"""The noise experiment: repeated estimates beside exact RTRL, weights frozen."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from labkit.instruments import gradient_cosine, relative_variance
from labkit.labs.rtrl.networks import (
    METHODS,
    Network,
    make_learner,
    method_label,
    new_network,
    train_network,
)
from labkit.panels import Bars, Lines, LiveLab, knob
from labkit.rtrl import OK, RTRL, CharStream, minimum_variance, water_level


def measure_noise(
    network: Network, name: str, text, *, batch=1, repeats=20, seed=0, turn=None
) -> Iterator[dict[str, float]]:
    """Compare a method with exact RTRL on one stretch of text, weights frozen.

    All repeats read the same ``batch`` sequences and differ in their signs alone, so
    one exact learner serves them all; they run as one batch. ``turn`` is called with
    the method's learner before each step, to change it.

    Yields
    ------
    dict per step: ``cosine`` and ``cosine_sd`` over the repeats, ``relative_variance``
    of the gradient; for OK also the spectrum ``d1``, ``d2``, ... (first sequence),
    its water ``level``, and the step's own mixing error relative to |d|^2, ``drawn``
    (mean over the repeats) beside ``theorem``.
    """
    cell, readout = network.cell, network.readout
    device, dtype = cell.weight.device, cell.weight.dtype
    stream = CharStream(
        text.tokens, cell.input_size, batch, reset_every=0, device=device, dtype=dtype
    )
    learner = make_learner(name, cell, batch_size=repeats * batch, seed=seed)
    exact = RTRL(cell, batch_size=batch)
    for x, target, _ in stream:
        if turn:
            turn(learner)
        learner.step(x.repeat(repeats, 1))
        _, dL_dh, _ = readout.loss(exact.step(x), target)
        truth = exact.gradient(dL_dh)
        drawn = learner.per_sequence_gradient(dL_dh.repeat(repeats, 1))
        drawn = drawn.unflatten(0, (repeats, batch)).sum(1)
        cosine = gradient_cosine(drawn, truth)
        yield {
            "cosine": float(cosine.mean()),
            "cosine_sd": float(cosine.std()),
            "relative_variance": float(relative_variance(drawn, truth)),
        } | _mixing_values(learner)


def _mixing_values(learner) -> dict[str, float]:
    if not isinstance(learner, OK) or learner.biased:
        return {}
    d, Y, rank = learner.spectrum, learner.mixing, learner.rank
    size = d.square().sum(-1).mean().clamp_min(1e-300)
    error = (Y @ Y.mT - torch.diag_embed(d)).square().sum((-2, -1)).mean()
    level = water_level(d[:1], rank).level
    values = {f"d{i}": float(v) for i, v in enumerate(d[0], start=1)}
    return values | {
        "level": float(level),
        "drawn": float(error / size),
        "theorem": float(minimum_variance(d, rank).mean() / size),
    }


def noise_table(
    network: Network, names: Sequence[str], text, *, steps, skip=0, repeats=20, seed=0
) -> pd.DataFrame:
    """Mean cosine and relative variance of each method over steps skip+1 .. steps.

    Means over ``repeats`` repeats and the steps; the relative variance is dominated by
    its largest steps, as a mean of ratios is.
    """
    rows = {}
    for name in names:
        records = measure_noise(network, name, text, repeats=repeats, seed=seed)
        taken = [next(records) for _ in range(steps)][skip:]
        frame = pd.DataFrame(taken)
        rows[name] = frame[["cosine", "relative_variance"]].mean()
    return pd.DataFrame(rows).T.rename_axis("method")


@dataclass(frozen=True)
class NoiseKnobs:
    """What can be turned in the noise experiment."""

    method: str = knob(
        "OK",
        choices=tuple(METHODS),
        help="how G' is approximated",
        look_for="UORO, KTP: a cosine near 0.1; OK from rank 2 on: near 1.",
    )
    rank: int = knob(
        4,
        low=1,
        high=16,
        unit="terms",
        help="terms or copies; TBPTT: steps",
        # Only OK's sum can be written with other terms without bias.
        restart=lambda knobs: knobs.method not in ("OK", "B-OK"),
        look_for="OK at 1: the variance jumps up by decades; at 16: down to rounding.",
    )
    hidden: int = knob(
        32,
        low=8,
        high=64,
        step=8,
        unit="units",
        help="n",
        look_for="The spectrum grows; OK's relative variance hardly changes.",
    )
    batch: int = knob(
        1,
        low=1,
        high=8,
        unit="sequences",
        help="averaged",
        look_for="Noise and gradient shrink alike: much the same relative variance.",
    )
    trained: bool = knob(
        False,
        help="on the text, before",
        look_for="A flatter spectrum, and with it more variance.",
    )
    seed: int = knob(
        0,
        low=0,
        high=99,
        label="re-draw signs (seed)",
        restart=False,
        look_for="Another path at the same level: what is seen is chance.",
    )


def _turner(now, before: NoiseKnobs) -> Callable:
    """Function to call with the learner before each step: what knobs say, it does."""

    def turn(learner):
        nonlocal before
        knobs = now()
        if knobs.seed != before.seed:
            learner.generator.manual_seed(knobs.seed)
        if knobs.rank != before.rank:
            learner.change_rank(knobs.rank)
        before = knobs

    return turn


def noise_lab(
    text,
    knobs: NoiseKnobs | None = None,
    *,
    interactive=True,
    folder="",
    updates=300,
    device="cpu",
    repeats=20,
    networks: dict[int, Network] | None = None,
    **look,
) -> LiveLab:
    """Knobs, stepper and live figure of :func:`measure_noise`.

    Parameters
    ----------
    text : corpus.  knobs : where they start.
    updates : of training, when ``trained`` is chosen.  repeats : draws of the signs.
    networks : trained networks by ``hidden``, used and filled.
    look : keywords of :class:`~labkit.panels.LiveLab` in place of this lab's own, as
        ``panels``, ``only`` and ``height``.
    """
    networks = {} if networks is None else networks

    def rows(now):
        """First training if asked for, then the measurement."""
        knobs, step = now(), 0
        if knobs.trained and knobs.hidden not in networks:
            for update, network in train_network(
                text, knobs.hidden, updates=updates, device=device
            ):
                step = update
                yield {"step": step, "measured": False, "bits": network.bits}
            networks[knobs.hidden] = network
        if knobs.trained:
            network = networks[knobs.hidden]
        else:
            network = new_network(len(text.symbols), knobs.hidden, device=device)
        knobs = now()  # rank and seed may have been turned while it trained
        name = method_label(knobs.method, knobs.rank)
        options = {"batch": knobs.batch, "repeats": repeats, "seed": knobs.seed}
        options["turn"] = _turner(now, knobs)
        for row in measure_noise(network, name, text, **options):
            step += 1
            yield {"step": step, "measured": True, **row}

    def tell(row):
        if row["measured"]:
            return f"reading with frozen weights, {repeats} draws"
        done = f"training: update {row['step']} of {updates}"
        return f"{done}, {row['bits']:.2f} bits per character"

    return LiveLab(
        knobs or NoiseKnobs(),
        rows,
        name="noise",
        tell=tell,
        interactive=interactive,
        folder=folder,
        device=device,
        **{"panels": NOISE_PANELS, "reading": READING} | look,
    )


READING = (
    "Above, the estimate beside exact RTRL; below, the noise that OK's mixing adds "
    "lies on the theorem's value, and only the terms under the water level are mixed."
)
NOISE_PANELS = (
    Lines(
        {"cosine": "mean of the draws"},
        "Gradient cosine with exact RTRL",
        "cosine",
    ),
    Lines(
        {"relative_variance": "of the gradient"},
        "Relative variance of the gradient",
        "|dW' - dW|² / |dW|²",
        log=True,
        y_range=(1e-10, 1e3),
    ),
    Lines(
        {"drawn": "drawn, mean", "theorem": "theorem s1²/k - s2"},
        "Noise added by this step's mixing",
        "variance / |d|²",
        log=True,
        y_range=(1e-12, 10),
    ),
    Bars(
        tuple(f"d{i}" for i in range(1, 18)),
        "Spectrum d and the water level",
        "singular value",
        level="level",
        level_label="water level s1/k",
        log=True,
    ),
)
