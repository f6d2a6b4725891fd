"""Water filling: how OK writes several terms as fewer, and what its signs do."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
import torch

from labkit.labs.rules import seeded
from labkit.panels import Experiment, knob
from labkit.panels.panel_types import KEPT, MIXED
from labkit.panels.theme import INK
from labkit.pictures.planes import GHOST, path, planes, put
from labkit.rtrl.low_rank import (
    minimum_variance,
    optimal_low_rank,
    random_signs,
    water_level,
)

TALL, DRAWS = 4.0, 300  # of a bar at most; draws that are shown
_bar = partial(knob, low=0.0, high=TALL, step=0.1, about="noise")


@dataclass(frozen=True)
class WaterKnobs:
    """What can be turned; the bars are sorted."""

    # fmt: off
    rank: int = knob(
        2, low=1, high=5, unit="terms", help="of five that are left", about="noise",
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
    """One draw, and the mean of all so far."""

    d: np.ndarray  # (5,) falling
    level: float
    signs: np.ndarray  # (5,)
    drawn: np.ndarray  # (5, 5)
    mean: np.ndarray  # (5, 5)
    off: np.ndarray  # (draws,) squared distances of the mean from the diagonal of d
    noise: float  # of one draw, as the theorem has it


def water_rows(knobs) -> Iterator[dict]:
    """One row a draw of the signs."""
    bars = [knobs.first, knobs.second, knobs.third, knobs.fourth, knobs.fifth]
    d = torch.tensor(sorted(bars, reverse=True), dtype=torch.float64)
    C, g = torch.diag(d), seeded(knobs.seed)
    level = float(water_level(d, knobs.rank)) if knobs.rank < len(d) else 0.0
    noise, total, off = float(minimum_variance(d, knobs.rank)), 0 * C, []
    for step in count(1):
        signs = random_signs(d.shape, d, g)
        L, R = optimal_low_rank(C, knobs.rank, signs)
        total += L @ R.mT
        off.append(float((total / step - C).square().sum()))
        row = {"step": step, "noise": float((L @ R.mT - C).square().sum())}
        row |= {"theorem": noise, "level": level, "of the mean": off[-1]}
        shown = (part.numpy() for part in (signs, L @ R.mT, total / step))
        made = Water(d.numpy(), level, *shown, np.array(off[:DRAWS]), noise)
        yield row | {"pictures": made}


CAPTION = (
    "Left: terms above the water level are kept, those below are raised to it and "
    "mixed, with signs that are drawn anew at each step. Middle: what a draw makes of "
    "the diagonal matrix of the bars. Right: each draw is equally far from it, as the "
    "theorem says, and the mean of n draws n times nearer."
)


def picture(now: Water | None, before: Water | None) -> dict:
    """Draw the bars, a draw, and how far the mean is."""
    figure = planes(
        ["Terms, and the water level", "One draw", "Distance of the mean, squared"],
        ["term", "column", "draws"],
        ["singular value", "row", ""],
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
        mean = path(np.c_[n[: len(now.off)], now.off], KEPT, "mean of the draws")
        put(figure, 2, [trace | {"showlegend": True} for trace in (theory, mean)])
    if before:
        n = np.arange(1, len(before.off) + 1)
        ghost = path(np.c_[n, before.off], GHOST, "an earlier run")
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
    return [*drawn, path(ends, INK, "water level", dash="dash")]


def _status(row) -> str:
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
    recorded={"rank": (1, 2, 3, 4)},
    picture=picture,
)
