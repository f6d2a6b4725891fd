"""Curves: those of a trace that grows, and finished ones that no trace holds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from labkit.lab.panels.figures.captions import Figure, describe
from labkit.lab.panels.figures.drawing import Drawing, Panel, decimate, line
from labkit.lab.panels.figures.theme import axis, numbers


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

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        if isinstance(self.columns, str) or not self.columns:
            message = f"panel {self.title!r} needs a tuple or mapping of columns"
            raise ValueError(f"{message}, got {self.columns!r}")

    @property
    def names(self) -> list[str]:
        """The names in the legend; a curve alone has its panel's title."""
        return self._labels if len(self.columns) > 1 else []

    @property
    def _labels(self) -> list[str]:
        named = isinstance(self.columns, Mapping)
        return list(self.columns.values() if named else self.columns)

    def traces(self, chosen: Mapping[str, int], data: Sequence[Mapping]) -> list[dict]:
        """Return plotly's traces of the rows that have their columns."""
        chosen, drawn = numbers(self._labels) | chosen, []
        for name, label in zip(self.columns, self._labels, strict=True):
            rows = [row for row in data if name in row]
            x = np.array([row["step"] for row in rows], dtype=np.float64)
            y = np.array([number(row[name]) for row in rows])
            kept = decimate(y)
            mode = "markers" if name in self.marks else "lines+markers"
            made = line(chosen[label], label, mode)
            drawn.append(made | {"x": x[kept], "y": y[kept]})
        return drawn

    def axes(self) -> tuple[dict, dict]:
        """Return both axes, as plain data."""
        y = axis(self.y_title, log=self.log, limits=self.y_range)
        return axis(self.x_title), y


@dataclass(frozen=True)
class _Finished(Panel):
    """Curves by label: (x, y) or (x, y, sd)."""

    curves: Mapping[str, list[np.ndarray]]
    title: str
    x_title: str
    y_title: str
    log_x: bool
    log_y: bool
    plain: tuple[str, ...]  # labels without markers

    @property
    def names(self) -> list[str]:
        return list(self.curves)

    def traces(self, chosen: Mapping[str, int], _: Sequence[Mapping]) -> list[dict]:
        drawn = []
        for label, (x, y, *sd) in self.curves.items():
            mode = "lines" if label in self.plain else "lines+markers"
            drawn.append(line(chosen[label], label, mode) | {"x": x, "y": y})
            if sd:
                drawn[-1]["error_y"] = {"type": "data", "array": sd[0], "thickness": 1}
        return drawn

    def axes(self) -> tuple[dict, dict]:
        return axis(self.x_title, log=self.log_x), axis(self.y_title, log=self.log_y)


def _numbers(label: str, curve: Sequence[ArrayLike]) -> list[np.ndarray]:
    """Return (x, y) or (x, y, sd) as arrays of one length."""
    found = [np.asarray(values, dtype=np.float64) for values in curve]
    if len(sizes := {len(values) for values in found}) > 1:
        raise ValueError(f"curve {label!r} must have as many y as x, got {sizes}")
    return found


def _each(value: object, count: int) -> list:
    """Return a value for each of so many panels, from one or a sequence of them."""
    return [value] * count if isinstance(value, str | bool) else list(value)


def curves(
    panels: Mapping[str, Mapping[str, tuple]],
    x_titles: str | Sequence[str],
    y_titles: str | Sequence[str],
    *,
    log_x: bool | Sequence[bool] = False,
    log_y: bool | Sequence[bool] = False,
    lines: tuple[str, ...] = (),
    caption: str = "",
    height: int = 420,
) -> Figure:
    """Return finished panels side by side, for results that no trace holds.

    Parameters
    ----------
    panels : mapping of title to mapping of label to (x, y) or (x, y, sd), bars in y
    x_titles : str or sequence of str, for all panels or one for each
    y_titles : str or sequence of str, one for all stands at the first panel only
    log_x, log_y : bool or sequence of bool, logarithmic axes
    lines : tuple of str, labels drawn without markers, as theory is
    caption : str, a sentence below: what to look at, and what it means
    height : int, pixels

    Raises
    ------
    ValueError
        If a curve does not have as many y as x.
    """
    count = len(panels)
    options = [_each(value, count) for value in (x_titles, y_titles, log_x, log_y)]
    drawn = []
    for (title, given), *own in zip(panels.items(), *options, strict=True):
        found = {label: _numbers(label, curve) for label, curve in given.items()}
        drawn.append(_Finished(found, title, *own, lines))
    words = [panel.words for panel in drawn]
    drawing = Drawing(drawn, count, height=height)
    figure = drawing.build()
    if isinstance(y_titles, str):
        for index in range(1, count):
            figure["layout"][f"yaxis{index + 1}"]["title"]["text"] = ""
    return describe(figure, caption, words)
