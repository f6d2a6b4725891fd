"""Figures without an experiment: how F is filled in place, and what growth costs."""

from dataclasses import dataclass

import pandas as pd
import torch
from ipywidgets import VBox
from torch import Tensor

from labkit.lab.broad.training import factor_steps
from labkit.lab.panels import Controls, HeatMap, Stepper, knob
from labkit.lab.panels.figures.captions import Figure, panel_text
from labkit.lab.panels.figures.drawing import panel_title
from labkit.lab.panels.figures.shown import Shown, close
from labkit.lab.panels.figures.theme import COLOURS, PAPER, axis, layout
from labkit.lab.panels.live.cells import replace_earlier

# The inverse Cholesky factor while it is filled in, in the memory of R


@dataclass(frozen=True)
class FactorKnobs:
    """The knobs of the view; each restarts it, because R is overwritten on the way."""

    # fmt: off
    method: str = knob(
        "sweep", choices=("sweep", "column by column"), help="how F is filled in",
        look_for="The right side: the sweep keeps changing it, column by column not.")
    panel: int = knob(
        1, low=1, high=16, unit="columns", help="at a time, of a step of the sweep",
        look_for="The number of steps until F is there, and that F is the same.")
    # fmt: on


class FactorView(Shown):
    """Show the factorisation of R (k, k) step by step, with knobs and a heat map."""

    def __init__(self, R: Tensor, *, interactive: bool = True) -> None:
        self.interactive = interactive
        self.controls = Controls(FactorKnobs(), interactive=interactive)
        shown = [magnitude(matrix) for _, matrix in factor_steps(R, FactorKnobs())]
        sizes = torch.cat(shown)
        sizes = sizes[~sizes.isnan()].sort().values.tolist()
        self.heat = HeatMap(
            shown[0],
            "R, before the first step",
            "log10 of the size",
            limits=(sizes[len(sizes) // 20], sizes[-1]),  # without a few tiny ones
            caption="Left of the outline F is finished. The outlined corner is still "
            "to be factorised; it shrinks towards the ridge once the feature columns "
            "are swept.",
            interactive=interactive,
        )
        self.figure = self.heat.figure
        self.stepper = Stepper(
            lambda: factor_steps(R, self.controls.value),
            on_record=self._draw,
            on_show=self._draw,
            interactive=interactive,
        )
        self.controls.observe(self._turn)
        self.widget = None
        if interactive:  # knobs and buttons above the heat map
            knobs = VBox([self.controls.widget]).add_class("labkit-side")
            self.widget = VBox([knobs, self.stepper.widget, self.heat.widget])
            replace_earlier(self)

    def close(self) -> None:
        """Stop for good and remove the view from the page."""
        self.stepper.pause()
        if self.interactive:
            close(self.widget)

    def _turn(self, _knobs: FactorKnobs, _changed: object) -> None:
        running = self.stepper.running
        self.stepper.reset()
        if running:
            self.stepper.start()

    def _draw(self, record: tuple[int, Tensor]) -> None:
        finished, matrix = record
        pivots = matrix.diagonal()[:finished].square().reciprocal()
        title = f"{finished} of {len(matrix)} columns of F"
        title += f", smallest pivot {float(pivots.amin()):.2g}" if finished else ""
        self.heat.draw(magnitude(matrix), title=title, corner=finished)


def magnitude(matrix: Tensor) -> Tensor:
    """Return the base-10 logarithm of the entries' absolute values; nan for zeros."""
    return matrix.abs().log10().masked_fill(matrix == 0, torch.nan).cpu()


# The cost of growth

_PARTS = (
    (("cross",), "A'H or A†H", ""),
    (("residual",), "C = H - AD", "/"),
    (("square",), "C'C or H'H, D'D or V'V", "x"),
    (("factor", "weights"), "W, and with F or L, G, T", "."),
    (("dagger",), "B, A† - DB", "\\"),
)


def cost_figure(operations: pd.DataFrame, seconds: pd.DataFrame) -> Figure:
    """Draw the cost of growth for each solver, in operations and in seconds.

    Parameters
    ----------
    operations : frame, a row for each solver and a column for each of
        :data:`labkit.broad.solvers.TERMS`
    seconds : frame, a row for each solver and a column for each step
    """
    solvers = list(operations.index)
    bars = {"type": "bar", "orientation": "h", "y": solvers}
    traces = []
    for i, (terms, label, pattern) in enumerate(_PARTS):
        marker = {"color": COLOURS[i], "pattern": {"shape": pattern}}
        amounts = (operations[list(terms)].sum(axis=1) / 1e9).tolist()
        traces.append(bars | {"x": amounts, "name": label, "marker": marker})
    for i, step in enumerate(seconds):
        pattern = {"shape": "" if i else "/", "fgcolor": PAPER}
        edge = {"color": PAPER, "width": 2}
        marker = {"color": COLOURS[0], "line": edge, "pattern": pattern}
        place = {"xaxis": "x2", "yaxis": "y2", "showlegend": False}
        drawn = {"x": seconds[step].tolist(), "name": str(step), "marker": marker}
        traces.append(bars | drawn | place)
    titles = "Operations, by formula", "Seconds, measured"
    starts = 0.0, 0.55
    made = layout(width=960, height=420, barmode="stack")
    made["annotations"] = [
        panel_title(title, {"x": x, "y": 1, "xanchor": "left", "yanchor": "bottom"})
        for title, x in zip(titles, starts, strict=True)
    ]
    made["legend"] = {"orientation": "h", "x": 0, "y": 0, "yref": "container"}
    made["legend"]["traceorder"] = "normal"
    made["margin"] |= {"l": 90, "b": 100}
    made["xaxis"] = axis("1e9 operations") | {"domain": [0.0, 0.45]}
    made["xaxis2"] = axis("seconds, start (striped) and updates")
    made["xaxis2"] |= {"domain": [0.55, 1.0], "anchor": "y2"}
    made["yaxis"] = {"autorange": "reversed"}
    made["yaxis2"] = {"anchor": "x2", "matches": "y", "showticklabels": False}
    caption = "Chol-1 needs neither C nor B: its operations lack what they cost."
    words = [
        panel_text(titles[0], "solver", "1e9 operations", [part[1] for part in _PARTS]),
        panel_text(titles[1], "solver", "seconds"),
        caption,
    ]
    made["meta"] = {"caption": caption, "alt": ". ".join(words)}
    return Figure({"data": traces, "layout": made})
