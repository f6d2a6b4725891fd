"""Matrices as colours, and rows of small grey images."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from labkit.lab.panels.figures.captions import Figure, describe, panel_text
from labkit.lab.panels.figures.drawing import suffix
from labkit.lab.panels.figures.planes import planes, put
from labkit.lab.panels.figures.theme import FITS, PLAIN, layout

EARLIER = "before the turn"  # what is drawn in grey
MARGIN = {"l": 110, "r": 20, "t": 36, "b": 10}  # pixels, of images
EDGE = 1  # pixels between two images
LEAST, WIDE = 165, 640  # pixels of a matrix with its scale, and of a row, at least
GAP = "#B8CDE0"  # white paper between white images would hide where they end
SHARE = 0.2  # of the colours, below those of the images, stand for "no image"
NONE = SHARE / (SHARE - 1)  # the value that has them; images have values from 0 to 1
GREYS = [[0, GAP], [SHARE - 1e-6, GAP], [SHARE, "white"], [1, "black"]]


def heat_maps(
    maps: Mapping[str, ArrayLike], x_title: str, y_title: str, *, caption: str = ""
) -> Figure:
    """Return finished matrices side by side, each with its colour scale below it.

    Parameters
    ----------
    maps : mapping of title to (m, n) array
    x_title, y_title : str, with units; the vertical one stands at the first matrix
    caption : str, a sentence below: what to look at, and what it means
    """
    shapes = [np.shape(matrix) for matrix in maps.values()]
    count = len(maps)
    figure = planes(
        list(maps),
        [x_title] * count,
        [y_title] + [""] * (count - 1),
        [((-0.5, n - 0.5), (-0.5, m - 0.5)) for m, n in shapes],
        caption=caption,
        height=400,
    )
    made = figure["layout"]
    made["margin"]["b"] = 110
    for i, matrix in enumerate(maps.values()):
        left, right = made[f"xaxis{suffix(i)}"]["domain"]
        bar = {"orientation": "h", "thickness": 10, "nticks": 7, "len": right - left}
        bar |= {"x": (left + right) / 2, "y": -0.2, "yanchor": "top"}
        heat = {"type": "heatmap", "z": np.asarray(matrix, dtype=np.float64)}
        put(figure, i, [heat | {"colorscale": "Cividis", "colorbar": bar}])
    # Colour scales are as wide as their matrices: a narrow page is scrolled instead.
    made["meta"]["least"] = min(LEAST * count, WIDE)
    return figure


def image_rows(
    images: np.ndarray | None, labels: Sequence[str], count: int, *, caption: str
) -> Figure:
    """Return square grey images (labels, count, pixels) in rows, or an empty place.

    Values are shown from 0, white, to 1, black; others are cut to these.
    """
    rows, inner = len(labels), FITS - MARGIN["l"] - MARGIN["r"]
    high = inner * rows / count + MARGIN["t"] + MARGIN["b"]
    made = layout(width=FITS, height=high, margin=MARGIN, autosize=False)
    made["xaxis"] = PLAIN | {"showticklabels": False}
    figure = {"data": [], "layout": made}
    if images is not None:
        side = math.isqrt(images.shape[2])
        tiles = np.clip(images, 0.0, 1.0).reshape(rows, -1, side, side)
        gaps = ((0, 0), (0, 0), (0, EDGE), (0, EDGE))
        tiles = np.pad(tiles, gaps, constant_values=NONE).transpose(0, 2, 1, 3)
        tiles = tiles.reshape(rows * (side + EDGE), -1)[:-EDGE, :-EDGE]
        heat = {"type": "heatmap", "z": tiles, "zmin": NONE, "zmax": 1.0}
        heat |= {"colorscale": GREYS, "showscale": False, "hoverinfo": "skip"}
        figure["data"].append(heat)
        middles = [(side - 1) / 2 + row * (side + EDGE) for row in range(rows)]
        names = {"tickvals": middles, "ticktext": list(labels)}
        made["yaxis"] = PLAIN | names | {"range": [len(tiles) - 0.5, -0.5]}
    words = panel_text("images", " and ".join(labels), "")
    return describe(figure, caption, [words])
