"""A picture that is a function of its knobs: the whole path is there at once."""

import html
import threading
import time
from itertools import islice
from types import SimpleNamespace
from typing import Any

from ipywidgets import HTML, HTMLMath, IntSlider

from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.plot import Plot
from labkit.lab.panels.figures.shown import Shown, close
from labkit.lab.panels.live.cells import replace_earlier
from labkit.lab.panels.live.controls import Controls
from labkit.lab.panels.live.experiment import Experiment
from labkit.lab.panels.live.live_lab import screen
from labkit.lab.panels.live.played import play

TOGETHER = 1.0  # seconds between two turns of a knob that belong to one drag


class Opening(Shown):
    """An experiment's first steps, drawn as a function of its knobs, without a Run.

    At each turn, and while a slider or a point is dragged, all steps are computed anew;
    a slider moves along them. The path from where the drag began is drawn pale. What is
    computed runs where the page is heard, also while other cells run, so ``rows`` draws
    from generators of its own and builds no optimiser.

    Parameters
    ----------
    experiment : Experiment
        Its ``rows`` yield what ``picture`` draws under ``pictures``, and ``status``
        writes a step's formula with its numbers, in which LaTeX stands between ``$``.
    problem : positional arguments, handed to ``rows`` after the settings
    knobs : dataclass, values to start with; by default those of ``experiment.knobs``
    steps : int, of the path
    at : int, position of the step that is shown first; by default the last
    interactive : bool
        Show widgets; otherwise show the figure. A page without a kernel plays the steps
        at the values that ``playable`` has.

    Attributes
    ----------
    controls, slider, formula, setting, plot : the parts; all but the first are None
        without widgets
    rows : list of mappings, the path; ``before`` is the one that is drawn pale
    """

    at_once = True

    def __init__(
        self,
        experiment: Experiment,
        *problem: Any,
        knobs: Any = None,
        steps: int = 12,
        at: int | None = None,
        interactive: bool = True,
    ):
        self.experiment, self.problem, self.steps = experiment, problem, steps
        self.interactive = interactive
        self.controls = Controls(
            knobs or experiment.knobs(), front=experiment.front, interactive=interactive
        )
        self._lock = threading.RLock()  # the page may be heard on a thread of its own
        self._drag, self._drag_ended = None, 0.0  # what was turned last, and when
        self.rows, self.before = self._path(self.controls.value), None
        self.at = len(self.rows) - 1 if at is None else min(at, len(self.rows) - 1)
        self.slider = self.formula = self.setting = self.plot = self.widget = None
        if interactive:
            self._build()
            replace_earlier(self)
        self.controls.observe(self._turn)

    def _path(self, knobs: Any) -> list[dict]:
        settings = SimpleNamespace(**vars(knobs))
        rows = self.experiment.rows(settings, *self.problem)
        return [row for row in islice(rows, self.steps) if "pictures" in row]

    def _build(self) -> None:
        self.plot = Plot(lambda: self.figure)
        self.slider = IntSlider(
            value=self.at,
            max=len(self.rows) - 1,
            description="step",
            readout=False,
            layout={"width": "auto"},
        )
        self.slider.observe(self._move, "value")
        self.slider.layout.display = "none" if len(self.rows) < 2 else None
        self.formula = HTMLMath()
        self.setting = HTML()
        for made in self.controls.widgets.values():
            if made.has_trait("readout"):  # a slider answers while it is dragged
                made.continuous_update = True
        self.plot.observe(self._touched, "touched")
        shown = self.plot, self.slider, self.formula, self.setting
        self.widget = screen(self.controls, shown).add_class("labkit-pictured")
        self.widget.add_class("labkit-opening")
        self.slider.add_class("labkit-step-slider")
        self.formula.add_class("labkit-status")
        self._tell()

    def _move(self, change: dict) -> None:
        with self._lock:
            self.at = change["new"]
            self._show()

    def _turn(self, knobs: Any, changed: tuple[str, ...]) -> None:
        with self._lock:
            now = time.monotonic()
            if changed != self._drag or now - self._drag_ended > TOGETHER:
                self.before = self.rows
            self._drag, self._drag_ended = changed, now
            try:
                self.rows = self._path(knobs)
            except Exception as error:  # of a learner's line, say: the old rows stay
                self.formula.value = html.escape(str(error))
                return
            self.at = min(self.at, len(self.rows) - 1)
            self._show()

    def _touched(self, change: dict) -> None:
        """Turn the knobs that a hand on the picture means."""
        hand = change["new"]
        point, now = (hand["x"], hand["y"]), self.rows[self.at]["pictures"]
        turned = self.experiment.drag(
            now, self.controls.value, hand["name"], hand["index"], point
        )
        self.controls.turn(**turned)

    def _show(self) -> None:
        if self.interactive:
            self.plot.changed()
            self._tell()

    def _tell(self) -> None:
        row = self.rows[self.at]
        self.slider.description = f"step {row['step']}"
        self.formula.value = (self.experiment.status or str)(row)
        text = f"<summary>Copy setting</summary><code>{html.escape(self.call)}</code>"
        self.setting.value = f"<details>{text}</details>"

    @property
    def call(self) -> str:
        """The call that makes the knobs as they are."""
        knobs, first = self.controls.value, vars(self.experiment.knobs())
        turned = [
            f"{name}={value!r}"
            for name, value in vars(knobs).items()
            if value != first[name]
        ]
        return f"{type(knobs).__name__}({', '.join(turned)})"

    @property
    def figure(self) -> Figure:
        """The step that is shown, with the one before the turn in grey."""
        pale = None
        if self.before:
            pale = self.before[min(self.at, len(self.before) - 1)]["pictures"]
        return Figure(self.experiment.picture(self.rows[self.at]["pictures"], pale))

    def close(self) -> None:
        """Leave the page, as when the panel's cell runs again."""
        if self.interactive:
            close(self.widget)

    def _ipython_display_(self) -> None:
        super()._ipython_display_()
        if not self.interactive:
            knobs, step = self.controls.value, self.rows[self.at]["step"]
            play(self.experiment, self.problem, knobs, self.steps, step)
