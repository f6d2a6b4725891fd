"""Step, Back, Run, Pause and Reset over a training loop written as a generator."""

import asyncio
import html
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import ipywidgets as widgets

from labkit.lab.panels.figures.shown import Page, Shown, close, loop_here
from labkit.lab.panels.live.busy import Busy
from labkit.lab.panels.live.cells import MIN_SLEEP, begin, replace_earlier, run

SPEEDS = (1, 2, 5, 10, 20, 50, 100, "max")  # steps per second
MIN_INTERVAL = 0.1  # seconds between two status lines of a running loop


class Stepper(Shown):
    """Walk a generator of records forwards, and back to look at earlier ones.

    Back undoes nothing: Step then moves forward through the records that were kept, and
    draws a new one only when the newest is shown.

    Parameters
    ----------
    make_records : callable
        Returns a fresh generator that yields a record per step. A generator itself is
        accepted too, but then nothing can be reset. A TypeError for anything else.
    on_record : callable, is given each new record as soon as it was drawn
    on_show : callable, is given the record shown after a move among the records kept
    on_reset : callable, called before `make_records` is called again
    on_status : callable, called when the status line is written: of a running loop,
        at most ten times a second
    interactive : bool, make buttons; otherwise a static line is shown
    keep : int >= 1, number of newest records to which Back can go
    limit : int >= 1, number of records after which the loop counts as exhausted
    speed : int or "max", steps per second of Run at first, one of ``SPEEDS``
    beside : sequence of widgets, shown in the line of the status

    Attributes
    ----------
    position : int, number of the record shown, from 1; 0 before the first
    error : BaseException or None, what stopped the loop, with its traceback
    widget : ipywidgets.VBox or None
        Buttons (CSS classes ``labkit-step``, ``-back``, ``-run``, ``-pause``,
        ``-reset``), speed slider (``labkit-speed``), status (``labkit-status``).

    Examples
    --------
    >>> stepper = Stepper(lambda: iter("abc"), interactive=False)
    >>> stepper.step(2), stepper.back(), stepper.run(), stepper
    ('b', 'a', 'c', Stepper(step 3 of 3, finished))
    """

    def __init__(
        self,
        make_records: Callable[[], Iterator] | Generator,
        *,
        on_record: Callable[[Any], None] | None = None,
        on_show: Callable[[Any], None] | None = None,
        on_reset: Callable[[], None] | None = None,
        on_status: Callable[[], None] | None = None,
        interactive: bool = True,
        keep: int = 1000,
        limit: int | None = None,
        speed: int | str = "max",
        beside: Sequence[widgets.Widget] = (),
        clock: Callable[[], float] = time.monotonic,
    ):
        if not callable(make_records) and not isinstance(make_records, Iterator):
            message = "make_records must be a function that returns a generator, or a"
            raise TypeError(f"{message} generator, got {type(make_records).__name__}")
        for name, count in (("keep", keep), ("limit", limit)):
            if count is not None and count < 1:
                raise ValueError(f"{name} must be >= 1, got {count}")
        self._make = make_records if callable(make_records) else None
        self._on_record, self._on_show = on_record or _nothing, on_show or _nothing
        self._on_reset, self._on_status = on_reset or _nothing, on_status or _nothing
        self._limit, self._clock = math.inf if limit is None else limit, clock
        self._kept, self._next_status = deque(maxlen=keep), -math.inf
        self._turn = None  # identity of the loop that may go on; None: paused
        # JupyterLab may hear buttons on a thread of its own beside the running cell,
        # and a generator cannot be entered twice.
        self._lock = threading.RLock()
        self.loop = loop_here()  # of the cells, where what runs by itself runs
        self.interactive, self.widget = interactive, None
        self._begin(make_records() if self._make else make_records)
        if interactive:
            self._build(speed, beside)
            replace_earlier(self)
        self._refresh()

    @property
    def record(self) -> Any:
        """The record shown; None before the first."""
        at = self.position - 1 - self._count  # from the newest, at -1
        return self._kept[at] if self.position else None

    @property
    def records(self) -> list:
        """The records kept, oldest first."""
        return list(self._kept)

    @property
    def running(self) -> bool:
        """Whether a loop runs."""
        return self._turn is not None

    @property
    def exhausted(self) -> bool:
        """Whether the generator has ended or the limit is reached."""
        return self._ended or self._count >= self._limit

    @property
    def status(self) -> str:
        """One line: where the stepper is and what it does."""
        place = f"step {self.position} of {self._count}"
        if self.error is not None:
            return f"{place}, stopped: {type(self.error).__name__}: {self.error}"
        if self.running:
            return f"{place}, running"
        at_end = self.exhausted and self.position == self._count
        return f"{place}, {'finished' if at_end else 'paused'}"

    def step(self, n: int = 1) -> Any:
        """Go `n` records forward, first through those kept; return the one shown.

        Fewer when the generator ends.  An exception in the generator or in a callback
        is raised, and the stepper then refuses new records until it is reset.
        """
        self.pause()
        try:
            n -= self._forward(n)
            while n > 0 and self._advance():
                n -= 1
        finally:
            self._refresh()
        return self.record

    def back(self, n: int = 1) -> Any:
        """Show the record `n` earlier, at most the oldest kept, and return it."""
        if n < 0:
            raise ValueError(f"back goes n >= 0 records, got {n}")
        self.pause()
        target = max(self.position - n, self._oldest) if self._kept else 0
        moved, self.position = target != self.position, target
        self._refresh()
        if moved:
            self._on_show(self.record)
        return self.record

    def run(self, steps: int | None = None) -> Any:
        """Run in this cell: `steps` new records, or until exhausted if None.

        A plain loop: no button is heard until it ends.  A callback may end it by
        calling `pause`.  Returns the newest record.
        """
        self.pause()
        self._turn = turn = object()
        try:
            self._forward(self._count)
            left = math.inf if steps is None else steps
            while left > 0 and self._turn is turn and self._advance():
                left -= 1
                self._refresh(force=False)
        finally:
            if self._turn is turn:
                self._turn = None
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
            raise RuntimeError("start() needs an event loop; use run() here")
        self._turn = turn = object()
        # Kept, for the event loop itself holds tasks only weakly.
        self._task = begin(run(weakref.ref(self), turn), loop)
        self._refresh()
        return self._task

    @property
    def _oldest(self) -> int:
        return self._count - len(self._kept) + 1

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
        """Forget all records and begin with a fresh generator, if one can be made."""
        if self._make is None:
            message = (
                "cannot reset: this stepper was given a generator, which runs once"
            )
            raise RuntimeError(
                f"{message}; give it a function that returns a fresh one"
            )
        self.pause()
        with self._lock:
            getattr(self._records, "close", _nothing)()
            self._on_reset()
            self._begin(self._make())
        self._refresh()

    def between_steps(self) -> AbstractContextManager:
        """Hold the run between two steps, also one that another thread takes."""
        return self._lock

    def _begin(self, records: Iterator) -> None:
        self._records, self._ended, self.error = iter(records), False, None
        self._kept.clear()
        self._count = self.position = 0

    def _forward(self, n: int) -> int:
        """Move up to `n` records forward among those kept; return how many."""
        moved = max(0, min(n, self._count - self.position))
        self.position += moved
        if moved:
            self._on_show(self.record)
        return moved

    def _advance(self) -> bool:
        """Draw one new record and show it; False if there is none."""
        with self._lock:
            if self.error is not None:
                reason = f"({type(self.error).__name__}: {self.error})"
                message = f"the run has stopped {reason}; reset() begins anew"
                raise RuntimeError(message) from self.error
            if self.exhausted:
                return False
            try:
                record = next(self._records)
                self._kept.append(record)
                self._count += 1
                self.position = self._count
                self._on_record(record)
            except StopIteration:
                self._ended = True
            except BaseException as error:  # also an interrupt ends the generator
                self.error = error
                raise
            return not self._ended

    def take(self, turn: object) -> float | None:
        """Take a step of a running loop; return the seconds to the next, or None."""
        if self._turn is not turn:
            return None
        begin, goes_on = self._clock(), False
        try:
            self._forward(self._count)
            goes_on = not self._closed and self._advance() and not self.exhausted
        except Exception as error:  # nobody awaits the task: the status line tells
            self.error = error
        finally:
            if not goes_on and self._turn is turn:
                self._turn = None
            self._refresh(force=not goes_on)
        speed = self._speed.value if self.interactive else "max"
        left = (0.0 if speed == "max" else 1 / speed) - (self._clock() - begin)
        return max(MIN_SLEEP, left) if goes_on else None

    def _build(self, speed, beside) -> None:
        actions = {
            "step": (self.step, "step-forward", "One step forward"),
            "back": (self.back, "step-backward", "Look one record back"),
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
        if self._make is None:
            self._buttons["reset"].tooltip = "A generator given as such runs once"
        look = {"style": {"description_width": "auto"}, "layout": {"width": "220px"}}
        look |= {"description": "steps/s", "tooltip": "Steps per second of Run"}
        speed = widgets.SelectionSlider(options=SPEEDS, value=speed, **look)
        self._speed = speed.add_class("labkit-speed")
        self._label = widgets.Label().add_class("labkit-status")
        flow = {"flex_flow": "row wrap", "align_items": "center", "grid_gap": "0 12px"}
        row = widgets.HBox([*self._buttons.values(), self._speed], layout=flow)
        line = [self._label, *beside, Busy(self._lock)]
        self.widget = widgets.VBox([row, widgets.HBox(line, layout=flow)])

    def _clicked(self, action) -> None:
        try:
            action()
        except Exception as error:  # raised here it would only reach the server's log
            self.error = self.error or error
            self._refresh()

    def _refresh(self, force: bool = True) -> None:
        """Bring the status line and the buttons up to date."""
        now = self._clock()
        if not (force or now >= self._next_status):
            return
        self._next_status = now + MIN_INTERVAL
        self._on_status()
        if self.widget is None:
            return
        self._label.value = self.status
        done = self.error is not None or self.exhausted
        disabled = {
            "step": self.running or (done and self.position == self._count),
            "back": self.running or self.position <= self._oldest,
            "run": self.running or done,
            "pause": not self.running,
            "reset": self._make is None,
        }
        for name, value in disabled.items():
            self._buttons[name].disabled = value

    @property
    def _still(self) -> Page:
        return Page(f"<p>{html.escape(self.status)}</p>", repr(self))

    def __repr__(self) -> str:
        return f"Stepper({self.status})"


def _nothing(*_) -> None:
    """Stand in for a callback that nobody gave."""
