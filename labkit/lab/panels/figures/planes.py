"""Planes side by side, and what stands in them: arrows, ellipses, dots and paths."""

from collections.abc import Sequence

import numpy as np

from labkit.lab.panels.figures.captions import panel_text
from labkit.lab.panels.figures.drawing import panel_title
from labkit.lab.panels.figures.theme import GHOST, INK, axis, layout

TURN = np.linspace(0, 2 * np.pi, 61)
HEIGHT = 430


def planes(
    titles: Sequence[str],
    x_titles: Sequence[str],
    y_titles: Sequence[str],
    limits: Sequence[tuple[tuple[float, float], tuple[float, float]]],
    *,
    caption: str,
    height: int = HEIGHT,
    square: bool = False,
    widths: Sequence[float] | None = None,
) -> dict:
    """Empty planes in a row with fixed limits (x, y), one legend below them.

    A figure as plain data: plotly's own objects would take longer than a frame.
    ``square``: a unit is as long upwards as sideways, so that circles are round.
    """
    count, start = len(titles), 0.0
    gap = 0.24 / count if any(y_titles[1:]) else 0.05
    shares = np.array(widths or [1.0] * count)
    shares = shares / shares.sum() * (1 - gap * (count - 1))
    made = layout(width=960, height=height) | {"annotations": [], "uirevision": True}
    made["margin"] |= {"t": 46, "b": 84, "l": 60}
    made["legend"] = {"orientation": "h", "x": 0, "y": 0, "yref": "container"}
    for i, (title, ends) in enumerate(zip(titles, limits, strict=True)):
        k, end = str(i + 1) if i else "", start + shares[i]
        corner = {"x": start, "y": 1, "xanchor": "left", "yanchor": "bottom"}
        made["annotations"].append(panel_title(title, corner))
        x, y = axis(x_titles[i], limits=ends[0]), axis(y_titles[i], limits=ends[1])
        scale = {"scaleanchor": f"x{k}", "constrain": "range"} if square else {}
        place = {"domain": [start, end], "anchor": f"y{k}", "nticks": 5}
        # What sticks out is not looked for: it takes a tenth of a frame.
        place |= (free := {"ticklabeloverflow": "allow"})
        made[f"xaxis{k}"] = x | place
        made[f"yaxis{k}"] = y | {"anchor": f"x{k}", "nticks": 6} | scale | free
        start = end + gap
    words = [panel_text(*each) for each in zip(titles, y_titles, x_titles, strict=True)]
    made["meta"] = {"caption": caption, "alt": ". ".join([*words, caption])}
    return {"data": [], "layout": made}


def put(figure: dict, column: int, traces: Sequence[dict]) -> None:
    """Draw traces in a plane, the first or a later one; the first has the legend."""
    k = str(column + 1) if column else ""
    place = {"xaxis": f"x{k}", "yaxis": f"y{k}"}
    for trace in traces:
        named = bool(trace.get("name")) and trace.get("showlegend", not column)
        figure["data"].append(trace | place | {"showlegend": named})


def dots(points, colour: str, name: str = "", **marker) -> dict:
    """Points (n, 2), each by itself."""
    x, y = np.asarray(points, dtype=np.float64).reshape(-1, 2).T
    look = {"color": colour, "size": 5} | marker
    return _scatter(x, y, name) | {"mode": "markers", "marker": look}


def handles(points, name: str) -> dict:
    """Points (n, 2), not seen, by which a hand holds what is drawn there."""
    return dots(points, INK, size=24, opacity=0) | {"meta": {"touch": name}}


def path(points, colour: str, name: str = "", *, marks: bool = False, **line) -> dict:
    """A line through points (n, 2)."""
    x, y = np.asarray(points, dtype=np.float64).reshape(-1, 2).T
    made = _scatter(x, y, name) | {"line": {"color": colour, "width": 2} | line}
    if marks:
        made["marker"] = {"color": colour, "size": 5}
    return made | {"mode": "lines+markers" if marks else "lines"}


def arrow(
    start, end, colour: str = INK, name: str = "", *, width: int = 3, head: int = 13
) -> dict:
    """An arrow from one point to another, or n of them as one trace: (2,) or (n, 2)."""
    start, end = np.atleast_2d(np.asarray(start, float)), np.atleast_2d(end)
    x, y = np.stack([start, end, np.full_like(start, np.nan)], 1).reshape(-1, 2)[:-1].T
    sizes = ([0, head, 0] * len(start))[:-1]
    tip = {"symbol": "arrow", "angleref": "previous", "size": sizes, "opacity": 1}
    look = {"mode": "lines+markers", "line": {"color": colour, "width": width}}
    return _scatter(x, y, name) | look | {"marker": tip | {"color": colour}}


def ellipse(centre, covariance, radius: float, colour: str, name="", **line) -> dict:
    """The points at a Mahalanobis distance ``radius`` from the centre (2,)."""
    values, vectors = np.linalg.eigh(np.asarray(covariance, dtype=np.float64))
    half = vectors * np.sqrt(np.maximum(values, 0))
    edge = radius * np.stack([np.cos(TURN), np.sin(TURN)], 1) @ half.T
    return path(np.asarray(centre) + edge, colour, name, **line)


def contours(x, y, z, name: str) -> dict:
    """Lines of equal z (len(y), len(x)) > 0, equally far apart in its logarithm."""
    z = np.log10(np.maximum(z, 1e-12))
    low, high = np.quantile(z, [0.0, 1.0])
    size = max((high - low) / 14, 1e-9)
    at = {"coloring": "none", "start": low, "end": high, "size": size}
    look = {"contours": at, "line": {"color": GHOST, "width": 1}, "showscale": False}
    return (
        {"type": "contour", "x": x, "y": y, "z": z, "name": name}
        | look
        | {"hoverinfo": "skip"}
    )


def class_map(classes, colours: Sequence[str], ticks=None) -> dict:
    """What each point of a square is said to be: classes (n, n) by their numbers.

    Without ``ticks`` (n,) the cells (m, n) are counted.
    """
    n = len(colours)
    steps = [[(i + end) / n, colours[i]] for i in range(n) for end in (0, 1)]
    look = {"colorscale": steps, "zmin": -0.5, "zmax": n - 0.5, "showscale": False}
    heat = {"type": "heatmap", "x": ticks, "y": ticks, "z": classes, "opacity": 0.35}
    return heat | look | {"hoverinfo": "skip"}


def _scatter(x, y, name: str) -> dict:
    hover = {"hoverinfo": "name"} if name else {"hoverinfo": "skip"}
    return {"type": "scatter", "x": x, "y": y, "name": name} | hover


def rounded_up(size: float, least: float = 1e-6) -> float:
    """The next of a few steps a decade: axes that do not tremble.

    Examples
    --------
    >>> rounded_up(2.1), rounded_up(61)
    (3.0, 70.0)
    """
    size = max(float(size), least) if np.isfinite(size) else 1.0
    power = 10.0 ** np.floor(np.log10(size))
    steps = (1, 1.5, 2, 3, 5, 7, 10)
    return float(next(m * power for m in steps if m * power >= size * 0.999))
