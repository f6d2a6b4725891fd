"""The cloud of gradient estimates of a recurrent network round the exact gradient."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.instruments import gradient_cosine, relative_variance
from labkit.lab.datasets import Text
from labkit.lab.panels import Experiment, knob
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
from labkit.lab.rtrl.noise import Network, estimates, make_learner, prepared
from labkit.rtrl.learners import label

DRAWS, UPDATES, WINDOW = 200, 150, 5
FAR = 0.9  # of the draws are within a plane's limits
RADIUS = 2.4477  # of the ellipse that holds 95 % of a normal law in the plane
NOISY = {name: colour_of(name) for name in ("UORO", "KF-AVG", "OK")}
BIASED = {"B-OK": (colour_of("B-OK"), "diamond"), "TBPTT": (colour_of("TBPTT"), "x")}
MEAN = COLOURS[0]
SCALES = "one for all", "each its own"


@dataclass(frozen=True)
class CloudKnobs:
    """What can be turned; the rank is OK's, B-OK's and that of KF-RTRL's copies."""

    # fmt: off
    rank: int = knob(
        1, low=1, high=8, unit="terms", restart=False, about="noise OK",
        help="of OK and B-OK; UORO and KF-RTRL have one",
        look_for="Is OK's cloud half as wide with two terms, or gone?")
    trained: bool = knob(
        True, help="on the text, before", about="noise UORO",
        look_for="Whose cloud is there at all in an untrained network?")
    scale: str = knob(
        SCALES[0], choices=SCALES, help="of the planes", restart=False,
        look_for="Each its own: is the mean still on the exact gradient?")
    batch: int = knob(
        1, choices=(1, 2, 4), unit="sequences", help="summed", about="noise UORO",
        look_for="Does a cloud shrink beside the exact gradient?")
    seed: int = knob(
        0, low=0, high=99, label="draw the signs again", restart=False,
        look_for="Which dots move, and does the mean?")
    # fmt: on


class Cloud(NamedTuple):
    """Draws in the plane of the exact gradient and of the largest noise.

    In units of the exact gradient's length, which is (1, 0).
    """

    name: str
    points: np.ndarray  # (draws, 2)
    biased: dict[str, np.ndarray]  # by name, (2,)
    noise: float  # relative variance, of all directions


class Clouds(NamedTuple):
    """What is drawn of one step."""

    clouds: tuple[Cloud, ...]
    one_scale: bool


def plane(drawn: Tensor, truth: Tensor, before: Tensor | None = None) -> Tensor:
    """The two directions (2, P): the exact gradient, and the largest noise across it.

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


def cloud_rows(
    knobs, text: Text, networks: dict[int, Network] | None = None, hidden: int = 16
) -> Iterator[dict]:
    """First the training if asked for, then clouds, at one character after another."""
    networks = {} if networks is None else networks
    step, network = yield from prepared(knobs.trained, hidden, text, networks, UPDATES)
    sequences, rank, seed = knobs.batch, knobs.rank, knobs.seed
    learners, before = {}, {}
    for name in (*NOISY, *BIASED):
        terms = {"OK": rank, "B-OK": rank, "TBPTT": WINDOW}.get(name, 1)
        repeats = DRAWS if name in NOISY else 1
        made = {"batch_size": repeats * sequences, "seed": seed}
        learners[name] = make_learner(name, terms, network.cell, **made)
    for found, exact in estimates(network, learners, text, sequences):
        step += 1
        truth, clouds, row = exact.flatten(), [], {"step": step, "measured": True}
        sure = {name: found[name].flatten() for name in BIASED}
        for name in NOISY:
            drawn = found[name].flatten(1)
            frame = plane(drawn, truth, before.get(name))
            before[name] = frame[1]
            noise = float(relative_variance(found[name], exact))
            row[f"cosine {name}"] = float(gradient_cosine(found[name], exact).mean())
            row[f"noise {name}"] = noise
            there = {_named(k, rank): (frame @ v).numpy() for k, v in sure.items()}
            points = (drawn @ frame.T).numpy()
            clouds.append(Cloud(_named(name, rank), points, there, noise))
        one = knobs.scale == SCALES[0]
        yield row | {"pictures": Clouds(tuple(clouds), one)}
        if knobs.seed != seed:
            seed = knobs.seed
            for learner in learners.values():
                learner.generator.manual_seed(seed)
        if knobs.rank != rank:
            rank = knobs.rank
            for name in ("OK", "B-OK"):
                learners[name].change_rank(rank)


def _named(name: str, rank: int) -> str:
    terms = {"OK": rank, "B-OK": rank, "TBPTT": WINDOW}.get(name, 1)
    return "KF-RTRL" if name == "KF-AVG" else label(name, terms)


CAPTION = (
    "Each dot is one draw of the gradient, the arrow the exact one. The small ellipse "
    "holds the mean of the draws with 95 %: on the arrow's head where a method is "
    "unbiased; a method without noise is one dot, and beside it. Of all draws the "
    "farthest lie outside the planes."
)


def picture(now: Clouds | None, before: Clouds | None) -> dict:
    """Draw the clouds side by side; grey: where the run before ended."""
    shown = now or Clouds((), one_scale=True)
    names = list(NOISY) if now is None else [cloud.name for cloud in shown.clouds]
    reach = [_reach(cloud) for cloud in shown.clouds] or [2.0] * len(names)
    if shown.one_scale:
        reach = [max(reach)] * len(reach)
    limits = [((1 - r, 1 + r), (-r, r)) for r in reach]
    noise = [f", noise {cloud.noise:.2g}" for cloud in shown.clouds] or [""] * 3
    titles = [f"{name}{said}" for name, said in zip(names, noise, strict=True)]
    y_titles = ["along the largest noise across it", "", ""]
    x_titles = ["along the exact gradient"] * len(names)
    figure = planes(titles, x_titles, y_titles, limits, caption=CAPTION, square=True)
    for i, colour in enumerate(NOISY.values()):
        put(figure, i, _traces(shown.clouds[i] if now else None, before, i, colour))
    return figure


def _reach(cloud: Cloud) -> float:
    """How far the plane goes from the arrow's head: all but the farthest draws."""
    far = np.abs(cloud.points - [1.0, 0.0]).max(1)
    return rounded_up(np.quantile(far, FAR), least=1e-7)


def _traces(cloud: Cloud | None, before: Clouds | None, i: int, colour: str) -> list:
    drawn = []
    if before:
        drawn.append(_spread(before.clouds[i].points, 1.0, GHOST, "an earlier run"))
    if cloud:
        mean = cloud.points.mean(0)
        drawn.append(dots(cloud.points, colour, "draws", opacity=0.45, size=4))
        drawn.append(_spread(cloud.points, 1.0, colour, "95 % of draws", dash="dot"))
        drawn.append(arrow((0, 0), (1, 0), INK, "exact gradient"))
        looks = zip(cloud.biased.items(), BIASED.values(), strict=True)
        for (name, at), (tint, symbol) in looks:
            look = {"symbol": symbol, "size": 9}
            drawn.append(dots(at, tint, f"{name} (no noise)", **look))
        share = len(cloud.points) ** -0.5
        drawn.append(_spread(cloud.points, share, MEAN, "their mean, 95 %"))
        drawn.append(dots(mean, MEAN, size=5))
    return drawn


def _spread(points, share: float, colour, name, **line) -> dict:
    """The ellipse that holds 95 % of normal draws, or of their mean by its share."""
    covariance = np.cov(points.T)
    return ellipse(points.mean(0), covariance, share * RADIUS, colour, name, **line)


def _status(row) -> str:
    if not row["measured"]:
        done = f"training: update {row['step']} of {row['updates']}"
        return f"{done}, {row['bits']:.2f} bits per character"
    said = (f"{_named(name, 0)[-7:]} {row[f'cosine {name}']:.2f}" for name in NOISY)
    return "cosine of one draw: " + ", ".join(said).replace("0-OK", "OK")


CLOUD = Experiment(
    "cloud",
    CloudKnobs,
    cloud_rows,
    (),
    CAPTION,
    _status,
    front=("rank", "trained", "scale"),
    playable={"rank": (1, 2)},
    picture=picture,
)
