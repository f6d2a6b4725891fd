"""A plotly figure as a widget whose state is its data."""

import threading
from collections.abc import Callable
from pathlib import Path

import anywidget
import plotly.graph_objects as go
import traitlets
from plotly.offline import get_plotlyjs

from labkit.panels.captions import CONFIG, STYLE

ASKED = "plotly.js"


class Plot(anywidget.AnyWidget):
    """A figure that a page shows as it is now, whenever the page attaches.

    plotly's own ``FigureWidget`` keeps in its state what it was made with, so that a
    page that is loaded again shows that, and brings plotly.js along in each figure.
    Here the state is the figure, and a page asks for plotly.js once.

    Attributes
    ----------
    figure : str, the figure as JSON; ``version`` counts how often it was another
    lock : RLock, whoever holds it changes the figure alone
        JupyterLab hands messages to a thread beside the one that a run goes on in.
    """

    figure = traitlets.Unicode().tag(sync=True)
    config = traitlets.Dict(CONFIG).tag(sync=True)
    version = traitlets.Int(0).tag(sync=True)
    _css = STYLE
    _esm = Path(__file__).with_name("plot.js")

    def __init__(self, shown: go.Figure):
        self.lock, self._on_drawn = threading.RLock(), None
        super().__init__(figure=shown.to_json())
        self.layout.width = "100%"
        self.on_msg(self._heard)

    def show(self, shown: go.Figure) -> bool:
        """Send a figure in place of the last; returns whether it is another."""
        text = shown.to_json()
        with self.lock:
            if text == self.figure:
                return False
            with self.hold_sync():
                self.figure = text
                self.version += 1
            return True

    def when_drawn(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called whenever a page has drawn the newest figure."""
        self._on_drawn = callback

    def _heard(self, _, content, buffers) -> None:
        if content == ASKED:
            self.send(ASKED, [get_plotlyjs().encode()])
        elif self._on_drawn and content.get("drawn") == self.version:
            self._on_drawn()
