"""Finished curves side by side, for results that no trace holds."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.panels import end_labels
from labkit.panels.captions import Figure, describe, panel_text
from labkit.panels.theme import COLOURS, DASHES, SYMBOLS, axis, layout

REACH = 0.8  # of the axis: a curve that ends before has its name in a legend


def curves(
    panels: Mapping[str, Mapping[str, tuple]],
    x_titles: str | Sequence[str],
    y_titles: str | Sequence[str],
    *,
    log_x: bool | Sequence[bool] = False,
    log_y: bool | Sequence[bool] = False,
    lines: tuple[str, ...] = (),
    caption: str = "",
    width=960,
    height=420,
) -> Figure:
    """Panels side by side; names at the ends of curves, or one legend for all.

    Parameters
    ----------
    panels : title -> label -> (x, y) or (x, y, sd)
        A label has the same colour everywhere; ``sd`` are bars in y.
    x_titles : one for each panel, or one for all.
    y_titles : likewise; one for all stands at the first panel only.
    log_x, log_y : logarithmic axes, for each panel or for all.
    lines : labels drawn without markers, as theory is.
    caption : a sentence below: what to look at, and what it means.
    """
    titles = [f"<b>{title}</b>" for title in panels]
    count = len(panels)
    x_titles = [x_titles] * count if isinstance(x_titles, str) else x_titles
    if isinstance(y_titles, str):
        y_titles = [y_titles] + [""] * (count - 1)
    log_x, log_y = (
        [log] * count if isinstance(log, bool) else log for log in (log_x, log_y)
    )
    figure = make_subplots(
        cols=len(panels),
        subplot_titles=titles,
        horizontal_spacing=0.1,
        figure=Figure(),
    )
    labels = list(dict.fromkeys(label for each in panels.values() for label in each))
    ends = all(
        _named_at_ends(each, count, log)
        for each, log in zip(panels.values(), log_x, strict=True)
    )
    shown = set()
    look = layout(width=width, height=height)
    for column, each in enumerate(panels.values(), start=1):
        for label, (x, y, *sd) in each.items():
            i = labels.index(label)
            curve = go.Scatter(
                x=list(x),
                y=list(y),
                name=label,
                legendgroup=label,
                showlegend=not ends and label not in shown,
                mode="lines" if label in lines else "lines+markers",
                line=_line(i),
                marker={"symbol": _symbol(i), "maxdisplayed": 12},
                error_y=_bars(*sd),
            )
            figure.add_trace(curve, 1, column)
            shown.add(label)
        i = column - 1
        figure.update_xaxes(axis(x_titles[i], log=log_x[i]), col=column)
        figure.update_yaxes(axis(y_titles[i], log=log_y[i]), col=column)
    if ends:
        _name_ends(figure, panels, labels, height - 106, log_y)
    else:
        legend_below(look, labels)
    titles_left(figure)
    figure.update_layout(look)
    words = [
        panel_text(title, y_title or y_titles[0], x_title, each)
        for (title, each), x_title, y_title in zip(
            panels.items(), x_titles, y_titles, strict=True
        )
    ]
    return describe(figure, caption, words)


def legend_below(look: dict, labels: Sequence[str]) -> None:
    """Put a legend of these names below all panels, into a layout."""
    height = end_labels.legend_height(end_labels.legend_rows(labels))
    look["margin"] = look["margin"] | {"b": look["margin"]["b"] + height}
    look["legend"] = {
        "orientation": "h",
        "traceorder": "normal",
        "x": 0,
        "y": 0,
        "yref": "container",
        "yanchor": "bottom",
    }


def titles_left(figure: go.Figure) -> None:
    """Put the titles of panels side by side where panels of live figures have them."""
    for column, title in enumerate(figure.layout.annotations, start=1):
        start = figure.get_subplot(1, column).xaxis.domain[0]
        title.update(x=start, xanchor="left", yshift=6, font={"size": 13})


def _line(i) -> dict:
    return {
        "color": COLOURS[i % len(COLOURS)],
        "dash": DASHES[(i + i // len(COLOURS)) % len(DASHES)],
    }


def _symbol(i) -> str:
    """A marker; open where colours and markers come a second time."""
    return SYMBOLS[i % len(SYMBOLS)] + ("" if i < len(COLOURS) else "-open")


def _bars(sd=None) -> dict | None:
    return None if sd is None else {"type": "data", "array": list(sd), "thickness": 1}


def _named_at_ends(each, columns, log_x) -> bool:
    """Whether a panel's curves all end near its right edge, and their names fit."""
    if not end_labels.fit(list(each), columns):
        return False
    scale = np.log10 if log_x else np.asarray
    with np.errstate(divide="ignore"):
        xs = [scale(np.asarray(list(x), dtype=float)) for x, *_ in each.values()]
    if not all(len(x) for x in xs) or not np.isfinite(np.concatenate(xs)).all():
        return False
    low, high = min(x.min() for x in xs), max(x.max() for x in xs)
    return all(x[-1] >= low + REACH * (high - low) for x in xs)


def _name_ends(figure, panels, labels, pixels, log_y) -> None:
    for column, each in enumerate(panels.values(), start=1):
        drawn = [
            [np.asarray(list(v), dtype=float) for v in (x, y)]
            for x, y, *_ in each.values()
        ]
        x, y = end_labels.places(drawn, pixels=pixels, log=log_y[column - 1])
        colours = [_line(labels.index(name))["color"] for name in each]
        names = end_labels.names_trace(list(each), colours)
        figure.add_trace(names | {"x": x, "y": y}, 1, column)
        at = figure.get_subplot(1, column).xaxis
        at.domain = end_labels.narrowed(at.domain, list(each))
