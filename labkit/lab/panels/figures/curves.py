"""Finished curves side by side, for results that no trace holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.check import check_kind, check_options, integer
from labkit.lab.panels.figures.captions import Figure, describe
from labkit.lab.panels.figures.drawing import Curve, Drawing, Panel, line
from labkit.lab.panels.figures.theme import axis

SIZE = dict.fromkeys(("width", "height"), integer(50, 20_000))  # pixels


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

    def traces(self, chosen: Mapping[str, int]) -> list[dict]:
        drawn = []
        for label, (_, _, *sd) in self.curves.items():
            mode = "lines" if label in self.plain else "lines+markers"
            drawn.append(line(chosen[label], label, mode))
            if sd:
                drawn[-1]["error_y"] = {"type": "data", "array": sd[0], "thickness": 1}
        return drawn

    def axes(self) -> tuple[dict, dict]:
        return axis(self.x_title, log=self.log_x), axis(self.y_title, log=self.log_y)

    def values(self, _: object = None) -> list[Curve]:
        return [(x, y) for x, y, *_ in self.curves.values()]


def _numbers(name: str, curve: object) -> list[np.ndarray]:
    """Return (x, y) or (x, y, sd) as arrays; an error says what is wrong with them."""
    check_kind(name, curve, (tuple, list), "(x, y) or (x, y, sd)")
    try:
        found = [np.asarray(list(values), dtype=np.float64) for values in curve]
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be of numbers: {error}") from error
    shapes = [values.shape for values in found]
    if len(shapes) not in (2, 3) or len(set(shapes)) > 1 or found[0].ndim != 1:
        raise ValueError(
            f"{name} must be (x, y) or (x, y, sd) of one length, got {shapes}"
        )
    return found


def _each(name: str, value: object, kind: type, count: int) -> list:
    """Return a value for each of so many panels, from one or a sequence of them."""
    words = f"a {kind.__name__}, or one for each of {count} panels"
    if isinstance(value, kind):
        return [value] * count
    check_kind(name, value, (list, tuple), words)
    for given in value:
        check_kind(name, given, kind, words)
    if len(value) != count:
        raise ValueError(f"{name} must be {words}, got {len(value)}")
    return list(value)


def curves(
    panels: Mapping[str, Mapping[str, tuple]],
    x_titles: str | Sequence[str],
    y_titles: str | Sequence[str],
    *,
    log_x: bool | Sequence[bool] = False,
    log_y: bool | Sequence[bool] = False,
    lines: tuple[str, ...] = (),
    caption: str = "",
    width: int = 960,
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
    width, height : int, pixels

    Raises
    ------
    TypeError, ValueError
        If there is nothing to draw, if a curve does not have as many y as x, or if a
        title, an option or a size is invalid.
    """
    check_kind("panels", panels, Mapping, "a mapping of title to curves")
    if not panels:
        raise ValueError("panels must hold one panel at least, got an empty mapping")
    check_kind("lines", lines, (tuple, list), "a tuple of labels")
    check_kind("caption", caption, str, "a str")
    check_options({"width": width, "height": height}, SIZE)
    count = len(panels)
    options = [
        _each("x_titles", x_titles, str, count),
        _each("y_titles", y_titles, str, count),
        _each("log_x", log_x, bool, count),
        _each("log_y", log_y, bool, count),
    ]
    drawn = []
    for (title, given), own in zip(
        panels.items(), zip(*options, strict=True), strict=True
    ):
        check_kind(f"panel {title!r}", given, Mapping, "a mapping of label to (x, y)")
        found = {
            label: _numbers(f"curve {label!r} of panel {title!r}", curve)
            for label, curve in given.items()
        }
        drawn.append(_Finished(found, title, *own, lines))
    words = [panel.words for panel in drawn]
    drawing = Drawing(drawn, count, width=width, height=height)
    figure = drawing.build()
    if isinstance(y_titles, str):
        for index in range(1, count):
            figure["layout"][f"yaxis{index + 1}"]["title"]["text"] = ""
    return describe(figure, caption, words)
