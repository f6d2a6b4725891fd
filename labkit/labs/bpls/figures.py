"""Heat maps in the look of the panels."""

from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.panels.theme import axis, layout


def heat_maps(maps: Mapping[str, object], x_title: str, y_title: str) -> go.Figure:
    """Matrices side by side, each with its own colour scale."""
    titles = [f"<b>{title}</b>" for title in maps]
    n = len(maps)
    figure = make_subplots(cols=n, subplot_titles=titles, horizontal_spacing=0.08)
    for column, matrix in enumerate(maps.values(), start=1):
        right = figure.get_subplot(1, column).xaxis.domain[1]
        bar = {"x": right + 0.005, "thickness": 10, "xanchor": "left"}
        heat = go.Heatmap(z=matrix, colorscale="Cividis", colorbar=bar)
        figure.add_trace(heat, 1, column)
        figure.update_xaxes(axis(x_title), col=column)
        figure.update_yaxes(axis(y_title if column == 1 else ""), col=column)
    figure.update_layout(layout(width=280 * n, height=330))
    return figure
