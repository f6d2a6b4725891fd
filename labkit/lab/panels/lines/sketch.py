"""The small picture beside a walk: planes with arrows, curves and dots, as SVG.

A walk's page asks no kernel, and has a drawing library only if something else brought
it, so the picture of each line is drawn when the walk is made.
"""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labkit.lab.panels.lines.tracer import LineRun

HIGH, GAP, TITLE = 210, 24, 20  # pixels of a plane, between two, and above them
HEAD = 9  # pixels of the head of an arrow
INK = "currentColor"

# From the values so far, by name, and the names that a line has changed, to SVG.
Picture = Callable[[Mapping[str, np.ndarray], frozenset[str]], str]


class Part(NamedTuple):
    """One thing in a plane: a line through points, an arrow, or dots.

    Attributes
    ----------
    kind : str, ``line``, ``arrow``, ``dots``, or ``words`` for its name alone
    points : (n, 2) array-like, of an arrow its two ends
    name : str, stands beside the last point
    colour : str, as in CSS
    lit : bool, whether the line that is looked at has made it
    """

    kind: str
    points: ArrayLike
    name: str = ""
    colour: str = INK
    lit: bool = False


class Plane(NamedTuple):
    """A plane with fixed limits, in which a unit is as long upwards as sideways."""

    title: str
    limits: tuple[tuple[float, float], tuple[float, float]]
    parts: Sequence[Part]


def sketch(planes: Iterable[Plane], words: str) -> str:
    """Return planes side by side as SVG; ``words`` say what is drawn.

    Parts that are lit are drawn strong, all others pale.
    """
    drawn, left = [], 0.0
    for plane in planes:
        (x0, x1), (y0, y1) = plane.limits
        unit = HIGH / (y1 - y0)
        wide, zero = unit * (x1 - x0), np.array([left - unit * x0, TITLE + unit * y1])
        frame = f'x="{left:.1f}" y="{TITLE}" width="{wide:.1f}" height="{HIGH}"'
        drawn.append(f'<rect class="frame" {frame}/>')
        drawn.append(f'<text x="{left:.1f}" y="13">{html.escape(plane.title)}</text>')
        drawn += [_drawn(part, zero, unit) for part in plane.parts]
        left += wide + GAP
    size = f'width="{left - GAP:.0f}" height="{HIGH + TITLE + 1}"'
    box = f'viewBox="0 0 {left - GAP:.0f} {HIGH + TITLE + 1}"'
    said = html.escape(words, quote=True)
    return f'<svg {size} {box} role="img" aria-label="{said}">{"".join(drawn)}</svg>'


def _drawn(part: Part, zero: np.ndarray, unit: float) -> str:
    """Draw a part, whose plane has its zero at a pixel, and so many pixels a unit."""
    points = np.asarray(part.points, dtype=np.float64).reshape(-1, 2)
    at = zero + unit * points * [1, -1]
    draw = {"line": _line, "arrow": _arrow, "dots": _dots}.get(part.kind)
    inside = draw(at) if draw else ""
    if part.name:
        x, y = at[-1] + [7, -7]
        inside += f'<text x="{x:.1f}" y="{y:.1f}">{html.escape(part.name)}</text>'
    lit = ' class="lit"' if part.lit else ""
    return f'<g{lit} style="--own: {part.colour}">{inside}</g>'


def _line(at: np.ndarray) -> str:
    return f'<polyline points="{_pairs(at)}"/>'


def _arrow(at: np.ndarray) -> str:
    along = at[1] - at[0]
    long = np.hypot(*along)
    if long < 1:
        return ""
    along = along / long
    across = np.array([-along[1], along[0]])
    neck = at[1] - min(HEAD, long) * along
    head = np.stack([at[1], neck + HEAD / 3 * across, neck - HEAD / 3 * across])
    return _line(np.stack([at[0], neck])) + f'<polygon points="{_pairs(head)}"/>'


def _dots(at: np.ndarray) -> str:
    return "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in at)


def _pairs(at: np.ndarray) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in at)


def pictures(lines: Sequence[LineRun], picture: Picture) -> list[str]:
    """Draw the picture of each line, from all values that there were up to it.

    Values are those that the walk keeps, of up to 256 entries, as float32.
    """
    values, drawn = {}, []
    for line in lines:
        for path, summary in line.values.items():
            if summary.entries is not None:
                values[path] = summary.entries
        drawn.append(picture(values, line.changed))
    return drawn
