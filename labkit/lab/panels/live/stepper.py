"""Step, Run, Pause and Reset over a training loop written as a generator."""

import asyncio
import html
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import ipywidgets as widgets

from labkit.lab.panels.figures.shown import Page, Shown, close, loop_here
from labkit.lab.panels.live.cells import MIN_SLEEP, begin, replace_earlier, run

SPEEDS = (1, 2, 5, 10, 20, 50, 100, "max")  # steps per second
MIN_INTERVAL = 0.1  # seconds between two status lines of a running loop
FLOW = {"flex_flow": "row wrap", "align_items": "center", "grid_gap": "0 12px"}


class Stepper(Shown):
    """Draw the records of a generator one by one, or run it until paused.

    Parameters
    ----------
    make_records : callable, returns a fresh generator that yields a record per step
    on_record : callable, is given each new record as soon as it was drawn
    on_reset : callable, called before `make_records` is called again
    on_status : callable, is given the stepper when the status line is written: of a
        running loop, at most ten times a second
    interactive : bool, make buttons; otherwise a static line is shown
    speed : int or "max", steps per second of Run at first, one of ``SPEEDS``
    notes : sequence of widgets, shown in the line of the status

    Attributes
    ----------
    position : int, how many records have been drawn
    record : the newest record; None before the first
    error : BaseException or None, what stopped the loop, with its traceback
    loop : the event loop of the cells, where what runs by itself runs; None in a script
    widget : ipywidgets.VBox or None
        Buttons (CSS classes ``labkit-step``, ``-run``, ``-pause``, ``-reset``), speed
        slider (``labkit-speed``), status (``labkit-status``).

    Examples
    --------
    >>> stepper = Stepper(lambda: iter("abc"), interactive=False)
    >>> stepper.step(), stepper.step(), stepper
    ('a', 'b', Stepper(step 2, paused))
    """

    def __init__(
        self,
        make_records: Callable[[], Iterator],
        *,
        on_record: Callable[[Any], object] | None = None,
        on_reset: Callable[[], object] | None = None,
        on_status: Callable[["Stepper"], object] | None = None,
        interactive: bool = True,
        speed: int | str = "max",
        notes: Sequence[widgets.Widget] = (),
    ):
        self._make = make_records
        self._on_record, self._on_reset = on_record or _nothing, on_reset or _nothing
        self._on_status, self._next_status = on_status or _nothing, -math.inf
        self._turn = None  # identity of the loop that may go on; None: paused
        # JupyterLab may hear buttons on a thread of its own beside the running cell,
        # and a generator cannot be entered twice.
        self._lock = threading.RLock()
        self.loop = loop_here()
        self.interactive, self.widget = interactive, None
        self._begin()
        if interactive:
            self._build(speed, notes)
            replace_earlier(self)
        self._refresh()

    @property
    def running(self) -> bool:
        """Whether a loop runs."""
        return self._turn is not None

    @property
    def over(self) -> bool:
        """Whether there is no further record before a reset."""
        return self.exhausted or self.error is not None

    @property
    def status(self) -> str:
        """One line: where the stepper is and what it does."""
        place = f"step {self.position}"
        if self.error is not None:
            return f"{place}, stopped: {type(self.error).__name__}: {self.error}"
        rest = "finished" if self.exhausted else "paused"
        return f"{place}, {'running' if self.running else rest}"

    def step(self) -> Any:
        """Draw a record, if there is another one; return the newest.

        An exception in the generator or in a callback is raised, and the stepper then
        refuses new records until it is reset.
        """
        self.pause()
        try:
            self._advance()
        finally:
            self._refresh()
        return self.record

    def start(self) -> asyncio.Task:
        """Run in the background until paused or exhausted; needs an event loop.

        One asyncio task: between two steps it gives way, so that buttons and sliders
        are heard.  An exception stops it and is kept in `error`.  A second start while
        running changes nothing.  A RuntimeError without an event loop, or once closed.
        """
        if self.running:
            return self._task
        if self._closed:
            raise RuntimeError("this panel is closed; its cell has run again")
        if not (loop := self.loop or loop_here()):
            raise RuntimeError("start() needs an event loop; use step() here")
        self._turn = turn = object()
        # Kept, for the event loop itself holds tasks only weakly.
        self._task = begin(run(weakref.ref(self), turn), loop)
        self._refresh()
        return self._task

    @property
    def _closed(self) -> bool:
        return self.interactive and self.widget.comm is None

    def close(self) -> None:
        """Stop for good, and take the buttons off the page."""
        self.pause()
        if self.interactive:
            close(self.widget)

    def pause(self) -> None:
        """Stop a running loop before its next step."""
        self._turn = None
        self._refresh()

    def reset(self) -> None:
        """Forget all records and begin with a fresh generator."""
        self.pause()
        with self._lock:
            getattr(self._records, "close", _nothing)()
            self._on_reset()
            self._begin()
        self._refresh()

    def between_steps(self) -> AbstractContextManager:
        """Hold the run between two steps, also one that another thread takes."""
        return self._lock

    def _begin(self) -> None:
        self._records, self.exhausted, self.error = iter(self._make()), False, None
        self.position, self.record = 0, None

    def _advance(self) -> bool:
        """Draw one new record and show it; False if there is none."""
        with self._lock:
            if self.error is not None:
                reason = f"({type(self.error).__name__}: {self.error})"
                message = f"the run has stopped {reason}; reset() begins anew"
                raise RuntimeError(message) from self.error
            try:
                self.record = next(self._records)
                self.position += 1
                self._on_record(self.record)
            except StopIteration:
                self.exhausted = True
            except BaseException as error:  # also an interrupt ends the generator
                self.error = error
                raise
            return not self.exhausted

    def take(self, turn: object) -> float | None:
        """Take a step of a running loop; return the seconds to the next, or None."""
        if self._turn is not turn:
            return None
        begin, goes_on = time.monotonic(), False
        try:
            goes_on = not self._closed and self._advance()
        except Exception as error:  # nobody awaits the task: the status line tells
            self.error = error
        finally:
            if not goes_on and self._turn is turn:
                self._turn = None
            self._refresh(force=not goes_on)
        hurries = not self.interactive or self._speed.value == "max"
        left = 0.0 if hurries else 1 / self._speed.value
        return max(MIN_SLEEP, left - (time.monotonic() - begin)) if goes_on else None

    def _build(self, speed: int | str, notes: Sequence[widgets.Widget]) -> None:
        actions = {
            "step": (self.step, "step-forward", "One step forward"),
            "run": (self.start, "play", "Run until paused"),
            "pause": (self.pause, "pause", "Stop before the next step"),
            "reset": (self.reset, "refresh", "Begin anew"),
        }
        self._buttons = {}
        for name, (action, icon, tooltip) in actions.items():
            look = {"icon": icon, "tooltip": tooltip, "layout": {"width": "80px"}}
            button = widgets.Button(description=name.capitalize(), **look)
            button.on_click(lambda _, action=action: self._clicked(action))
            self._buttons[name] = button.add_class(f"labkit-{name}")
        self._speed = widgets.SelectionSlider(
            options=SPEEDS,
            value=speed,
            description="steps/s",
            tooltip="Steps per second of Run",
            style={"description_width": "auto"},
            layout={"width": "220px"},
        )
        self._speed.add_class("labkit-speed").add_class("labkit-stops")
        self._label = widgets.Label().add_class("labkit-status")
        row = widgets.HBox([*self._buttons.values(), self._speed], layout=FLOW)
        line = widgets.HBox([self._label, *notes], layout=FLOW)
        self.widget = widgets.VBox([row, line])

    def _clicked(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # raised here it would only reach the server's log
            self.error = self.error or error
            self._refresh()

    def _refresh(self, force: bool = True) -> None:
        """Bring the status line and the buttons up to date."""
        now = time.monotonic()
        if not (force or now >= self._next_status):
            return
        self._next_status = now + MIN_INTERVAL
        self._on_status(self)
        if self.widget is None:
            return
        self._label.value = self.status
        for name in ("step", "run"):
            self._buttons[name].disabled = self.running or self.over
        self._buttons["pause"].disabled = not self.running

    @property
    def _still(self) -> Page:
        return Page(f"<p>{html.escape(self.status)}</p>", repr(self))

    def __repr__(self) -> str:
        return f"Stepper({self.status})"


def _nothing(*_) -> None:
    """Stand in for a callback that nobody gave."""
