"""A finished figure: plain data that shows itself, with its caption and its words.

The caption tells a reader what to look at; the words (alt text) tell someone who does
not see the figure what is drawn. Both travel in the figure's ``layout``, as ``meta``.
"""

import base64
import html
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from labkit.lab.panels.figures.theme import style

CONFIG = {"responsive": True, "displaylogo": False}
BELOW = "labkit-caption"  # class of the caption, in widgets and pages alike
# plotly forgets a figure's height at a new size; the caption stands in the next output.
KEPT = """.jp-OutputArea-child:has(+ .jp-OutputArea-child .high-{0}) .js-plotly-plot {{
  min-height: {0}px }}
"""
STYLE = f"""{style()}.{BELOW} {{
  max-width: 60em; margin: 0.2em 0 0.5em 0; font-style: italic;
}}
.js-plotly-plot .modebar {{ opacity: 0; }}
.js-plotly-plot:hover .modebar, .js-plotly-plot:focus-within .modebar {{ opacity: 1; }}
.js-plotly-plot .plotly .modebar .modebar-btn:focus-visible {{ outline-color: #1E88E5 }}
"""
# What plotly.js reads as base64; other arrays become lists.
_BINARY = {"f8", "f4", "i4", "i2", "i1", "u4", "u2", "u1"}


class Figure(dict):
    """A figure as plain data, ``data`` and ``layout``, that shows its caption below.

    ``plotly.graph_objects.Figure(figure)`` makes plotly's own object of it.
    """

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        return {
            "application/vnd.plotly.v1+json": jsonable(self) | {"config": CONFIG},
            "text/plain": self["layout"].get("meta", {}).get("alt", "Figure"),
        }

    def _ipython_display_(self):
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)
        if meta := self["layout"].get("meta"):
            high = self["layout"].get("height") or 0
            below = f'<p class="{BELOW} high-{high}">{html.escape(meta["caption"])}</p>'
            page = {"text/html": f"<style>{STYLE}{KEPT.format(high)}</style>{below}"}
            display(page | {"text/plain": meta["caption"]}, raw=True)


def describe(figure: dict, caption: str, panels: Iterable[str]) -> Figure:
    """Write the caption and the words into a figure, and return it.

    ``panels`` holds what each panel shows, see :func:`panel_text`.
    """
    text = ". ".join(filter(None, [*panels, caption.rstrip(".")]))
    figure["layout"]["meta"] = {"caption": caption, "alt": f"{text}."}
    return Figure(figure)


def panel_text(
    title: str, y_title: str, x_title: str, names: Iterable[str] = ()
) -> str:
    """Return in words what one panel shows.

    Examples
    --------
    >>> panel_text("Loss", "nats", "step", ["training", "test"])
    'Loss: nats against step; training; test'
    """
    axes = " against ".join(part for part in (y_title, x_title) if part)
    text = ": ".join(part for part in (title, axes) if part)
    return "; ".join(part for part in (text, *names) if part)


def as_json(figure: Mapping) -> str:
    """Return a figure as JSON that plotly.js reads."""
    return json.dumps(jsonable(figure), separators=(",", ":"), allow_nan=False)


def jsonable(value: Any, floats: str = "") -> Any:
    """Return plain data that JSON has: arrays in base64, None for nan.

    ``floats`` is the type of those in arrays: "f4" is finer than a pixel. By default
    they stay as they are.

    Examples
    --------
    >>> jsonable({"x": [1, float("nan")], "y": np.array([2], dtype=np.uint8)})
    {'x': [1, None], 'y': {'dtype': 'u1', 'bdata': 'Ag=='}}
    """
    if isinstance(value, Mapping):
        return {key: jsonable(inside, floats) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(inside, floats) for inside in value]
    if isinstance(value, np.ndarray):
        value = (
            value.astype(floats or value.dtype) if value.dtype.kind == "f" else value
        )
        kind = value.dtype.str[1:]
        if kind not in _BINARY or value.ndim not in (1, 2):
            return jsonable(value.tolist())
        packed = base64.b64encode(np.ascontiguousarray(value).data).decode()
        shape = {"shape": ", ".join(map(str, value.shape))} if value.ndim == 2 else {}
        return {"dtype": kind, "bdata": packed} | shape
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
