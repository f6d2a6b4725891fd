"""Matrices as colours, and small grey images: finished, or drawn anew in a run."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.check import check_kind
from labkit.lab.panels.figures.captions import Figure, describe, panel_text
from labkit.lab.panels.figures.drawing import suffix
from labkit.lab.panels.figures.planes import planes, put
from labkit.lab.panels.figures.plot import Plot
from labkit.lab.panels.figures.shown import Shown
from labkit.lab.panels.figures.theme import FITS, PLAIN, layout

MIN_INTERVAL = 0.25  # seconds between two redraws of pictures
EARLIER, WITHOUT = "an earlier run", "without the turn"  # what is drawn in grey
SCENE_INTERVAL = 0.06  # seconds between two redraws of what moves
MARGIN = {"l": 110, "r": 20, "t": 44, "b": 10}  # pixels, of pictures
EDGE = 1  # pixels between two images
LEAST, WIDE = 165, 640  # pixels of a matrix with its scale, and of a row, at least
GAP = "#B8CDE0"  # white paper between white images would hide where they end
SHARE = 0.2  # of the colours, below those of the images, stand for "no image"


def heat_maps(
    maps: Mapping[str, ArrayLike], x_title: str, y_title: str, *, caption: str = ""
) -> Figure:
    """Return finished matrices side by side, each with its colour scale below it.

    Parameters
    ----------
    maps : mapping of title to (m, n) array
    x_title, y_title : str, with units; the vertical one stands at the first matrix
    caption : str, a sentence below: what to look at, and what it means

    Raises
    ------
    TypeError, ValueError
        If there is no matrix, if one is not 2-D or not of numbers, or if a title is
        not a string.
    """
    check_kind("maps", maps, Mapping, "a mapping of title to (m, n) array")
    if not maps:
        raise ValueError("maps must hold one matrix at least, got an empty mapping")
    for title, matrix in maps.items():
        _check_matrix(f"matrix {title!r}", matrix)
    titles = {"x_title": x_title, "y_title": y_title, "caption": caption}
    for name, value in titles.items():
        check_kind(name, value, str, "a str")
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
        put(figure, i, [_heat(matrix, "Cividis", colorbar=bar)])
    # Colour scales are as wide as their matrices: a narrow page is scrolled instead.
    made["meta"]["least"] = min(LEAST * count, WIDE)
    return figure


def _check_matrix(name: str, matrix: object) -> None:
    """Raise ValueError unless an array is of real numbers, with rows and columns."""
    try:
        shape = np.asarray(matrix, dtype=np.float64).shape
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{name} must be of numbers: {error}") from error
    if len(shape) != 2 or not all(shape):
        raise ValueError(f"{name} must have rows and columns, got shape {shape}")


class Scene(Shown):
    """What a run shows now, drawn anew as a whole.

    Parameters
    ----------
    figure_of : callable
        ``figure_of(now, before)`` returns a figure, as plain data, of what was given
        last and of an earlier run, the last before :meth:`clear`; None where there is
        none.
    interactive : bool, follow in a widget; otherwise a figure is built when asked for
    wait : float, seconds between two redraws
    clock : callable, returns the time in seconds; for tests

    Attributes
    ----------
    now : what was given last, None at the beginning and after :meth:`clear`
    """

    def __init__(
        self,
        figure_of: Callable[[Any, Any], dict],
        *,
        interactive: bool = True,
        wait: float = SCENE_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._figure_of, self.interactive = figure_of, interactive
        self.now = self._before = None
        self._beside, self._aligned = None, True  # a run without a turn of a knob
        self.widget = None
        if interactive:
            self.widget = Plot(lambda: self.figure, wait=wait, clock=clock)

    def draw(self, now: Any, _title: str = "") -> None:
        """Show this as soon as a redraw is due."""
        self.now = now
        self._changed()

    def _changed(self) -> None:
        if self.interactive:
            self.widget.changed()

    def update(self) -> None:
        """Redraw now; does nothing headless."""
        if self.interactive:
            self.widget.changed()
            self.widget.flush()

    def clear(self) -> None:
        """Forget what is shown; it stays in grey."""
        if self.now is not None:
            self._before = self.now
        self.now = None
        self._changed()

    def beside(self, picture: Any, aligned: bool = True) -> None:
        """Draw this in grey in place of an earlier run; with None no more.

        ``aligned`` says that it is of the same step; otherwise its curves alone are
        drawn, and no number of it is written beside those of the step.
        """
        self._beside, self._aligned = picture, aligned
        self._changed()

    @property
    def figure(self) -> Figure:
        """What is shown now, and what stands beside it."""
        if self._beside is None:
            return Figure(self._figure_of(self.now, self._before))
        figure = self._figure_of(self.now, self._beside)
        for trace in figure["data"]:
            if trace.get("name") == EARLIER:
                trace["name"] = WITHOUT
        if not self._aligned:
            figure["layout"] = self._figure_of(self.now, None)["layout"]
        return Figure(figure)


class Pictures(Scene):
    """Small images in rows, such as inputs above their reconstructions.

    Parameters
    ----------
    labels : sequence of str, one for each row of images, at least one
    count : int >= 1, images in a row
    side : pair of int, height and width of an image in pixels
    interactive : bool, follow in a widget; otherwise a figure is built when asked for
    caption : str, a sentence below: what to look at, and what it means
    limits : pair of float, values shown white and black; others are cut to these
    clock : callable, returns the time in seconds; for tests

    Examples
    --------
    >>> pictures = Pictures(("in", "out"), count=3, side=(2, 2), interactive=False)
    >>> pictures.draw(np.ones((2, 3, 4)), "step 1")
    >>> pictures.figure["layout"]["title"]["text"]
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
        self.limits = limits
        low, high = limits
        self._least = low - (high - low) * SHARE / (1 - SHARE)  # the colour of gaps
        shape = (len(self.labels), count, math.prod(side))
        self._images = np.full(shape, self._least)
        self._title, self._caption = "", caption
        super().__init__(
            self._tiled, interactive=interactive, wait=MIN_INTERVAL, clock=clock
        )

    def draw(self, images: ArrayLike, title: str = "") -> None:
        """Show images (labels, count, pixels), now or when the next redraw is due.

        A ValueError for another shape.
        """
        images = np.asarray(images, dtype=np.float64)
        if images.shape != (wanted := self._images.shape):
            raise ValueError(f"images must have shape {wanted}, got {images.shape}")
        self._images, self._title = np.clip(images, *self.limits), title
        super().draw(images)

    def clear(self) -> None:
        """Show nothing."""
        self._images, self._title = np.full_like(self._images, self._least), ""
        super().clear()

    def _tiled(self, _now: object, _before: object) -> Figure:
        """All images as one, with gaps between them."""
        (h, w), (rows, columns, _) = self.side, self._images.shape
        tiles = self._images.reshape(rows, columns, h, w)
        gaps = ((0, 0), (0, 0), (0, EDGE), (0, EDGE))
        tiles = np.pad(tiles, gaps, constant_values=self._least)
        tiles = tiles.transpose(0, 2, 1, 3).reshape(rows * (h + EDGE), -1)
        tiles = tiles[:-EDGE, :-EDGE]
        height, width = tiles.shape
        zoom = (FITS - MARGIN["l"] - MARGIN["r"]) / width
        greys = [[0, GAP], [SHARE - 1e-6, GAP], [SHARE, "white"], [1, "black"]]
        ends = (self._least, self.limits[1])
        heat = _heat(tiles, greys, ends, showscale=False, hoverinfo="skip")
        inner = zoom * height + MARGIN["t"] + MARGIN["b"]
        made = layout(self._title or " ", width=FITS, height=inner, margin=MARGIN)
        made["xaxis"] = PLAIN | {"showticklabels": False}
        middles = [(h - 1) / 2 + row * (h + EDGE) for row in range(rows)]
        names = {"tickvals": middles, "ticktext": list(self.labels)}
        made["yaxis"] = PLAIN | names | {"range": [height - 0.5, -0.5]}
        words = panel_text("images", " and ".join(self.labels), "")
        return describe({"data": [heat], "layout": made}, self._caption, [words])

    def __repr__(self) -> str:
        return f"Pictures({', '.join(self.labels)}: {self._title or 'nothing'})"


def _heat(
    values: ArrayLike,
    colours: str | list,
    limits: tuple[float | None, float | None] = (None, None),
    **style: Any,
) -> dict:
    """Return a matrix as colours between two ends, those of the data for None."""
    return {
        "type": "heatmap",
        "z": np.asarray(values, dtype=np.float64),
        "colorscale": colours,
        "zmin": limits[0],
        "zmax": limits[1],
    } | style
