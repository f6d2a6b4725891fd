"""The noise of online gradients, live: curves over the characters of a text."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from labkit.lab.datasets import Text
from labkit.lab.panels import Bars, Experiment, Lines, knob
from labkit.lab.rtrl.training import (
    Network,
    estimates,
    make_learner,
    new_network,
    noise_numbers,
    train_network,
)
from labkit.rtrl import LEARNERS


@dataclass(frozen=True)
class NoiseKnobs:
    """The knobs of the noise experiment."""

    # fmt: off
    method: str = knob(
        "OK", choices=tuple(LEARNERS), help="whose curves are drawn",
        about="the cosine: cosine",
        look_for="UORO and KTP have a cosine near 0.1, OK from rank 2 on one near 1.")
    rank: int = knob(
        1, low=1, high=16, unit="terms",
        help="of OK and B-OK; copies of KF-AVG, steps of TBPTT",
        about="the noise: relative_variance",
        look_for="How far does the relative variance fall with two terms?")
    trained: bool = knob(
        True, help="on the text, before", about="the noise: relative_variance",
        look_for="Who has no noise at all in an untrained network?")
    hidden: int = knob(
        16, low=8, high=256, unit="units", help="n",
        about="the noise: relative_variance",
        look_for="The spectrum grows, and OK's relative variance hardly changes.")
    seed: int = knob(
        0, low=0, high=99, label="draw the signs again",
        look_for="Do the curves move? Their level stays.")
    # fmt: on


def noise_rows(
    knobs: NoiseKnobs,
    read: Callable[[], Text],
    networks: dict[int, Network] | None = None,
    updates: int = 150,
    draws: int = 20,
) -> Iterator[dict]:
    """Yield a row for each update of the training, if any, then one per character.

    Parameters
    ----------
    knobs : NoiseKnobs
    read : callable, returns the text, which is read from its beginning
    networks : dict of hidden units to trained networks, used and filled
    updates : int, of the training
    draws : int >= 2, of the method's signs

    Yields
    ------
    dict
        :func:`~labkit.lab.rtrl.training.noise_numbers` of ``method``.
    """
    text, networks, step = read(), {} if networks is None else networks, 0
    hidden, device = knobs.hidden, text.tokens.device
    network = networks.get(hidden)
    if not knobs.trained:
        network = new_network(len(text.symbols), hidden, device=device)
    elif network is None:
        for step, network in train_network(text, hidden, updates=updates):
            row = {"step": step, "measured": False, "bits": network.bits}
            yield row | {"updates": updates}
        networks[hidden] = network
    options = {"batch_size": draws, "seed": knobs.seed}
    learner = make_learner(knobs.method, knobs.rank, network.cell, **options)
    drawing = estimates(network, {"": learner}, text)
    for step, (drawn, exact) in enumerate(drawing, start=step + 1):
        numbers = noise_numbers(learner, drawn[""], exact)
        yield {"step": step, "measured": True, "draws": draws} | numbers


CAPTION = (
    "Draws of the estimate beside exact RTRL on the same text, with frozen weights. "
    "The noise of OK's mixing lies on the theorem's value."
)


def _status(row: Mapping) -> str:
    if row["measured"]:
        return f"{row['draws']} draws; mean cosine {row['cosine']:.3f}"
    done = f"training: update {row['step']} of {row['updates']}"
    return f"{done}, {row['bits']:.2f} bits per character"


NOISE = Experiment(
    "noise",
    NoiseKnobs,
    noise_rows,
    (
        Lines(("cosine",), "Gradient cosine with exact RTRL", "cosine"),
        Lines(
            ("relative_variance",),
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
    ),
    CAPTION,
    _status,
    front=("method", "rank", "trained"),
    playable={"rank": (1, 2, 4, 8, 16)},
)
