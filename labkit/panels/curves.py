"""Finished curves side by side, for results that no trace holds."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.panels.theme import COLOURS, DASHES, SYMBOLS, axis, layout


def curves(
    panels: Mapping[str, Mapping[str, tuple]],
    x_titles: str | Sequence[str],
    y_title: str,
    *,
    log_x=False,
    log_y=False,
    lines: tuple[str, ...] = (),
    width=960,
    height=420,
) -> go.Figure:
    """Panels side by side, one legend for all.

    Parameters
    ----------
    panels : title -> label -> (x, y)
        A label has the same colour everywhere.
    x_titles : one for each panel, or one for all.
    lines : labels drawn without markers, as theory is.
    """
    titles = [f"<b>{title}</b>" for title in panels]
    if isinstance(x_titles, str):
        x_titles = [x_titles] * len(panels)
    figure = make_subplots(
        cols=len(panels), subplot_titles=titles, horizontal_spacing=0.1
    )
    labels = list(dict.fromkeys(label for each in panels.values() for label in each))
    shown = set()
    for column, each in enumerate(panels.values(), start=1):
        for label, (x, y) in each.items():
            i = labels.index(label)
            curve = go.Scatter(
                x=list(x),
                y=list(y),
                name=label,
                legendgroup=label,
                showlegend=label not in shown,
                mode="lines" if label in lines else "lines+markers",
                line={
                    "color": COLOURS[i % len(COLOURS)],
                    "dash": DASHES[(i + i // len(COLOURS)) % len(DASHES)],
                },
                marker={"symbol": SYMBOLS[i % len(SYMBOLS)], "maxdisplayed": 12},
            )
            figure.add_trace(curve, 1, column)
            shown.add(label)
        figure.update_xaxes(axis(x_titles[column - 1], log=log_x), col=column)
        figure.update_yaxes(axis(y_title if column == 1 else "", log=log_y), col=column)
    figure.update_layout(layout(width=width, height=height))
    return figure
