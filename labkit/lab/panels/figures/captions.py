"""What a figure says in words: a sentence below it, and a text in its place.

The sentence tells a reader what to look at; the text (alt text) tells someone who does
not see the figure what is drawn.  Both travel in the figure's ``layout.meta``.
"""

import html
import json

import plotly.graph_objects as go
from IPython.display import display

from labkit.lab.panels.figures.theme import style

CONFIG = {"responsive": True, "displaylogo": False}
BELOW = "labkit-caption"  # class of the sentence, in widgets and pages alike
_LOOK = "max-width: 60em; margin: 0.2em 0 1em 0; font-style: italic;"
STYLE = f"{style()}.{BELOW} {{ {_LOOK} }}\n"

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
    """Write into a figure the sentence below it and its text, and return it.

    ``panels`` holds what each panel shows, see :func:`panel_text`.
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
    """A finished figure that shows its caption below and describes itself."""

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        plain = json.loads(self.to_json())
        return {
            "application/vnd.plotly.v1+json": plain | {"config": CONFIG},
            "text/plain": (self.layout.meta or {}).get("alt", "Figure"),
        }

    def _ipython_display_(self):
        self.placed()

    def placed(self):
        """Display it; returns the handle of its place, None outside IPython."""
        place = display(self._repr_mimebundle_(), raw=True, display_id=True)
        if meta := self.layout.meta:
            alt = json.dumps(meta["alt"]).replace("</", "<\\/")
            below = f'<p class="{BELOW}">{html.escape(meta["caption"])}</p>'
            page = f"<style>{STYLE}</style>{below}<script>{_SCRIPT % alt}</script>"
            display({"text/html": page, "text/plain": meta["caption"]}, raw=True)
        return place
