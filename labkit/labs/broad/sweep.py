"""The inverse Cholesky factor while it is filled in, in the memory of R."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from IPython.display import display
from ipywidgets import VBox
from torch import Tensor

from labkit.broad.factor import column_growth, panel_sweep
from labkit.panels import Controls, HeatMap, Stepper, knob

METHODS = ("sweep", "column by column")


@dataclass(frozen=True)
class SweepKnobs:
    """What can be turned in the sweep; R is overwritten on the way, so it restarts."""

    method: str = knob(
        "sweep",
        choices=METHODS,
        help="how F is filled in",
        look_for="What is left to the right: the sweep keeps changing it, column by "
        "column leaves it as it is.",
    )
    panel: int = knob(
        1,
        low=1,
        high=16,
        unit="columns",
        help="at a time, of a step of the sweep",
        look_for="The number of steps until F is there, and that F is the same.",
    )


@dataclass(frozen=True, eq=False)
class SweepRecord:
    """The memory of R after one step."""

    step: int  # 0 is R itself
    finished: int  # columns of F that are final
    matrix: Tensor  # (k, k) a copy; below the diagonal zeros
    smallest_pivot: float  # so far; inf at step 0


def sweep_rows(R: Tensor, knobs: SweepKnobs) -> Iterator[SweepRecord]:
    """Factorise a copy of R (k, k) and yield what stands in its memory."""
    memory = R.clone()
    if knobs.method == "sweep":
        steps = panel_sweep(memory, knobs.panel)
    else:
        steps = column_growth(memory)
    yield SweepRecord(0, 0, memory.triu(), float("inf"))
    for step, finished in enumerate(steps, start=1):
        pivots = memory.diagonal()[:finished].square().reciprocal()
        yield SweepRecord(step, finished, memory.triu(), float(pivots.amin()))


class SweepLab:
    """Knobs, buttons and the heat map of one factorisation.

    Parameters
    ----------
    R : (k, k), symmetric positive definite; a few dozen columns are best to see.
    knobs : where they start.
    interactive : widgets; otherwise the figure alone is shown.
    """

    def __init__(self, R: Tensor, knobs: SweepKnobs | None = None, *, interactive=True):
        self.interactive = interactive
        self.controls = Controls(knobs or SweepKnobs(), interactive=interactive)
        records = sweep_rows(R, SweepKnobs())
        sizes = torch.cat([magnitude(record.matrix) for record in records])
        sizes = sizes[~sizes.isnan()].sort().values
        self.heat = HeatMap(
            magnitude(R.triu()),
            "R, before the first step",
            "log10 of the size",
            # A few tiny entries would take most of the colours.
            limits=(float(sizes[len(sizes) // 20]), float(sizes[-1])),
            interactive=interactive,
            reading="Left of the outline F is finished; the outlined corner is still "
            "to be factorised, and shrinks towards the ridge once the feature columns "
            "are swept.",
        )
        self.stepper = Stepper(
            lambda: sweep_rows(R, self.controls.value),
            on_record=self._draw,
            on_show=self._draw,
            interactive=interactive,
        )
        self.controls.observe(self._turn)

    def run(self, steps: int) -> SweepRecord:
        """Take so many steps, fewer at the end, and return the last record."""
        return self.stepper.step(steps)

    def _turn(self, _knobs, _changed):
        running = self.stepper.running
        self.stepper.reset()
        if running:
            self.stepper.start()

    def _draw(self, record: SweepRecord):
        title = (
            f"{record.finished} of {len(record.matrix)} columns of F, "
            f"smallest pivot {record.smallest_pivot:.2g}"
        )
        self.heat.draw(magnitude(record.matrix), title=title, corner=record.finished)

    @property
    def widget(self):
        """Knobs and buttons above the heat map."""
        return VBox([self.controls.widget, self.stepper.widget, self.heat.widget])

    def _repr_mimebundle_(self, **options):
        if not self.interactive:
            return self.heat._repr_mimebundle_(**options)
        return self.widget._repr_mimebundle_(**options)

    def _ipython_display_(self):
        display(self.widget if self.interactive else self.heat)


def magnitude(matrix: Tensor) -> Tensor:
    """Base-10 logarithm of the sizes of entries; nan for zeros."""
    size = matrix.abs().log10()
    return torch.where(size == -np.inf, torch.nan, size).cpu()
