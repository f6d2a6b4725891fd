"""The kinds of panels of a live figure: what each draws of a trace's rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from labkit.lab.panels.figures.drawing import Curve, Panel, decimate, line
from labkit.lab.panels.figures.theme import COLOURS, INK, PAPER, axis, numbers

KEPT, MIXED = COLOURS[:2]


def number(value: object) -> float:
    """Return a value as what can be drawn; nan for strings and missing values."""
    return float(value) if isinstance(value, int | float) else math.nan


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

    @property
    def names(self) -> list[str]:
        """The names in the legend; a curve alone has its panel's title."""
        return self._labels if len(self.columns) > 1 else []

    @property
    def _labels(self) -> list[str]:
        named = isinstance(self.columns, Mapping)
        return list(self.columns.values() if named else self.columns)

    def traces(self, chosen: Mapping[str, int] = MappingProxyType({})) -> list[dict]:
        """Return plotly's traces, without their data; ``chosen`` numbers colours."""
        chosen = numbers(self._labels) | chosen
        return [
            line(
                chosen[label],
                label,
                "markers" if name in self.marks else "lines+markers",
            )
            for name, label in zip(self.columns, self._labels, strict=True)
        ]

    def axes(self) -> tuple[dict, dict]:
        """Return both axes, as plain data."""
        y = axis(self.y_title, log=self.log, limits=self.y_range)
        return axis(self.x_title), y

    def values(self, data: Sequence[Mapping]) -> list[Curve]:
        """Return the data of each trace, of the rows that have its column."""
        curves = []
        for name in self.columns:
            rows = [row for row in data if name in row]
            x = np.array([row["step"] for row in rows], dtype=np.float64)
            y = np.array([number(row[name]) for row in rows])
            kept = decimate(y)
            curves.append((x[kept], y[kept]))
        return curves


@dataclass(frozen=True)
class Bars(Panel):
    """The newest values of some columns as bars under a water level.

    Bars that reach the level are kept, those below it are mixed; the level is a line.

    Attributes
    ----------
    columns : tuple of str, one a bar; a missing or ``nan`` value has no bar
    title : str, of the panel
    y_title : str, of the axis, with units
    level : str, column that holds the level; without one all bars are kept
    level_label : str, in the legend
    log : bool, logarithmic vertical axis
    """

    columns: tuple[str, ...]
    title: str
    y_title: str
    level: str | None = None
    level_label: str = "level"
    log: bool = False

    over_steps, x_title = False, "component"

    @property
    def names(self) -> list[str]:
        """The names in the legend; without a level there is one kind of bars."""
        return ["kept", "mixed", self.level_label] * bool(self.level)

    def traces(self, _: object = None) -> list[dict]:
        """Return plotly's traces, without their data."""
        bar = {"type": "bar", "width": 0.8}
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
        }
        return [
            bar | {"name": "kept", "marker": {"color": KEPT}},
            bar | {"name": "mixed", "marker": mixed},
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

    def values(self, data: Sequence[Mapping]) -> list[Curve]:
        """Return the data of the kept bars, the mixed bars and the level line."""
        wanted = set(self.columns)
        newest = next((row for row in reversed(data) if wanted & row.keys()), {})
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


def check_panels(panels: Sequence[Panel]) -> None:
    """Raise a ValueError or TypeError for panels that cannot be drawn."""
    if not panels:
        raise ValueError("a plot needs at least one panel")
    for panel in panels:
        if not isinstance(panel, Lines | Bars):
            raise TypeError(f"a panel is Lines or Bars, got {type(panel).__name__}")
        if isinstance(panel.columns, str) or not panel.columns:
            message = f"panel {panel.title!r} needs a tuple or mapping of columns"
            raise ValueError(f"{message}, got {panel.columns!r}")
