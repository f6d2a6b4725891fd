"""Water filling: how OK writes several terms as fewer, and the role of its signs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
import torch

from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.figures.kinds import KEPT, MIXED
from labkit.lab.panels.figures.planes import GHOST, handles, path, planes, put
from labkit.lab.panels.figures.theme import INK
from labkit.lab.problem import seeded
from labkit.rtrl.low_rank import (
    minimum_variance,
    optimal_low_rank,
    random_signs,
    water_level,
)

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
    seed: int = knob(0, low=0, high=99, label="draw the signs again",
                     look_for="Other signs: is a draw any nearer?")
    # fmt: on


class Water(NamedTuple):
    """One draw of the bars, and the mean of all draws so far."""

    d: np.ndarray  # (5,)
    level: float
    signs: np.ndarray  # (5,)
    drawn: np.ndarray  # (5, 5)
    mean: np.ndarray  # (5, 5)


def draw(knobs: WaterKnobs, signs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the bars (5,), one draw of them (5, 5), the level, and Theorem 6's noise.

    ``signs`` are (5,). The level is 0 if all values are kept.
    """
    d = torch.tensor([getattr(knobs, bar) for bar in BARS], dtype=torch.float64)
    falling = d.argsort(descending=True, stable=True)
    L, R = optimal_low_rank(torch.diag(d[falling]), knobs.rank, signs[falling])
    place, kept = falling.argsort(), knobs.rank == len(d)
    level = d.new_zeros(()) if kept else water_level(d[falling], knobs.rank)
    noise = minimum_variance(d[falling], knobs.rank)
    return d, (L @ R.mT)[place][:, place], level, noise


def water_rows(knobs: WaterKnobs) -> Iterator[dict]:
    """Yield one row for each draw of the signs."""
    g, like = seeded(knobs.seed), torch.zeros((), dtype=torch.float64)
    total = 0
    for step in count(1):
        signs = random_signs((len(BARS),), like, g)
        d, drawn, level, noise = draw(knobs, signs)
        total = total + drawn
        numbers = {"theorem": float(noise), "level": float(level)}
        for name, matrix in (("noise", drawn), ("of the mean", total / step)):
            numbers[name] = float((matrix - torch.diag(d)).square().sum())
        found = (part.numpy() for part in (signs, drawn, total / step))
        pictures = Water(d.numpy(), float(level), *found)
        yield {"step": step} | numbers | {"pictures": pictures}


def dragged(
    _now: Water,
    _knobs: WaterKnobs,
    _name: str,
    index: int,
    point: tuple[float, float],
) -> dict[str, float]:
    """Return the value of the dragged bar."""
    return {BARS[index]: round(point[1], 1)}


CAPTION = (
    "Terms above the water level (dashed) are kept; those below are raised to it and "
    "mixed, with signs that are drawn anew at each step. One draw shows what they make "
    "of the diagonal matrix of the bars. Each draw is equally far from that matrix, as "
    "the theorem says; in the mean of the draws the mixture fades."
)


def picture(now: Water | None, before: Water | None) -> dict:
    """Draw the bars, one draw, and the mean of the draws."""
    square = (0.5, 5.5), (5.5, 0.5)
    figure = planes(
        ["Terms, and the level", "One draw", "Mean of the draws"],
        ["term", "column", "column"],
        ["singular value", "row", ""],
        [(EDGES, (0, 1.1 * TALL)), square, square],
        caption=CAPTION,
    )
    if now:
        put(figure, 0, _bars(now))
        for plane, matrix in enumerate((now.drawn, now.mean), start=1):
            heat = {"type": "heatmap", "z": matrix, "colorscale": "RdBu", "zmid": 0}
            heat |= {"zmax": TALL, "zmin": -TALL, "showscale": False}
            put(figure, plane, [heat | {"x": AT, "y": AT}])
    if before:
        put(figure, 0, [path([(x, before.level) for x in EDGES], GHOST, EARLIER)])
    return figure


def _bars(now: Water) -> list[dict]:
    mixed, drawn = now.d < now.level, []
    for name, which, tint in (("kept", ~mixed, KEPT), ("mixed", mixed, MIXED)):
        look = {"type": "bar", "width": 0.8, "name": name, "marker": {"color": tint}}
        drawn.append(look | {"x": AT[which], "y": now.d[which]})
    signs = np.where(now.signs[mixed] > 0, "+", "−").tolist()
    above = {"type": "scatter", "mode": "text", "textfont": {"size": 16}}
    above |= {"x": AT[mixed], "y": np.full(len(signs), now.level), "text": signs}
    level = path([(x, now.level) for x in EDGES], INK, "water level", dash="dash")
    bars = handles(np.c_[AT, now.d], "bars")
    return [*drawn, above | {"textposition": "top center", "name": ""}, level, bars]


def _status(row: Mapping) -> str:
    return (
        f"this draw is {row['noise']:.3f} off, squared, and the theorem's value is "
        f"{row['theorem']:.3f}; the mean is {row['of the mean']:.4f} off"
    )


WATER = Experiment(
    "water",
    WaterKnobs,
    water_rows,
    (),
    CAPTION,
    _status,
    front=("rank", "first", "second"),
    playable={"rank": (1, 2, 3, 4)},
    picture=picture,
    drag=dragged,
)
