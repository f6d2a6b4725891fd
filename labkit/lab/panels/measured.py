"""A measured experiment: one cell, which shows a record and can measure anew."""

import html
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from IPython.display import display
from ipywidgets import HTML, Button, FloatProgress, HBox, VBox

from labkit.instruments import Trace
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.plot import Plot
from labkit.lab.panels.figures.shown import Page, Shown, close
from labkit.lab.panels.live.cells import replace_earlier
from labkit.lab.panels.live.run import Chance
from labkit.lab.panels.live.stepper import Stepper

RECORDS = Path(__file__).parents[1] / "records"  # by `labkit run NAME --record`
FOLDER = "measured"  # of a run, where `--record` finds what it measured
SLICE = 0.1  # seconds of work between two looks at the page
ERRORS = 2.0  # standard errors beyond which a claim holds


class Finding(NamedTuple):
    """What the rows say of a claim.

    ``gap`` is how far it holds, negative where the opposite was measured, and ``error``
    the standard error of the gap; ``words`` has both sides' numbers.
    """

    words: str
    gap: float
    error: float

    @property
    def holds(self) -> bool:
        """Whether the gap is more than two standard errors above zero."""
        return self.gap > ERRORS * self.error

    @property
    def refuted(self) -> bool:
        """Whether the gap is more than two standard errors below zero."""
        return -self.gap > ERRORS * self.error


@dataclass(frozen=True)
class Measurement:
    """What is measured, what is claimed of it, and how it is drawn and judged.

    Attributes
    ----------
    name : str, of the record and of the trace, such as ``"rls-anatomy"``
    claim : str, one sentence that the numbers can refute
    seconds : int, about what it takes on two quiet cores
    measure : callable
        ``measure(**parameters)`` yields a row, a mapping of numbers and texts, or the
        share that is done, a float. It yields at least after each minibatch.
    judge : callable, from the rows as a DataFrame to a :class:`Finding`
    figure : callable, from the rows as a DataFrame to a figure
    table : callable, from the rows to the DataFrame that is shown below, if any
    """

    name: str
    claim: str
    seconds: int
    measure: Callable[..., Iterator[Mapping[str, Any] | float]]
    judge: Callable[[pd.DataFrame], Finding]
    figure: Callable[[pd.DataFrame], Figure]
    table: Callable[[pd.DataFrame], pd.DataFrame] | None = None

    @property
    def record(self) -> Path:
        """The file of the committed record, a trace."""
        return RECORDS / f"{self.name}.jsonl"


class Measured(Shown):
    """Show what was recorded of a measurement, and measure it on demand.

    With widgets the record is shown, with a button that measures with the parameters of
    the notebook; other panels are answered meanwhile. Without widgets it measures at
    once, writes its rows into ``run_dir``, and raises an AssertionError if the claim is
    refuted with the parameters of the record. Nothing else reads what it measures.

    Parameters
    ----------
    measurement : Measurement
    interactive : bool, show widgets
    run_dir : str, folder for the trace, if any
    parameters : given to ``measure``, and compared with those of the record

    Attributes
    ----------
    rows : DataFrame, what is shown: of the record, or of what was measured
    finding : Finding, what they say of the claim; None without rows
    """

    def __init__(
        self,
        measurement: Measurement,
        *,
        interactive: bool = True,
        run_dir: str = "",
        **parameters: Any,
    ):
        self.measurement, self.interactive = measurement, interactive
        self.parameters = json.loads(json.dumps(parameters))
        self.rows, self.finding = pd.DataFrame(), None
        self.recorded = {}  # the header of the record
        self.widget = self.error = None
        if measurement.record.is_file():
            record = Trace.load(measurement.record)
            self.recorded = record.header
            self._take(record.rows)
        if interactive:
            self._build()
            replace_earlier(self)
        else:
            self._measure(run_dir)

    def _take(self, rows: list[Mapping]) -> None:
        self.rows = pd.DataFrame(rows).drop(columns="step", errors="ignore")
        self.finding = self.measurement.judge(self.rows)

    def _measure(self, run_dir: str) -> None:
        """Measure at once, and judge."""
        name = self.measurement.name
        file = Path(run_dir) / FOLDER / f"{name}.jsonl" if run_dir else None
        rows = []
        with Chance(), Trace(file, parameters=self.parameters) as trace:
            for found in self.measurement.measure(**self.parameters):
                if isinstance(found, Mapping):
                    rows.append(dict(found))
                    trace.log(len(rows), **found)
        self._take(rows)
        as_recorded = self.recorded.get("parameters") == self.parameters
        refuted = self.finding.refuted and as_recorded
        words = f"refuted: {self.measurement.claim} Measured: {self.finding.words}"
        assert not refuted, words

    def _build(self) -> None:
        self._button = Button(layout={"width": "auto"})
        self._button.on_click(lambda _: self._press())
        self._bar = FloatProgress(max=1.0, layout={"width": "160px"})
        self._said, self._below = HTML(), HTML()
        line = HBox([self._button, self._bar], layout={"flex_flow": "row wrap"})
        self.plot = Plot(lambda: self.figure)
        parts = [self._said, line, self.plot, self._below]
        self.widget = VBox(parts).add_class("labkit-measured")
        self.stepper = Stepper(self._slices, on_status=self._tell, interactive=False)

    def _press(self) -> None:
        """Measure, or go on; pause what runs."""
        if self.stepper.running:
            return self.stepper.pause()
        if self.stepper.over:
            self.stepper.reset()
        return self.stepper.start()

    def _slices(self) -> Iterator[float]:
        """Measure, and yield the share that is done, a tenth of a second at a time."""
        todo, chance = iter(self.measurement.measure(**self.parameters)), Chance()
        rows, share, goes_on = [], 0.0, True
        while goes_on:
            end = time.monotonic() + SLICE
            with chance:
                for found in todo:
                    if isinstance(found, Mapping):
                        rows.append(dict(found))
                    else:
                        share = found
                    if time.monotonic() >= end:
                        break
                else:
                    goes_on = False
            yield share
        self.recorded = {}
        self._take(rows)
        self.plot.changed()

    def _tell(self, stepper: Stepper) -> None:
        """Say how far it is, and what is known while nothing is measured."""
        running, self.error = stepper.running, stepper.error
        begun = running or (stepper.position and not stepper.over)
        rest = "Go on" if begun else f"Measure (about {self.measurement.seconds} s)"
        self._button.description = "Pause" if running else rest
        self._button.icon = "pause" if running else "play"
        self._bar.value = stepper.record or 0.0
        self._bar.layout.visibility = "visible" if begun else "hidden"
        if not begun:
            self._said.value, self._below.value = self._words, self._table
            self.plot.layout.display = "none" if self.rows.empty else None

    @property
    def _words(self) -> str:
        """The claim, what became of it, and where the numbers come from."""
        text = f"<b>{html.escape(self.measurement.claim)}</b> "
        if self.error is not None:
            return f"{text}It was not measured: {html.escape(str(self.error))}"
        if self.finding is None:
            return f"{text}Nothing is recorded yet."
        verdict = {True: "Holds", False: "Not decided"}[self.finding.holds]
        verdict = "Refuted" if self.finding.refuted else verdict
        text += f"{verdict}: {html.escape(self.finding.words)}. "
        if self.interactive and self.recorded:
            commit = self.recorded.get("commit") or "unknown"
            text += f"<small>Recorded at commit {html.escape(commit)}{self._apart}."
        else:
            text += "<small>Measured in this run."
        return f"{text}</small>"

    @property
    def _apart(self) -> str:
        """Where the parameters of the notebook are not those of the record."""
        then = self.recorded["parameters"]
        apart = [
            f"{name} = {then.get(name)!r} and not {value!r}"
            for name, value in self.parameters.items()
            if then.get(name) != value
        ]
        return html.escape(f", with {', '.join(apart)}") if apart else ""

    @property
    def _table(self) -> str:
        if self.measurement.table is None or not len(self.rows):
            return ""
        table = self.measurement.table(self.rows).to_html(float_format="{:.4g}".format)
        return f"<details><summary>The numbers</summary>{table}</details>"

    @property
    def figure(self) -> Figure:
        """What the rows look like."""
        if self.rows.empty:
            return Figure(data=[], layout={})
        return self.measurement.figure(self.rows)

    def _ipython_display_(self) -> None:
        if self.interactive:
            return super()._ipython_display_()
        display(Page(f"<p>{self._words}</p>", self.measurement.claim))
        display(self.figure)
        return display(Page(self._table, "The numbers"))

    def close(self) -> None:
        """Stop for good and leave the page, as when the panel's cell runs again."""
        self.stepper.pause()
        close(self.widget)

    def __repr__(self) -> str:
        return f"Measured({self.measurement.name}: {self.finding})"
