"""Knobs, buttons and a live figure around one generator of rows."""

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import torch
from IPython.display import display
from ipywidgets import Box, HBox, Label, ToggleButton, VBox

from labkit.check import check_options, integer
from labkit.instruments import Trace
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.images import Pictures, Scene
from labkit.lab.panels.figures.kinds import number
from labkit.lab.panels.figures.shown import Shown, close, embedded, loop_here
from labkit.lab.panels.live.cells import begin, replace_earlier, run
from labkit.lab.panels.live.controls import Controls
from labkit.lab.panels.live.experiment import Experiment, knobs_of
from labkit.lab.panels.live.live_plot import LivePlot
from labkit.lab.panels.live.played import packed, played
from labkit.lab.panels.live.predictions import Prediction, keep, score
from labkit.lab.panels.live.stepper import Stepper
from labkit.lab.panels.live.twin import LONGEST, ROWS, Twin, replay

PLAY = Path(__file__).with_name("play.js")
SEEN = 5  # steps per second of a picture, so that its story is seen
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
    ended. What a turn did is told by a comparison with the same run without the turn,
    see :class:`~labkit.lab.panels.live.twin.Twin`.

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
        self.note = Label().add_class("labkit-note")
        self.turned = Label().add_class("labkit-turned")
        self.outcome, self._twin = Label().add_class("labkit-outcome"), None
        self._restarts, self._row, self._score = 0, None, ""
        self._followers, self._task = [], None  # the task computes the twin
        self._count, self._spent = 0, 0.0  # measured rows of this run, their seconds
        self._begun, self._turns = dict(vars(self._settings)), []
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
            self._rows,
            on_record=self._log,
            on_show=self._look_back,
            on_reset=self._restart,
            on_status=self._tell,
            interactive=interactive,
            speed=SEEN if experiment.picture else "max",
            beside=(self.note,),
        )
        self.controls.observe(self._turn)
        self.controls.asks = self._can_answer
        self.widget = None
        if interactive:
            self.widget = self._build()
            if experiment.drag:
                self.pictures.widget.observe(self._dragged, "touched")
            replace_earlier(self)
        self._open()

    @property
    def at_once(self) -> bool:
        """Whether the page is answered while other cells run."""
        return self.experiment.at_once

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
            name = f"All {count} plots" if count > 1 else "The plot"
            said = {"description": name, "icon": "plus"}
            more = ToggleButton(**said, tooltip="Show the other plots, or hide them")
            more.observe(lambda change: self._unfold(change["new"]), "value")
            below.append(more.add_class("labkit-all-plots"))
        below += self.turned, self.outcome
        shown.append(HBox(below, layout=BELOW))
        left = VBox([self.controls.widget], layout=LEFT).add_class("labkit-side")
        sides = left, VBox(shown, layout=RIGHT)
        screen = Box(sides, layout=SCREEN).add_class("labkit-screen")
        return screen.add_class("labkit-pictured") if pictured else screen

    def _open(self) -> None:
        """Show what is there before the first step, and what moves it."""
        if self.experiment.opening and self.experiment.picture:
            draws = contextlib.nullcontext()
            if not self.at_once:  # an opening may draw weights
                draws = torch.random.fork_rng(devices=[])
            with draws:
                now = self.experiment.opening(self._settings, *self.problem)
            self.pictures.draw(now)
            self.pictures.update()
        self.note.value = READY

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
        done = 0
        while done < steps and not self.stepper.exhausted:
            row = self.stepper.step()
            done += row is not None and row.get("measured", True)
        for part in filter(None, (self.plot, self.pictures)):
            part.update()
        return self.trace.frame()

    def _rows(self) -> Iterator[Mapping]:
        """Yield the experiment's rows; note how long the measured ones take."""
        rows = self.experiment.rows(self._settings, *self.problem)
        while True:
            begin = time.monotonic()
            if (row := next(rows, None)) is None:
                return
            if row.get("measured", True) and self._count:  # the first one imports
                self._spent += time.monotonic() - begin
            yield row

    def _log(self, row):
        scalars = {key: row[key] for key in row if key != "pictures"}
        if self._pending:
            scalars["turned"] = _values(self._pending, " = ")
            self._pending = {}
        self.trace.log(**scalars)
        self._row = row
        if row.get("measured", True):
            self._count += 1
            if self._twin:
                self._twin.add(row)
                self._compare()
        self._draw(row)
        for callback in self._followers:
            callback(scalars, dict(vars(self._settings)))

    def _tell(self):
        """Write the status of the newest row; not at each row, to spare the page."""
        if self._row is not None and self.experiment.status:
            self.note.value = self.experiment.status(self._row)
        if self._twin:
            self.outcome.value = f"{self._twin}{self._score}"

    def _look_back(self, row):
        self._draw(row)

    def _draw(self, row):
        if self.pictures and "pictures" in row:
            self.pictures.draw(row["pictures"], f"Step {row['step']}")

    def _turn(self, knobs, changed):
        restarting = [name for name in changed if self.controls.restarts(name)]
        with self.stepper.between_steps():
            ended = self.stepper.exhausted or self.stepper.error is not None
            twin = self._twin_of(changed, anew=bool(ended or restarting))
            vars(self._settings).update(vars(knobs))
            if ended:
                self._begin_anew(changed, ", which had ended")
            elif restarting:
                self._begin_anew(restarting)
            else:
                self._go_on({name: getattr(knobs, name) for name in changed})
                if self._row is None:
                    self._open()
                elif self.experiment.afresh and self.pictures.now is not None:
                    now = self.experiment.afresh(self.pictures.now, knobs)
                    self.pictures.draw(now)
            self._compare_with(twin)

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

    def _can_answer(self) -> bool:
        """Whether what a turn does now can be said afterwards."""
        return self._count > 0 and self._spent_on(self._count + ROWS) <= LONGEST

    def _unit_of(self, column: str) -> str:
        """Return what stands behind a value of a column, perhaps a per cent sign."""
        drawn = (p for p in self.experiment.panels if column in p.columns)
        return " %" if any(panel.y_title.endswith("%") for panel in drawn) else ""

    def _spent_on(self, count: int) -> float:
        """Return the seconds that so many rows are expected to take."""
        return self._spent / max(self._count - 1, 1) * count

    def _twin_of(self, changed, anew: bool) -> Twin | None:
        """Return the run without this turn of one knob that is about a column.

        A hand that turns a knob on, or drags, makes one turn, from its first value on.
        """
        answers = {name: self.controls.take_prediction(name) for name in changed}
        if not self._count or not self.interactive or len(changed) != 1:
            return None
        words, column = self.controls.about(changed[0])
        if not column:
            return None
        (name, answer), last = answers.popitem(), self._twin
        then, names, _ = self._marked
        soon = names == {name} and time.monotonic() - then < TOGETHER
        on = self._dragging or (soon and not last.whole) if last else False
        if on and last.knob == name and not anew:
            last.again(self._count)
            last.predicted = answer or last.predicted
            return last
        rows = (r for r in reversed(self.trace.rows) if r.get("measured", True))
        known = (number(row.get(column)) for row in rows)
        since = 0 if anew else self._count
        begun, turns = self._begun, self._turns
        if anew:
            begun, turns = vars(self._settings), ()
        return Twin(
            replay(self.experiment, self.problem, dict(begun), list(turns)),
            name,
            column,
            words,
            since=since,
            known=next(filter(math.isfinite, known), math.nan),
            predicted=answer,
            unit=self._unit_of(column),
            seconds=self._spent_on(since + ROWS),
            lock=self.stepper.between_steps(),
            on_row=self._compare,
        )

    def _compare_with(self, twin: Twin | None) -> None:
        """Begin to compute the run without the turn; the one before is dropped."""
        goes_on = twin is self._twin and self._task and not self._task.done()
        self._twin, self._told = twin, False
        self.outcome.value = str(twin or "")
        self._beside(None)
        if twin and not twin.done and not goes_on:
            if loop := self.stepper.loop:  # beside the run, each in its turn
                self._task = begin(run(weakref.ref(twin), None), loop)
            else:
                twin.finish()

    def _compare(self) -> None:
        """Take in what is new of the run or of the one without the turn."""
        twin = self._twin
        if twin.whole and not self._told:
            self._told = True
            self._beside(twin)
            if twin.predicted and not twin.kept:
                twin.kept = True
                what = twin.knob.replace("_", " "), twin.words
                made = Prediction(
                    self.experiment.name, *what, twin.predicted, twin.happened
                )
                keep(made)
                right, count = score(self.experiment.name)
                self._score = f" ({right} of {count} right)"
        if self.pictures:
            self.pictures.beside(*twin.picture)
        if not self.stepper.running:
            self._tell()

    def _beside(self, twin: Twin | None) -> None:
        """Draw the curves of the run without the turn, at the steps of this one."""
        if self.pictures and twin is None:
            self.pictures.beside(None)
        again = twin is not None and not twin.since
        if not self.plot or again:  # the run before is drawn already
            return
        rows = [] if twin is None else twin.shown
        begin = self._turned_at - rows[0]["step"] if rows else 0
        self.plot.beside([{**row, "step": row["step"] + begin} for row in rows])

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
        self._turns.append((self._count, values))
        rows = self.trace.rows
        step = self._turned_at = rows[-1]["step"] + 1 if rows else 1
        said = self._in_words(self._pending, " = ")
        self.turned.value = f"{said} from step {step} on"
        now, (then, names, x) = time.monotonic(), self._marked
        instead_of = x if names == set(values) and now - then < TOGETHER else None
        self._marked = now, set(values), step
        if not rows or not self.plot:  # there is no before to tell apart
            return
        self.plot.mark(step, self._in_words(self._pending, " "), instead_of)

    def _in_words(self, values, between):
        """Values in one line; of a knob that takes any text, its title alone."""
        knobs = knobs_of(self.controls.value)
        free = [name for name in values if knobs[name].span == "any text"]
        rest = {
            knobs[name].label or name: v
            for name, v in values.items()
            if name not in free
        }
        titles = [knobs[name].title for name in free]
        return ", ".join(filter(None, [_values(rest, between), *titles]))

    def _restart(self):
        if self._row is None and self.pictures:
            self.pictures.now = None  # what nothing has moved leaves no grey behind
        self._pending, self._marked, self._row = {}, _UNMARKED, None
        self.turned.value = self.outcome.value = ""
        self._count, self._spent = 0, 0.0
        self._begun, self._turns = dict(vars(self._settings)), []
        self._twin = None
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
        if self.interactive and self.pictures:
            self.pictures.widget.flush()  # a busy kernel would send it when all has run
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
