"""Rows of small grey images, redrawn as a run goes on."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go
from IPython.display import display

from labkit.panels.captions import Figure, describe, live, panel_text, with_caption
from labkit.panels.theme import FITS, axis, layout

MIN_INTERVAL = 0.25  # seconds between two redraws
MARGIN = {"l": 110, "r": 20, "t": 44, "b": 10}  # pixels
EDGE = 1  # pixels between two images
GAP = "#B8CDE0"  # white paper between white images would hide where they end
SHARE = 0.2  # of the colours, below those of the images, stand for "no image"


class Pictures:
    """Small images in rows, such as inputs above their reconstructions.

    Parameters
    ----------
    labels : one for each row of images.
    count : images in a row.
    side : (height, width) of an image in pixels.
    interactive : follow in a ``FigureWidget``; otherwise a plain ``Figure`` of what was
        drawn last is built when asked for.
    caption : a sentence below: what to look at, and what it means.
    limits : values shown white and black; others are cut to these.
    clock : returns the time in seconds; for tests.

    Raises
    ------
    ValueError
        Without labels, images or pixels.

    Examples
    --------
    >>> pictures = Pictures(("in", "out"), count=3, side=(2, 2), interactive=False)
    >>> pictures.draw(np.ones((2, 3, 4)), "step 1")
    >>> pictures.figure.layout.title.text
    'step 1'
    """

    def __init__(
        self,
        labels: Sequence[str],
        *,
        count: int,
        side: tuple[int, int],
        interactive: bool = True,
        caption: str = "",
        limits: tuple[float, float] = (0.0, 1.0),
        clock: Callable[[], float] = time.monotonic,
    ):
        if not labels or isinstance(labels, str):
            raise ValueError(f"labels must be a tuple of names, got {labels!r}")
        if count < 1 or min(side) < 1:
            raise ValueError(f"count and side must be >= 1, got {count} and {side}")
        self.labels, self.count, self.side = tuple(labels), count, tuple(side)
        self.limits, self.interactive = limits, interactive
        self._clock, self._due, self._timer = clock, -math.inf, None
        low, high = limits
        # A number, not nan: a widget's messages are JSON, which has none.
        self._least = low - (high - low) * SHARE / (1 - SHARE)
        self._images, self._title, self._caption = self._blank(), "", caption
        self._figure = live(self._build()) if interactive else None
        self.widget = with_caption(self._figure) if interactive else None

    @property
    def figure(self) -> go.Figure:
        """The ``FigureWidget`` if interactive, else a ``Figure`` built just now."""
        return self._figure if self.interactive else self._build()

    def draw(self, images, title: str = "") -> None:
        """Show images (labels, count, pixels), now or when the next redraw is due.

        Raises
        ------
        ValueError
            For another shape.
        """
        images = np.asarray(images, dtype=np.float64)
        shape = (len(self.labels), self.count, math.prod(self.side))
        if images.shape != shape:
            raise ValueError(f"images must have shape {shape}, got {images.shape}")
        self._images, self._title = np.clip(images, *self.limits), title
        wait = self._due - self._clock()
        if wait <= 0:
            self.update()
        elif self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # nothing can be owed: the caller ends with update()
                return
            self._timer = loop.call_later(wait, self.update)

    def update(self) -> None:
        """Redraw now; does nothing headless."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.interactive:
            return
        with self._figure.batch_update():
            self._figure.data[0].z = self._tiles()
            self._figure.layout.title.text = self._title
        self._due = self._clock() + MIN_INTERVAL

    def clear(self) -> None:
        """Show nothing."""
        self._images, self._title = self._blank(), ""
        self.update()

    def _blank(self):
        shape = (len(self.labels), self.count, math.prod(self.side))
        return np.full(shape, self._least)

    def _tiles(self) -> np.ndarray:
        """All images as one, with gaps between them."""
        (h, w), (rows, columns) = self.side, (len(self.labels), self.count)
        tiles = np.full((rows, columns, h + EDGE, w + EDGE), self._least)
        tiles[..., :h, :w] = self._images.reshape(rows, columns, h, w)
        tall = tiles.transpose(0, 2, 1, 3).reshape(rows * (h + EDGE), -1)
        return tall[:-EDGE, :-EDGE]

    def _build(self) -> Figure:
        (h, w), rows = self.side, len(self.labels)
        height, width = rows * (h + EDGE) - EDGE, self.count * (w + EDGE) - EDGE
        zoom = (FITS - MARGIN["l"] - MARGIN["r"]) / width
        heat = go.Heatmap(
            z=self._tiles(),
            zmin=self._least,
            zmax=self.limits[1],
            colorscale=[[0, GAP], [SHARE - 1e-6, GAP], [SHARE, "white"], [1, "black"]],
            showscale=False,
            hoverinfo="skip",
        )
        look = layout(
            self._title or " ",
            width=FITS,
            height=zoom * height + MARGIN["t"] + MARGIN["b"],
            margin=MARGIN,
        )
        plain = {"showline": False, "ticks": "", "showgrid": False}
        look["xaxis"] = axis("") | plain | {"showticklabels": False}
        look["yaxis"] = (
            axis("")
            | plain
            | {
                "range": [height - 0.5, -0.5],
                "tickvals": [(h - 1) / 2 + r * (h + EDGE) for r in range(rows)],
                "ticktext": list(self.labels),
            }
        )
        words = panel_text("images", " and ".join(self.labels), "")
        return describe(Figure([heat], look), self._caption, [words])

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        shown = self.widget if self.interactive else self.figure
        return shown._repr_mimebundle_(include=include, exclude=exclude)

    def _ipython_display_(self):
        display(self.widget if self.interactive else self.figure)

    def __repr__(self) -> str:
        return f"Pictures({', '.join(self.labels)}: {self._title or 'nothing'})"
