"""One colour for each rule and method, in every figure of every notebook.

A number stands for a colour of the palette of :mod:`labkit.lab.panels.figures.theme`,
which has seven; from 7 on they come again, with another dash and an open marker.
"""

import re

# The last six belong to the fifth paper, and meet none of the others in a figure.
_IN_ORDER = (
    "SGD",
    "Hessian-free",
    "RLS",
    "broad",
    "Adam",
    "RLS+M",
    "HRLS+M",
    "BPLS",
    "BPLS-GN",
    "OK",
    "TBPTT",
    "UORO",
    "KF-AVG",
    "B-OK",
)
NUMBERS = {
    **{name: number for number, name in enumerate(_IN_ORDER)},
    "KF-RTRL": 12,
    "Greville solver": 1,
    "LSMR": 2,
    "ridge solver": 3,
    "CG": 4,
}


def number_of(label: str) -> int | None:
    """Return the number of the colour that a curve's label names; None if it does not.

    A label names a rule by itself, or by its first word: ``Adam, rate 1e-2``, ``8-OK``.

    Examples
    --------
    >>> number_of("Adam, rate 1e-2"), number_of("8-OK"), number_of("loss")
    (4, 9, None)
    """
    first = re.sub(r"^\d+-", "", re.split("[ ,]", label)[0])
    return NUMBERS.get(label, NUMBERS.get(first))
