"""Matrices as colours, and small grey images: finished, or drawn anew in a run."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.check import check_kind
from labkit.lab.panels.figures.captions import Figure, describe, panel_text
from labkit.lab.panels.figures.drawing import (
    corner,
    domains,
    on_axes,
    panel_title,
    suffix,
)
from labkit.lab.panels.figures.plot import Plot
from labkit.lab.panels.figures.shown import Shown
from labkit.lab.panels.figures.theme import FITS, INK, PLAIN, axis, layout

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
    made = layout(width=280 * len(maps), height=400) | {"annotations": []}
    made["margin"]["b"] = 110
    traces = []
    spaces = domains(1, len(maps), 0.05, 0)
    for i, ((title, matrix), (across, down)) in enumerate(
        zip(maps.items(), spaces, strict=True)
    ):
        k, (left, right) = suffix(i), across
        bar = {
            "orientation": "h",
            "x": (left + right) / 2,
            "y": -0.2,
            "yanchor": "top",
            "thickness": 10,
            "len": right - left,
            "nticks": 7,
        }
        traces.append(_heat(matrix, "Cividis", colorbar=bar) | on_axes(i))
        made[f"xaxis{k}"] = axis(x_title) | {"domain": list(across), "anchor": f"y{k}"}
        y = axis("" if i else y_title) | {"showticklabels": not i}
        made[f"yaxis{k}"] = y | {"domain": list(down), "anchor": f"x{k}"}
        made["annotations"].append(panel_title(title, corner(left, down[1])))
    words = [panel_text(title, y_title, x_title) for title in maps]
    figure = describe({"data": traces, "layout": made}, caption, words)
    # Colour scales are as wide as their matrices: a narrow page is scrolled instead.
    figure["layout"]["meta"]["least"] = min(LEAST * len(maps), WIDE)
    return figure


def _check_matrix(name: str, matrix: object) -> None:
    """Raise ValueError unless an array is of real numbers, with rows and columns."""
    try:
        shape = np.asarray(matrix, dtype=np.float64).shape
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{name} must be of numbers: {error}") from error
    if len(shape) != 2 or not all(shape):
        raise ValueError(f"{name} must have rows and columns, got shape {shape}")


class HeatMap(Shown):
    """One figure of one matrix, drawn anew on demand.

    Parameters
    ----------
    values : (m, n) array, what is shown first; ``nan`` is left blank
    title, colour_title : str, of the figure; what the colours mean, with its unit
    limits : pair of float, ends of the colours, for this and all later matrices
    interactive : bool, show it in a widget
    caption, width, height : as of :func:`~labkit.lab.panels.curves`

    Examples
    --------
    >>> heat = HeatMap([[1, 2]], "A", "size", limits=(0, 9), interactive=False)
    >>> heat.draw([[5, 6]], title="B")
    >>> heat.figure["data"][0]["z"].tolist()
    [[5.0, 6.0]]
    """

    def __init__(
        self,
        values: ArrayLike,
        title: str,
        colour_title: str,
        *,
        limits: tuple[float, float],
        interactive: bool = True,
        caption: str = "",
        width: int = 620,
        height: int = 560,
    ):
        self.interactive = interactive
        rows, columns = np.shape(values)
        bar = {"title": {"text": colour_title, "side": "right"}}
        hover = "row %{y}, column %{x}: %{z:.3g}<extra></extra>"
        heat = _heat(values, "Viridis", limits, colorbar=bar, hovertemplate=hover)
        edge = {
            "type": "scatter",
            "x": [],
            "y": [],
            "mode": "lines",
            "line": {"color": INK, "width": 2},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        made, ends = layout(title, width=width, height=height), {"constrain": "domain"}
        made["xaxis"] = PLAIN | ends | {"range": [-0.5, columns - 0.5]}
        made["yaxis"] = PLAIN | ends | {"range": [rows - 0.5, -0.5], "scaleanchor": "x"}
        words = panel_text("", f"colours are {colour_title}", "")
        figure = {"data": [heat, edge], "layout": made}
        self.figure = describe(figure, caption, [words])
        self.widget = Plot(lambda: self.figure) if interactive else None

    def draw(
        self, values: ArrayLike, *, title: str | None = None, corner: int | None = None
    ) -> None:
        """Show another (m, n) matrix; the title stays if not given.

        ``corner`` outlines what is right of the first ``corner`` columns and below as
        many rows.
        """
        heat, edge = self.figure["data"]
        heat["z"] = np.asarray(values, dtype=np.float64)
        if title is not None:
            self.figure["layout"]["title"]["text"] = title
        at, end = (corner or 0) - 0.5, np.shape(values)[1] - 0.5
        edge["x"] = [] if corner is None else [at, at, end]
        edge["y"] = [] if corner is None else [-0.5, at, at]
        if self.interactive:
            self.widget.changed()


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
        self._shape = (len(self.labels), count, math.prod(side))
        self._images = np.full(self._shape, self._least)
        self._title, self._caption = "", caption
        super().__init__(
            self._tiled, interactive=interactive, wait=MIN_INTERVAL, clock=clock
        )

    def draw(self, images: ArrayLike, title: str = "") -> None:
        """Show images (labels, count, pixels), now or when the next redraw is due.

        A ValueError for another shape.
        """
        images = np.asarray(images, dtype=np.float64)
        if (got := images.shape) != self._shape:
            raise ValueError(f"images must have shape {self._shape}, got {got}")
        self._images, self._title = np.clip(images, *self.limits), title
        super().draw(images)

    def clear(self) -> None:
        """Show nothing."""
        self._images, self._title = np.full(self._shape, self._least), ""
        super().clear()

    def _tiles(self) -> np.ndarray:
        """All images as one, with gaps between them."""
        (h, w), (rows, columns, _) = self.side, self._shape
        tiles = np.full((rows, columns, h + EDGE, w + EDGE), self._least)
        tiles[..., :h, :w] = self._images.reshape(rows, columns, h, w)
        tall = tiles.transpose(0, 2, 1, 3).reshape(rows * (h + EDGE), -1)
        return tall[:-EDGE, :-EDGE]

    def _tiled(self, _now: object, _before: object) -> Figure:
        tiles, h = self._tiles(), self.side[0] + EDGE
        height, width = tiles.shape
        zoom = (FITS - MARGIN["l"] - MARGIN["r"]) / width
        greys = [[0, GAP], [SHARE - 1e-6, GAP], [SHARE, "white"], [1, "black"]]
        ends = (self._least, self.limits[1])
        heat = _heat(tiles, greys, ends, showscale=False, hoverinfo="skip")
        inner = zoom * height + MARGIN["t"] + MARGIN["b"]
        made = layout(self._title or " ", width=FITS, height=inner, margin=MARGIN)
        made["xaxis"] = PLAIN | {"showticklabels": False}
        middles = [(h - 1 - EDGE) / 2 + row * h for row in range(len(self.labels))]
        made["yaxis"] = PLAIN | {
            "range": [height - 0.5, -0.5],
            "tickvals": middles,
            "ticktext": list(self.labels),
        }
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
