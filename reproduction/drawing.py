"""Draw curves as small SVG files, the same bytes for the same results."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import pandas as pd

from labkit.lab.race import View

# Okabe and Ito's colours; curves beyond them differ by their dashes
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
DASHES = ("", "6 3", "2 2", "8 3 2 3")
WIDTH, HEIGHT, LEFT, TOP, LOW = 430, 270, 62, 34, 44
LINE = 15  # height of a line of the legend
Curve = tuple[list[float], list[float]]


def figure(rows: pd.DataFrame, views: Sequence[View]) -> str:
    """Return an SVG with one panel for each view and one mean curve for each label."""
    names = list(dict.fromkeys(rows.label))
    panels = []
    for number, view in enumerate(views):
        curves = {name: curve_of(rows[rows.label == name], view) for name in names}
        panels.append(panel(curves, view, number * (WIDTH + 20)))
    width = len(views) * (WIDTH + 20)
    legend = "".join(_key(i, name) for i, name in enumerate(names))
    height = HEIGHT + LINE * len(names) + 28
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    head += f'width="{width}" height="{height}" font-family="sans-serif" '
    head += 'font-size="12" role="img">'
    said = f"{'; '.join(view.title for view in views)}, of {', '.join(names)}"
    back = '<rect width="100%" height="100%" fill="white"/>'
    whole = [head, f"<title>{escape(said)}</title>", back, *panels, legend, "</svg>"]
    return "\n".join(whole) + "\n"


def curve_of(runs: pd.DataFrame, view: View) -> Curve:
    """Return the means over the seeds at the looks that every seed has."""
    seeds = runs.seed.nunique() if "seed" in runs else 1
    key = "look" if "look" in runs else view.x  # passes differ from seed to seed
    looks = runs.dropna(subset=[view.y]).groupby(key)
    means = looks[list({view.x, view.y})].mean()[looks.size() == seeds]
    return means[view.x].tolist(), means[view.y].tolist()


def panel(curves: Mapping[str, Curve], view: View, left: float) -> str:
    """Return the SVG of the axes, ticks and curves of one view."""
    xs = [x for each in curves.values() for x in each[0]]
    ys = [y for each in curves.values() for y in each[1]]
    if not xs:
        return ""
    logs = view.log_x and min(xs) > 0, view.log_y and min(ys) > 0
    x_at = _scale(xs, logs[0], LEFT, WIDTH - 12)
    y_at = _scale(ys, logs[1], HEIGHT - LOW, TOP)
    parts = [f'<g transform="translate({left},0)">']
    parts.append(_text(LEFT, 18, view.title, size=14))
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 8, view.x_title, "middle"))
    parts.append(_text(6, TOP - 4, view.y_title))
    for x in _ticks(min(xs), max(xs), logs[0]):
        parts.append(_text(x_at(x), HEIGHT - LOW + 17, f"{x:,.7g}", "middle"))
        parts.append(_line(x_at(x), TOP, x_at(x), HEIGHT - LOW))
    for y in _ticks(min(ys), max(ys), logs[1]):
        parts.append(_text(LEFT - 5, y_at(y) + 4, f"{y:,.6g}", "end"))
        parts.append(_line(LEFT, y_at(y), WIDTH - 12, y_at(y)))
    for number, (x, y) in enumerate(curves.values()):
        points = [f"{x_at(a):.1f},{y_at(b):.1f}" for a, b in zip(x, y, strict=True)]
        drawn = f'points="{" ".join(points)}" fill="none" stroke-width="1.8"'
        parts.append(f"<polyline {drawn} {_stroke(number)}/>")
    return "\n".join([*parts, "</g>"])


def _scale(values, log, start, stop):
    """Return the function that maps values to pixels."""
    low, high = min(values), max(values)
    if log:
        low, high = math.log(low), math.log(high)
    span = high - low or 1.0
    part = (lambda v: math.log(v)) if log else (lambda v: v)
    return lambda v: start + (part(v) - low) / span * (stop - start)


def _ticks(low: float, high: float, log: bool) -> list[float]:
    """Return up to nine round numbers between two numbers."""
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for parts in (1,), (1, 2, 5):
            every = (m * 10.0**i for i in powers for m in parts)
            found = [tick for tick in every if low <= tick <= high]
            if len(found) >= 3:
                return found[:: max(1, len(found) // 5)]
    span = high - low
    if not span:
        return [low]
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(m for m in (1, 2, 5, 10) if span / (step * m) <= 5)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _stroke(number: int) -> str:
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{COLOURS[number % len(COLOURS)]}"{dashed}'


def _key(number: int, name: str) -> str:
    y = HEIGHT + 18 + LINE * number
    drawn = f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + 30}" y2="{y}" stroke-width="1.8" '
    return drawn + f"{_stroke(number)}/>{_text(LEFT + 38, y + 4, name)}"


def _line(x1, y1, x2, y2) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="#ddd"/>'


def _text(x, y, words, anchor="start", size=12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}>{escape(words)}</text>"
