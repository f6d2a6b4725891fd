"""The kinds of panels of a live figure, and what plotly draws of each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from labkit.panels import end_labels
from labkit.panels.captions import panel_text
from labkit.panels.theme import COLOURS, DASHES, FITS, INK, PAPER, SYMBOLS, axis
from labkit.panels.thin import thin

KEPT = COLOURS[0]
MIXED = COLOURS[1]


@dataclass(frozen=True)
class Lines:
    """Curves over the step, one per column of the trace.

    Attributes
    ----------
    columns : mapping of column to label, or tuple of columns
        The curves, in the order of colours.
    title : str
        Title of the panel.
    y_title, x_title : str
        Titles of the axes, with units.
    log : bool
        Logarithmic vertical axis.
    y_range : pair of float, optional
        Ends of the vertical axis in data units; ``None`` fits the data.
    marks : tuple of str
        Columns drawn as marks alone, each of them; for events.
    """

    columns: Mapping[str, str] | tuple[str, ...]
    title: str
    y_title: str
    x_title: str = "step"
    log: bool = False
    y_range: tuple[float, float] | None = None
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bars:
    """The newest values of some columns as bars under a water level.

    Bars that reach the level are kept, those below it are mixed; the level is a line.

    Attributes
    ----------
    columns : tuple of str
        One column a bar, from left to right; a missing or ``nan`` value has no bar.
    title : str
        Title of the panel.
    y_title, x_title : str
        Titles of the axes, with units.
    level : str, optional
        The column that holds the level; without one all bars are kept.
    level_label, kept_label, mixed_label : str
        What the legend calls the level and the bars on either side.
    log : bool
        Logarithmic vertical axis.
    """

    columns: tuple[str, ...]
    title: str
    y_title: str
    level: str | None = None
    level_label: str = "level"
    kept_label: str = "kept"
    mixed_label: str = "mixed"
    x_title: str = "component"
    log: bool = False


def check_panels(panels, columns) -> None:
    """Refuse what cannot be drawn, with the reason."""
    if not panels:
        raise ValueError("a plot needs at least one panel")
    if columns < 1:
        raise ValueError(f"columns must be >= 1, got {columns}")
    for panel in panels:
        if not isinstance(panel, (Lines, Bars)):
            raise TypeError(f"a panel is Lines or Bars, got {type(panel).__name__}")
        if isinstance(panel.columns, str) or not panel.columns:
            raise ValueError(
                f"panel {panel.title!r} needs a tuple or mapping of columns, "
                f"got {panel.columns!r}"
            )


def _number(value) -> float:
    """Return what can be drawn; strings and missing values cannot."""
    return float(value) if isinstance(value, (int, float)) else math.nan


def values_of(panel, rows) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return x and y for each of the panel's curves, in the order of `curves_of`."""
    if isinstance(panel, Lines):
        return [_line_values(name, rows) for name in panel.columns]
    return _bar_values(panel, rows)


def _line_values(name, rows) -> tuple[np.ndarray, np.ndarray]:
    # A row without the column is no gap in the curve; a nan in it is one.
    pairs = [(row["step"], _number(row[name])) for row in rows if name in row]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    kept = thin(table[:, 1])
    return table[kept, 0], table[kept, 1]


def _bar_values(panel, rows) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the kept bars, the mixed bars and the level line."""
    newest = next((r for r in reversed(rows) if r.keys() & set(panel.columns)), {})
    heights = np.array([_number(newest.get(name)) for name in panel.columns])
    level = _number(newest.get(panel.level))
    x = np.arange(1.0, len(heights) + 1)
    there = ~np.isnan(heights)
    # At the level a component is still kept whole.  Without one (nan) all are.
    mixed = there & (heights < level)
    kept = there & ~mixed
    ends = [] if math.isnan(level) else [0.5, len(heights) + 0.5]
    line = np.array(ends), np.full(len(ends), level)
    return [(x[kept], heights[kept]), (x[mixed], heights[mixed]), line]


def curves_of(panel) -> list[dict]:
    """Return the plotly traces of a panel without their data."""
    return _line_curves(panel) if isinstance(panel, Lines) else _bar_curves(panel)


def _line_curves(panel) -> list[dict]:
    names, labels = panel.columns, labels_of(panel)
    return [
        {
            "type": "scatter",
            "mode": "markers" if name in panel.marks else "lines+markers",
            "name": label,
            "showlegend": len(names) > 1,
            "legendgroup": label,
            "line": {
                "color": COLOURS[i % len(COLOURS)],
                "dash": DASHES[i % len(DASHES)],
                "width": 2,
            },
            # A dozen markers tell the curves apart; one a point would hide them.
            "marker": {
                "symbol": SYMBOLS[i % len(SYMBOLS)],
                "maxdisplayed": 0 if name in panel.marks else 12,
            },
        }
        for i, (name, label) in enumerate(zip(names, labels, strict=True))
    ]


def _bar_curves(panel) -> list[dict]:
    levelled = panel.level is not None
    bar = {"type": "bar", "width": 0.8, "showlegend": levelled}
    stripes = {
        "shape": "/",
        "fillmode": "replace",
        "bgcolor": MIXED,
        "fgcolor": PAPER,
        "size": 6,
        "solidity": 0.2,
    }
    return [
        bar | {"name": panel.kept_label, "marker": {"color": KEPT}},
        bar
        | {
            "name": panel.mixed_label,
            "marker": {"color": MIXED, "pattern": stripes},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": panel.level_label,
            "showlegend": levelled,
            "line": {"color": INK, "dash": "dash", "width": 2},
        },
    ]


def named_of(panel) -> list[int]:
    """Return which of the panel's curves may have their names at their ends."""
    if isinstance(panel, Bars):
        return []
    return [i for i, name in enumerate(panel.columns) if name not in panel.marks]


def labels_of(panel) -> list[str]:
    """Return what the panel's curves are called, in their order."""
    if isinstance(panel, Bars):
        return [panel.kept_label, panel.mixed_label, panel.level_label]
    names = panel.columns
    return list(names.values() if isinstance(names, Mapping) else names)


def words_of(panel) -> str:
    """Return in words what the panel shows."""
    names = [curve["name"] for curve in curves_of(panel) if curve["showlegend"]]
    return panel_text(panel.title, panel.y_title, panel.x_title, names)


def names_ends(panel, columns: int) -> bool:
    """Whether names stand at the ends of the panel's curves, not in its legend."""
    labels = labels_of(panel)
    return end_labels.fit([labels[i] for i in named_of(panel)], columns)


def one_legend(panels, columns: int) -> bool:
    """Whether one legend below says for all panels what each would say again."""
    all_same = len({tuple(legend_of(panel, columns)) for panel in panels}) == 1
    return len(panels) > 1 and all_same and bool(legend_of(panels[0], columns))


def legend_of(panel, columns: int) -> list[str]:
    """Return what stands in the panel's legend."""
    ends = named_of(panel) if names_ends(panel, columns) else []
    curves = enumerate(curves_of(panel))
    return [c["name"] for i, c in curves if c["showlegend"] and i not in ends]


def legend_rows(panel, columns: int) -> int:
    """Return the rows of the legend above a panel: one, or one for each name.

    Plotly does not break a legend where its panel ends.
    """
    labels = legend_of(panel, columns)
    width = sum(map(end_labels.entry, labels))
    return len(labels) if width > FITS / columns - 72 else min(len(labels), 1)


def panel_layout(panels, figure, columns: int) -> dict:
    """Return axes, legends and titles of all panels."""
    entries: dict = {"barmode": "overlay", "annotations": []}
    together = one_legend(panels, columns)
    for index, panel in enumerate(panels):
        k = "" if index == 0 else str(index + 1)
        x_axis, y_axis = axis(panel.x_title), _y_axis(panel)
        if isinstance(panel, Bars):
            x_axis |= _bar_ticks(panel)
        domain = figure.layout[f"xaxis{k}"].domain
        if names_ends(panel, columns):
            names = [labels_of(panel)[i] for i in named_of(panel)]
            x_axis["domain"] = end_labels.narrowed(domain, names)
        entries[f"xaxis{k}"], entries[f"yaxis{k}"] = x_axis, y_axis
        corner = {
            "x": domain[0],
            "y": figure.layout[f"yaxis{k}"].domain[1],
            "xanchor": "left",
            "yanchor": "bottom",
        }
        rows = 0 if together else legend_rows(panel, columns)
        entries[f"legend{k}"] = corner | {"orientation": "h" if rows < 2 else "v"}
        entries["annotations"].append(
            corner
            | {
                "text": f"<b>{panel.title}</b>",
                "xref": "paper",
                "yref": "paper",
                "showarrow": False,
                "yshift": 6 + end_labels.legend_height(rows),
                "font": {"size": 13},
            }
        )
    if together:
        entries["legend"] |= {"x": 0, "y": 0, "yref": "container"}
    return entries


def _y_axis(panel) -> dict:
    limits = panel.y_range if isinstance(panel, Lines) else None
    line = axis(panel.y_title, log=panel.log, limits=limits)
    if isinstance(panel, Bars) and not panel.log:
        line["rangemode"] = "tozero"
    return line


def _bar_ticks(panel) -> dict:
    count = len(panel.columns)
    every = math.ceil(count / 12)  # more names than that run into each other
    return {
        "range": [0.4, count + 0.6],
        "tickvals": list(range(1, count + 1, every)),
        "ticktext": list(panel.columns[::every]),
        "showgrid": False,
    }


def mark_layout(panels, marks) -> dict:
    """Return a dotted line and its text for each mark, in all panels of lines.

    Parameters
    ----------
    panels : sequence of Lines or Bars
    marks : list of (x, text)
    """
    shapes, texts = [], []
    for index, panel in enumerate(panels):
        if not isinstance(panel, Lines):
            continue
        k = "" if index == 0 else str(index + 1)
        place = {"xref": f"x{k}", "yref": f"y{k} domain"}
        for x, text in marks:
            line = {"color": INK, "dash": "dot", "width": 1}
            ends = {"x0": x, "x1": x, "y0": 0, "y1": 1}
            shapes.append(place | ends | {"type": "line", "line": line})
            texts.append(
                place
                | {"x": x, "y": 1, "xanchor": "right", "yanchor": "top"}
                | {"text": text, "textangle": -90, "showarrow": False}
                | {"font": {"size": 11}}
            )
    return {"shapes": shapes, "annotations": texts}
