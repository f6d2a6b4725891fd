"""A matrix as colours, drawn anew on demand."""

import numpy as np
import plotly.graph_objects as go
from IPython.display import display

from labkit.panels.captions import Figure, describe, live, panel_text, with_caption
from labkit.panels.theme import INK, layout


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
