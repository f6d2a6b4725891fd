"""A plotly figure as a widget whose state is its data."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from importlib.resources import files

import traitlets

from labkit.lab.panels.figures.captions import CONFIG, STYLE, as_json
from labkit.lab.panels.figures.heard import HEARING, Heard
from labkit.lab.panels.figures.shown import REDRAW, loop_here

ASKED = "plotly.js"
SOON = 0.1  # seconds until another is sent to a page that was never heard, then doubled
MAX_WAIT = 10.0  # seconds until a figure that no page confirms is followed by another
GIVE_UP = 20.0  # seconds without a page that draws: a run goes on without this figure
# JupyterLab shows the first line of code that is folded, and does not break it. A long
# one would make the whole notebook wider than its page.
FOLDED = """
.jp-Notebook .jp-InputPlaceholder > .jp-Placeholder-content { min-width: 0 }
.jp-Notebook .jp-InputPlaceholder .jp-PlaceholderText { text-overflow: ellipsis }
"""


def plotly_js() -> bytes:
    """Return the script of plotly.js, 5 MB; to import plotly for it takes longer."""
    return files("plotly").joinpath("package_data/plotly.min.js").read_bytes()


class Plot(Heard):
    """A figure that a page shows as it is now, whenever the page attaches.

    plotly's own ``FigureWidget`` keeps in its state what it was made with, so that a
    page that is loaded again shows that, and brings plotly.js along in each figure.
    Here the state is the figure. A kernel's first figure brings plotly.js along, since
    a kernel that is at work in the next cell answers no question; a page without asks.

    A page that has drawn says so. From one that has not, the next figure is held back,
    and the newest goes out as soon as it has: at most one is on its way, or a few
    to a page that was never heard, as one that still loads. Where none draws for twenty
    seconds nothing is sent any more, until a page speaks again, as one does whose
    connection is back: it is sent the newest figure, since it may have missed some.

    Parameters
    ----------
    shown : Figure, the first one
    ahead : bool, send the next while the page draws one, as of what moves
    clock : callable, returns the time in seconds; for tests

    Attributes
    ----------
    figure : str, the figure as JSON; ``version`` counts how often it was another
    sent : float, when the last one left, by ``clock``
    lost : bool, whether nothing is sent any more; the figure's place says so
    touched : dict, what a hand on the page holds or points at, and where it is now
        ``name``: of a trace whose ``meta`` is ``{"touch": name}``; ``index`` of its
        point, None in a heat map; ``x``, ``y`` of the hand on the trace's axes;
        ``drag``, the same from press to release. While the kernel is at work only the
        newest place waits.
    lock : RLock, whoever holds it changes the figure alone
        JupyterLab hands messages to a thread beside the one that a run goes on in.
    """

    figure = traitlets.Unicode().tag(sync=True)
    config = traitlets.Dict(CONFIG).tag(sync=True)
    version = traitlets.Int(0).tag(sync=True)
    lost = traitlets.Bool(False).tag(sync=True)
    ahead = traitlets.Bool(False).tag(sync=True)
    touched = traitlets.Dict().tag(sync=True)
    library = traitlets.Bytes().tag(sync=True)
    _brought = False  # whether a figure of this kernel has brought plotly.js
    _css = STYLE + FOLDED
    # As text: of a Path anywidget keeps every widget that was ever made, to reload it.
    _esm = HEARING + "".join(
        path.read_text("utf-8") for path in (REDRAW, REDRAW.with_name("plot.js"))
    )

    def __init__(
        self,
        shown: Mapping,
        *,
        ahead: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.lock, self._on_drawn, self._clock = threading.RLock(), None, clock
        self.sent, self._owed, self._answers = -math.inf, 0, False
        self._held = None  # a figure that waits for its turn
        self._taken = False  # whether a page draws the newest, and wants one ahead
        self._watch = None  # gives up unless a page draws
        self._later = None  # hands the figure over that waits
        library = b"" if Plot._brought else plotly_js()
        super().__init__(figure=as_json(shown), ahead=ahead, library=library)
        Plot._brought = True
        self.layout.width = "100%"
        self.on_msg(self._heard)

    @property
    def due(self) -> float:
        """The earliest time at which another figure is sent."""
        if self.lost:
            return math.inf
        if not self._owed or self._taken:
            return -math.inf
        rest = MAX_WAIT if self._answers else SOON * 2 ** min(self._owed - 1, 9)
        return self.sent + min(MAX_WAIT, rest)

    def show(self, shown: Mapping) -> bool:
        """Show a figure in place of the last, soon; returns whether it is another."""
        text = as_json(shown)
        with self.lock:
            if text == (self._held or self.figure):
                return False
            self._held = text
            if (wait := self.due - self._clock()) <= 0:
                self._hand_over()
            elif self._later is None and wait < math.inf and (loop := loop_here()):
                # A page that has said nothing by then gets it all the same.
                self._later = loop.call_later(wait, self._wait_no_longer)
            return True

    def flush(self) -> None:
        """Send the newest figure, also to a page that has not drawn the last one."""
        with self.lock:
            if self._held is not None:
                self._hand_over()

    def _wait_no_longer(self) -> None:
        with self.lock:
            self._later, text = None, self._held
            if text is not None and not self.lost:
                self._hand_over()

    def _hand_over(self) -> None:
        with self.hold_sync():
            self.figure, self._held = self._held, None
            self.version += 1
        self.sent, self._owed, self._taken = self._clock(), self._owed + 1, False
        self._watch_it()

    def _watch_it(self) -> None:
        if self._watch is None and (loop := loop_here()):
            # In a cell that blocks the kernel no page is heard, nor is this called.
            self._watch = loop.call_later(GIVE_UP, self._give_up)

    def _give_up(self) -> None:
        with self.lock:
            self._watch, self.lost = None, True

    def when_drawn(self, callback: Callable[[float], None]) -> None:
        """Have ``callback(seconds)`` called when a page has drawn the newest figure."""
        self._on_drawn = callback

    def _heard(self, _, content, buffers) -> None:
        if content == ASKED:
            self.send(ASKED, [plotly_js()])
            return
        with self.lock:
            if self.lost:  # the page speaks again, and may have missed some
                self._alive()
                self.flush()
                self.send_state(("figure", "version", "lost"))
            elif "has" in content:  # so may a script that has just come
                if content["has"] != self.version:
                    self.send_state(("figure", "version", "lost"))
            elif content.get("taken") == self.version:
                self._taken = True
                if self._held is not None:
                    self._hand_over()
            elif content.get("drawn") == self.version:
                self._drawn()
            elif self.ahead and content.get("drawn") == self.version - 1:
                self._alive(owed=1)

    def _alive(self, owed: int = 0) -> None:
        """Hear that a page draws; so many are still on their way to it."""
        self._owed, self._answers, self.lost = owed, True, False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if owed:
            self._watch_it()

    def _drawn(self) -> None:
        owed, seconds = self._owed, self._clock() - self.sent
        self._alive()
        if self._held is not None:
            self._hand_over()
        elif owed and self._on_drawn:
            self._on_drawn(seconds)
