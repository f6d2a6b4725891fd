"""A line in a panel that says when the kernel is at work and what waits for it."""

import threading
from pathlib import Path

import anywidget

_STYLE = """
.labkit-busy { margin: 0 0 0 1em; font-style: italic; }
.labkit-queued { outline: 2px dashed currentColor; outline-offset: -3px; }
"""


class Busy(anywidget.AnyWidget):
    """Says, in the page, that the kernel has not answered for half a second.

    A kernel that runs a cell or a long step cannot tell, so the page asks and notes
    how long the answer takes; meanwhile it names the buttons clicked and marks them.

    Parameters
    ----------
    lock : RLock held while a step is taken, perhaps on another thread; none by default
    """

    _css = _STYLE
    _esm = Path(__file__).with_name("busy.js").read_text("utf-8")  # see panels/plot.py

    def __init__(self, lock=None):
        self._lock = lock or threading.RLock()
        super().__init__()
        self.on_msg(self._asked)

    def _asked(self, _widget, _content, _buffers) -> None:
        free = self._lock.acquire(blocking=False)
        self.send("free" if free else "busy")
        if free:
            self._lock.release()
