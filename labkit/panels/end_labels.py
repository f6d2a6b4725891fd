"""Names at the ends of curves, in the place of a legend."""

import math
from collections.abc import Sequence

import numpy as np

from labkit.panels.theme import FITS

MOST = 4  # curves of a panel that are named at their ends
LETTER = 5.3  # pixels of one letter, on average
LINE = 14  # pixels between two names
LEGEND_ROW = 18  # pixels of a legend's only row
LEGEND_ROWS = 29  # pixels of each where there are several
SHARE = 0.33  # of a panel's width, at most, for the names


def room(labels: Sequence[str]) -> float:
    """Return the pixels that the names take beside a panel."""
    return LETTER * max(map(len, labels)) + 12


def fit(labels: Sequence[str], columns: int) -> bool:
    """Whether names at the ends fit beside panels, so many of them side by side.

    Examples
    --------
    >>> fit(["train", "test"], columns=2)
    True
    >>> fit(["train", "test", "validation", "theory", "bound"], columns=2)
    False
    >>> fit(["on the training images", "on the test images"], columns=2)
    False
    """
    return 1 < len(labels) <= MOST and room(labels) <= SHARE * FITS / columns


def legend_rows(labels: Sequence[str]) -> int:
    """Return the rows of a legend across a whole figure, in the narrowest window."""
    return math.ceil(sum(map(entry, labels)) / (FITS - 90))


def entry(label: str) -> float:
    """Return the pixels that a name takes across a legend, its sign included."""
    return LETTER * len(label) + 42


def legend_height(rows: int) -> int:
    """Return the pixels that a legend takes."""
    return LEGEND_ROW if rows == 1 else LEGEND_ROWS * rows


def narrowed(domain: Sequence[float], labels: Sequence[str]) -> list[float]:
    """Return a panel's place across the figure without the room for its names."""
    return [domain[0], domain[1] - room(labels) / (FITS - 90)]


def names_trace(labels: Sequence[str], colours: Sequence[str]) -> dict:
    """Return the plotly trace of the names, without their places."""
    return {
        "type": "scatter",
        "mode": "text",
        "text": [f"\u00a0\u00a0{label}" for label in labels],
        "textfont": {"color": list(colours), "size": 11},
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def places(curves, *, pixels: float, log=False, limits=None):
    """Return where the names stand: at the ends, moved apart where they would touch.

    Parameters
    ----------
    curves : sequence of (x, y) arrays; ``nan`` is a gap.
    pixels : height of the panel.
    log : bool
        Logarithmic vertical axis.
    limits : pair of float, optional
        Ends of the vertical axis; ``None``: those of the data.

    Returns
    -------
    x, y : (n,) arrays in data units; ``nan`` for a curve without a point.
    """
    ends, seen = [], []
    for x, y in curves:
        with np.errstate(invalid="ignore", divide="ignore"):
            height = np.log10(y) if log else np.asarray(y, dtype=np.float64)
        there = np.flatnonzero(np.isfinite(height))
        ends.append((x[there[-1]], height[there[-1]]) if len(there) else (np.nan,) * 2)
        seen.append(height[there])
    x, y = np.array(ends, dtype=np.float64).T
    seen = np.concatenate(seen)
    if limits:
        seen = np.log10(limits) if log else np.asarray(limits)
    span = np.ptp(seen) if len(seen) else 0.0
    known = np.flatnonzero(~np.isnan(y))
    y[known] = spread(y[known], LINE / pixels * (span or 1.0))
    return x, (10.0**y if log else y)


def spread(heights, gap: float) -> np.ndarray:
    """Return heights at least `gap` apart, in the same order, moved little.

    Names that touch form a group that is centred where its members would be.

    Examples
    --------
    >>> spread([0.0, 5.0, 5.1], gap=1.0).tolist()
    [0.0, 4.55, 5.55]
    """
    heights = np.asarray(heights, dtype=np.float64)
    order = np.argsort(heights, kind="stable")
    groups: list[list[float]] = []  # of each: its members' heights
    for height in heights[order]:
        groups.append([height])
        while len(groups) > 1 and _foot(groups[-1], gap) < _head(groups[-2], gap) + gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    placed = [
        _foot(group, gap) + i * gap for group in groups for i in range(len(group))
    ]
    moved = np.empty_like(heights)
    moved[order] = placed
    return moved


def _foot(group, gap) -> float:
    return math.fsum(group) / len(group) - gap * (len(group) - 1) / 2


def _head(group, gap) -> float:
    return _foot(group, gap) + gap * (len(group) - 1)
