"""Draw curves as small SVG files, the same bytes for the same results."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import pandas as pd

from labkit.lab.race import View
from reproduction.criteria import finished

# Okabe and Ito's colours and three of Tol's; curves beyond them differ by their dashes
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"),
    *("#882255", "#999933", "#332288"),
)
DASHES = ("", "6 3", "2 2", "8 3 2 3")
PAPER = "3 3"  # the dashes of a line at a number of the paper
WIDTH, HEIGHT, LEFT, RIGHT, TOP, LOW = 430, 270, 62, 12, 34, 44
LINE = 15  # height of a line of the legend
Range = tuple[float | None, float | None]


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
    x_range, y_range : (low, high), None for an end that the curves decide
    """

    view: View
    only: tuple[str, ...] = ()
    lines: Mapping[str, float] = field(default_factory=dict)
    points: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    x_range: Range = (None, None)
    y_range: Range = (None, None)

    def names(self, labels: Iterable[str]) -> dict[str, str]:
        """Return the names under which labels are drawn, by label."""
        parts = {label: label.split(", ") for label in labels}
        if self.only:
            wanted = set(self.only)
            parts = {x: p for x, p in parts.items() if x in wanted or wanted & {*p}}
        common = set.intersection(*map(set, parts.values())) if parts else set()
        common &= set(self.only) if len(parts) == 1 else common
        names = {x: [p for p in each if p not in common] for x, each in parts.items()}
        return {label: ", ".join(each) or label for label, each in names.items()}


@dataclass(frozen=True)
class MeanCurve:
    """The means over the seeds at the looks that every seed has, and their sd.

    Runs that failed are left out, and ``note`` says how many they are.
    """

    x: list[float]
    y: list[float]
    sd: list[float]
    note: str = ""


def figures(rows: pd.DataFrame, charts: Sequence[View | Chart]) -> dict[int, str]:
    """Return an SVG for each chart that has curves, by its number from 1.

    A rule has one colour in all charts. One whose runs all failed is in the legend.
    """
    charts = [p if isinstance(p, Chart) else Chart(view=p) for p in charts]
    labels = list(dict.fromkeys(rows["label"]))
    drawn = [chart.names(labels) for chart in charts]
    names = dict.fromkeys(name for each in drawn for name in each.values())
    style, made = {name: number for number, name in enumerate(names)}, {}
    runs = dict(list(rows.groupby("label")))
    for number, (chart, named) in enumerate(zip(charts, drawn, strict=True), 1):
        curves = {name: curve_of(runs[x], chart) for x, name in named.items()}
        if any(curve.x for curve in curves.values()):
            made[number] = svg(curves, chart, style)
    return made


def curve_of(runs: pd.DataFrame, chart: Chart) -> MeanCurve:
    """Return the mean curve of the runs of a label, within the range of its x."""
    view, count = chart.view, runs["seed"].nunique() if "seed" in runs else 1
    runs = finished(runs)
    seeds = runs["seed"].nunique() if "seed" in runs else 1
    note = " (1 run)" if count == 1 else ""
    note = f" ({count - seeds} of {count} runs failed)" if seeds < count else note
    key = "look" if "look" in runs else view.x  # passes differ from seed to seed
    looks = runs.dropna(subset=[view.y]).groupby(key)
    whole = looks.size() >= seeds
    means = looks[list({view.x, view.y})].mean()[whole]
    sd = looks[view.y].std()[whole].fillna(0.0)
    low, high = chart.x_range
    kept = means[view.x].between(
        -math.inf if low is None else low, math.inf if high is None else high
    )
    means, sd = means[kept], sd[kept]
    return MeanCurve(means[view.x].tolist(), means[view.y].tolist(), sd.tolist(), note)


def svg(curves: Mapping[str, MeanCurve], chart: Chart, style: Mapping[str, int]) -> str:
    """Return one chart with its legend below."""
    drawn = {name: each for name, each in curves.items() if each.x}
    keys = [
        _key(i, f"{name}{each.note}", style[name])
        for i, (name, each) in enumerate(drawn.items())
    ]
    for name, each in curves.items():
        if name not in drawn and "failed" in each.note:
            place = LEFT + 38, HEIGHT + 8 + LINE * len(keys)
            keys.append(_text(*place, f"{name}{each.note}"))
    if chart.lines:
        keys.append(_key(len(keys), "dashed: the paper's number", None))
    if chart.points.keys() & drawn.keys():
        place = LEFT + 38, HEIGHT + 8 + LINE * len(keys)
        keys.append(_text(*place, "circles: the paper's numbers"))
    height = HEIGHT + LINE * len(keys) + 12
    said = f"{chart.view.title}, of {', '.join(drawn)}"
    return _page(height, said, [*_axes(drawn, chart, style), *keys])


def _page(height: int, said: str, parts: Iterable[str]) -> str:
    """Return an SVG of this height, with what it says to who cannot see it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
    head += f'width="{WIDTH}" height="{height}" font-family="sans-serif" '
    head += 'font-size="12" role="img">'
    back = '<rect width="100%" height="100%" fill="white"/>'
    said = f"<title>{escape(said)}</title>"
    return "\n".join([head, said, back, *parts]) + "\n</svg>\n"


NAMES, NOTES, ROW = 112, 72, 18  # widths of the names and notes of dots; a row's height
LETTER = 6.6  # width of one of a note [px], rather more than less


def dots(title: str, points: pd.DataFrame, marked: Iterable[str] = ()) -> str:
    """Return a chart with a row for each label, on a logarithmic axis.

    Parameters
    ----------
    title : str
    points : DataFrame
        By label, in the order of the rows: ``mean``, ``sd`` and ``note``, words beside
        the dot. A bar is one standard deviation long on either side.
    marked : labels whose dots have another colour
    """
    marked = frozenset(marked)
    bottom = TOP + ROW * len(points)
    low, high = points["mean"] - points["sd"], points["mean"] + points["sd"]
    least = points["mean"].min() / 2  # a logarithm has no zero
    low = low.clip(lower=least).to_numpy()
    ends = low.min(), high.max()
    right = WIDTH - max(NOTES, 10 + LETTER * points["note"].str.len().max())
    x_at = _scale(*ends, True, NAMES, right)
    parts = [_text(0, 18, title, size=14)]
    for x in _ticks(*ends, True):
        parts.append(_text(x_at(x), bottom + 17, f"{x:,.7g}", "middle"))
        parts.append(_line(x_at(x), TOP, x_at(x), bottom))
    for place, (name, row) in enumerate(points.iterrows()):
        y, colour = TOP + ROW * (place + 0.5), COLOURS[name in marked]
        parts.append(_text(NAMES - 10, y + 4, name, "end"))
        parts.append(_line(x_at(low[place]), y, x_at(high[name]), y, colour))
        at = f'cx="{x_at(row["mean"]):.1f}" cy="{y:.1f}" r="3.5"'
        parts.append(f'<circle {at} fill="{colour}"/>')
        parts.append(_text(right + 10, y + 4, row["note"]))
    said = f"{title}: {', '.join(points.index)}"
    return _page(bottom + 26, said, parts)


def _axes(curves, chart, style) -> list[str]:
    """Return the axes, ticks, bands, curves and the paper's points."""
    view, lines = chart.view, chart.lines
    points = {name: chart.points[name] for name in curves if name in chart.points}
    xs = [x for each in curves.values() for x in each.x]
    ys = [y for each in curves.values() for y in each.y] + list(lines.values())
    ys += [y for pairs in points.values() for _, y in pairs]
    (left, right), (bottom, top) = (
        (min(v) if low is None else low, max(v) if high is None else high)
        for v, (low, high) in ((xs, chart.x_range), (ys, chart.y_range))
    )
    logs = view.log_x and left > 0, view.log_y and bottom > 0
    x_at = _scale(left, right, logs[0], LEFT, WIDTH - RIGHT)
    y_at = _scale(bottom, top, logs[1], HEIGHT - LOW, TOP)
    parts = [_text(LEFT, 18, view.title, size=14)]
    turned = f'<g transform="translate(12 {(TOP + HEIGHT - LOW) / 2}) rotate(-90)">'
    parts.append(f"{turned}{_text(0, 0, view.y_title, 'middle')}</g>")
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 8, view.x_title, "middle"))
    for x in _ticks(left, right, logs[0]):
        anchor = "end" if x_at(x) > WIDTH - RIGHT - 16 else "middle"
        parts.append(_text(x_at(x), HEIGHT - LOW + 17, f"{x:,.7g}", anchor))
        parts.append(_line(x_at(x), TOP, x_at(x), HEIGHT - LOW))
    for y in _ticks(bottom, top, logs[1]):
        parts.append(_text(LEFT - 5, y_at(y) + 4, f"{y:,.6g}", "end"))
        parts.append(_line(LEFT, y_at(y), WIDTH - RIGHT, y_at(y)))
    for name, number in lines.items():
        if bottom <= number <= top:
            ends = LEFT, y_at(number), WIDTH - RIGHT, y_at(number)
            parts.append(_line(*ends, _colour(style.get(name)), PAPER))
            if name not in curves:
                place = LEFT + 4, y_at(number) - 3
                parts.append(_text(*place, f"{name}: {number:g}", size=10))
    box = f'x="{LEFT}" y="{TOP}" width="{WIDTH - RIGHT - LEFT}" '
    box += f'height="{HEIGHT - LOW - TOP}"'
    parts.append(f'<clipPath id="axes"><rect {box}/></clipPath>')
    parts.append('<g clip-path="url(#axes)">')
    for name, each in curves.items():
        stroke = _stroke(style[name])
        spread = zip(each.y, each.sd, strict=True)
        low, high = zip(*((y - sd, y + sd) for y, sd in spread), strict=True)
        if logs[1]:  # a logarithm has no zero
            low, high = ([max(y, bottom) for y in edge] for edge in (low, high))
        if any(each.sd):
            ends = [*zip(each.x, high, strict=True)]
            ends += [*zip(each.x, low, strict=True)][::-1]
            fill = f'fill="{_colour(style[name])}" fill-opacity="0.15"'
            band = _points(ends, x_at, y_at)
            parts.append(f'<polygon points="{band}" {fill} stroke="none"/>')
        way = _points(zip(each.x, each.y, strict=True), x_at, y_at)
        drawn = f'points="{way}" fill="none" stroke-width="1.8"'
        parts.append(f"<polyline {drawn} {stroke}/>")
        if len(each.x) == 1:
            at = f'cx="{x_at(each.x[0]):.1f}" cy="{y_at(each.y[0]):.1f}" r="3"'
            parts.append(f'<circle {at} fill="{_colour(style[name])}"/>')
    parts.append("</g>")
    for name, pairs in points.items():
        for x, y in pairs:
            at = f'cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3.5" fill="white"'
            parts.append(f'<circle {at} stroke="{_colour(style[name])}"/>')
    return parts


def _points(pairs, x_at, y_at) -> str:
    """Return points as SVG has them."""
    return " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in pairs)


def _scale(low, high, log, start, stop):
    """Return the function that maps values to pixels."""
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


def _colour(number: int | None) -> str:
    return "#000000" if number is None else COLOURS[number % len(COLOURS)]


def _stroke(number: int | None) -> str:
    dash = PAPER if number is None else DASHES[number // len(COLOURS) % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{_colour(number)}"{dashed}'


def _key(place: int, name: str, number: int | None) -> str:
    y = HEIGHT + 4 + LINE * place
    drawn = f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + 30}" y2="{y}" stroke-width="1.8" '
    return drawn + f"{_stroke(number)}/>{_text(LEFT + 38, y + 4, name)}"


def _line(x1, y1, x2, y2, colour="#ddd", dash="") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line {ends} stroke="{colour}"{dashed}/>'


def _text(x, y, words, anchor="start", size=12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}>{escape(words)}</text>"
