"""Knobs, buttons and a live figure around one run of an experiment."""

import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from IPython.display import display
from ipywidgets import Box, HBox, Label, ToggleButton, VBox

from labkit.check import check_options, integer
from labkit.instruments import Trace
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.images import Pictures, Scene
from labkit.lab.panels.figures.shown import Shown, close, loop_here
from labkit.lab.panels.live.cells import MIN_SLEEP, begin, replace_earlier, run
from labkit.lab.panels.live.controls import Controls
from labkit.lab.panels.live.experiment import Experiment, knobs_of
from labkit.lab.panels.live.live_plot import LivePlot
from labkit.lab.panels.live.played import play
from labkit.lab.panels.live.predictions import Prediction, keep, score
from labkit.lab.panels.live.run import Run
from labkit.lab.panels.live.stepper import Stepper
from labkit.lab.panels.live.turn import Question, Turn, Turns

SEEN = 5  # steps per second of a picture, so that its story is seen
TOGETHER = 1.0  # seconds between turns of one knob that leave one mark, the last
READY = "Press Run, or Step."
FIRST = 2  # plots that are open
LEAST, MOST = 20, 60  # steps of a picture that a page plays
SCREEN = {"flex_flow": "row wrap", "align_items": "flex-start", "grid_gap": "0 16px"}
LEFT = {"flex": "1 1 212px", "max_width": "100%", "min_width": "0"}
RIGHT = {"flex": "1000 1 600px", "max_width": "100%", "min_width": "0"}
# What a turned knob does is written under the picture, so that the picture stays.
BELOW = {"flex_flow": "row wrap", "grid_gap": "0 12px"}
_UNMARKED = (-math.inf, [], None)  # the newest mark: when, of what, at which step


class LiveLab(Shown):
    """An experiment whose knobs can be turned while it runs.

    A knob declared with ``restart=False`` holds from the next step on: the panels get a
    mark at that step, and its row of the trace gets a column ``turned``. Any other knob
    begins the run anew, with a trace of its own; so does every knob once the run has
    ended. What a turn did is told by a comparison with the same run without the turn,
    see :class:`~labkit.lab.panels.live.turn.Turn`. For a knob that holds from the next
    step on that is a second run, which follows this one while nothing else is to be
    done; such a knob asks only while the second run has come as far.

    Parameters
    ----------
    experiment : Experiment
    problem : positional arguments, handed to ``rows`` after the settings
    knobs : dataclass, values to start with; by default those of ``experiment.knobs``
    pictures : Pictures, optional
        Shows what rows hold under ``pictures``, above the figure. Headless it has to be
        displayed by itself.
    interactive : bool
        Show widgets; otherwise show the figure. In a page without a kernel a picture
        is played then, and the knobs turned for which ``playable`` has values.
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
        self.note = Label().add_class("labkit-note")
        self.turned = Label().add_class("labkit-turned")
        self.outcome = Label().add_class("labkit-outcome")
        self._question, self._told = None, None  # the turn whose answer is kept
        self._task = None  # it has the twins follow
        self._row, self._pending, self._marked = None, {}, _UNMARKED
        self._followers, self._traces = [], 0
        self.turns = Turns(self._new_run(), 2 if loop_here() else math.inf)
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
            lambda: self.turns.run,
            on_record=self._log,
            on_reset=self._restart,
            on_status=self._tell,
            interactive=interactive,
            speed=SEEN if experiment.picture else "max",
            beside=(self.note,),
        )
        self.controls.observe(self._turned)
        self.controls.asks = self._can_answer
        self.widget = None
        if interactive:
            self.widget = self._build()
            replace_earlier(self)
        self._open()

    def _build(self) -> Box:
        """Knobs left of buttons and figure; above them where it is narrow."""
        parts = filter(None, (self.pictures, self.plot))
        shown = [self.stepper.widget, *(part.widget for part in parts)]
        below = [self.turned, self.outcome]
        count, pictured = len(self.experiment.panels), bool(self.experiment.picture)
        if self.plot and pictured:  # both would be more than a screen
            self.plot.widget.layout.display = "none"
        if self.plot and (count > FIRST or pictured):
            name = f"All {count} plots" if count > 1 else "The plot"
            said = {"description": name, "icon": "plus"}
            more = ToggleButton(**said, tooltip="Show the other plots, or hide them")
            more.observe(lambda change: self._unfold(change["new"]), "value")
            below.insert(0, more.add_class("labkit-all-plots"))
        shown.append(HBox(below, layout=BELOW))
        left = VBox([self.controls.widget], layout=LEFT).add_class("labkit-side")
        sides = left, VBox(shown, layout=RIGHT)
        screen = Box(sides, layout=SCREEN).add_class("labkit-screen")
        return screen.add_class("labkit-pictured") if pictured else screen

    def _unfold(self, unfolded: bool) -> None:
        """Show all plots, or fewer: none where there is a picture."""
        if self.experiment.picture:
            self.plot.widget.layout.display = None if unfolded else "none"
        self.plot.unfold(unfolded)

    def close(self) -> None:
        """Stop for good and leave the page, as when the panel's cell runs again."""
        self.stepper.pause()
        if self.plot:
            self.plot.detach()
        self.trace.close()
        if self.interactive:
            close(self.widget)

    def follow(self, callback: Callable[[Mapping, Mapping], None]) -> None:
        """Have ``callback(row, knobs)`` called with each row from now on.

        ``knobs`` holds the values at which the row was computed, by name.
        """
        self._followers.append(callback)

    def run(self, steps: int) -> pd.DataFrame:
        """Take ``steps`` measured steps and return the trace so far.

        ValueError if ``steps`` is no integer of at least 0.
        """
        check_options({"steps": steps}, {"steps": integer(0)})
        end = self.turns.run.count + steps
        while self.turns.run.count < end and not self.stepper.exhausted:
            self.stepper.step()
        for part in filter(None, (self.plot, self.pictures)):
            part.update()
        return self.trace.frame()

    # The run

    def _new_run(self) -> Run:
        return Run(self.experiment, self.problem, vars(self.controls.value))

    def _new_trace(self) -> Trace:
        self._traces += 1
        file = f"{self.experiment.name}-{self._traces}.jsonl"
        knobs = vars(self.controls.value)
        where = Path(self.folder) / file if self.folder else None
        return Trace(
            where, parameters=knobs, device=self.device, seed=knobs.get("seed")
        )

    def _open(self) -> None:
        """Show what is there before the first step, and what moves it."""
        if self.experiment.opening and self.experiment.picture:
            with torch.random.fork_rng(devices=[]):  # it may draw weights
                now = self.experiment.opening(self.turns.run.settings, *self.problem)
            self.pictures.draw(now)
            self.pictures.update()
        self.note.value = READY

    def _log(self, row: Mapping) -> None:
        """Take in a new row of the run."""
        scalars = {key: row[key] for key in row if key != "pictures"}
        if self._pending:
            scalars["turned"] = self._in_words(" = ")
            self._pending = {}
        self.trace.log(**scalars)
        self._row = row
        if self.pictures and "pictures" in row:
            self.pictures.draw(row["pictures"], f"Step {row['step']}")
        self._wake()
        for callback in self._followers:
            callback(scalars, dict(vars(self.turns.run.settings)))

    def _tell(self) -> None:
        """Write the status of the newest row; not at each row, to spare the page."""
        if self._row is None:
            return
        if self.experiment.status:
            self.note.value = self.experiment.status(self._row)
        if self._over:
            self._compare()

    def _restart(self) -> None:
        if self._row is None and self.pictures:
            self.pictures.now = None  # what nothing has moved leaves no grey behind
        self._row, self._pending, self._marked = None, {}, _UNMARKED
        self.turned.value = ""
        self.turns.begin_anew(self._new_run(), self._question)
        self.trace.close()
        self.trace = self._new_trace()
        if self.plot:
            self.plot.attach(self.trace)
        if self.pictures:
            self.pictures.clear()
        self._open()
        self._wake()

    # Turned knobs

    def _turned(self, knobs: Any, changed: Sequence[str]) -> None:
        """Hear that knobs have been turned."""
        restarting = [name for name in changed if self.controls.restarts(name)]
        with self.stepper.between_steps():
            on, question = self._goes_on(changed), self._asked(changed)
            if self._over or restarting:
                self._question = question
                self._begin_anew(restarting or changed)
                self._question = None
                return
            values = {name: getattr(knobs, name) for name in changed}
            if on:
                self.turns.goes_on(values, question.predicted)
            else:
                self.turns.tell(values, question)
            self._mark(values)
            if self._row is None:
                self._open()
            self._wake()

    @property
    def _over(self) -> bool:
        return self.stepper.exhausted or self.stepper.error is not None

    def _asked(self, changed: Sequence[str]) -> Question | None:
        """Return what one turned knob asks, if it is about something."""
        answers = [self.controls.take_prediction(name) for name in changed]
        words, column = self.controls.about(changed[0])
        if not self.interactive or not column or len(changed) > 1:
            return None
        return Question(changed[0], column, words, answers[0])

    def _can_answer(self, name: str) -> bool:
        """Whether what a turn does now can be said afterwards, of it alone."""
        with self.stepper.between_steps():
            anew = self._over or self.controls.restarts(name)
            return not self.turns.open and (anew or self.turns.level())

    def _goes_on(self, changed: Sequence[str]) -> bool:
        """Whether the hand that made the newest turn turns the same knob further."""
        turn = self.turns.newest
        same = turn and list(changed) == [turn.question.knob]
        return bool(same) and not turn.whole

    def _begin_anew(self, names: Sequence[str]) -> None:
        """Restart; what ran, or had run to its end before the eyes of someone, runs."""
        why = ", which had ended" * self._over
        seen = self.interactive and self.stepper.exhausted and self.stepper.loop
        running = self.stepper.running or seen
        self.stepper.reset()
        verb = "restarts" if len(names) == 1 else "restart"
        names = " and ".join(names).replace("_", " ")
        self.turned.value = f"{names} {verb} the run{why}"
        if running:
            self.stepper.start()

    def _mark(self, values: Mapping[str, Any]) -> None:
        """Mark the next step, from which on the run reads the new values."""
        self._pending |= values
        rows = self.trace.rows
        step = rows[-1]["step"] + 1 if rows else 1
        self.turned.value = f"{self._in_words(' = ')} from step {step} on"
        now, (then, names, at) = time.monotonic(), self._marked
        instead_of = at if names == list(values) and now - then < TOGETHER else None
        self._marked = now, list(values), step
        if rows and self.plot:  # else there is no before to tell apart
            self.plot.mark(step, self._in_words(" "), instead_of)

    def _in_words(self, between: str) -> str:
        """What was turned; of a knob that takes any text, its title alone."""
        knobs = knobs_of(self.controls.value)
        said = []
        for name, value in self._pending.items():
            knob = knobs[name]
            words = (knob.label or name).replace("_", " ")
            shown = f"{value:.4g}" if isinstance(value, float) else value
            said.append(
                f"{words}{between}{shown}" if knob.span != "any text" else words
            )
        return ", ".join(said)

    # What a turn does

    def _wake(self) -> None:
        """Have the twins follow the run, beside it where there is an event loop."""
        if not self.interactive:
            return
        self._compare()
        if loop := self.stepper.loop:
            if self._task is None or self._task.done():
                self._task = begin(run(weakref.ref(self), None), loop)
        else:
            while self.turns.newest and self.turns.newest.catch_up():
                self._compare()

    def take(self, _turn: object) -> float | None:
        """Take a step of a twin; see :func:`labkit.lab.panels.live.cells.run`."""
        with self.stepper.between_steps():
            goes_on = self.controls.asked and self.turns.step()
            self._compare()
        return MIN_SLEEP if goes_on else None

    def _compare(self) -> None:
        """Tell what the newest turn does, and draw the run without it."""
        turn, drawn = self.turns.newest, filter(None, (self.pictures, self.plot))
        if turn is not self._told:  # another, or none
            self._told, self._kept = turn, False
            self.controls.judge(None)
            for part in drawn:
                part.beside(None)
        self.outcome.value = str(turn or "")
        if not turn:
            return
        level = turn.run.count - turn.twin.count
        if self.pictures and level >= 0 and turn.twin.picture is not None:
            self.pictures.beside(turn.twin.picture, aligned=level == 0)
        if turn.whole and turn.happened and not self._kept:
            self._kept = True
            self._keep(turn)
        if self._kept and turn.question.predicted:
            right, count = score(self.experiment.name)
            self.outcome.value += f" ({right} of {count} right)"

    def _keep(self, turn: Turn) -> None:
        """Draw the curves without the turn, and mark and count the answer."""
        knob, _, words, predicted = turn.question
        if self.plot and turn.since:  # else the run before is drawn already
            pairs = zip(turn.twin.measured, turn.run.measured, strict=False)
            rows = [row | {"step": other["step"]} for row, other in pairs]
            self.plot.beside(rows[turn.since :])
        if predicted:
            what = knob.replace("_", " "), words, predicted, turn.happened
            keep(Prediction(self.experiment.name, *what))
            self.controls.judge(knob, right=predicted == turn.happened)

    # On a page

    def _ipython_display_(self):
        if self.interactive and self.pictures:
            self.pictures.widget.flush()  # a busy kernel would send it when all has run
        super()._ipython_display_()
        if self.interactive:
            return
        if self.experiment.picture and self._row:
            play(
                self.experiment,
                self.problem,
                self.controls.value,
                min(max(self.turns.run.count, LEAST), MOST),
                self._row["step"],
            )
            if self.plot:
                display(self.plot.figure)

    @property
    def figure(self) -> Figure:
        """What is shown headless: the picture if there is one, else the curves."""
        picture = self.pictures if self.experiment.picture else None
        return (picture or self.plot or self.pictures).figure
