"""Draw curves as small SVG files, the same bytes for the same results."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from labkit.lab.race import View
from reproduction.criteria import finished

# Okabe and Ito's colours and three of Tol's; curves beyond them differ by their dashes
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#000000",
    "#882255",
    "#999933",
    "#332288",
)
DASHES = ("", "6 3", "2 2")
BLACK = ("", "#000000")
GREY = "#dddddd"
PAPER = "3 3"  # the dashes of a line at a number of the paper
WIDTH = 430
HEIGHT = 270
LEFT = 62
RIGHT = 12
TOP = 34
LOW = 44
LINE = 15  # height of a line of the legend
STEPS = [m * 10.0**i for i in range(-9, 10) for m in (1, 2, 5)]  # between two ticks
CIRCLES = "circles: the paper's numbers"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One drawing: some of the curves of a study, and the paper's numbers.

    Attributes
    ----------
    view : View, what is drawn against what
    only : tuple of str
        Labels, or parts of labels such as a data set; a label that has none of them is
        not drawn. If it is empty, all are drawn. What all names have in common is left
        out of them.
    lines : mapping of a name to a number of the paper
        A dashed line, in the colour of the curve of that name, or black.
    points : mapping of a name to pairs (x, y) that the paper prints
        Circles over the curve of that name, in its colour.
    y_range : (low, high), by default that of what is drawn
    """

    view: View
    only: tuple[str, ...] = ()
    lines: Mapping[str, float] = field(default_factory=dict)
    points: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    y_range: Sequence[float] = ()

    def names(self, labels: Iterable[str]) -> dict[str, str]:
        """Return the names under which labels are drawn, by label."""
        only, parts = set(self.only), {label: label.split(", ") for label in labels}
        if only:
            parts = {
                label: each for label, each in parts.items() if only & {label, *each}
            }
        common = set.intersection(*map(set, parts.values())) if len(parts) > 1 else only
        names = {
            label: [part for part in each if part not in common]
            for label, each in parts.items()
        }
        return {label: ", ".join(each) or label for label, each in names.items()}


class MeanCurve(NamedTuple):
    """The means over the seeds at the looks that every seed has, and their sd.

    Runs that failed are left out, and ``note`` says how many they are.
    """

    x: np.ndarray
    y: np.ndarray
    sd: np.ndarray
    note: str


def figures(rows: pd.DataFrame, charts: Sequence[Chart]) -> dict[int, str]:
    """Return an SVG for each chart that has curves, by its number from 1.

    A rule has one colour in all charts. One whose runs all failed is in the legend.
    """
    runs = dict(list(rows.groupby("label", sort=False)))
    drawn = [chart.names(runs) for chart in charts]
    names = dict.fromkeys(name for each in drawn for name in each.values())
    style = dict(zip(names, product(DASHES, COLOURS), strict=False))
    made = {}
    for number, (chart, named) in enumerate(zip(charts, drawn, strict=True), 1):
        curves = {
            name: curve_of(runs[label], chart.view) for label, name in named.items()
        }
        if any(len(curve.x) for curve in curves.values()):
            made[number] = svg(curves, chart, style)
    return made


def curve_of(runs: pd.DataFrame, view: View) -> MeanCurve:
    """Return the mean curve of the runs of a label, each look of a seed once."""
    runs = runs if "seed" in runs else runs.assign(seed=0)
    count, whole = runs["seed"].nunique(), finished(runs)
    seeds = whole["seed"].nunique()
    note = " (1 run)" if count == 1 else ""
    note = f" ({count - seeds} of {count} runs failed)" if seeds < count else note
    key = "look" if "look" in runs else view.x  # passes differ from seed to seed
    whole = whole.dropna(subset=[view.y]).drop_duplicates(["seed", key], keep="last")
    looks = whole.groupby(key)
    looks = looks.filter(lambda look: len(look) >= seeds).groupby(key)
    x, y, sd = looks[view.x].mean(), looks[view.y].mean(), looks[view.y].std()
    return MeanCurve(x.to_numpy(), y.to_numpy(), sd.fillna(0.0).to_numpy(), note)


def svg(
    curves: Mapping[str, MeanCurve], chart: Chart, style: Mapping[str, tuple]
) -> str:
    """Return one chart: its axes, its curves, the paper's numbers, and a legend."""
    view, lines, right, low = chart.view, chart.lines, WIDTH - RIGHT, HEIGHT - LOW
    drawn = {name: each for name, each in curves.items() if len(each.x)}
    points = {name: pairs for name, pairs in chart.points.items() if name in drawn}
    xs = [x for each in drawn.values() for x in each.x]
    ys = [y for each in drawn.values() for y in each.y] + [*lines.values()]
    ys += [y for pairs in points.values() for _, y in pairs]
    bottom, top = chart.y_range or (min(ys), max(ys))
    x_at, x_ticks = _axis(min(xs), max(xs), view.log_x, LEFT, right)
    y_at, y_ticks = _axis(bottom, top, view.log_y, low, TOP)
    middle = (TOP + low) / 2
    parts = [
        f"<title>{escape(view.title)}, of {escape(', '.join(drawn))}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 18, view.title, size=14),
        _text((LEFT + right) / 2, HEIGHT - 8, view.x_title, anchor="middle"),
        f'<g transform="translate(12 {middle}) rotate(-90)">',
        _text(0, 0, view.y_title, anchor="middle") + "</g>",
    ]
    for x in x_ticks:
        anchor = "end" if x_at(x) > right - 16 else "middle"
        words = f"{x:,.7g}"
        parts.append(_text(x_at(x), low + 16, words, anchor=anchor, size=10))
        parts.append(_line([(x_at(x), TOP), (x_at(x), low)], GREY))
    for y in y_ticks:
        parts.append(_text(LEFT - 5, y_at(y) + 4, f"{y:,.7g}", anchor="end"))
        parts.append(_line([(LEFT, y_at(y)), (right, y_at(y))], GREY))
    box = f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{low - TOP}"/>'
    parts.append(f'<clipPath id="axes">{box}</clipPath><g clip-path="url(#axes)">')
    for name, number in lines.items():
        colour, y = style.get(name, BLACK)[1], y_at(number)
        parts.append(_line([(LEFT, y), (right, y)], colour, dash=PAPER))
    for name, each in drawn.items():
        x, (dash, colour) = [*map(x_at, each.x)], style[name]
        if each.sd.any():
            high, under = map(y_at, each.y + each.sd), map(y_at, each.y - each.sd)
            band = [*zip(x, high, strict=True), *[*zip(x, under, strict=True)][::-1]]
            fill = f'fill="{colour}" fill-opacity="0.15"'
            parts.append(f'<polygon points="{_points(band)}" {fill}/>')
        way = [*zip(x, map(y_at, each.y), strict=True)]
        parts.append(_line(way, colour, dash=dash, width=1.8))
    parts.append("</g>")
    for name, pairs in points.items():
        for x, y in pairs:
            place = f'cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3.5"'
            parts.append(f'<circle {place} fill="white" stroke="{style[name][1]}"/>')
    keys = {
        name: each.note
        for name, each in curves.items()
        if name in drawn or "failed" in each.note
    }
    keys |= {name: "" for name in lines if name not in drawn}
    if points:
        keys[CIRCLES] = ""
    for place, (name, note) in enumerate(keys.items()):
        y, dash, colour = HEIGHT + 4 + LINE * place, *style.get(name, BLACK)
        printed = f"; dashed: the paper's {lines[name]:g}" if name in lines else ""
        if name in drawn or printed:
            dash = dash if name in drawn else PAPER
            parts.append(_line([(LEFT, y), (LEFT + 30, y)], colour, dash, width=1.8))
        parts.append(_text(LEFT + 38, y + 4, f"{name}{note}{printed}"))
    height = HEIGHT + LINE * len(keys) + 12
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
    head += f'width="{WIDTH}" height="{height}" font-family="sans-serif" role="img">'
    return "\n".join([head, *parts, "</svg>\n"])


def _axis(low: float, high: float, log: bool, start: int, stop: int) -> tuple:
    """Return the function that maps values to pixels, and the ticks."""
    log = log and low > 0

    def part(value: float) -> float:
        return math.log(max(value, 1e-99)) if log else value  # a logarithm has no zero

    def pixel(value: float) -> float:
        span = part(high) - part(low) or 1.0
        return start + (part(value) - part(low)) / span * (stop - start)

    return pixel, _ticks(low, high, log)


def _ticks(low: float, high: float, log: bool) -> list[float]:
    """Return up to nine round numbers between two numbers."""
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for parts in (1,), (1, 2, 5):
            every = (m * 10.0**i for i in powers for m in parts)
            found = [tick for tick in every if low <= tick <= high]
            if len(found) >= 3:
                return found[:: max(1, len(found) // 5)]
    step = next(step for step in STEPS if high - low <= 5 * step)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)] or [low]


def _points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


def _line(pairs, colour, dash="", width=1.0) -> str:
    drawn = f'fill="none" stroke="{colour}" stroke-width="{width}"'
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{_points(pairs)}" {drawn}{dashed}/>'


def _text(x, y, words, anchor="start", size=12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}>{escape(words)}</text>"
