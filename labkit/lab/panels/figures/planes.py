"""Planes side by side, and what stands in them: arrows, ellipses, dots and paths."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import interpolate

from labkit.lab.panels.figures.captions import Figure, describe, panel_text
from labkit.lab.panels.figures.drawing import (
    BOLD,
    INNER,
    LEGEND,
    LINE,
    above,
    on_axes,
    panel_title,
    suffix,
)
from labkit.lab.panels.figures.theme import GHOST, GRID, INK, axis, layout

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
) -> Figure:
    """Return empty planes in a row with fixed limits, and one legend below them.

    Parameters
    ----------
    titles, x_titles, y_titles : sequence of str, of each plane
    limits : sequence of ((x, x), (y, y)), of each plane, in data units
    caption : str, the sentence below
    height : int, pixels
    square : bool
        A unit is as long upwards as sideways, so that circles are round.
    widths : sequence of float, of the planes, relative to each other
    """
    count, start = len(titles), 0.0
    gap = 0.11 if any(y_titles[1:]) else 0.06  # with room for the titles of axes
    shares = np.array(widths or [1.0] * count)
    shares = shares / shares.sum() * (1 - gap * (count - 1))
    made = layout(height=height)
    pixels = shares * INNER
    letters = (pixels / BOLD).astype(int)
    most = max(len(wrap(*each)) for each in zip(titles, letters, strict=True))
    made["margin"] |= {"t": 36 + LINE * most, "b": 60, "l": 60}
    made |= {"annotations": [], "uirevision": True, "legend": LEGEND}
    for i, (title, ends) in enumerate(zip(titles, limits, strict=True)):
        number, end = suffix(i), start + shares[i]
        made["annotations"].append(panel_title(title, above(i), pixels[i]))
        x, y = axis(x_titles[i], limits=ends[0]), axis(y_titles[i], limits=ends[1])
        x |= {"domain": [start, end], "anchor": f"y{number}", "nticks": 5}
        y |= {"anchor": f"x{number}", "nticks": 6}
        y |= {"scaleanchor": f"x{number}", "constrain": "range"} if square else {}
        # To look for labels that stick out would take a tenth of a frame.
        made[f"xaxis{number}"] = x | {"ticklabeloverflow": "allow"}
        made[f"yaxis{number}"] = y | {"ticklabeloverflow": "allow"}
        start = end + gap
    words = [panel_text(*each) for each in zip(titles, y_titles, x_titles, strict=True)]
    return describe({"data": [], "layout": made}, caption, words)


def put(figure: dict, column: int, traces: Sequence[dict]) -> None:
    """Draw traces in a plane, by its number; the legend has each name once."""
    for trace in traces:
        known = {other.get("name") for other in figure["data"]}
        named = bool(trace.get("name")) and trace["name"] not in known
        drawn = trace | on_axes(column) | {"showlegend": named}
        if trace.get("line", {}).get("color") == GHOST and trace["type"] == "scatter":
            drawn["zorder"] = -1  # an earlier run lies below the run that goes on
        figure["data"].append(drawn)


def dots(points: ArrayLike, colour: str, name: str = "", **marker: Any) -> dict:
    """Return the trace of points (n, 2), each by itself; ``marker`` is plotly's."""
    x, y = np.asarray(points, dtype=np.float64).reshape(-1, 2).T
    marker = {"color": colour, "size": 5} | marker
    return _scatter(x, y, name) | {"mode": "markers", "marker": marker}


def handles(points: ArrayLike, name: str) -> dict:
    """Return invisible points (n, 2), by which a hand holds what is drawn there."""
    return dots(points, INK, size=24, opacity=0) | {"meta": {"touch": name}}


def path(
    points: ArrayLike, colour: str, name: str = "", *, marks: bool = False, **line: Any
) -> dict:
    """Return a line through points (n, 2), with markers on them if ``marks``."""
    x, y = np.asarray(points, dtype=np.float64).reshape(-1, 2).T
    made = _scatter(x, y, name) | {"line": {"color": colour, "width": 2} | line}
    if marks:
        made["marker"] = {"color": colour, "size": 5}
    return made | {"mode": "lines+markers" if marks else "lines"}


def arrow(
    start: ArrayLike,
    end: ArrayLike,
    colour: str = INK,
    name: str = "",
    *,
    width: int = 3,
    head: int = 13,
) -> dict:
    """Return an arrow, or n of them as one trace, between points (2,) or (n, 2)."""
    start, end = np.atleast_2d(np.asarray(start, float)), np.atleast_2d(end)
    x, y = np.stack([start, end, np.full_like(start, np.nan)], 1).reshape(-1, 2)[:-1].T
    sizes = ([0, head, 0] * len(start))[:-1]
    return _scatter(x, y, name) | {
        "mode": "lines+markers",
        "line": {"color": colour, "width": width},
        "marker": {
            "symbol": "arrow",
            "angleref": "previous",
            "size": sizes,
            "opacity": 1,
            "color": colour,
        },
    }


def ellipse(
    centre: ArrayLike,
    covariance: ArrayLike,
    radius: float,
    colour: str,
    name: str = "",
    **line: Any,
) -> dict:
    """Return the points at a Mahalanobis distance ``radius`` from the centre (2,)."""
    values, vectors = np.linalg.eigh(np.asarray(covariance, dtype=np.float64))
    half = vectors * np.sqrt(np.maximum(values, 0))
    edge = radius * np.stack([np.cos(TURN), np.sin(TURN)], 1) @ half.T
    return path(np.asarray(centre) + edge, colour, name, **line)


def contours(x: ArrayLike, y: ArrayLike, z: ArrayLike, name: str) -> dict:
    """Return lines of equal z (len(y), len(x)) > 0, evenly spaced in its logarithm."""
    z = np.log10(np.maximum(z, 1e-12))
    low, high = np.quantile(z, [0.0, 1.0])
    size = max((high - low) / 14, 1e-9)
    return {
        "type": "contour",
        "x": x,
        "y": y,
        "z": z,
        "name": name,
        "contours": {"coloring": "none", "start": low, "end": high, "size": size},
        "line": {"color": GRID, "width": 1.5},
        "zorder": -2,  # an earlier run lies above them
        "showscale": False,
        "hoverinfo": "skip",
    }


def class_map(classes: ArrayLike, colours: Sequence[str]) -> dict:
    """Return a map of the classes (m, n), given by their numbers, of cells."""
    count = len(colours)
    return {
        "type": "heatmap",
        "z": classes,
        "opacity": 0.35,
        "colorscale": [
            [(i + end) / count, colours[i]] for i in range(count) for end in (0, 1)
        ],
        "zmin": -0.5,
        "zmax": count - 0.5,
        "showscale": False,
        "hoverinfo": "skip",
    }


def class_cells(scores: Tensor) -> np.ndarray:
    """Return the classes (2 n - 1, 2 n - 1) of a square, a row for each second input.

    scores (n², classes) are those of its points, by the first input and then by the
    second. Between two points they are interpolated, since they change smoothly where
    classes do not.
    """
    n = round(len(scores) ** 0.5)
    known = scores.double().nan_to_num(neginf=-1e30).view(1, n, n, -1).movedim(3, 1)
    fine = interpolate(known, size=2 * n - 1, mode="bilinear", align_corners=True)
    return fine[0].argmax(0).T.cpu().numpy()


def _scatter(x: np.ndarray, y: np.ndarray, name: str) -> dict:
    hover = "name" if name else "skip"
    return {"type": "scatter", "x": x, "y": y, "name": name, "hoverinfo": hover}


def rounded_up(size: float, least: float = 1e-6) -> float:
    """Return the next of a few steps a decade, for axes that do not tremble.

    Examples
    --------
    >>> rounded_up(2.1), rounded_up(61)
    (3.0, 70.0)
    """
    size = max(float(size), least) if np.isfinite(size) else 1.0
    power = 10.0 ** np.floor(np.log10(size))
    steps = (1, 1.5, 2, 3, 5, 7, 10)
    return float(next(step * power for step in steps if step * power >= size * 0.999))
