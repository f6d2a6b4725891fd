"""Finished curves side by side, for results that no trace holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labkit.panels.captions import Figure, describe, panel_text
from labkit.panels.drawing import Drawing, fit, line
from labkit.panels.panel_types import Panel
from labkit.panels.theme import axis

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
        modes = {label: "lines" for label in self.plain}
        return [
            line(self.numbers[label], label, modes.get(label, "lines+markers"))
            | {"error_y": _bars(*sd), "showlegend": True}
            for label, (_, _, *sd) in self.curves.items()
        ]

    def axes(self) -> tuple[dict, dict]:
        return axis(self.x_title, log=self.log_x), axis(self.y_title, log=self.log)

    def values(self, _=None):
        return [
            tuple(np.asarray(list(v), dtype=np.float64) for v in (x, y))
            for x, y, *_ in self.curves.values()
        ]

    def reach(self) -> bool:
        """Whether all curves end near the panel's right edge."""
        scale = np.log10 if self.log_x else np.asarray
        with np.errstate(divide="ignore"):
            xs = [scale(x) for x, _ in self.values()]
        if not all(map(len, xs)) or not np.isfinite(np.concatenate(xs)).all():
            return False
        low, high = min(x.min() for x in xs), max(x.max() for x in xs)
        return all(x[-1] >= low + REACH * (high - low) for x in xs)


def curves(
    panels: Mapping[str, Mapping[str, tuple]],
    x_titles: str | Sequence[str],
    y_titles: str | Sequence[str],
    *,
    log_x: bool | Sequence[bool] = False,
    log_y: bool | Sequence[bool] = False,
    lines: tuple[str, ...] = (),
    caption: str = "",
    order: Sequence[str] = (),
    width=960,
    height=420,
) -> Figure:
    """Panels side by side; names at the ends of curves, or one legend for all.

    Parameters
    ----------
    panels : mapping of title to mapping of label to (x, y) or (x, y, sd)
        A label has the same colour everywhere; ``sd`` are bars in y.
    x_titles : str or sequence of str
        One for each panel, or one for all.
    y_titles : str or sequence of str
        Likewise; one for all stands at the first panel only.
    log_x, log_y : bool or sequence of bool
        Logarithmic axes, for each panel or for all.
    lines : tuple of str
        Labels drawn without markers, as theory is.
    caption : str
        A sentence below: what to look at, and what it means.
    order : sequence of str
        Labels in the order of colours, so that several figures agree; as they come if
        not given.
    width, height : int
        Size in pixels.
    """
    count = len(panels)
    x_titles = [x_titles] * count if isinstance(x_titles, str) else x_titles
    if isinstance(y_titles, str):
        y_titles = [y_titles] + [""] * (count - 1)
    log_x, log_y = (
        [log] * count if isinstance(log, bool) else log for log in (log_x, log_y)
    )
    labels = [label for each in panels.values() for label in each]
    numbers = {label: i for i, label in enumerate(dict.fromkeys([*order, *labels]))}
    drawn = [
        _Finished(each, title, y_title, x_title, log, across, lines, numbers)
        for (title, each), x_title, y_title, across, log in zip(
            panels.items(), x_titles, y_titles, log_x, log_y, strict=True
        )
    ]
    if all(fit(list(p.curves), count) and p.reach() for p in drawn):
        drawn = [replace(p, ends=range(len(p.curves))) for p in drawn]
    shared = not drawn[0].ends
    drawing = Drawing(drawn, count, width=width, height=height, shared=shared)
    words = [
        panel_text(p.title, p.y_title or y_titles[0], p.x_title, p.curves)
        for p in drawn
    ]
    return describe(drawing.build(), caption, words)


def _bars(sd=None) -> dict | None:
    return None if sd is None else {"type": "data", "array": list(sd), "thickness": 1}
