"""Finished curves side by side, for results that no trace holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labkit.check import check_kind, check_options, integer
from labkit.lab.panels.figures.captions import Figure, describe, panel_text
from labkit.lab.panels.figures.drawing import Curve, Drawing, Panel, fit, line
from labkit.lab.panels.figures.theme import axis, numbers

REACH = 0.8  # of the axis: a curve that ends before has its name in a legend


@dataclass(frozen=True)
class _Finished(Panel):
    """Curves by label: (x, y) or (x, y, sd)."""

    curves: Mapping[str, tuple]
    title: str
    y_title: str
    x_title: str
    log: bool
    log_x: bool
    plain: tuple[str, ...]  # labels without markers
    numbers: Mapping[str, int]  # of colours, by label
    ends: Sequence[int] = ()

    def traces(self) -> list[dict]:
        drawn = []
        for label, (_, _, *sd) in self.curves.items():
            mode = "lines" if label in self.plain else "lines+markers"
            drawn.append(line(self.numbers[label], label, mode) | {"showlegend": True})
            if sd:
                bars = {"type": "data", "array": list(sd[0]), "thickness": 1}
                drawn[-1]["error_y"] = bars
        return drawn

    def axes(self) -> tuple[dict, dict]:
        return axis(self.x_title, log=self.log_x), axis(self.y_title, log=self.log)

    def values(self, _: object = None) -> list[Curve]:
        return [
            tuple(np.asarray(list(v), dtype=np.float64) for v in (x, y))
            for x, y, *_ in self.curves.values()
        ]

    def reach(self) -> bool:
        """Return whether all curves end near the panel's right edge."""
        scale = np.log10 if self.log_x else np.asarray
        with np.errstate(divide="ignore"):
            xs = [scale(x) for x, _ in self.values()]
        if not all(map(len, xs)) or not np.isfinite(np.concatenate(xs)).all():
            return False
        low, high = min(x.min() for x in xs), max(x.max() for x in xs)
        return all(x[-1] >= low + REACH * (high - low) for x in xs)


SIZE = dict.fromkeys(("width", "height"), integer(50, 20_000))  # pixels


def _check_panels(panels: object) -> None:
    """Raise an error unless these are panels of curves of numbers."""
    check_kind("panels", panels, Mapping, "a mapping of title to curves")
    if not panels:
        raise ValueError("panels must hold one panel at least, got an empty mapping")
    for title, each in panels.items():
        check_kind(f"panel {title!r}", each, Mapping, "a mapping of label to (x, y)")
        for label, curve in each.items():
            name = f"curve {label!r} of panel {title!r}"
            check_kind(name, curve, (tuple, list), "(x, y) or (x, y, sd)")
            try:
                shapes = [np.asarray(list(v), dtype=np.float64).shape for v in curve]
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"{name} must be of numbers: {error}") from error
            if len(shapes) not in (2, 3) or {len(s) for s in shapes} != {1}:
                raise ValueError(f"{name} must be (x, y) or (x, y, sd), got {shapes}")
            if len(set(shapes)) > 1:
                lengths = ", ".join(str(n) for (n,) in shapes)
                raise ValueError(f"{name} must have one length, got {lengths}")


def _check_each(name: str, value: object, kind: type, count: int, words: str) -> None:
    """Raise an error unless a value is of a kind, or holds ``count`` of that kind."""
    if isinstance(value, kind):
        return
    check_kind(name, value, (list, tuple), words)
    for each in value:
        check_kind(name, each, kind, words)
    if len(value) != count:
        raise ValueError(f"{name} must be {words} ({count}), got {len(value)}")


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

    Names stand at the ends of the curves, or in one legend for all.

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
    _check_panels(panels)
    count = len(panels)
    for name, value in {"x_titles": x_titles, "y_titles": y_titles}.items():
        _check_each(name, value, str, count, "a str, or one for each panel")
    for name, value in {"log_x": log_x, "log_y": log_y}.items():
        _check_each(name, value, bool, count, "a bool, or one for each panel")
    check_kind("lines", lines, (tuple, list), "a tuple of labels")
    check_kind("caption", caption, str, "a str")
    check_options({"width": width, "height": height}, SIZE)
    x_titles = [x_titles] * count if isinstance(x_titles, str) else x_titles
    if isinstance(y_titles, str):
        y_titles = [y_titles] + [""] * (count - 1)
    log_x, log_y = ([x] * count if isinstance(x, bool) else x for x in (log_x, log_y))
    chosen = numbers(label for each in panels.values() for label in each)
    axes = zip(y_titles, x_titles, log_y, log_x, strict=True)
    drawn = [
        _Finished(each, title, *own, lines, chosen)
        for (title, each), own in zip(panels.items(), axes, strict=True)
    ]
    if all(fit(list(p.curves), count) and p.reach() for p in drawn):
        drawn = [replace(p, ends=range(len(p.curves))) for p in drawn]
    shared = not drawn[0].ends
    drawing = Drawing(drawn, count, width=width, height=height, shared=shared)
    y_title = y_titles[0]
    words = [
        panel_text(p.title, p.y_title or y_title, p.x_title, p.curves) for p in drawn
    ]
    return describe(drawing.build(), caption, words)
