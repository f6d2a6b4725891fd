"""Notebook 05: the clouds of the opening, the water, and the noise of a run."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count, islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.instruments import cost, relative_variance
from labkit.lab.books.rtrl_training import (
    Network,
    estimates,
    make_learner,
    new_network,
    noise_numbers,
    train_network,
)
from labkit.lab.books.shared import seed_knob
from labkit.lab.datasets import Text
from labkit.lab.panels import Experiment, Lines, knob
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    dots,
    ellipse,
    handles,
    path,
    planes,
    put,
    rounded_up,
)
from labkit.lab.panels.figures.theme import COLOURS, INK, colour_of
from labkit.lab.problem import seeded
from labkit.rtrl import LEARNERS
from labkit.rtrl.learners import label
from labkit.rtrl.low_rank import (
    minimum_variance,
    optimal_low_rank,
    random_signs,
    water_level,
)

# The clouds of random gradients round the exact one, of a network that is not trained

STEPS = 12  # characters that are read
DRAWS = 100  # of each method's signs
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
    seed: int = seed_knob(
        label="draw the signs again",
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
    path = partial(cloud_path, text=text, hidden=knobs.hidden, seed=knobs.seed)
    paths = {name: path(name, 1) for name in NOISY}
    one_term, paths["OK"] = paths["OK"], path("OK", knobs.rank)
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
        [((1 - half, 1 + half), (-half, half)) for half in reach],
        caption=CAPTION,
        square=True,
    )
    if before:
        put(figure, 0, [_spread(before.points[0], 1.0, GHOST, EARLIER)])
    for plane, colour in enumerate(NOISY.values() if now else ()):
        points, share = now.points[plane], DRAWS**-0.5
        drawn = [
            dots(points, colour, opacity=0.45, size=4),
            _spread(points, 1.0, colour, dash="dot"),
            arrow((0, 0), (1, 0), INK, "exact gradient"),
            _spread(points, share, MEAN, "their mean, 95 %"),
            dots(points.mean(0), MEAN, size=5),
        ]
        put(figure, plane, drawn)
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


# The water: how OK writes several terms as fewer, and the role of its signs

TALL = 4.0  # of a bar at most
BARS = ("first", "second", "third", "fourth", "fifth")
AT = np.arange(1, len(BARS) + 1)
EDGES = (0.4, 5.6)
_bar = partial(knob, low=0.0, high=TALL, step=0.1, help="singular value")


@dataclass(frozen=True)
class WaterKnobs:
    """The knobs of the picture."""

    # fmt: off
    rank: int = knob(
        2, low=1, high=5, unit="terms", help="of five that are left",
        look_for="How far does the level fall, and who stands above it?")
    first: float = _bar(3.0, label="first bar",
                        look_for="Above the level: does its height matter at all?")
    second: float = _bar(1.0, label="second bar",
                         look_for="At which height does it come out of the water?")
    third: float = _bar(0.8, label="third bar", look_for="At 0: is less mixed?")
    fourth: float = _bar(0.5, label="fourth bar", look_for="Does the level rise too?")
    fifth: float = _bar(0.3, label="fifth bar", look_for="At 0: is less mixed?")
    seed: int = seed_knob(
        label="draw the signs again",
        look_for="Other signs: is a draw any nearer?")
    # fmt: on


class Water(NamedTuple):
    """One draw of the bars, and the mean of all draws so far."""

    d: np.ndarray  # (5,)
    level: float
    drawn: np.ndarray  # (5, 5)
    mean: np.ndarray  # (5, 5)


def water_rows(knobs: WaterKnobs) -> Iterator[dict]:
    """Yield one row for each draw of the signs."""
    d = torch.tensor([getattr(knobs, bar) for bar in BARS], dtype=torch.float64)
    generator, rank, total = seeded(knobs.seed), knobs.rank, torch.zeros(())
    falling = d.argsort(descending=True, stable=True)
    place, bars = falling.argsort(), d[falling]
    level = float(water_level(bars, rank)) if rank < len(d) else 0.0  # all are kept
    theorem = float(minimum_variance(bars, rank))
    for step in count(1):
        signs = random_signs(d.shape, d, generator)
        L, R = optimal_low_rank(torch.diag(bars), rank, signs[falling])
        drawn = (L @ R.mT)[place][:, place]
        total = total + drawn
        off, far = (
            float((matrix - torch.diag(d)).square().sum())
            for matrix in (drawn, total / step)
        )
        row = {"step": step, "noise": off, "theorem": theorem, "of the mean": far}
        made = Water(d.numpy(), level, drawn.numpy(), (total / step).numpy())
        yield row | {"pictures": made}


def dragged(
    _now: Water,
    _knobs: WaterKnobs,
    _name: str,
    index: int,
    point: tuple[float, float],
) -> dict[str, float]:
    """Return the value of the dragged bar."""
    return {BARS[index]: round(point[1], 1)}


WATER_CAPTION = (
    "Terms above the water level (dashed) are kept; those below are raised to it and "
    "mixed, with signs that are drawn anew at each step. One draw shows what they make "
    "of the diagonal matrix of the bars. Each draw is equally far from that matrix, as "
    "the theorem says; in the mean of the draws the mixture fades."
)


def water_picture(now: Water | None, before: Water | None) -> dict:
    """Draw the bars, one draw, and the mean of the draws."""
    square = (0.5, 5.5), (5.5, 0.5)
    figure = planes(
        ["Terms, and the level", "One draw", "Mean of the draws"],
        ["term", "column", "column"],
        ["singular value", "row", ""],
        [(EDGES, (0, 1.1 * TALL)), square, square],
        caption=WATER_CAPTION,
    )
    if now:
        put(figure, 0, _bars(now))
        for plane, matrix in enumerate((now.drawn, now.mean), start=1):
            heat = {"type": "heatmap", "z": matrix, "colorscale": "RdBu", "zmid": 0}
            heat |= {"zmax": TALL, "zmin": -TALL, "showscale": False}
            put(figure, plane, [heat | {"x": AT, "y": AT}])
    if before:
        put(figure, 0, [path([(edge, before.level) for edge in EDGES], GHOST, EARLIER)])
    return figure


def _bars(now: Water) -> list[dict]:
    mixed, drawn = now.d < now.level, []
    kept_and_mixed = ("kept", ~mixed, COLOURS[0]), ("mixed", mixed, COLOURS[1])
    for name, which, tint in kept_and_mixed:
        look = {"type": "bar", "width": 0.8, "name": name, "marker": {"color": tint}}
        drawn.append(look | {"x": AT[which], "y": now.d[which]})
    level = path([(edge, now.level) for edge in EDGES], INK, "water level", dash="dash")
    return [*drawn, level, handles(np.c_[AT, now.d], "bars")]


def _water_status(row: Mapping) -> str:
    return (
        f"this draw is {row['noise']:.3f} off, squared, and the theorem's value is "
        f"{row['theorem']:.3f}; the mean is {row['of the mean']:.4f} off"
    )


WATER = Experiment(
    "water",
    WaterKnobs,
    water_rows,
    (),
    WATER_CAPTION,
    _water_status,
    front=("rank", "first", "second"),
    playable={"rank": (1, 2, 3, 4)},
    picture=water_picture,
    drag=dragged,
)


# The noise, live


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
        look_for="Whose error falls most in an untrained network?")
    hidden: int = knob(
        16, low=8, high=256, unit="units", help="n",
        about="the noise: relative_variance",
        look_for="The spectrum grows, and OK's relative variance hardly changes.")
    seed: int = seed_knob(
        label="draw the signs again",
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
        :func:`~labkit.lab.books.rtrl_training.noise_numbers` of ``method``.
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
    method, rank, seed = knobs.method, knobs.rank, knobs.seed
    learner = make_learner(method, rank, network.cell, batch_size=draws, seed=seed)
    drawing = estimates(network, {"": learner}, text)
    for number, (drawn, exact) in enumerate(drawing, start=step + 1):
        numbers = noise_numbers(learner, drawn[""], exact)
        yield {"step": number, "measured": True, "draws": draws} | numbers


NOISE_CAPTION = (
    "Draws of the estimate beside exact RTRL on the same text, with frozen weights. "
    "The noise of OK's mixing lies on the theorem's value."
)


def _noise_status(row: Mapping) -> str:
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
        Lines(
            {f"d{i}": f"d{i}" for i in (1, 2, 4, 8)} | {"level": "water level s1/k"},
            "Spectrum d and the water level",
            "singular value",
            log=True,
        ),
    ),
    NOISE_CAPTION,
    _noise_status,
    front=("method", "rank", "trained"),
)
