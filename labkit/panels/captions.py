"""What a figure says in words: a sentence below it, and a text in its place.

The sentence tells a reader what to look at; the text (alt text) tells someone who does
not see the figure what is drawn.  Both travel in the figure's ``layout.meta``.
"""

import contextlib
import html
import json
import threading
from collections.abc import Callable

import anywidget
import plotly.graph_objects as go
import traitlets
from IPython.display import display
from ipywidgets import VBox

from labkit.panels.theme import dark, style, template

_DRAWN = "_js2py_traceDeltas"  # on_edits_completed would wait for what never comes
CONFIG = {"responsive": True, "displaylogo": False}
BELOW = "labkit-caption"  # class of the sentence, in widgets and pages alike
_STYLE = (
    style()
    + f".{BELOW} {{ max-width: 60em; margin: 0.2em 0 1em 0; font-style: italic; }}\n"
)

# In a page: the output before the sentence is the figure.
_SCRIPT = """
(() => {
  const mine = document.currentScript?.closest('.jp-OutputArea-child');
  const figure = mine?.previousElementSibling?.querySelector('.jp-OutputArea-output');
  figure?.setAttribute('role', 'img');
  figure?.setAttribute('aria-label', %s);
})();
"""


def describe(figure: go.Figure, caption: str, panels) -> go.Figure:
    """Write into a figure what it says in words, and return it.

    Parameters
    ----------
    figure : plotly Figure
    caption : str
        The sentence below the figure; none if empty.
    panels : iterable of str
        What each panel shows, see :func:`panel_text`.
    """
    title = figure.layout.title.text
    parts = [title] if title and title.strip() else []
    text = ". ".join([*parts, *panels, *([caption.rstrip(".")] if caption else [])])
    figure.layout.meta = {"caption": caption, "alt": f"{text}."}
    return figure


def panel_text(title: str, y: str, x: str, names=()) -> str:
    """Return in words what one panel shows.

    Examples
    --------
    >>> panel_text("Loss", "nats", "step", ["training", "test"])
    'Loss: nats against step; training; test'
    """
    axes = " against ".join(part for part in (y, x) if part)
    text = ": ".join(part for part in (title, axes) if part)
    return "; ".join(part for part in (text, *names) if part)


class Figure(go.Figure):
    """A finished figure that shows its caption below and describes itself.

    Examples
    --------
    >>> figure = describe(Figure(), "It falls.", ["Loss: nats against step"])
    >>> figure.layout.meta["alt"]
    'Loss: nats against step. It falls.'
    """

    def in_theme(self, theme: str) -> "Figure":
        """Return the figure in the theme ``"light"`` or ``"dark"``, to be exported."""
        template(theme)  # refuses what is no theme
        plain = self.to_plotly_json()
        return Figure(plain if theme == "light" else dark(plain))

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        plain = json.loads(self.to_json())
        return {
            "application/vnd.plotly.v1+json": plain | {"config": CONFIG},
            "text/plain": (self.layout.meta or {}).get("alt", "Figure"),
        }

    def _ipython_display_(self):
        display(self._repr_mimebundle_(), raw=True)
        if self.layout.meta:
            display(_below(self.layout.meta), raw=True)


def _below(meta) -> dict:
    """Return the output below a finished figure."""
    alt = json.dumps(meta["alt"]).replace("</", "<\\/")
    text = html.escape(meta["caption"])
    return {
        "text/html": f'<style>{_STYLE}</style><p class="{BELOW}">{text}</p>'
        f"<script>{_SCRIPT % alt}</script>",
        "text/plain": meta["caption"],
    }


class Caption(anywidget.AnyWidget):
    """The sentence below a live figure; names the figure above it for screen readers.

    A figure in a box takes the box's width only when the window says that its size
    has changed, so this says it, once the figure is there and whenever the box has
    another width.
    """

    text = traitlets.Unicode().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    _css = _STYLE
    _esm = """
    export default {
      render({ model, el }) {
        const line = document.createElement('p');
        line.className = 'labkit-caption';
        el.append(line);
        let width = 0;
        const show = () => {
          line.textContent = model.get('text');
          const plot = el.parentElement?.querySelector('.js-plotly-plot');
          plot?.setAttribute('role', 'img');
          plot?.setAttribute('aria-label', model.get('alt'));
          if (!plot?.querySelector('.main-svg')) return;
          come.disconnect();
          if (width === el.offsetWidth) return;
          width = el.offsetWidth;
          window.dispatchEvent(new Event('resize'));
        };
        const come = new MutationObserver(show);
        const sized = new ResizeObserver(() => {
          if (el.parentElement && !width) {
            come.observe(el.parentElement, { childList: true, subtree: true });
          }
          show();
        });
        sized.observe(el);
        model.on('change', show);
        return () => { sized.disconnect(); come.disconnect(); };
      },
    };
    """


def with_caption(figure: go.FigureWidget) -> VBox:
    """Return a live figure with its caption below it."""
    meta = figure.layout.meta
    box = VBox([figure, Caption(text=meta["caption"], alt=meta["alt"])])
    box.layout.width = "100%"
    return box


class LiveFigure(go.FigureWidget):
    """A widget that the browser's messages and redraws change one at a time.

    JupyterLab hands messages to a thread of their own, beside the one that a run goes
    on in. While ipywidgets takes a message in, it holds back what is sent; a redraw
    from the other thread would be lost then, and never confirmed.
    """

    # Here, for plotly refuses attributes that the class does not know.
    _one_at_a_time = None
    _on_drawn = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._one_at_a_time = threading.RLock()

    @property
    def lock(self) -> threading.RLock:
        """Whoever holds it changes the figure alone."""
        return self._one_at_a_time

    @property
    def edits(self) -> int:
        """Number of changes sent to the browser; what changes nothing is not sent."""
        return self._last_trace_edit_id

    def when_drawn(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called whenever the browser has drawn a change."""
        self._on_drawn = callback

    def set_state(self, sync_data):
        """Take in what the browser says.

        What it sends after every drawing, the defaults that it has filled in, is told
        to `when_drawn` and goes no further: nobody asks for them, and plotly 7 fails
        over those of arrays.
        """
        drawn = sync_data.get(_DRAWN) is not None
        rest = {name: value for name, value in sync_data.items() if name != _DRAWN}
        with self._one_at_a_time:
            if rest:
                super().set_state(rest)
            if drawn and self._on_drawn is not None:
                self._on_drawn()

    @contextlib.contextmanager
    def batch_update(self):
        """Send all changes made within in one message."""
        with self._one_at_a_time, super().batch_update():
            yield


class Shown:
    """Something that shows its ``widget`` if ``interactive``, else its ``figure``."""

    @property
    def _shown(self):
        return self.widget if self.interactive else self.figure

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        return self._shown._repr_mimebundle_(include=include, exclude=exclude)

    def _ipython_display_(self):
        display(self._shown)


def live(figure: go.Figure) -> LiveFigure:
    """Return a figure's widget, which takes the width of the page."""
    widget = LiveFigure(figure)
    widget._config = widget._config | CONFIG  # plotly's documented way
    return widget
