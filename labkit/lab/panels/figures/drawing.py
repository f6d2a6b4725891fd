"""The one drawer of curves: panels side by side, with plotly's legend for all."""

import math
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

import numpy as np

from labkit.lab.panels.figures.captions import panel_text
from labkit.lab.panels.figures.theme import (
    COLOURS,
    DASHES,
    FITS,
    GHOST,
    INK,
    SYMBOLS,
    layout,
    numbers,
)

MAX_POINTS = 2000  # of one curve that are sent to the browser
FAINT = 300  # points of a curve in grey
LETTER = 5.8  # pixels of a letter on average
BOLD = 7.4  # of a letter of a title
ROW = 19  # pixels of a row of a legend
LINE = 16  # pixels of a line of a title
INNER = FITS - 90  # pixels between the margins
TALL = 214  # pixels of a panel
LOW = 112  # of one where there are many
GAP = 90  # pixels between two lines of panels: an axis title, and a title
BETWEEN = 0.26  # of a panel's place, between it and the next
LEGEND = {
    "orientation": "h",
    "x": 0,
    "y": 0,
    "yref": "container",
    "yanchor": "bottom",
    "traceorder": "normal",
}


def line(i: int, label: str, mode: str = "lines+markers") -> dict:
    """Return the plotly trace of curve number `i`, without its data."""
    again = i // len(COLOURS)  # markers are open where colours come a second time
    return {
        "type": "scatter",
        "mode": mode,
        "name": label,
        "legendgroup": label,
        "line": {
            "color": COLOURS[i % len(COLOURS)],
            "dash": DASHES[(i + again) % len(DASHES)],
            "width": 2,
        },
        "marker": {
            "symbol": SYMBOLS[i % len(SYMBOLS)] + ("-open" if again else ""),
            # A dozen markers tell the curves apart; one a point would hide them.
            "maxdisplayed": 0 if mode == "markers" else 12,
        },
    }


def decimate(y: np.ndarray, limit: int = MAX_POINTS) -> np.ndarray:
    """Return the indices of at most `limit` >= 4 points that keep a curve's shape.

    The indices are sorted: both ends of ``y`` (n,), which may hold ``nan``, and the
    lowest and the highest point of each stretch between, so that no spike is lost.
    Cost: O(n).

    Examples
    --------
    >>> decimate(np.array([0.0, 0, 0, 9, 0, 0, 0]), limit=4).tolist()
    [0, 1, 3, 6]
    """
    n = len(y)
    if n <= limit:
        return np.arange(n)
    stretches = limit // 2 - 1
    length = math.ceil((n - 2) / stretches)
    inner = np.full(stretches * length, np.nan)
    inner[: n - 2] = y[1:-1]
    inner = inner.reshape(stretches, length)
    start = 1 + length * np.arange(stretches)
    lowest = start + np.where(np.isnan(inner), np.inf, inner).argmin(1)
    highest = start + np.where(np.isnan(inner), -np.inf, inner).argmax(1)
    return np.unique(np.r_[0, np.minimum(np.r_[lowest, highest], n - 1), n - 1])


def corner(x: float, y: float) -> dict:
    """Return what puts an annotation or a legend above the upper left corner (x, y)."""
    return {"x": x, "y": y, "xanchor": "left", "yanchor": "bottom"}


def above(index: int) -> dict:
    """Return what puts an annotation above a panel's corner, wherever that is moved."""
    number = suffix(index)
    return corner(0, 1) | {"xref": f"x{number} domain", "yref": f"y{number} domain"}


def panel_title(text: str, at: dict, wide: float = math.inf) -> dict:
    """Return a panel's title as a layout's annotation, in lines of so many pixels.

    ``at`` is its :func:`corner`, in shares of the figure, or what is :func:`above` it.
    """
    if wide < math.inf:
        text = "<br>".join(wrap(text, int(wide / BOLD)))
    return {
        "xref": "paper",
        "yref": "paper",
        "showarrow": False,
        "font": {"size": 13},
        "align": "left",
        "text": f"<b>{text}</b>",
        "yshift": 6,
    } | at


def rows_of(names: Iterable[str], wide: float = INNER) -> int:
    """Return the rows of a legend, whose columns plotly makes equally wide.

    Examples
    --------
    >>> rows_of(["training", "test"]), rows_of("abcdefghij", wide=300), rows_of([])
    (1, 2, 0)
    """
    names = list(names)
    column = LETTER * max(map(len, names), default=0) + 46
    return math.ceil(len(names) / max(1, wide // column))


def suffix(index: int) -> str:
    """Return what plotly puts behind the names of a panel's axes."""
    return str(index + 1) if index else ""


def on_axes(index: int) -> dict:
    """Return the axes of a panel as a trace names them."""
    return {"xaxis": f"x{suffix(index)}", "yaxis": f"y{suffix(index)}"}


class Panel:
    """What a `Drawing` asks of a panel: its names are those in the legend."""

    @property
    def words(self) -> str:
        """What the panel shows."""
        return panel_text(self.title, self.y_title, self.x_title, self.names)


class Drawing:
    """Panels side by side, line by line, in one figure, with one legend below all.

    Parameters
    ----------
    panels : sequence of Panel
    columns : int >= 1, panels side by side
    height : int, pixels; by default as panels need
    low : bool, lower panels by default, where something stands above
    """

    def __init__(
        self,
        panels: Sequence[Panel],
        columns: int = 2,
        *,
        height: int | None = None,
        low: bool = False,
    ):
        self.panels, columns = panels, min(columns, len(panels))
        lines = math.ceil(len(panels) / columns)
        names = dict.fromkeys(name for panel in panels for name in panel.names)
        self._chosen = numbers(names)  # a name has one colour in the whole figure
        self._layout = layout(height=height)
        self._wide = INNER * (1 - BETWEEN) / (columns - BETWEEN)
        most = max(len(wrap(panel.title, int(self._wide / BOLD))) for panel in panels)
        margin, gap = self._layout["margin"], GAP + LINE * max(most - 1, 0)
        margin["t"] += gap - GAP
        around = margin["t"] + margin["b"] + ROW * rows_of(names)
        high = LOW if low or lines > 2 else TALL
        if height is None:
            self._layout["height"] = lines * (high + gap) - gap + around
        else:
            high = max((height - around + gap) / lines - gap, 0.1 * gap)
        self._layout["grid"] = {
            "rows": lines,
            "columns": columns,
            "pattern": "independent",
            "xgap": BETWEEN,
            "ygap": gap / (high + gap),
        }

    def build(self, data: Sequence[Mapping] = ()) -> dict:
        """Draw all panels; their titles are the layout's annotations."""
        made = self._layout | {"barmode": "overlay", "annotations": []}
        made["legend"] = LEGEND
        traces, shown = [], set()
        for index, panel in enumerate(self.panels):
            number = suffix(index)
            for trace in panel.traces(self._chosen, data):
                legend = trace["name"] in panel.names and trace["name"] not in shown
                shown |= {trace["name"]} if legend else set()
                traces.append(trace | on_axes(index) | {"showlegend": legend})
            x_axis, y_axis = panel.axes()
            made[f"xaxis{number}"] = x_axis | {"anchor": f"y{number}"}
            made[f"yaxis{number}"] = y_axis | {"anchor": f"x{number}"}
            title = panel_title(panel.title, above(index), self._wide)
            made["annotations"].append(title)
        return {"data": traces, "layout": made}

    def ghosts(self, data: Sequence[Mapping], width: int = 1) -> list[dict]:
        """Return the curves of another run, in grey below those of this one."""
        grey = {
            "type": "scatter",
            "mode": "lines",
            "name": "an earlier run",
            "line": {"color": GHOST, "width": width},
            "zorder": -1,
            "hoverinfo": "skip",
            "showlegend": False,
        }
        drawn = []
        for index, panel in enumerate(self.panels):
            for curve in panel.traces(self._chosen, data):
                kept = decimate(curve["y"], FAINT)
                points = {name: curve[name][kept] for name in ("x", "y")}
                drawn.append(grey | on_axes(index) | points)
        return drawn

    def marks(self, marks: Mapping[float, str]) -> list[dict]:
        """Return the shapes of a layout that mark steps, with a text at each."""
        look = {"type": "line", "line": {"color": INK, "dash": "dot", "width": 1}}
        words = {"textposition": "end", "xanchor": "right", "font": {"size": 12}}
        return [
            look
            | {"xref": f"x{suffix(index)}", "yref": f"y{suffix(index)} domain"}
            | {"x0": x, "x1": x, "y0": 0, "y1": 1}
            | {"label": words | {"text": text}}
            for index in range(len(self.panels))
            for x, text in marks.items()
        ]
