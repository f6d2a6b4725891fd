"""The noise of online gradients: clouds round the exact one, and curves over time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.instruments import cost, gradient_cosine, relative_variance
from labkit.lab.datasets import Text
from labkit.lab.panels import Bars, Experiment, Lines, knob
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
from labkit.lab.rtrl.training import (
    Network,
    estimates,
    make_learner,
    network_for,
    noise_numbers,
)
from labkit.rtrl import LEARNERS, OK, Learner
from labkit.rtrl.learners import label

WINDOW = 5  # steps that TBPTT looks back in the picture
MOST = 200e6  # bytes that the draws of OK, the largest of the clouds, may carry
OPENS = 6  # characters that are read before the panel opens
FAR = 0.9  # of the draws are within a plane's limits
RADIUS = 2.4477  # of the ellipse that holds 95 % of a normal law in the plane
NOISY = {name: colour_of(name) for name in ("UORO", "KF-AVG", "OK")}
BIASED = {"B-OK": (colour_of("B-OK"), "diamond"), "TBPTT": (colour_of("TBPTT"), "x")}
MEAN = COLOURS[0]
SCALES = "one for all", "each its own"


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
        # Only OK's sum can be written with other terms without bias.
        restart=lambda knobs: LEARNERS[knobs.method].learner is not OK,
        look_for="Is OK's cloud half as wide with two terms, or gone?")
    trained: bool = knob(
        True, help="on the text, before", about="the noise: relative_variance",
        look_for="Whose cloud is there at all in an untrained network?")
    hidden: int = knob(
        16, low=8, high=256, unit="units", help="n",
        about="the noise: relative_variance",
        look_for="The spectrum grows, and OK's relative variance hardly changes.")
    batch: int = knob(
        1, low=1, high=8, unit="sequences", help="summed",
        about="the noise: relative_variance",
        look_for="Does a cloud shrink beside the exact gradient?")
    scale: str = knob(
        SCALES[0], choices=SCALES, help="of the planes", restart=False,
        look_for="With each its own: is the mean still on the exact gradient?")
    seed: int = knob(
        0, low=0, high=99, label="draw the signs again", restart=False,
        look_for="Which dots move, and does the mean? The level of a curve stays.")
    # fmt: on


class Cloud(NamedTuple):
    """The draws of a method in the plane of the exact gradient and the largest noise.

    The unit is the length of the exact gradient, which is (1, 0).
    """

    name: str
    points: np.ndarray  # (draws, 2)
    biased: dict[str, np.ndarray]  # by name, (2,)
    noise: float  # relative variance, of all directions


class Clouds(NamedTuple):
    """The clouds of one step, and whether their planes share one scale."""

    clouds: tuple[Cloud, ...]
    one_scale: bool


def noise_rows(
    knobs: NoiseKnobs,
    text: Text,
    networks: dict[int, Network] | None = None,
    updates: int = 150,
    draws: int = 200,
) -> Iterator[dict]:
    """Yield a row for each update of the training, if any, then one per character.

    Parameters
    ----------
    knobs : NoiseKnobs; ``rank``, ``scale`` and ``seed`` hold from the next step on
    text : Text, read from its beginning with frozen weights
    networks : dict of hidden units to trained networks, used and filled
    updates : int, of the training
    draws : int >= 2, of each method's signs; fewer where they would fill the memory

    Yields
    ------
    dict
        :func:`~labkit.lab.rtrl.training.noise_numbers` of ``method``; ``cosine NAME``
        and ``noise NAME``, the relative variance, of the methods with a cloud; and
        under ``pictures`` their `Clouds`.
    """
    networks, hidden = {} if networks is None else networks, knobs.hidden
    step, network = yield from network_for(
        knobs.trained, hidden, text, networks, updates
    )
    rank, seed, sequences = knobs.rank, knobs.seed, knobs.batch
    draws = min(draws, most_draws(network, rank, sequences))
    learners = learners_of(knobs, network, draws)
    chosen = knobs.method if knobs.method in ("OK", "UORO") else "chosen"
    across = {}  # the second direction of each plane, at the step before
    for drawn, exact in estimates(network, learners, text, sequences):
        step += 1
        row = {"step": step, "measured": True, "draws": draws}
        row.update(noise_numbers(learners[chosen], drawn[chosen], exact))
        for name in NOISY:
            cosines = gradient_cosine(drawn[name], exact)
            row[f"cosine {name}"] = float(cosines.mean())
            row[f"noise {name}"] = float(relative_variance(drawn[name], exact))
        clouds = clouds_of(drawn, exact, across, rank, row)
        row["pictures"] = Clouds(clouds, knobs.scale == SCALES[0])
        yield row
        if knobs.seed != seed:
            seed = knobs.seed
            for learner in learners.values():
                learner.generator.manual_seed(seed)
        if knobs.rank != rank:
            rank = knobs.rank
            for learner in learners.values():
                if isinstance(learner, OK):
                    learner.change_rank(rank)


def opening(
    knobs: NoiseKnobs, text: Text, _networks: object = None, *sizes: int
) -> Clouds:
    """Return the clouds of a network that nothing has trained, some characters on."""
    fresh = replace(NoiseKnobs(), **vars(knobs) | {"trained": False})
    return [*islice(noise_rows(fresh, text, None, *sizes), OPENS)][-1]["pictures"]


def learners_of(knobs: NoiseKnobs, network: Network, draws: int) -> dict[str, Learner]:
    """Make the learners of the clouds, and one for ``method`` if it is none of them."""
    learners = {}
    for name in (*NOISY, *BIASED):
        repeats = draws if name in NOISY else 1
        learners[name] = make_learner(
            name,
            _terms(name, knobs.rank),
            network.cell,
            batch_size=repeats * knobs.batch,
            seed=knobs.seed,
        )
    if knobs.method not in ("OK", "UORO"):  # the clouds' own have their rank
        learners["chosen"] = make_learner(
            knobs.method,
            knobs.rank,
            network.cell,
            batch_size=draws * knobs.batch,
            seed=knobs.seed,
        )
    return learners


def most_draws(network: Network, rank: int, sequences: int) -> int:
    """Return how many draws of OK fit into `MOST` bytes, at least two."""
    cell = network.cell
    carried = cost(
        LEARNERS["OK"].count,
        blocks=cell.blocks,
        batch=sequences,
        rank=rank,
        hidden=cell.hidden_size,
        inputs=cell.input_size,
    )
    return max(2, int(MOST / carried.bytes))


def clouds_of(
    drawn: Mapping[str, Tensor],
    exact: Tensor,
    across: dict[str, Tensor],
    rank: int,
    row: Mapping,
) -> tuple[Cloud, ...]:
    """Project the draws of each method into its plane; update ``across``."""
    truth, clouds = exact.flatten(), []
    sure = {name: drawn[name].flatten() for name in BIASED}
    for name in NOISY:
        each = drawn[name].flatten(1)
        frame = plane(each, truth, across.get(name))
        across[name] = frame[1]
        there = {_named(k, rank): (frame @ v).cpu().numpy() for k, v in sure.items()}
        points = (each @ frame.T).cpu().numpy()
        clouds.append(Cloud(_named(name, rank), points, there, row[f"noise {name}"]))
    return tuple(clouds)


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


def _terms(name: str, rank: int) -> int:
    """Return the rank of a method in the picture."""
    return {"OK": rank, "B-OK": rank, "TBPTT": WINDOW}.get(name, 1)


def _named(name: str, rank: int) -> str:
    return "KF-RTRL" if name == "KF-AVG" else label(name, _terms(name, rank))


CAPTION = (
    "Each dot is one draw of the gradient, the dotted ellipse holds 95 % of them, and "
    "the arrow is the exact one. The small ellipse holds their mean: it lies on the "
    "arrow's head where a method is unbiased. A method without noise is one dot, "
    "beside it. In the curves, the noise of OK's mixing lies on the theorem's value."
)


def picture(now: Clouds | None, before: Clouds | None) -> dict:
    """Draw the clouds side by side, with the end of the run before in grey."""
    shown = now or Clouds((), one_scale=True)
    names = list(NOISY) if now is None else [cloud.name for cloud in shown.clouds]
    reach = [_reach(cloud) for cloud in shown.clouds] or [2.0] * len(names)
    if shown.one_scale:
        reach = [max(reach)] * len(reach)
    limits = [((1 - r, 1 + r), (-r, r)) for r in reach]
    noise = [f", noise {cloud.noise:.2g}" for cloud in shown.clouds] or [""] * 3
    titles = [f"{name}{number}" for name, number in zip(names, noise, strict=True)]
    y_titles = ["along the largest noise across it", "", ""]
    x_titles = ["along the exact gradient"] * len(names)
    figure = planes(titles, x_titles, y_titles, limits, caption=CAPTION, square=True)
    for i, colour in enumerate(NOISY.values()):
        drawn = _traces(shown.clouds[i] if now else None, before, i, colour)
        unnamed = "draws", "95 % of draws"  # which the caption explains
        told = [t | {"showlegend": t["name"] not in unnamed and not i} for t in drawn]
        put(figure, i, told)
    return figure


def _reach(cloud: Cloud) -> float:
    """Return the half-width of a plane that holds all but the farthest draws."""
    far = np.abs(cloud.points - [1.0, 0.0]).max(1)
    return rounded_up(np.quantile(far, FAR), least=1e-7)


def _traces(cloud: Cloud | None, before: Clouds | None, i: int, colour: str) -> list:
    drawn = []
    if before:
        drawn.append(_spread(before.clouds[i].points, 1.0, GHOST, "an earlier run"))
    if cloud:
        mean = cloud.points.mean(0)
        points = dots(cloud.points, colour, "draws", opacity=0.45, size=4)
        drawn.append(points | {"showlegend": False})
        drawn.append(_spread(cloud.points, 1.0, colour, "95 % of draws", dash="dot"))
        drawn.append(arrow((0, 0), (1, 0), INK, "exact gradient"))
        styles = zip(cloud.biased.items(), BIASED.values(), strict=True)
        for (name, at), (tint, symbol) in styles:
            drawn.append(dots(at, tint, f"{name} (no noise)", symbol=symbol, size=9))
        share = len(cloud.points) ** -0.5
        drawn.append(_spread(cloud.points, share, MEAN, "their mean, 95 %"))
        drawn.append(dots(mean, MEAN, size=5))
    return drawn


def _spread(points: np.ndarray, share: float, colour: str, name: str, **line) -> dict:
    """Return the ellipse of 95 % of normal draws, or of their mean with its share."""
    covariance = np.cov(points.T)
    return ellipse(points.mean(0), covariance, share * RADIUS, colour, name, **line)


def training_status(row: Mapping) -> str:
    """Return the progress of a training in words, from a row of ``network_for``."""
    done = f"training: update {row['step']} of {row['updates']}"
    return f"{done}, {row['bits']:.2f} bits per character"


def _status(row: Mapping) -> str:
    if not row["measured"]:
        return training_status(row)
    names = {"UORO": "UORO", "KF-AVG": "KF-RTRL", "OK": "OK"}
    each = [f"{title} {row[f'cosine {name}']:.2f}" for name, title in names.items()]
    return f"{row['draws']} draws; mean cosine: {', '.join(each)}"


NOISE = Experiment(
    "noise",
    NoiseKnobs,
    noise_rows,
    (
        Lines(
            {"cosine": "mean of the draws"}, "Gradient cosine with exact RTRL", "cosine"
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
    ),
    CAPTION,
    _status,
    front=("method", "rank", "trained"),
    playable={"rank": (1, 2)},
    picture=picture,
    opening=opening,
    at_once=True,
)
