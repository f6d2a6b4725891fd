"""Clouds of random gradients round the exact one, of a network that is not trained."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.instruments import cost, relative_variance
from labkit.lab.datasets import Text
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    dots,
    ellipse,
    planes,
    put,
    rounded_up,
)
from labkit.lab.panels.figures.theme import COLOURS, INK, colour_of
from labkit.lab.rtrl.training import estimates, make_learner, new_network
from labkit.rtrl import LEARNERS
from labkit.rtrl.learners import label

STEPS, DRAWS = 12, 100  # characters that are read; draws of each method's signs
FAR = 0.9  # of the draws are within a plane's limits
RADIUS = 2.4477  # of the ellipse that holds 95 % of a normal law in the plane
NOISY = {name: colour_of(name) for name in ("OK", "KF-AVG", "UORO")}
MEAN = COLOURS[0]


@dataclass(frozen=True)
class CloudKnobs:
    """The knobs of the picture; the seed determines the signs and the weights."""

    # fmt: off
    rank: int = knob(
        1, low=1, high=8, unit="terms", help="of OK",
        look_for="Is OK's cloud half as wide with two terms, or gone?")
    hidden: int = knob(
        16, choices=(4, 8, 16), unit="units", help="of the network",
        look_for="Does OK need more terms for more units?")
    seed: int = knob(
        0, low=0, high=99, label="draw the signs again",
        look_for="Which dots move, and does their mean?")
    # fmt: on


class Clouds(NamedTuple):
    """The draws of each method, by the exact gradient and by the largest noise.

    The unit is the length of the exact gradient, which is (1, 0).
    """

    rank: int
    points: tuple[np.ndarray, ...]  # (draws, 2), in the order of NOISY
    noise: tuple[float, ...]  # relative variance, of all directions
    reach: tuple[float, ...]  # half the width of each plane; OK's is that of one term


@lru_cache(maxsize=32)
def cloud_path(
    method: str, rank: int, text: Text, hidden: int, seed: int
) -> list[tuple[np.ndarray, float]]:
    """Return a method's draws (100, 2) and noise after each of the first characters.

    The cost is that of 100 draws; O(draws^2 P) for the plane of P weights.
    """
    network = new_network(len(text.symbols), hidden, seed=seed)
    learner = make_learner(method, rank, network.cell, batch_size=DRAWS, seed=seed)
    across, found = None, []
    for drawn, exact in islice(estimates(network, {method: learner}, text), STEPS):
        draws, truth = drawn[method].flatten(1), exact.flatten()
        frame = plane(draws, truth, across)
        across = frame[1]
        noise = float(relative_variance(drawn[method], exact))
        found.append(((draws @ frame.T).numpy(), noise))
    return found


def cloud_rows(knobs: CloudKnobs, text: Text) -> Iterator[dict]:
    """Yield the clouds after each character, with their noise."""
    shared = text, knobs.hidden, knobs.seed
    paths = {name: cloud_path(name, 1, *shared) for name in NOISY}
    one_term, paths["OK"] = paths["OK"], cloud_path("OK", knobs.rank, *shared)
    share = operations(text, knobs.hidden, knobs.rank)
    for step in range(STEPS):
        points, noise = zip(*(path[step] for path in paths.values()), strict=True)
        reach = tuple(map(reach_of, (one_term[step][0], *points[1:])))
        row = {f"noise {name}": each for name, each in zip(NOISY, noise, strict=True)}
        row |= {"step": step + 1, "operations": share}
        yield row | {"pictures": Clouds(knobs.rank, points, noise, reach)}


def reach_of(points: np.ndarray) -> float:
    """Return half the width of a plane that holds all but the farthest draws."""
    far = np.abs(points - [1.0, 0.0]).max(1)
    return rounded_up(np.quantile(far, FAR), least=1e-7)


def operations(text: Text, hidden: int, rank: int) -> float:
    """Return the operations of a step of OK, as a share of those of exact RTRL [%]."""
    sizes = {"hidden": hidden, "inputs": len(text.symbols)}
    ok = cost(LEARNERS["OK"].count, rank=rank, **sizes)
    exact = cost(LEARNERS["RTRL"].count, rank=1, **sizes)
    return 100 * ok.flops / exact.flops


def plane(drawn: Tensor, truth: Tensor, before: Tensor | None = None) -> Tensor:
    """Return two directions (2, P): the exact gradient and the largest noise across it.

    drawn (R, P), truth (P,). The second is the leading principal direction of the draws
    about their mean, without its part along the first; its sign is that of ``before``.
    Both are divided by the length of the exact gradient. O(R^2 P).
    """
    size = truth.norm().clamp_min(1e-30)
    along = truth / size
    noise = drawn - drawn.mean(0)
    noise = noise - (noise @ along)[:, None] * along
    _, vectors = torch.linalg.eigh(noise @ noise.T)
    across = vectors[:, -1] @ noise
    across = across / across.norm().clamp_min(1e-30)
    if before is not None and across @ before < 0:
        across = -across
    return torch.stack([along, across]) / size


CAPTION = (
    "Each dot is one draw of the gradient, the dotted ellipse holds 95 % of them, and "
    "the arrow is the exact one. The small ellipse holds their mean: in each plane it "
    "lies on the arrow's head. OK's plane keeps the scale that one term needs; the "
    "others have scales of their own."
)


def picture(now: Clouds | None, before: Clouds | None) -> dict:
    """Draw the clouds side by side, with OK's before in grey."""
    names = [label("OK", now.rank) if now else "OK", "KF-RTRL", "UORO"]
    reach = now.reach if now else [2.0] * 3
    noise = [f", noise {each:.2g}" for each in now.noise] if now else [""] * 3
    figure = planes(
        [f"{name}{number}" for name, number in zip(names, noise, strict=True)],
        ["along the exact gradient"] * 3,
        ["along the largest noise across it", "", ""],
        [((1 - r, 1 + r), (-r, r)) for r in reach],
        caption=CAPTION,
        square=True,
    )
    if before:
        put(figure, 0, [_spread(before.points[0], 1.0, GHOST, EARLIER)])
    for i, colour in enumerate(NOISY.values() if now else ()):
        points, share = now.points[i], DRAWS**-0.5
        drawn = [
            dots(points, colour, opacity=0.45, size=4),
            _spread(points, 1.0, colour, dash="dot"),
            arrow((0, 0), (1, 0), INK, "exact gradient"),
            _spread(points, share, MEAN, "their mean, 95 %"),
            dots(points.mean(0), MEAN, size=5),
        ]
        put(figure, i, drawn)
    return figure


def _spread(
    points: np.ndarray, share: float, colour: str, name: str = "", dash: str = "solid"
) -> dict:
    """Return the ellipse of 95 % of normal draws, or of their mean with its share."""
    covariance, radius = np.cov(points.T), share * RADIUS
    return ellipse(points.mean(0), covariance, radius, colour, name, dash=dash)


def _status(row: dict) -> str:
    return (
        f"relative variance: OK {row['noise OK']:.2g}, KF-RTRL "
        f"{row['noise KF-AVG']:.2g}, UORO {row['noise UORO']:.3g}; a step of OK takes "
        f"{row['operations']:.0f} % of the operations of exact RTRL"
    )


CLOUDS = Experiment(
    "clouds",
    CloudKnobs,
    cloud_rows,
    (),
    CAPTION,
    _status,
    front=("rank", "hidden", "seed"),
    playable={"rank": (1, 2, 3, 4, 8)},
    picture=picture,
)
