"""The kinds of panels of a live figure: what each draws of a trace's rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.lab.panels.figures.columns import Columns, decimate, number
from labkit.lab.panels.figures.drawing import Curve, Panel, line
from labkit.lab.panels.figures.theme import COLOURS, INK, PAPER, axis, numbers

KEPT, MIXED = COLOURS[:2]


@dataclass(frozen=True)
class Lines(Panel):
    """Curves over the step, one per column of the trace.

    Attributes
    ----------
    columns : mapping of column to label, or tuple of columns
    title : str, of the panel
    y_title, x_title : str, of the axes, with units
    log : bool, logarithmic vertical axis
    y_range : pair of float, ends of the vertical axis; ``None`` fits the data
    marks : tuple of str, columns drawn as marks without a line, as for events
    """

    columns: Mapping[str, str] | tuple[str, ...]
    title: str
    y_title: str
    x_title: str = "step"
    log: bool = False
    y_range: tuple[float, float] | None = None
    marks: tuple[str, ...] = ()

    def traces(self) -> list[dict]:
        """Return plotly's traces, without their data."""
        names, drawn = self.columns, []
        labels = list(names.values() if isinstance(names, Mapping) else names)
        chosen = numbers(labels)
        for name, label in zip(names, labels, strict=True):
            mode = "markers" if name in self.marks else "lines+markers"
            drawn.append(line(chosen[label], label, mode))
        return [trace | {"showlegend": len(names) > 1} for trace in drawn]

    @property
    def ends(self) -> list[int]:
        """Numbers of the curves that may have their names at their ends."""
        return [i for i, name in enumerate(self.columns) if name not in self.marks]

    def axes(self) -> tuple[dict, dict]:
        """Return both axes, as plain data."""
        y = axis(self.y_title, log=self.log, limits=self.y_range)
        return axis(self.x_title), y

    def values(self, data: Columns) -> list[Curve]:
        """Return the data of each trace."""
        curves = [(x, y, decimate(y)) for x, y in map(data.curve, self.columns)]
        return [(x[kept], y[kept]) for x, y, kept in curves]


@dataclass(frozen=True)
class Bars(Panel):
    """The newest values of some columns as bars under a water level.

    Bars that reach the level are kept, those below it are mixed; the level is a line.

    Attributes
    ----------
    columns : tuple of str, one a bar; a missing or ``nan`` value has no bar
    title : str, of the panel
    y_title, x_title : str, of the axes, with units
    level : str, column that holds the level; without one all bars are kept
    level_label, kept_label, mixed_label : str, in the legend
    log : bool, logarithmic vertical axis
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

    ends = ()
    over_steps = False

    def traces(self) -> list[dict]:
        """Return plotly's traces, without their data."""
        bar = {"type": "bar", "width": 0.8, "showlegend": self.level is not None}
        stripes = {
            "shape": "/",
            "fillmode": "replace",
            "bgcolor": MIXED,
            "fgcolor": PAPER,
            "size": 6,
            "solidity": 0.2,
        }
        mixed = {"color": MIXED, "pattern": stripes}
        level = {
            "type": "scatter",
            "mode": "lines",
            "name": self.level_label,
            "line": {"color": INK, "dash": "dash", "width": 2},
            "showlegend": self.level is not None,
        }
        return [
            bar | {"name": self.kept_label, "marker": {"color": KEPT}},
            bar | {"name": self.mixed_label, "marker": mixed},
            level,
        ]

    def axes(self) -> tuple[dict, dict]:
        """Return both axes, as plain data."""
        count = len(self.columns)
        every = math.ceil(count / 12)  # more names than that run into each other
        ticks = {
            "range": [0.4, count + 0.6],
            "showgrid": False,
            "tickvals": list(range(1, count + 1, every)),
            "ticktext": list(self.columns[::every]),
        }
        y = axis(self.y_title, log=self.log)
        y |= {} if self.log else {"rangemode": "tozero"}
        return axis(self.x_title) | ticks, y

    def values(self, data: Columns) -> list[Curve]:
        """Return the data of the kept bars, the mixed bars and the level line."""
        newest = data.newest(self.columns)
        heights = np.array([number(newest.get(name)) for name in self.columns])
        level = number(newest.get(self.level))
        x = np.arange(1.0, len(heights) + 1)
        given = ~np.isnan(heights)
        # At the level a component is still kept whole.  Without one (nan) all are.
        mixed = given & (heights < level)
        kept = given & ~mixed
        ends = [] if math.isnan(level) else [0.5, len(heights) + 0.5]
        line = np.array(ends), np.full(len(ends), level)
        return [(x[kept], heights[kept]), (x[mixed], heights[mixed]), line]


def check_panels(panels: Sequence[Panel], columns: int) -> None:
    """Raise a ValueError or TypeError for panels that cannot be drawn."""
    if not panels:
        raise ValueError("a plot needs at least one panel")
    if columns < 1:
        raise ValueError(f"columns must be >= 1, got {columns}")
    for panel in panels:
        if not isinstance(panel, Lines | Bars):
            raise TypeError(f"a panel is Lines or Bars, got {type(panel).__name__}")
        if isinstance(panel.columns, str) or not panel.columns:
            message = f"panel {panel.title!r} needs a tuple or mapping of columns"
            raise ValueError(f"{message}, got {panel.columns!r}")
