"""Knobs, buttons and a live figure around one generator of rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from ipywidgets import Label, VBox

from labkit.instruments import Trace
from labkit.panels.controls import Controls
from labkit.panels.live_plot import LivePlot
from labkit.panels.pictures import Pictures
from labkit.panels.stepper import Stepper


class LiveLab:
    """An experiment that restarts whenever a knob moves.

    Parameters
    ----------
    knobs : frozen dataclass
        Start values; its fields are made by :func:`~labkit.panels.knob`.
    rows : callable
        From the knobs' values to an iterator of mappings to log, each with ``step``.
        A row with ``measured`` False, such as one of a training before, does not count
        towards :meth:`run`. Under ``pictures`` it may hold images, see below.
    panels : sequence of Lines and Bars
        What is drawn of the rows.
    name : str
        Each restart writes its own trace, ``NAME-1.jsonl``, ``NAME-2.jsonl``, ... into
        ``folder``, if one is given.
    tell : callable, optional
        From a row to the line of text under the buttons.
    pictures : Pictures, optional
        Shows what rows hold under ``pictures``; that is not logged. Stands below the
        figure; headless it is to be displayed by itself.
    interactive : bool
        Widgets; otherwise the figure alone is shown, and all methods work the same.
    device : str
        Noted in the traces.
    figure : keywords of :class:`~labkit.panels.LivePlot`, such as ``height``.

    Attributes
    ----------
    controls, stepper, plot, trace : the parts, to be used directly.
    """

    def __init__(
        self,
        knobs,
        rows: Callable[[Any], Iterator[Mapping]],
        panels: Sequence,
        *,
        name: str,
        tell: Callable[[Mapping], str] | None = None,
        pictures: Pictures | None = None,
        interactive: bool = True,
        folder: str = "",
        device: str = "cpu",
        **figure,
    ):
        self.name, self.folder, self.device = name, folder, device
        self.interactive = interactive
        self.controls = Controls(knobs, interactive=interactive)
        self.note = Label()
        self._tell = tell
        self.pictures = pictures
        self._restarts = 0
        self.trace = self._new_trace()
        self.plot = LivePlot(self.trace, panels, interactive=interactive, **figure)
        self.stepper = Stepper(
            lambda: rows(self.controls.value),
            on_record=self._log,
            on_show=self._look_back,
            on_reset=self._restart,
            interactive=interactive,
        )
        self.controls.observe(self._turn)

    def run(self, steps: int) -> pd.DataFrame:
        """Take ``steps`` measured steps and return the trace so far."""
        done = 0
        while done < steps and not self.stepper.exhausted:
            row = self.stepper.step()
            done += row is not None and row.get("measured", True)
        self.plot.update()
        if self.pictures:
            self.pictures.update()
        return self.trace.frame()

    def _log(self, row):
        self.trace.log(**{key: row[key] for key in row if key != "pictures"})
        self._draw(row)
        if self._tell:
            self.note.value = self._tell(row)

    def _look_back(self, row):
        self.plot.show_until(row["step"])
        self._draw(row)

    def _draw(self, row):
        if self.pictures and "pictures" in row:
            self.pictures.draw(row["pictures"], f"Step {row['step']}")

    def _turn(self, knobs):
        running = self.stepper.running
        self.stepper.reset()
        if running:
            self.stepper.start()

    def _restart(self):
        self.trace.close()
        self.trace = self._new_trace()
        self.plot.attach(self.trace)
        if self.pictures:
            self.pictures.clear()

    def _new_trace(self):
        self._restarts += 1
        file = f"{self.name}-{self._restarts}.jsonl"
        knobs = vars(self.controls.value)
        return Trace(
            Path(self.folder) / file if self.folder else None,
            parameters=knobs,
            device=self.device,
            seed=knobs.get("seed"),
        )

    def _repr_mimebundle_(self, **options):
        # Headless the figure alone is shown: a plain plotly output.
        if not self.interactive:
            return self.plot._repr_mimebundle_(**options)
        return self.widget._repr_mimebundle_(**options)

    @property
    def widget(self):
        """Knobs and buttons above the figure."""
        controls = (self.controls.widget, self.stepper.widget, self.note)
        below = [self.pictures.figure] if self.pictures else []
        return VBox([*controls, self.plot.figure, *below])
