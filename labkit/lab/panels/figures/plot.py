"""A plotly figure as a widget whose state is its data."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from uuid import uuid4

import anywidget
import traitlets
from ipywidgets import Widget

from labkit.lab.panels.figures.captions import STYLE, as_json
from labkit.lab.panels.figures.shown import COMMON, loop_here

WAIT = 0.1  # seconds between two figures
MAX_SHARE = 0.2  # of the time goes to making them, however long that takes
MAX_WAIT = 10.0  # seconds until a figure that no page confirms is followed by another
# JupyterLab shows the first line of code that is folded, and does not break it. A long
# one would make the whole notebook wider than its page.
FOLDED = """
.jp-Notebook .jp-InputPlaceholder > .jp-Placeholder-content { min-width: 0 }
.jp-Notebook .jp-InputPlaceholder .jp-PlaceholderText { text-overflow: ellipsis }
"""


class Library(Widget):
    """The script of plotly.js, 5 MB, which a page takes from here for all its plots."""

    script = traitlets.Bytes().tag(sync=True)


@cache
def library() -> Library:
    """Return the kernel's one library; to import plotly for it would take longer."""
    script = files("plotly").joinpath("package_data/plotly.min.js").read_bytes()
    return Library(script=script)


class Plot(anywidget.AnyWidget):
    """A figure that a page shows as it is now, whenever the page attaches.

    plotly's own ``FigureWidget`` keeps in its state what it was made with, so that a
    page that is loaded again shows that, and brings plotly.js along in each figure.
    Here the state is the figure, and plotly.js that of one other widget, ``library``.

    A page that has drawn a figure says so, and is then sent the newest: one is on its
    way. Where none answers, one is sent every ten seconds.

    Parameters
    ----------
    make : callable, returns the figure; called when it is about to be sent

    Attributes
    ----------
    figure : str, the figure as JSON; ``version`` counts how often it was another
    touched : dict, what a hand on the page holds, and where it is now
        ``name``: of a trace whose ``meta`` is ``{"touch": name}``; ``index`` of its
        point; ``x``, ``y`` of the hand on the trace's axes; ``drag``, the same from
        press to release. While the kernel is at work only the newest place waits.
    """

    figure = traitlets.Unicode().tag(sync=True)
    version = traitlets.Int(0).tag(sync=True)
    touched = traitlets.Dict().tag(sync=True)
    library, own = (traitlets.Unicode().tag(sync=True) for _ in range(2))  # names
    _css = STYLE + FOLDED
    # As text: of a Path anywidget keeps every widget that was ever made, to reload it.
    _esm = "".join(
        path.read_text("utf-8") for path in (COMMON, COMMON.with_name("plot.js"))
    )

    def __init__(self, make: Callable[[], Mapping]):
        # JupyterLab hands messages to a thread beside the one that a run goes on in.
        self._lock = threading.RLock()
        self._make = make
        self._sent, self._next, self._owed = -math.inf, -math.inf, False
        self._changed, self._waits_in = False, None  # an event loop
        own, figure = uuid4().hex, as_json(make())
        super().__init__(
            model_id=own, own=own, figure=figure, library=library().model_id
        )
        self.layout.width = "100%"
        self.on_msg(self._hear)

    @property
    def due(self) -> float:
        """The earliest time at which another figure is sent."""
        return max(self._next, self._sent + MAX_WAIT * self._owed)

    def changed(self) -> None:
        """Have the figure made and sent anew, now or as soon as it is due."""
        with self._lock:
            self._changed = True
            if (wait := self.due - time.monotonic()) <= 0:
                self.flush()
            elif (loop := loop_here()) and loop is not self._waits_in:
                # Without an event loop nothing can be owed: the caller ends with flush.
                # That of a page that was left does not run, so another one is taken.
                self._waits_in = loop
                loop.call_later(wait, self._late)

    def _late(self) -> None:
        with self._lock:
            self._waits_in = None
            if self._changed:
                self.changed()

    def flush(self) -> None:
        """Send what has changed, also to a page that has not drawn the last one."""
        with self._lock:
            if not self._changed:
                return
            self._changed, begin = False, time.monotonic()
            text = as_json(self._make())
            end = time.monotonic()
            self._next = begin + max(WAIT, (end - begin) / MAX_SHARE)
            if text == self.figure:
                return
            with self.hold_sync():
                self.figure, self.version = text, self.version + 1
            self._sent, self._owed = end, True

    def _hear(self, _, content, buffers) -> None:
        with self._lock:
            if content.get("has", self.version) != self.version:
                self.send_state(("figure", "version"))  # it has missed some
            elif content.get("drawn") == self.version:
                self._owed = False
                if self._changed:
                    self.changed()
