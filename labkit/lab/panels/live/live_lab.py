"""Knobs, buttons and a live figure around one run of an experiment."""

import math
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.display import display
from ipywidgets import Box, HBox, Label, ToggleButton, VBox, Widget

from labkit.check import check_options, integer
from labkit.instruments import Trace
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.plot import Plot
from labkit.lab.panels.figures.shown import Shown, close, loop_here
from labkit.lab.panels.live.cells import MIN_SLEEP, begin, replace_earlier, run
from labkit.lab.panels.live.controls import Controls
from labkit.lab.panels.live.experiment import Experiment
from labkit.lab.panels.live.live_plot import LivePlot
from labkit.lab.panels.live.played import play
from labkit.lab.panels.live.run import Chance, Run
from labkit.lab.panels.live.stepper import Stepper
from labkit.lab.panels.live.turn import Question, Turn, Turns

SEEN = 5  # steps per second of a picture, so that its story is seen
READY = "Press Run, or Step."
FIRST = 2  # plots that are open
LEAST = 20  # steps of a picture that a page plays
MOST = 60
SCREEN = {"flex_flow": "row wrap", "align_items": "flex-start", "grid_gap": "0 16px"}
LEFT = {"flex": "1 1 212px", "max_width": "100%", "min_width": "0"}
RIGHT = {"flex": "1000 1 600px", "max_width": "100%", "min_width": "0"}
# What a turned knob does is written under the picture, so that the picture stays.
BELOW = {"flex_flow": "row wrap", "grid_gap": "0 12px"}


def screen(controls: Controls, shown: Sequence[Widget]) -> Box:
    """Return knobs left of what they turn; above it where it is narrow."""
    left = VBox([controls.widget], layout=LEFT).add_class("labkit-side")
    sides = left, VBox(shown, layout=RIGHT)
    return Box(sides, layout=SCREEN).add_class("labkit-screen")


class Scene:
    """What a run shows now, beside an earlier run, or the same run without a turn.

    ``now``, ``before`` and ``without`` are what the experiment's ``picture`` draws,
    None where there is none; ``widget`` is None if not interactive.
    """

    now = before = without = None

    def __init__(self, experiment: Experiment, interactive: bool):
        self._draw = experiment.picture
        self.widget = Plot(lambda: self.figure) if interactive else None

    def show(self, **changed: Any) -> None:
        """Take over some of the three, and redraw as soon as it is due."""
        vars(self).update(changed)
        if self.widget:
            self.widget.changed()

    @property
    def figure(self) -> Figure:
        """What is shown now, and what stands beside it."""
        before = self.before if self.without is None else self.without
        return Figure(self._draw(self.now, before))


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
    interactive : bool
        Show widgets; otherwise show the figures. In a page without a kernel a picture
        is played then at the values of knobs that ``playable`` has.
    folder, device : str, where traces are written, if anywhere; noted in the traces

    Attributes
    ----------
    controls, stepper, plot, scene, trace : the parts, to be used directly; plot and
        scene, the picture, may be None
    widget : knobs left of buttons and figure; None if not interactive
    note, turned, outcome : labels of the experiment's ``status``, of what the knob
        turned last does, and of what it did to the column that it is about
    """

    def __init__(
        self,
        experiment: Experiment,
        *problem: Any,
        knobs: Any = None,
        interactive: bool = True,
        folder: str = "",
        device: str = "cpu",
    ):
        self.experiment, self.problem = experiment, problem
        self.folder, self.device, self.interactive = folder, device, interactive
        self.controls = Controls(
            knobs or experiment.knobs(), front=experiment.front, interactive=interactive
        )
        self.note = Label().add_class("labkit-note")
        self.turned = Label().add_class("labkit-turned")
        self.outcome = Label().add_class("labkit-outcome")
        self._question, self._told = None, None  # the turn whose answer is kept
        self._task = None  # it has the twins follow
        self._row, self._pending, self._marked = None, {}, None
        self._traces = 0
        self.turns = Turns(self._new_run(), 2 if loop_here() else math.inf)
        self.trace = self._new_trace()
        self.plot = self.scene = self.widget = None
        if experiment.picture:
            self.scene = Scene(experiment, interactive)
        self._story = bool(self.scene and experiment.playable)
        if experiment.panels:
            self.plot = LivePlot(
                self.trace,
                experiment.panels,
                caption=experiment.caption,
                interactive=interactive,
                first=FIRST,
                low=bool(self.scene),
            )
        self.stepper = Stepper(
            lambda: self.turns.run,
            on_record=self._log,
            on_reset=self._restart,
            on_status=self._tell,
            interactive=interactive,
            speed=SEEN if self._story else "max",
            notes=(self.note,),
        )
        self.controls.observe(self._turned)
        self.controls.asks = self._can_answer
        if interactive:
            self.widget = self._build()
            replace_earlier(self)
        self._open()

    @property
    def _drawn(self) -> list[Scene | LivePlot]:
        return [part for part in (self.scene, self.plot) if part]

    def _build(self) -> Box:
        """Knobs beside buttons and figures."""
        shown = [self.stepper.widget, *(part.widget for part in self._drawn)]
        below = [self.turned, self.outcome]
        count = len(self.experiment.panels)
        if self.plot and (count > FIRST or self._story):
            name = f"All {count} plots" if count > 1 else "The plot"
            words = "Show the other plots, or hide them"
            more = ToggleButton(description=name, icon="plus", tooltip=words)
            more.observe(lambda change: self._unfold(change["new"]), "value")
            below.insert(0, more.add_class("labkit-all-plots"))
            self._unfold(False)
        shown.append(HBox(below, layout=BELOW))
        made = screen(self.controls, shown)
        return made.add_class("labkit-pictured") if self._story else made

    def _unfold(self, unfolded: bool) -> None:
        """Show all plots, or fewer: none below a picture with a story."""
        if self._story:  # both would be more than a screen
            self.plot.widget.layout.display = None if unfolded else "none"
        self.plot.unfold(unfolded)

    def _flush(self) -> None:
        """Draw now: a busy kernel would do it when all has run."""
        for part in self._drawn if self.interactive else ():
            part.widget.flush()

    def close(self) -> None:
        """Stop for good and leave the page, as when the panel's cell runs again."""
        self.stepper.pause()
        if self.plot:
            self.plot.detach()
        self.trace.close()
        if self.interactive:
            close(self.widget)

    def run(self, steps: int) -> pd.DataFrame:
        """Take ``steps`` measured steps and return the trace so far.

        ValueError if ``steps`` is no integer of at least 0.
        """
        check_options({"steps": steps}, {"steps": integer(0)})
        end = self.turns.run.count + steps
        while self.turns.run.count < end and not self.stepper.exhausted:
            self.stepper.step()
        self._flush()
        return self.trace.frame()

    # The run

    def _new_run(self) -> Run:
        return Run(self.experiment, self.problem, vars(self.controls.value))

    def _new_trace(self) -> Trace:
        knobs, where = vars(self.controls.value), None
        while self.folder and (where is None or where.exists()):
            self._traces += 1
            file = f"{self.experiment.name}-{self._traces}.jsonl"
            where = Path(self.folder) / file
        return Trace(
            where, parameters=knobs, device=self.device, seed=knobs.get("seed")
        )

    def _open(self) -> None:
        """Show what is there before the first step, and what moves it."""
        if self.scene and self.experiment.opening:
            with Chance():  # it may draw weights
                now = self.experiment.opening(self.turns.run.settings, *self.problem)
            self.scene.show(now=now)
            self._flush()
        self.note.value = READY

    def _log(self, row: Mapping) -> None:
        """Take in a new row of the run."""
        scalars = {key: row[key] for key in row if key != "pictures"}
        if self._pending:
            scalars["turned"], self._pending = self._in_words, {}
        self.trace.log(**scalars)
        self._row = row
        if self.scene and "pictures" in row:
            self.scene.show(now=row["pictures"])
        self._wake()

    def _tell(self, stepper: Stepper) -> None:
        """Write the status of the newest row; not at each row, to spare the page."""
        if self._row is None:
            return
        if self.experiment.status:
            self.note.value = self.experiment.status(self._row)
        if stepper.over:
            self._compare()

    def _restart(self) -> None:
        ran, self._row, self._pending, self._marked = self._row, None, {}, None
        self.turned.value = ""
        self.turns.begin_anew(self._new_run(), self._question)
        self.trace.close()
        self.trace = self._new_trace()
        if self.plot:
            self.plot.attach(self.trace)
        if self.scene:  # what nothing has moved leaves no grey behind
            before = self.scene.now if ran else self.scene.before
            self.scene.show(now=None, before=before)
        self._open()
        self._wake()

    # Turned knobs

    def _turned(self, knobs: Any, changed: Sequence[str]) -> None:
        """Hear that knobs have been turned."""
        with self.stepper.between_steps():
            restarting = [name for name in changed if self.controls.knobs[name].restart]
            question = self._asked(changed)
            if self.stepper.over or restarting:
                self._question = question
                self._begin_anew(restarting or changed)
                self._question = None
                return
            values = {name: getattr(knobs, name) for name in changed}
            self._mark(values, self.turns.tell(values, question))
            if self._row is None:
                self._open()
            self._wake()

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
            anew = self.stepper.over or self.controls.knobs[name].restart
            return not self.turns.open and (anew or self.turns.level())

    def _begin_anew(self, names: Sequence[str]) -> None:
        """Restart; what ran, or had run to its end before the eyes of someone, runs."""
        why = ", which had ended" * self.stepper.over
        seen = self.interactive and self.stepper.exhausted and self.stepper.loop
        running = self.stepper.running or seen
        self.stepper.reset()
        verb = "restarts" if len(names) == 1 else "restart"
        names = " and ".join(names).replace("_", " ")
        self.turned.value = f"{names} {verb} the run{why}"
        if running:
            self.stepper.start()

    def _mark(self, values: Mapping[str, Any], further: bool) -> None:
        """Mark the next step, from which on the run reads the new values."""
        self._pending |= values
        rows = self.trace.rows
        step = rows[-1]["step"] + 1 if rows else 1
        self.turned.value = f"{self._in_words} from step {step} on"
        if rows and self.plot:  # else there is no before to tell apart
            self.plot.mark(step, self._in_words, self._marked if further else None)
        self._marked = step

    @property
    def _in_words(self) -> str:
        values = (
            self.controls.knobs[name].in_words(value)
            for name, value in self._pending.items()
        )
        return ", ".join(values)

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
        turn = self.turns.newest
        if turn is not self._told:  # another, or none
            self._told, self._kept = turn, False
            self.controls.judge(None)
            if self.plot:
                self.plot.compare(())
            if self.scene:
                self.scene.show(without=None)
        self.outcome.value = str(turn or "")
        if not turn:
            return
        if self.scene and turn.run.count == turn.twin.count:
            self.scene.show(without=turn.twin.picture)
        if turn.whole and turn.happened and not self._kept:
            self._kept = True
            self._keep(turn)

    def _keep(self, turn: Turn) -> None:
        """Draw the curves without the turn, and mark the answer."""
        if self.plot and turn.since:  # else the run before is drawn already
            pairs = zip(turn.twin.measured, turn.run.measured, strict=False)
            rows = [row | {"step": other["step"]} for row, other in pairs]
            self.plot.compare(rows[turn.since :])
        if predicted := turn.question.predicted:
            self.controls.judge(turn.question.knob, predicted == turn.happened)

    # On a page

    def _ipython_display_(self):
        self._flush()
        super()._ipython_display_()
        if self.interactive or not self.scene:
            return
        if self._row and self._story:
            play(
                self.experiment,
                self.problem,
                self.controls.value,
                min(max(self.turns.run.count, LEAST), MOST),
                self._row["step"],
            )
        if self._row and self.plot:
            display(self.plot.figure)

    @property
    def figure(self) -> Figure:
        """What is shown headless: the picture if there is one, else the curves."""
        return (self.scene or self.plot).figure
