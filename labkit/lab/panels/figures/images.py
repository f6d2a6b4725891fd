"""Rows of small grey images."""

import math
from collections.abc import Sequence

import numpy as np

from labkit.lab.panels.figures.captions import Figure, describe, panel_text
from labkit.lab.panels.figures.theme import FITS, PLAIN, layout

EARLIER = "before the turn"  # what is drawn in grey
MARGIN = {"l": 110, "r": 20, "t": 36, "b": 10}  # pixels, of images
EDGE = 1  # pixels between two images
GAP = "#B8CDE0"  # white paper between white images would hide where they end
GREYS = [[0, "white"], [1, "black"]]


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
        tiles = np.pad(tiles, gaps, constant_values=np.nan).transpose(0, 2, 1, 3)
        tiles = tiles.reshape(rows * (side + EDGE), -1)[:-EDGE, :-EDGE]
        heat = {"type": "heatmap", "z": tiles, "zmin": 0, "zmax": 1}
        heat |= {"colorscale": GREYS, "showscale": False, "hoverinfo": "skip"}
        figure["data"].append(heat)
        made["plot_bgcolor"] = GAP
        middles = [(side - 1) / 2 + row * (side + EDGE) for row in range(rows)]
        names = {"tickvals": middles, "ticktext": list(labels)}
        made["yaxis"] = PLAIN | names | {"range": [len(tiles) - 0.5, -0.5]}
    words = panel_text("images", " and ".join(labels), "")
    return describe(figure, caption, [words])
