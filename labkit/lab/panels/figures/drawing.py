"""The one drawer of lines: curves, their names, legends, titles, and room for all."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from plotly.subplots import make_subplots

from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.columns import decimate
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
LETTER = 5.8  # pixels of one letter, on average: what is drawn cannot be asked
LINE = 14  # pixels between two names
ROW = 19  # pixels of a row of a legend
SHARE = 0.33  # of a panel's width, at most, for the names
TALL, LOW = 214, 140  # pixels of a panel, by default, and where there are many
GAP = 90  # pixels between two lines of panels: an axis title, and a title


def line(i: int, label: str, mode: str = "lines+markers") -> dict:
    """Return the plotly trace of curve number `i`, without its data."""
    again = i // len(COLOURS)  # markers are open where colours come a second time
    colour, dash = COLOURS[i % len(COLOURS)], DASHES[(i + again) % len(DASHES)]
    marker = {"symbol": SYMBOLS[i % len(SYMBOLS)] + ("-open" if again else "")}
    # A dozen markers tell the curves apart; one a point would hide them.
    marker["maxdisplayed"] = 0 if mode == "markers" else 12
    look = {"line": {"color": colour, "dash": dash, "width": 2}, "marker": marker}
    return look | {"type": "scatter", "mode": mode, "name": label, "legendgroup": label}


def panel_title(text: str, place: dict, shift: float = 0) -> dict:
    """Return a panel's title, at its upper left corner, as a layout's annotation."""
    look = {"xref": "paper", "yref": "paper", "showarrow": False, "font": {"size": 13}}
    return place | look | {"text": f"<b>{text}</b>", "yshift": 6 + shift}


def corner(subplot) -> dict:
    """Return the upper left corner of a panel, as a place in the figure."""
    x, y = subplot.xaxis.domain[0], subplot.yaxis.domain[1]
    return {"x": x, "y": y, "xanchor": "left", "yanchor": "bottom"}


class Drawing:
    """Panels side by side, line by line, in one figure.

    Names stand at the ends of curves where they fit; else in a legend above the panel,
    or in one below all where each would say the same.

    Parameters
    ----------
    panels, columns : sequence of Panel, and how many stand side by side
    title : str, of the figure
    width, height : int, pixels; by default 480 a panel across, and as panels need
    low : bool, lower panels by default, where something stands above
    shared : bool, one legend below for all; by default where all would be the same
    """

    def __init__(
        self,
        panels,
        columns,
        *,
        title="",
        width=None,
        height=None,
        shared=None,
        low=False,
    ):
        self.panels, self.columns = panels, min(columns, len(panels))
        self.lines = math.ceil(len(panels) / self.columns)
        self._traces = [panel.traces() for panel in panels]
        self._named, legends = [], []
        for panel, traces in zip(panels, self._traces, strict=True):
            fits = fit([traces[i]["name"] for i in panel.ends], self.columns)
            self._named.append(list(panel.ends) if fits else [])
            rest = [t for i, t in enumerate(traces) if i not in self._named[-1]]
            legends.append([t["name"] for t in rest if t["showlegend"]])
        if shared is None:
            shared = len(panels) > 1 and len(set(map(tuple, legends))) == 1
        self._shared = shared and any(legends)
        self._rows = [0 if self._shared else self._above(names) for names in legends]
        self.look = layout(title, width=width or 480 * self.columns, height=height)
        margin = self.look["margin"]
        margin["t"] += ROW * max(self._rows[: self.columns])
        if self._shared:
            names = dict.fromkeys(name for each in legends for name in each)
            margin["b"] += ROW * math.ceil(_across(names) / (FITS - 90))
        gap = GAP + ROW * max(self._rows[self.columns :], default=0)
        around, gaps = margin["t"] + margin["b"], (self.lines - 1) * gap
        if height is None:
            panel = LOW if low or self.lines > 2 else TALL
            self.look["height"] = self.lines * panel + gaps + around
        inner = self.look["height"] - around
        self._gap = gap / inner  # as a share of the height
        self._pixels = max((inner - gaps) / self.lines, 20)  # of one panel

    def _above(self, legend) -> int:
        """Rows of the legend above a panel: one, or one for each name."""
        # Plotly does not break a legend where its panel ends.
        wide = _across(legend) > FITS / self.columns - 72
        return len(legend) if wide else min(len(legend), 1)

    def values(self, data=None) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return x and y of all curves, then of the names at their ends."""
        curves = [panel.values(data) for panel in self.panels]
        names = [
            places([each[i] for i in ends], self._pixels, panel.log, panel.y_range)
            for panel, each, ends in zip(self.panels, curves, self._named, strict=True)
            if ends
        ]
        return [values for each in curves for values in each] + names

    def build(self, data=None) -> Figure:
        """Draw all panels; their titles are the layout's first annotations."""
        figure = make_subplots(
            rows=self.lines,
            cols=self.columns,
            horizontal_spacing=max(0.1, 0.22 / self.columns),
            vertical_spacing=min(self._gap, 0.9 / max(self.lines - 1, 1)),
            figure=Figure(),
        )
        entries = self.look | {"barmode": "overlay", "annotations": []}
        traces, names, shown = [], [], set()
        for index, panel in enumerate(self.panels):
            row, column = divmod(index, self.columns)
            place = {"row": row + 1, "col": column + 1}
            k, subplot = _k(index), figure.get_subplot(**place)
            drawn, ends = self._traces[index], self._named[index]
            for i, trace in enumerate(drawn):
                said = i in ends or (self._shared and trace["name"] in shown)
                look = {"legend": "legend" if self._shared else f"legend{k}"}
                look["showlegend"] = trace["showlegend"] and not said
                shown.add(trace["name"])
                traces.append((trace | look, place))
            x_axis, entries[f"yaxis{k}"] = panel.axes()
            if ends:
                names.append((_names([drawn[i] for i in ends]), place))
                start, end = subplot.xaxis.domain
                taken = room([drawn[i]["name"] for i in ends]) / (FITS - 90)
                x_axis["domain"] = [start, end - taken]
            entries[f"xaxis{k}"] = x_axis
            at, above = corner(subplot), self._rows[index]
            flow = {"orientation": "h" if above < 2 else "v", "tracegroupgap": 0}
            entries[f"legend{k}"] = at | flow | {"traceorder": "normal"}
            entries["annotations"].append(panel_title(panel.title, at, ROW * above))
        if self._shared:
            entries["legend"] |= {"x": 0, "y": 0, "yref": "container"}
        # Names last, so that a curve is found where its panel and column say.
        values = self.values(data)
        for (trace, place), (x, y) in zip(traces + names, values, strict=True):
            figure.add_trace(trace | {"x": x, "y": y}, **place)
        return figure.update_layout(entries)

    def ghosts(self, data) -> list[dict]:
        """Return the curves of another run, in grey below those of this one."""
        look = {"type": "scatter", "mode": "lines", "name": "an earlier run"}
        look |= {"line": {"color": GHOST, "width": 1}, "zorder": -1}
        look |= {"hoverinfo": "skip", "showlegend": False}
        drawn = []
        for index, panel in enumerate(self.panels):
            place = {"xaxis": f"x{_k(index)}", "yaxis": f"y{_k(index)}"}
            for x, y in panel.values(data) if panel.over_steps else ():
                kept = decimate(y, FAINT)
                drawn.append(look | place | {"x": x[kept], "y": y[kept]})
        return drawn

    def marks(self, marks) -> dict:
        """Return a dotted line and a text for each of (x, text), over panels of steps.

        Shapes and annotations; those of the titles are not among them.
        """
        dots = {"type": "line", "line": {"color": INK, "dash": "dot", "width": 1}}
        look = {"textangle": -90, "showarrow": False, "font": {"size": 12}}
        look |= {"xanchor": "right", "yanchor": "top"}
        shapes, texts = [], []
        for index, panel in enumerate(self.panels):
            place = {"xref": f"x{_k(index)}", "yref": f"y{_k(index)} domain"}
            for x, text in marks if panel.over_steps else ():
                shapes.append(place | dots | {"x0": x, "x1": x, "y0": 0, "y1": 1})
                texts.append(place | look | {"x": x, "y": 1, "text": text})
        return {"shapes": shapes, "annotations": texts}


def _k(index: int) -> str:
    """What plotly calls the axes and the legend of a panel, after their names."""
    return str(index + 1) if index else ""


def room(labels: Sequence[str]) -> float:
    """Return the pixels that the names take beside a panel."""
    return LETTER * max(map(len, labels)) + 12


def fit(labels: Sequence[str], columns: int) -> bool:
    """Whether names at the ends fit beside panels, so many of them side by side.

    Examples
    --------
    >>> fit(["train", "test"], 2), fit(["on the training images", "test"], 2)
    (True, False)
    """
    return 1 < len(labels) <= MOST and room(labels) <= SHARE * FITS / columns


def _across(labels: Sequence[str]) -> float:
    """Pixels that names take in one row of a legend, their signs included."""
    return sum(LETTER * len(label) + 42 for label in labels)


def _names(traces: Sequence[dict]) -> dict:
    """Names at the ends of curves, in the place of a legend."""
    words = [f"\u00a0\u00a0{trace['name']}" for trace in traces]
    colours = [trace["line"]["color"] for trace in traces]
    look = {"type": "scatter", "mode": "text", "textposition": "middle right"}
    look |= {"cliponaxis": False, "hoverinfo": "skip", "showlegend": False}
    return look | {"text": words, "textfont": {"color": colours, "size": 12}}


def places(curves, pixels: float, log: bool = False, limits=None):
    """Return where the names stand: at the ends, moved apart where they would touch.

    The panel is so many pixels high, from one of its limits to the other, those of the
    data if not given. In data units; ``nan`` is a gap, or a curve without a point.
    """
    ends, seen = [], []
    for x, y in curves:
        with np.errstate(invalid="ignore", divide="ignore"):
            height = np.log10(y) if log else np.asarray(y, dtype=np.float64)
        there = np.flatnonzero(np.isfinite(height))
        ends.append((x[there[-1]], height[there[-1]]) if len(there) else (np.nan,) * 2)
        seen.append(height[there])
    x, y = np.array(ends, dtype=np.float64).T
    seen = np.concatenate(seen)
    if limits:
        seen = np.log10(limits) if log else np.asarray(limits)
    span = np.ptp(seen) if len(seen) else 0.0
    known = np.flatnonzero(~np.isnan(y))
    y[known] = spread(y[known], LINE / pixels * (span or 1.0))
    return x, (10.0**y if log else y)


def spread(heights, gap: float) -> np.ndarray:
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
