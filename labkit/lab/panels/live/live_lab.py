"""Knobs, buttons and a live figure around one generator of rows."""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from IPython.display import display
from ipywidgets import Box, HBox, Label, ToggleButton, VBox

from labkit.instruments import Trace
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.images import Pictures, Scene
from labkit.lab.panels.figures.shown import Shown, close, embedded, loop_here
from labkit.lab.panels.live.cells import replace_earlier
from labkit.lab.panels.live.controls import Controls
from labkit.lab.panels.live.experiment import Experiment
from labkit.lab.panels.live.live_plot import LivePlot
from labkit.lab.panels.live.played import packed, played
from labkit.lab.panels.live.predict import Outcome
from labkit.lab.panels.live.stepper import Stepper

PLAY = Path(__file__).with_name("play.js")
TOGETHER = 1.0  # seconds between turns of one knob that leave one mark, the last
READY = "Press Run, or Step."
FIRST = 2  # plots that are open
SCREEN = {"flex_flow": "row wrap", "align_items": "flex-start", "grid_gap": "0 16px"}
LEFT = {"flex": "1 1 212px", "max_width": "100%", "min_width": "0"}
RIGHT = {"flex": "1000 1 600px", "max_width": "100%", "min_width": "0"}
# What a turned knob does is written under the picture, so that the picture stays.
BELOW = {"flex_flow": "row wrap", "grid_gap": "0 12px"}
_UNMARKED = (-math.inf, set(), None)  # the newest mark: when, of what, at which step


class LiveLab(Shown):
    """An experiment whose knobs can be turned while it runs.

    A knob declared with ``restart=False`` holds from the next step on: the panels get a
    mark at that step, and its row of the trace gets a column ``turned``. Any other knob
    begins the run anew, with a trace of its own; so does every knob once the run has
    ended.

    Parameters
    ----------
    experiment : Experiment
    problem : positional arguments, handed to ``rows`` after the settings
    knobs : dataclass, values to start with; by default those of ``experiment.knobs``
    pictures : Pictures, optional
        Shows what rows hold under ``pictures``, above the figure. Headless it has to be
        displayed by itself.
    interactive : bool
        Show widgets; otherwise show the figure. In a page without a kernel the run can
        be played then, and the knobs turned for which ``playable`` has values.
    folder, device : str, where traces are written, if anywhere; noted in the traces
    figure : keywords of :class:`~labkit.lab.panels.LivePlot`, such as ``height``

    Attributes
    ----------
    controls, stepper, plot, trace : the parts, to be used directly; plot may be None
    widget : knobs left of buttons and figure; None if not interactive
    note, turned, outcome : labels of the experiment's ``status``, of what the knob
        turned last does, and of what it did to the column that it is about
    """

    def __init__(
        self,
        experiment: Experiment,
        *problem: Any,
        knobs: Any = None,
        pictures: Pictures | None = None,
        interactive: bool = True,
        folder: str = "",
        device: str = "cpu",
        **figure: Any,
    ):
        self.experiment, self.problem = experiment, problem
        self.folder, self.device = folder, device
        self.interactive, self.pictures = interactive, pictures
        if experiment.picture:
            self.pictures = Scene(experiment.picture, interactive=interactive)
        self.controls = Controls(
            knobs or experiment.knobs(), front=experiment.front, interactive=interactive
        )
        # The one object that the run reads; turning a knob sets its attribute.
        self._settings = SimpleNamespace(**vars(self.controls.value))
        self._pending = {}  # turned since the last row, by name
        self._marked = _UNMARKED
        self._dragging = False  # the same drag as before turns a knob on
        self.note, self.turned = Label(), Label().add_class("labkit-turned")
        self.outcome, self._outcome = Label().add_class("labkit-outcome"), None
        self._restarts, self._row = 0, None
        self.trace = self._new_trace()
        self.plot = None
        if experiment.panels:
            self.plot = LivePlot(
                self.trace,
                experiment.panels,
                caption=experiment.caption,
                interactive=interactive,
                first=FIRST,
                low=self.pictures is not None,
                **figure,
            )
        self.stepper = Stepper(
            lambda: experiment.rows(self._settings, *problem),
            on_record=self._log,
            on_show=self._look_back,
            on_reset=self._restart,
            on_status=self._tell,
            interactive=interactive,
            beside=(self.note,),
        )
        self.controls.observe(self._turn)
        self.widget = None
        if interactive:
            self.widget = self._build()
            if experiment.drag:
                self.pictures.widget.observe(self._dragged, "touched")
            replace_earlier(self)
        self._open()

    def _build(self) -> Box:
        """Knobs left of buttons and figure; above them where it is narrow."""
        shown = [self.stepper.widget]
        if self.pictures:
            shown.append(self.pictures.widget)
        if self.plot:
            shown.append(self.plot.widget)
        below = []
        count, pictured = len(self.experiment.panels), bool(self.experiment.picture)
        if self.plot and pictured:  # both would be more than a screen
            self.plot.widget.layout.display = "none"
        if self.plot and (count > FIRST or pictured):
            said = {"description": f"All {count} plots", "icon": "plus"}
            more = ToggleButton(**said, tooltip="Show the other plots, or hide them")
            more.observe(lambda change: self._unfold(change["new"]), "value")
            below.append(more.add_class("labkit-all-plots"))
        said = {"description": "Pin this run", "icon": "thumb-tack"}
        pin = ToggleButton(**said, tooltip="Keep this run in grey, beside later ones")
        pin.observe(lambda change: self._pin(change["new"]), "value")
        below += pin.add_class("labkit-pin"), self.turned, self.outcome
        shown.append(HBox(below, layout=BELOW))
        left = VBox([self.controls.widget], layout=LEFT).add_class("labkit-side")
        sides = left, VBox(shown, layout=RIGHT)
        screen = Box(sides, layout=SCREEN).add_class("labkit-screen")
        return screen.add_class("labkit-pictured") if pictured else screen

    def _open(self) -> None:
        """Show what is there before the first step, and what moves it."""
        if self.experiment.opening:
            self.pictures.draw(self.experiment.opening(self._settings, *self.problem))
            self.pictures.update()
        self.note.value = READY

    def _unfold(self, unfolded: bool) -> None:
        """Show all plots, or fewer: none where there is a picture."""
        if self.experiment.picture:
            self.plot.widget.layout.display = None if unfolded else "none"
        self.plot.unfold(unfolded)

    def _pin(self, pinned: bool) -> None:
        for part in filter(None, (self.plot, self.pictures)):
            part.pin(pinned)

    def close(self) -> None:
        """Stop for good and leave the page, as when the panel's cell runs again."""
        self.stepper.pause()
        if self.plot:
            self.plot.detach()
        self.trace.close()
        if self.interactive:
            close(self.widget)

    def run(self, steps: int) -> pd.DataFrame:
        """Take ``steps`` measured steps and return the trace so far."""
        done = 0
        while done < steps and not self.stepper.exhausted:
            row = self.stepper.step()
            done += row is not None and row.get("measured", True)
        for part in filter(None, (self.plot, self.pictures)):
            part.update()
        return self.trace.frame()

    def _log(self, row):
        scalars = {key: row[key] for key in row if key != "pictures"}
        if self._pending:
            scalars["turned"] = _values(self._pending, " = ")
            self._pending = {}
        self.trace.log(**scalars)
        self._draw(row)
        self._row = row
        if self._outcome:
            self._outcome.add(row)

    def _tell(self):
        """Write the status of the newest row; not at each row, to spare the page."""
        if self._row is not None and self.experiment.status:
            self.note.value = self.experiment.status(self._row)
        if self._outcome:
            self.outcome.value = str(self._outcome)

    def _look_back(self, row):
        if self.plot:
            self.plot.show_until(row["step"])
        self._draw(row)

    def _draw(self, row):
        if self.pictures and "pictures" in row:
            self.pictures.draw(row["pictures"], f"Step {row['step']}")

    def _turn(self, knobs, changed):
        restarting = [name for name in changed if self.controls.restarts(name)]
        with self.stepper.between_steps():
            vars(self._settings).update(vars(knobs))
            ended = self.stepper.exhausted or self.stepper.error is not None
            outcome = self._compared(changed, anew=bool(ended or restarting))
            if ended:
                self._begin_anew(changed, ", which had ended")
            elif restarting:
                self._begin_anew(restarting)
            else:
                self._go_on({name: getattr(knobs, name) for name in changed})
                if self.experiment.opening and self._row is None:
                    self._open()
                elif self.experiment.afresh and self.pictures.now is not None:
                    now = self.experiment.afresh(self.pictures.now, knobs)
                    self.pictures.draw(now)
            self._outcome, self.outcome.value = outcome, ""

    def _dragged(self, change):
        """Turn the knobs that a hand on the picture means, a drag as one turn."""
        before, touched = change["old"], change["new"]
        try:
            name, index = touched["name"], touched["index"]
            point = float(touched["x"]), float(touched["y"])
            if not all(map(math.isfinite, point)) or not (index is None or index >= 0):
                raise ValueError(f"there is no place {index} at {point}")
            if (now := self.pictures.now) is None:
                raise ValueError("no step is drawn")
            knobs = self.experiment.drag(now, self.controls.value, name, index, point)
        except (LookupError, TypeError, ValueError) as error:
            self.turned.value = f"nothing is turned: {error}"
            return
        self._dragging = touched.get("drag") == before.get("drag")
        try:
            self.controls.turn(**knobs)
        finally:
            self._dragging = False

    def _compared(self, changed, anew: bool) -> Outcome | None:
        """What rows to come are compared with, if one knob that is about one is turned.

        A knob that is turned on before it was seen what it did is still the same turn.
        """
        answers = {name: self.controls.take_prediction(name) for name in changed}
        if len(changed) != 1 or not (column := self.controls.about(changed[0])):
            return None
        (name, answer), last = answers.popitem(), self._outcome
        if last and last.knob == name and (self._dragging or not last.whole):
            answer = answer or last.predicted
            return replace(last, predicted=answer, anew=anew, after=[])
        return Outcome.of(name, column, self.trace.rows, answer, anew)

    def _begin_anew(self, names, why=""):
        """Restart; what ran, or had run to its end before the eyes of someone, runs."""
        seen = self.interactive and self.stepper.exhausted and bool(loop_here())
        running = self.stepper.running or seen
        self.stepper.reset()
        verb = "restarts" if len(names) == 1 else "restart"
        names = " and ".join(names).replace("_", " ")
        self.turned.value = f"{names} {verb} the run{why}"
        if running:
            self.stepper.start()

    def _go_on(self, values):
        """Mark the next step; the generator reads the new values there."""
        self._pending |= values
        rows = self.trace.rows
        step = rows[-1]["step"] + 1 if rows else 1
        self.turned.value = f"{_values(self._pending, ' = ')} from step {step} on"
        if not rows or not self.plot:  # there is no before to tell apart
            return
        now, (then, names, x) = time.monotonic(), self._marked
        instead_of = x if names == set(values) and now - then < TOGETHER else None
        self._marked = now, set(values), step
        self.plot.mark(step, _values(self._pending, " "), instead_of)

    def _restart(self):
        if self._row is None and self.pictures:
            self.pictures.now = None  # what nothing has moved leaves no grey behind
        self._pending, self._marked, self._row = {}, _UNMARKED, None
        self.turned.value = self.outcome.value = ""
        self._outcome = None
        self.trace.close()
        self.trace = self._new_trace()
        if self.plot:
            self.plot.attach(self.trace)
        if self.pictures:
            self.pictures.clear()
        self._open()

    def _new_trace(self):
        self._restarts += 1
        file = f"{self.experiment.name}-{self._restarts}.jsonl"
        knobs = vars(self.controls.value)
        where = Path(self.folder) / file if self.folder else None
        return Trace(
            where, parameters=knobs, device=self.device, seed=knobs.get("seed")
        )

    def _ipython_display_(self):
        super()._ipython_display_()
        if self.interactive:
            return
        if runs := played(self):
            page = embedded(PLAY, packed(runs))
            display({"text/html": page, "text/plain": ""}, raw=True)
        if self.plot and self.experiment.picture:
            display(self.plot.figure)

    @property
    def figure(self) -> Figure:
        """What is shown headless: the picture if there is one, else the curves."""
        picture = self.pictures if self.experiment.picture else None
        return (picture or self.plot or self.pictures).figure


def _values(values: Mapping[str, Any], between: str) -> str:
    """Names and values in one line: ``eta = 0.3, label noise = 0.2``."""
    said = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in values.items()}
    return ", ".join(f"{k.replace('_', ' ')}{between}{v}" for k, v in said.items())
