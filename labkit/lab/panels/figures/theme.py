"""The style of every figure, on white and on black: colours, dashes, markers, axes.

Figures are drawn in the colours for white. On black each colour has a twin, which
:func:`style` puts in its place in a page.

Curves stand at least 3 : 1 from the background, the first five and all text at least
4.5 : 1 (WCAG 2, on #FFFFFF and #111111), and any two curves stay apart under each
form of colour blindness. Dash and marker repeat what the colour says.
"""

from collections.abc import Iterable
from itertools import count
from math import log10
from typing import Any

from labkit.lab.colours import NUMBERS, number_of

# On white, and the twin on black.
CURVES = {
    "#1D2FBF": "#6F86FF",  # blue
    "#C25310": "#E07025",  # vermilion
    "#477F50": "#5CF0B0",  # green
    "#452B00": "#FFE14D",  # brown, yellow
    "#831268": "#B5709F",  # purple
    "#3A97D0": "#9AD0F5",  # sky blue
    "#000000": "#FFFFFF",  # black, white
}
COLOURS = tuple(CURVES)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")

PAPER = "#FFFFFF"
INK = "#333333"
GRID = "#E6E6E6"
GHOST = "#A6A6A6"  # an earlier run, on white and on black
BUTTON = "#767676"  # legible on both
TWINS = CURVES | {PAPER: "#111111", INK: "#DEDEDE", GRID: "#3A3A3A"}

FITS = 700  # pixels: the room for a figure in a window of 900
WIDEST = 960  # pixels that a figure may grow to
PLAIN = {"showline": False, "ticks": "", "showgrid": False, "zeroline": False}


def colour_of(rule: str) -> str:
    """Return the colour of a rule, on white; a KeyError for one without."""
    return COLOURS[NUMBERS[rule] % len(COLOURS)]


def numbers(labels: Iterable[str]) -> dict[str, int]:
    """Return each label's number of a colour: its rule's, or a free one.

    See :func:`labkit.lab.colours.number_of`. A second label of the same rule has the
    same colour, with another dash.

    Examples
    --------
    >>> numbers(["Adam", "loss", "8-OK", "Adam, tuned"])
    {'Adam': 4, '8-OK': 9, 'Adam, tuned': 11, 'loss': 0}
    """
    labels, chosen = list(dict.fromkeys(labels)), {}
    for label in labels:
        number = number_of(label)
        while number in chosen.values():
            number += len(COLOURS)
        if number is not None:
            chosen[label] = number
    taken = {number % len(COLOURS) for number in chosen.values()}
    free = (i for i in count() if i >= len(COLOURS) or i not in taken)
    return chosen | {label: next(free) for label in labels if label not in chosen}


_CLEAR = "rgba(0,0,0,0)"
_LINE = {
    "showline": True,
    "linecolor": INK,
    "ticks": "outside",
    "tickcolor": INK,
    "gridcolor": GRID,
    "zeroline": False,
    "exponentformat": "e",
    "automargin": True,
    "title": {"standoff": 8, "font": {"size": 12}},
}
# The lab's plotly template, as plain data.
TEMPLATE = {
    "layout": {
        "colorway": list(COLOURS),
        "font": {"family": "sans-serif", "size": 12, "color": INK},
        "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER,
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": PAPER, "bordercolor": INK, "font": {"color": INK}},
        "legend": {"bgcolor": _CLEAR, "font": {"size": 12}},
        "modebar": {
            "bgcolor": _CLEAR,
            "color": BUTTON,
            "activecolor": BUTTON,
            "remove": [
                "select",
                "lasso",
                "zoomin",
                "zoomout",
                "autoscale",
                "sendChartToCloud",  # nothing leaves this machine
            ],
        },
        "xaxis": _LINE,
        "yaxis": _LINE,
    }
}


def style() -> str:
    """Return CSS that draws figures in dark on a page that says it is dark.

    JupyterLab's does by ``data-jp-theme-light``, and so do pages of runs. Nothing is
    drawn anew, so that a change of theme costs a figure nothing.
    """
    rules = [".main-svg { background: transparent !important; }"]
    for light, twin in TWINS.items():
        red, green, blue = (int(light[i : i + 2], 16) for i in (1, 3, 5))
        rgb = f"rgb({red}, {green}, {blue})"
        for kind in ("stroke", "fill"):
            marked = f'[style*="{kind}: {rgb}"], [{kind}="{rgb}"]'
            rules.append(f"{marked} {{ {kind}: {twin} !important; }}")
    inner, plot = "\n".join(rules), ".js-plotly-plot"
    width = f"{plot} {{ max-width: {WIDEST}px; }}\n"
    return f'{width}[data-jp-theme-light="false"] {plot} {{\n{inner}\n}}\n'


def layout(*, height: float | None, **more: Any) -> dict:
    """Return the layout shared by all figures, as plain data; entries in ``more`` win.

    A figure takes the width of the page, up to 960 pixels.
    """
    # Above the panels' titles there is room for plotly's buttons.
    margin = {"l": 70, "r": 20, "t": 56, "b": 50}
    base = {"template": TEMPLATE, "height": height, "margin": margin, "autosize": True}
    return base | more


def axis(
    title: str, *, log: bool = False, limits: tuple[float, float] | None = None
) -> dict:
    """Return one axis as plain data; without limits it fits the data.

    ``limits`` are in data units.
    """
    line = {"title": {"text": title}, "type": "log" if log else "linear"}
    if log:
        line |= {"nticks": 3, "tickformat": "~g"}  # else 2 and 5 are small, and alone
    if limits is None:
        return line
    return line | {"range": [log10(limit) if log else float(limit) for limit in limits]}
