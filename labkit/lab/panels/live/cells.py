"""Panels that run: those that a cell made end when it runs again."""

import asyncio
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


def begin(work: Coroutine, loop: asyncio.AbstractEventLoop) -> asyncio.Task | Future:
    """Begin a task on the loop of the cells, from whichever thread."""
    if loop is loop_here():
        return loop.create_task(work)
    return asyncio.run_coroutine_threadsafe(work, loop)


async def run(stepper_ref: weakref.ref, turn: object) -> None:
    """Run a stepper, held weakly: one that nobody can reach any more stops."""
    wait = 0.0
    while wait is not None:
        await asyncio.sleep(wait)
        if not (stepper := stepper_ref()):
            return
        wait = stepper.take(turn)
        del stepper
