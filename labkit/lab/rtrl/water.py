"""Water filling: how OK writes several terms as fewer, and the role of its signs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
import torch

from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.kinds import KEPT, MIXED
from labkit.lab.panels.figures.planes import GHOST, handles, path, planes, put
from labkit.lab.panels.figures.theme import COLOURS, INK
from labkit.lab.problem import seeded
from labkit.rtrl.low_rank import (
    minimum_variance,
    optimal_low_rank,
    random_signs,
    water_level,
)

TALL, DRAWS = 4.0, 40  # of a bar at most; draws that are shown
BARS = ("first", "second", "third", "fourth", "fifth")
MEAN = COLOURS[4]  # of the draws
_bar = partial(knob, low=0.0, high=TALL, step=0.1)


@dataclass(frozen=True)
class WaterKnobs:
    """The knobs of the picture."""

    # fmt: off
    rank: int = knob(
        2, low=1, high=5, unit="terms", help="of five that are left",
        look_for="How far does the level fall, and who stands above it?")
    first: float = _bar(3.0, label="first bar", help="singular value",
                        look_for="Above the level: does its height matter at all?")
    second: float = _bar(1.0, label="second bar", help="singular value",
                         look_for="At which height does it come out of the water?")
    third: float = _bar(0.8, label="third bar", help="singular value",
                        look_for="At 0: is there less to mix?")
    fourth: float = _bar(0.5, label="fourth bar", help="singular value",
                         look_for="Does the level rise with it?")
    fifth: float = _bar(0.3, label="fifth bar", help="singular value",
                        look_for="At 0: is there less to mix?")
    seed: int = knob(0, low=0, high=99, label="draw the signs again",
                     look_for="Other signs: is a draw any nearer?")
    # fmt: on


class Water(NamedTuple):
    """One draw of the bars, and the errors of the mean of all draws so far."""

    d: np.ndarray  # (5,)
    level: float
    signs: np.ndarray  # (5,)
    drawn: np.ndarray  # (5, 5)
    off: np.ndarray  # (draws,) squared distances of the mean from the diagonal of d
    noise: float  # of one draw, as the theorem has it


def one_draw(knobs: WaterKnobs, signs: torch.Tensor) -> Water:
    """Return one draw of the bars with these signs (5,)."""
    d = torch.tensor([getattr(knobs, bar) for bar in BARS], dtype=torch.float64)
    falling = d.argsort(descending=True, stable=True)
    L, R = optimal_low_rank(torch.diag(d[falling]), knobs.rank, signs[falling])
    place = falling.argsort()
    made = (L @ R.mT)[place][:, place]
    off = (made - torch.diag(d)).square().sum()[None]
    noise = float(minimum_variance(d[falling], knobs.rank))
    level = level_at(d[falling], knobs.rank)
    return Water(d.numpy(), level, signs.numpy(), made.numpy(), off.numpy(), noise)


def level_at(d: torch.Tensor, rank: int) -> float:
    """Return the water level of non-increasing d, or 0 if all values are kept."""
    return float(water_level(d, rank)) if rank < len(d) else 0.0


def water_rows(knobs: WaterKnobs) -> Iterator[dict]:
    """Yield one row for each draw of the signs."""
    g, like = seeded(knobs.seed), torch.zeros((), dtype=torch.float64)
    total, off = 0, []
    for step in count(1):
        made = one_draw(knobs, random_signs((len(BARS),), like, g))
        total = total + made.drawn
        mean = total / (len(off) + 1)
        off.append(float(np.square(mean - np.diag(made.d)).sum()))
        row = {"step": step, "noise": float(made.off[0]), "theorem": made.noise}
        row["level"], row["of the mean"] = made.level, off[-1]
        row["pictures"] = made._replace(off=np.array(off))
        yield row


def dragged(
    now: Water,
    _knobs: WaterKnobs,
    name: str,
    index: int,
    point: tuple[float, float],
) -> dict[str, float]:
    """Return the value of the dragged bar, or the rank of the nearest water level."""
    if name == "bars":
        return {BARS[index]: round(point[1], 1)}
    d = torch.tensor(now.d).sort(descending=True).values
    off = {rank: abs(level_at(d, rank) - point[1]) for rank in range(1, 6)}
    return {name: min(off, key=off.get)}


CAPTION = (
    "Terms above the water level (dashed) are kept; those below are raised to it and "
    "mixed, with signs that are drawn anew at each step. One draw shows what they make "
    "of the diagonal matrix of the bars. Each draw is equally far from that matrix, as "
    "the theorem says, and the squared distance of the mean of n draws is n times less."
)


def picture(now: Water | None, before: Water | None) -> dict:
    """Draw the bars, one draw, and the distance of the mean from them."""
    figure = planes(
        [
            "Terms, and the level",
            "One draw",
            "Distance of the mean",
        ],
        ["term", "column", "draws"],
        ["singular value", "row", "squared"],
        [((0.4, 5.6), (0, 1.1 * TALL)), ((0.5, 5.5), (5.5, 0.5)), ((0, 1), (0, 1))],
        caption=CAPTION,
    )
    low = np.log10(now.noise / DRAWS / 30) if now and now.noise else -4
    ends = {"xaxis3": (0, np.log10(DRAWS)), "yaxis3": (low, max(low + 3.5, 1))}
    for name, limits in ends.items():
        look = {"type": "log", "range": limits, "nticks": 4, "tickformat": "~g"}
        figure["layout"][name] |= look
    if now:
        put(figure, 0, _bars(now))
        heat = {"type": "heatmap", "z": now.drawn, "colorscale": "RdBu", "zmid": 0}
        at = np.arange(1, len(now.d) + 1)
        put(figure, 1, [heat | {"x": at, "y": at, "showscale": False}])
        n = np.arange(1, DRAWS + 1)
        theory = path(np.c_[n, now.noise / n], INK, "theorem / n", dash="dot")
        mean = path(np.c_[n[: len(now.off)], now.off], MEAN, "mean of the draws")
        put(figure, 2, [trace | {"showlegend": True} for trace in (theory, mean)])
    off = before.off if before else ()
    if len(off):
        n = np.arange(1, len(off) + 1)
        ghost = path(np.c_[n, off], GHOST, "an earlier run")
        put(figure, 2, [ghost | {"showlegend": True}])
    return figure


def _bars(now: Water) -> list[dict]:
    at, mixed = np.arange(1, len(now.d) + 1), now.d < now.level
    drawn = []
    for name, which, tint in (("kept", ~mixed, KEPT), ("mixed", mixed, MIXED)):
        look = {"type": "bar", "width": 0.8, "name": name, "marker": {"color": tint}}
        drawn.append(look | {"x": at[which], "y": now.d[which]})
    signs = [("−", "+")[int(sign > 0)] for sign in now.signs[mixed]]
    above = {"type": "scatter", "mode": "text", "textfont": {"size": 16}}
    heights = np.full(len(signs), now.level)
    drawn.append(above | {"x": at[mixed], "y": heights, "text": signs})
    drawn[-1] |= {"textposition": "top center", "name": ""}
    ends = [(0.4, now.level), (5.6, now.level)]
    level = path(ends, INK, "water level", dash="dash")
    drawn.append(level | {"showlegend": False})  # the caption names it
    beside = np.c_[np.arange(0.5, 6), np.full(6, now.level)]
    return [*drawn, handles(beside, "rank"), handles(np.c_[at, now.d], "bars")]


def _status(row: Mapping) -> str:
    return (
        "this draw {noise:.3f} off, squared; theorem {theorem:.3f}; the mean "
        "{of the mean:.4f}"
    ).format_map(row)


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
