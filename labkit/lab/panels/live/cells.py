"""Panels that run: one at a time from each cell of a notebook, and each its share."""

import asyncio
import time
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from IPython import get_ipython

from labkit.lab.panels.figures.shown import loop_here

MIN_SLEEP = 0.001  # seconds per step in which buttons and sliders are heard

_made: dict[str, tuple[str, list[weakref.ref]]] = {}  # by cell: its run, its panels


def replace_earlier(panel: Any) -> None:
    """Close what the same cell made when it ran before, since nobody can reach it."""
    parent = _parent()
    cell = parent.get("metadata", {}).get("cellId")
    if cell is None:  # no notebook, or one that does not say which cell runs
        return
    run = parent["header"]["msg_id"]
    before, panels = _made.get(cell, (run, []))
    if before != run:
        for earlier in filter(None, (made() for made in panels)):
            earlier.close()
        panels = []
    _made[cell] = run, [*panels, weakref.ref(panel)]


def _parent() -> dict:  # the message that the kernel answers by what runs now
    return getattr(get_ipython(), "get_parent", dict)()


_shares: "weakref.WeakSet[Share]" = weakref.WeakSet()


class Share:
    """Kernel time of one loop among several that run at once.

    A loop takes a step only while no other that is ready for one has had less time. A
    loop that slept, as at a low speed, is not paid back what it did not use.
    """

    def __init__(self):
        self.seconds, self.ready = 0.0, False
        _shares.add(self)

    def wake(self) -> None:
        """Be ready for a step."""
        others = [other.seconds for other in _shares if other.ready]
        self.seconds = max([self.seconds, *([min(others)] if others else [])])
        self.ready = True

    @property
    def ahead(self) -> bool:
        """Whether another loop that is ready has had less time."""
        return any(o.seconds < self.seconds for o in _shares if o.ready)


def begin(work: Coroutine, loop: asyncio.AbstractEventLoop) -> asyncio.Task | Future:
    """Begin a task on the loop of the cells, from whichever thread."""
    if loop is loop_here():
        return loop.create_task(work)
    return asyncio.run_coroutine_threadsafe(work, loop)


async def run(stepper_ref: weakref.ref, turn: object) -> None:
    """Run a stepper, held weakly: one that nobody can reach any more stops."""
    share, wait = Share(), 0.0
    try:
        while wait is not None:
            share.wake()
            while share.ahead:
                await asyncio.sleep(MIN_SLEEP)
            if not (stepper := stepper_ref()):
                return
            begin = time.monotonic()
            wait = stepper.take(turn)
            del stepper
            share.seconds += time.monotonic() - begin
            share.ready = wait == MIN_SLEEP
            await asyncio.sleep(wait or 0)
    finally:  # also of an interrupt, whose traceback keeps the share
        share.ready = False
