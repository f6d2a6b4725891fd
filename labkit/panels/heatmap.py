"""Matrices as colours."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from IPython.display import display
from plotly.subplots import make_subplots

from labkit.panels.captions import Figure, describe, live, panel_text, with_caption
from labkit.panels.curves import titles_left
from labkit.panels.theme import INK, axis, layout


def heat_maps(
    maps: Mapping[str, object], x_title: str, y_title: str, *, caption: str = ""
) -> Figure:
    """Finished matrices side by side, each with its own colour scale below it.

    Parameters
    ----------
    maps : mapping of title to (m, n) array
    x_title, y_title : str
        Titles of the axes, with units; the vertical one stands at the first matrix.
    caption : str
        A sentence below: what to look at, and what it means.
    """
    titles = [f"<b>{title}</b>" for title in maps]
    figure = make_subplots(
        cols=len(maps),
        subplot_titles=titles,
        horizontal_spacing=0.05,
        figure=Figure(),
    )
    for column, matrix in enumerate(maps.values(), start=1):
        left, right = figure.get_subplot(1, column).xaxis.domain
        bar = {
            "orientation": "h",
            "x": (left + right) / 2,
            "len": right - left,
            "y": -0.2,
            "yanchor": "top",
            "thickness": 10,
            "nticks": 7,
        }
        heat = go.Heatmap(z=matrix, colorscale="Cividis", colorbar=bar)
        figure.add_trace(heat, 1, column)
        first = column == 1
        figure.update_xaxes(axis(x_title), col=column)
        figure.update_yaxes(axis(y_title if first else ""), col=column)
        figure.update_yaxes(showticklabels=first, col=column)
    titles_left(figure)
    look = layout(width=280 * len(maps), height=400)
    look["margin"]["b"] = 110
    figure.update_layout(look)
    words = [panel_text(title, y_title, x_title) for title in maps]
    return describe(figure, caption, words)


class HeatMap:
    """One figure of one matrix.

    Parameters
    ----------
    values : (m, n) array
        What is shown first; ``nan`` is left blank.
    title : str
        Title of the figure.
    colour_title : str
        What the colours mean, with its unit.
    limits : pair of float
        Ends of the colours, in data units, for this and all later matrices.
    interactive : bool
        Make a ``FigureWidget``; otherwise a plain ``Figure``.
    caption : str
        A sentence below: what to look at, and what it means.
    width, height : int
        Size in pixels.

    Attributes
    ----------
    figure : plotly Figure or FigureWidget
    widget : the ``FigureWidget`` with its caption below; ``None`` if not interactive.

    Examples
    --------
    >>> heat = HeatMap([[1, 2], [3, 4]], "A", "size", limits=(0, 9), interactive=False)
    >>> heat.draw([[5, 6], [7, 8]], title="B")
    >>> heat.figure.data[0].z.tolist()
    [[5.0, 6.0], [7.0, 8.0]]
    """

    def __init__(
        self,
        values,
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
        values = _blank(values)
        rows, columns = values.shape
        heat = go.Heatmap(
            z=values,
            zmin=limits[0],
            zmax=limits[1],
            colorscale="Viridis",
            colorbar={"title": {"text": colour_title, "side": "right"}},
            hovertemplate="row %{y}, column %{x}: %{z:.3g}<extra></extra>",
        )
        edge = go.Scatter(
            x=[],
            y=[],
            mode="lines",
            line={"color": INK, "width": 2},
            hoverinfo="skip",
            showlegend=False,
        )
        look = layout(title, width=width, height=height)
        ends = {"showgrid": False, "zeroline": False, "constrain": "domain"}
        ends |= {"showline": False, "ticks": ""}
        look["xaxis"] = ends | {"range": [-0.5, columns - 0.5]}
        look["yaxis"] = ends | {"range": [rows - 0.5, -0.5], "scaleanchor": "x"}
        figure = describe(
            Figure(data=[heat, edge], layout=look),
            caption,
            [panel_text("", f"colours are {colour_title}", "")],
        )
        # Whole at construction: a widget that is reopened shows that state.
        self.figure = live(figure) if interactive else figure
        self.widget = with_caption(self.figure) if interactive else None

    def draw(self, values, *, title: str | None = None, corner: int | None = None):
        """Show another matrix of the same shape.

        Parameters
        ----------
        values : (m, n) array.  title : of the figure; None: as it was.
        corner : outline the first ``corner`` columns and what is right of them below.
        """
        values = _blank(values)
        heat, edge = self.figure.data
        with self.figure.batch_update():
            heat.z = values
            if title is not None:
                self.figure.layout.title.text = title
            at, end = (corner or 0) - 0.5, values.shape[1] - 0.5
            edge.x = [] if corner is None else [at, at, end]
            edge.y = [] if corner is None else [-0.5, at, at]

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        shown = self.widget if self.interactive else self.figure
        return shown._repr_mimebundle_(include=include, exclude=exclude)

    def _ipython_display_(self):
        display(self.widget if self.interactive else self.figure)


def _blank(values) -> np.ndarray:
    """Numbers, with None for nan: what a widget sends must be JSON."""
    values = np.asarray(values, dtype=np.float64)
    return np.where(np.isnan(values), None, values)
