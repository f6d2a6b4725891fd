"""The one drawer of curves: their names, legends, titles, and room for all of them."""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np

from labkit.lab.panels.figures.captions import panel_text
from labkit.lab.panels.figures.columns import Columns, decimate
from labkit.lab.panels.figures.theme import (
    COLOURS,
    DASHES,
    FITS,
    GHOST,
    INK,
    SYMBOLS,
    layout,
)

FAINT = 300  # points of a curve in grey
MOST = 4  # curves of a panel that are named at their ends
LEGEND = 5  # entries of a legend, at most
LETTER = 5.8  # pixels of one letter, on average: the true width is known to a page only
LINE = 14  # pixels between two names
ROW = 19  # pixels of a row of a legend
SHARE = 0.33  # of a panel's width, at most, for the names
TALL, LOW = 214, 140  # pixels of a panel, by default, and where there are many
GAP = 90  # pixels between two lines of panels: an axis title, and a title

Curve = tuple[np.ndarray, np.ndarray]  # x and y


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


def corner(x: float, y: float) -> dict:
    """Return what puts an annotation or a legend above the upper left corner (x, y)."""
    return {"x": x, "y": y, "xanchor": "left", "yanchor": "bottom"}


def panel_title(text: str, at: dict, shift: float = 0) -> dict:
    """Return a panel's title as a layout's annotation; ``at`` is its :func:`corner`."""
    return at | {
        "xref": "paper",
        "yref": "paper",
        "showarrow": False,
        "font": {"size": 13},
        "text": f"<b>{text}</b>",
        "yshift": 6 + shift,
    }


def domains(lines: int, columns: int, across: float, down: float) -> Iterator[tuple]:
    """Yield the domains (x, y) of panels, line by line from the top.

    ``across`` and ``down`` are the gaps between panels, as shares of the figure.
    """
    wide = (1 - across * (columns - 1)) / columns
    high = (1 - down * (lines - 1)) / lines
    for row in reversed(range(lines)):
        for column in range(columns):
            left, low = column * (wide + across), row * (high + down)
            yield (left, left + wide), (low, low + high)


def suffix(index: int) -> str:
    """Return what plotly puts behind the names of a panel's axes and legend."""
    return str(index + 1) if index else ""


def on_axes(index: int) -> dict:
    """Return the axes of a panel as a trace names them."""
    return {"xaxis": f"x{suffix(index)}", "yaxis": f"y{suffix(index)}"}


class Panel:
    """What a `Drawing` asks of a panel."""

    y_range = None
    over_steps = True  # so that a step can be marked

    @property
    def words(self) -> str:
        """What the panel shows."""
        names = [trace["name"] for trace in self.traces() if trace["showlegend"]]
        return panel_text(self.title, self.y_title, self.x_title, names)


class Drawing:
    """Panels side by side, line by line, in one figure.

    Names stand at the ends of curves where they fit; else in a legend above the panel,
    or in one legend below all panels where each of them would say the same. A legend of
    more than five entries is hard to read: then the names stand at the right of the
    panel instead, one below another in the order in which the curves end, and at the
    right of the last panel alone where all panels would say the same.

    Parameters
    ----------
    panels : sequence of Panel
    columns : int >= 1, panels side by side
    title : str, of the figure
    width, height : int, pixels; by default 480 a panel across, and as panels need
    low : bool, lower panels by default, where something stands above
    shared : bool
        One legend below for all; by default where the legends would be the same.
    """

    def __init__(
        self,
        panels: Sequence[Panel],
        columns: int,
        *,
        title: str = "",
        width: int | None = None,
        height: int | None = None,
        shared: bool | None = None,
        low: bool = False,
    ):
        self.panels, self.columns = panels, min(columns, len(panels))
        self.lines = math.ceil(len(panels) / self.columns)
        self._traces = [panel.traces() for panel in panels]
        legends = self._place_names()
        names = dict.fromkeys(name for each in legends for name in each)
        if shared is None:
            shared = len(panels) > 1 and len(set(map(tuple, legends))) == 1
        self._shared = shared and 0 < len(names) <= LEGEND
        self._rows = [0 if self._shared else self._above(names) for names in legends]
        self._layout = layout(title, width=width or 480 * self.columns, height=height)
        margin = self._layout["margin"]
        margin["t"] += ROW * max(self._rows[: self.columns])
        if self._shared:
            margin["b"] += ROW * math.ceil(_across(names) / (FITS - 90))
        gap = GAP + ROW * max(self._rows[self.columns :], default=0)
        around, gaps = margin["t"] + margin["b"], (self.lines - 1) * gap
        if height is None:
            panel = LOW if low or self.lines > 2 else TALL
            self._layout["height"] = self.lines * panel + gaps + around
        inner = self._layout["height"] - around
        self._pixels = max((inner - gaps) / self.lines, 20)  # of one panel
        across = max(0.1, 0.22 / self.columns)
        down = min(gap / inner, 0.9 / max(self.lines - 1, 1))
        inside = 1 - self._column  # all panels give way to names that stand there
        self._domains = [
            ((start * inside, end * inside), upright)
            for (start, end), upright in domains(self.lines, self.columns, across, down)
        ]

    def _place_names(self) -> list[list[str]]:
        """Choose the names that stand beside curves; return what is left for legends.

        ``_named`` has the numbers of a panel's curves that have names beside them, and
        ``_aside`` says whether these stand at the right of the panel, in one column.
        ``_column`` is that column's share of the figure where all panels have one.
        """
        self._named, legends = [], []
        for panel, traces in zip(self.panels, self._traces, strict=True):
            fits = fit([traces[i]["name"] for i in panel.ends], self.columns)
            self._named.append(list(panel.ends) if fits else [])
            rest = [t for i, t in enumerate(traces) if i not in self._named[-1]]
            legends.append([t["name"] for t in rest if t["showlegend"]])
        self._aside = [len(names) > LEGEND for names in legends]
        alike = all(names == legends[-1] for names in legends)
        for index, traces in enumerate(self._traces):
            if self._aside[index]:
                told = [i for i, t in enumerate(traces) if t["showlegend"]]
                last = not alike or index == len(self.panels) - 1
                self._named[index], legends[index] = told if last else [], []
        names = [self._traces[-1][i]["name"] for i in self._named[-1]]
        one = alike and self._aside[-1]
        self._column = room(names) / (FITS - 90) if one else 0.0
        return legends

    def _above(self, legend: Sequence[str]) -> int:
        """Return the rows of the legend above a panel: one, or one for each name."""
        # Plotly does not break a legend where its panel ends.
        wide = _across(legend) > FITS / self.columns - 72
        return len(legend) if wide else min(len(legend), 1)

    def values(self, data: Columns | None = None) -> list[Curve]:
        """Return x and y of all curves, then of the names at their ends."""
        curves = [panel.values(data) for panel in self.panels]
        names = [
            places(
                [each[i] for i in ends],
                self._pixels,
                panel.log,
                panel.y_range,
                aside=aside,
            )
            for panel, each, ends, aside in zip(
                self.panels, curves, self._named, self._aside, strict=True
            )
            if ends
        ]
        return [values for each in curves for values in each] + names

    def build(self, data: Columns | None = None) -> dict:
        """Draw all panels; their titles are the layout's first annotations."""
        made = self._layout | {"barmode": "overlay", "annotations": []}
        traces, names, shown = [], [], set()
        for index, panel in enumerate(self.panels):
            k, (across, down) = suffix(index), self._domains[index]
            drawn, ends = self._traces[index], self._named[index]
            for i, trace in enumerate(drawn):
                told = i in ends or self._aside[index]
                told = told or (self._shared and trace["name"] in shown)
                shown.add(trace["name"])
                trace = trace | on_axes(index)
                trace["legend"] = "legend" if self._shared else f"legend{k}"
                trace["showlegend"] = trace["showlegend"] and not told
                traces.append(trace)
            x_axis, y_axis = panel.axes()
            start, end = across
            if ends:
                names.append(_names([drawn[i] for i in ends]) | on_axes(index))
                taken = room([drawn[i]["name"] for i in ends]) / (FITS - 90)
                end -= 0.0 if self._column else taken
            made[f"xaxis{k}"] = x_axis | {"domain": [start, end], "anchor": f"y{k}"}
            made[f"yaxis{k}"] = y_axis | {"domain": list(down), "anchor": f"x{k}"}
            at, above = corner(start, down[1]), self._rows[index]
            flow = {"orientation": "h" if above < 2 else "v", "tracegroupgap": 0}
            made[f"legend{k}"] = at | flow | {"traceorder": "normal"}
            made["annotations"].append(panel_title(panel.title, at, ROW * above))
        if self._shared:
            made["legend"] |= {"x": 0, "y": 0, "yref": "container"}
        # Names come last, so that a curve is found where its panel and column say.
        figure = {"data": traces + names, "layout": made}
        self.fill(figure, data)
        return figure

    def fill(self, figure: dict, data: Columns | None) -> None:
        """Put the data into the curves and names of a figure that was built."""
        # What stands behind them in a figure, the grey run before, stays.
        for trace, (x, y) in zip(figure["data"], self.values(data), strict=False):
            trace["x"], trace["y"] = x, y

    def ghosts(self, data: Columns, width: int = 1) -> list[dict]:
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
            for x, y in panel.values(data) if panel.over_steps else ():
                kept = decimate(y, FAINT)
                drawn.append(grey | on_axes(index) | {"x": x[kept], "y": y[kept]})
        return drawn

    def marks(self, marks: Sequence[tuple[float, str]]) -> dict:
        """Return a dotted line and a text for each of (x, text), over panels of steps.

        These are shapes and annotations of a layout, without the panels' titles.
        """
        dots = {"type": "line", "line": {"color": INK, "dash": "dot", "width": 1}}
        words = {"textangle": -90, "showarrow": False, "font": {"size": 12}}
        words |= {"xanchor": "right", "yanchor": "top"}
        shapes, texts = [], []
        for index, panel in enumerate(self.panels):
            k = suffix(index)
            own = {"xref": f"x{k}", "yref": f"y{k} domain"}
            for x, text in marks if panel.over_steps else ():
                shapes.append(own | dots | {"x0": x, "x1": x, "y0": 0, "y1": 1})
                texts.append(own | words | {"x": x, "y": 1, "text": text})
        return {"shapes": shapes, "annotations": texts}


def room(labels: Sequence[str]) -> float:
    """Return the pixels that the names take beside a panel."""
    return LETTER * max(map(len, labels)) + 12


def fit(labels: Sequence[str], columns: int) -> bool:
    """Return whether names fit at the ends, in ``columns`` panels side by side.

    Examples
    --------
    >>> fit(["train", "test"], 2), fit(["on the training images", "test"], 2)
    (True, False)
    """
    return 1 < len(labels) <= MOST and room(labels) <= SHARE * FITS / columns


def _across(labels: Sequence[str]) -> float:
    """Return the pixels of names in one row of a legend, with their signs."""
    return sum(LETTER * len(label) + 42 for label in labels)


def _names(traces: Sequence[dict]) -> dict:
    """Return the trace of names at the ends of curves, which stands for a legend."""
    return {
        "type": "scatter",
        "mode": "text",
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
        "text": [f"\u00a0\u00a0{trace['name']}" for trace in traces],
        "textfont": {"color": [t["line"]["color"] for t in traces], "size": 12},
    }


def places(
    curves: Sequence[Curve],
    pixels: float,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    *,
    aside: bool = False,
) -> Curve:
    """Return where names stand: at the ends of curves, moved apart so none touches.

    The panel is ``pixels`` high, from one of its limits to the other; without limits
    from the lowest to the highest value. If ``aside``, the names form one column where
    the last curve ends, within these limits if all names fit between them. The result
    is in data units; ``nan`` is a gap, or a curve without a point.
    """
    ends, heights = [], []
    for x, y in curves:
        with np.errstate(invalid="ignore", divide="ignore"):
            height = np.log10(y) if log else np.asarray(y, dtype=np.float64)
        drawn = np.flatnonzero(np.isfinite(height))
        last = (x[drawn[-1]], height[drawn[-1]]) if len(drawn) else (np.nan, np.nan)
        ends.append(last)
        heights.append(height[drawn])
    x, y = np.array(ends, dtype=np.float64).T
    heights = np.concatenate(heights)
    if limits:
        heights = np.log10(limits) if log else np.asarray(limits)
    span = np.ptp(heights) if len(heights) else 0.0
    known, gap = np.flatnonzero(~np.isnan(y)), LINE / pixels * (span or 1.0)
    y[known] = spread(y[known], gap)
    if aside and len(known):
        x[known] = x[known].max()
        above = gap * np.argsort(np.argsort(y[known], kind="stable"))
        if above.max() <= span:
            least, most = heights.min() + above, heights.max() - above.max() + above
            y[known] = np.clip(y[known], least, most)
    return x, (10.0**y if log else y)


def spread(heights: Sequence[float], gap: float) -> np.ndarray:
    """Return heights at least `gap` apart, in the same order, moved little.

    Names that touch form a group that is centred where its members would be: isotonic
    regression of the heights less what their order alone would add.

    Examples
    --------
    >>> spread([0.0, 5.0, 5.1], gap=1.0).tolist()
    [0.0, 4.55, 5.55]
    """
    heights = np.asarray(heights, dtype=np.float64)
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(heights))
    groups: list[list[float]] = []
    for height in heights[order] - steps:
        groups.append([height])
        while len(groups) > 1 and fmean(groups[-1]) < fmean(groups[-2]):
            groups[-2:] = [groups[-2] + groups[-1]]
    moved = np.empty_like(heights)
    moved[order] = steps + [fmean(group) for group in groups for _ in group]
    return moved
