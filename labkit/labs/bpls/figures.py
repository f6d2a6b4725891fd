"""Heat maps in the look of the panels."""

from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.panels.captions import Figure, describe, panel_text
from labkit.panels.curves import titles_left
from labkit.panels.theme import axis, layout


def heat_maps(
    maps: Mapping[str, object], x_title: str, y_title: str, *, reading=""
) -> Figure:
    """Matrices side by side, each with its own colour scale below it."""
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
    return describe(figure, reading, words)
