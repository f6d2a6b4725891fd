"""How every figure looks: colours, dashes, markers, axes.

The colours are those of Okabe and Ito (2008), told apart by readers with any form of
colour blindness; dash and marker repeat what the colour says, for print in grey.
"""

from math import log10

COLOURS = (
    "#0072B2",  # blue
    "#D55E00",  # vermilion
    "#009E73",  # bluish green
    "#E69F00",  # orange
    "#CC79A7",  # reddish purple
    "#56B4E9",  # sky blue
    "#000000",  # black
)  # the eighth, yellow, is left out: it is hard to see on white
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")

INK = "#333333"
GRID = "#E6E6E6"


def layout(title: str = "", *, width: int, height: int, **more) -> dict:
    """Return the layout shared by all figures, as plain data.

    Parameters
    ----------
    title : str
        The figure's title; none if empty.
    width, height : int
        Size in pixels; fixed, since a figure in a box does not resize by itself.
    **more
        Further plotly layout entries; they win.

    Examples
    --------
    >>> layout("Loss", width=480, height=320)["template"]
    'none'
    """
    base = {
        "template": "none",  # plotly's default template is 7 kB in every figure
        "width": width,
        "height": height,
        "colorway": list(COLOURS),
        "font": {"family": "sans-serif", "size": 12, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 70, "r": 20, "t": 90 if title else 56, "b": 50},
        "hovermode": "closest",
    }
    if title:
        base["title"] = {
            "text": title,
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 12},
            "font": {"size": 16},
        }
    return base | more


def axis(title: str, *, log: bool = False, limits=None) -> dict:
    """Return one axis as plain data.

    Parameters
    ----------
    title : str
        What the axis shows, with its unit.
    log : bool
        Logarithmic scale, base 10.
    limits : pair of float, optional
        Ends of the axis in data units; ``None`` fits the data.

    Raises
    ------
    ValueError
        If a logarithmic axis is given limits that are not positive.
    """
    line = {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "type": "log" if log else "linear",
        "showline": True,
        "linecolor": INK,
        "ticks": "outside",
        "tickcolor": INK,
        "gridcolor": GRID,
        "zeroline": False,
        "exponentformat": "power",
        "automargin": True,
    }
    if limits is not None:
        line["range"] = list(_exponents(limits) if log else map(float, limits))
    return line


def _exponents(limits) -> list[float]:
    if min(limits) <= 0:
        raise ValueError(f"a logarithmic axis needs limits > 0, got {tuple(limits)}")
    return [log10(limit) for limit in limits]
