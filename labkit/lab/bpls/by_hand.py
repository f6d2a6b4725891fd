"""One layer of BPLS above two neurons, and the picture beside its walk."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from labkit.lab.panels.figures.theme import COLOURS
from labkit.lab.panels.lines.sketch import Part, Plane, sketch

VALUES = (0.15, 0.3), (0.3, 0.2), (0.25, 0.55), (0.4, 0.7), (0.7, 0.65), (0.8, 0.3)
TARGETS = -1.0, -1.0, -1.0, 1.0, 1.0, 1.0
LIMITS = ((-0.9, 1.9), (-0.5, 1.3))
CORNER = -0.85, -0.45
BOX = (0, 0), (1, 0), (1, 1), (0, 1), (0, 0)  # what a sigmoid can give
MIDDLE, LONG = (0.5, 0.5), 0.4  # where arrows of weights begin; a weight of 1 in it
BLUE, ORANGE, GREEN = COLOURS[:3]


def small_layer() -> tuple[Tensor, Tensor]:
    """Return six samples' values in two sigmoid neurons (6, 2), and targets (6, 1)."""
    H = torch.tensor(VALUES, dtype=torch.float64)
    return H, torch.tensor(TARGETS, dtype=H.dtype)[:, None]


def layer_picture(values: Mapping[str, np.ndarray], changed: frozenset[str]) -> str:
    """Draw the plane of both neurons, as far as the layer has been solved.

    Parameters
    ----------
    values : mapping of the names in :func:`labkit.bpls.layer_step` to arrays
    changed : set of str, the names whose parts are lit
    """
    H = values["H"]
    parts = [Part("line", BOX, "", "#888888"), Part("dots", H)]
    for name, colour in (("V", BLUE), ("W", GREEN)):
        if name == "W" and np.array_equal(values.get("V"), values.get("W")):
            continue  # another function's name of V
        if name in values:
            end = np.array(MIDDLE) + LONG * values[name].ravel()
            lit = name in changed
            parts.append(Part("arrow", [MIDDLE, end], name, colour, lit))
    if "T" in values:
        pairs = zip(H, values["T"], strict=True)
        parts += [Part("arrow", pair, "", ORANGE, "T" in changed) for pair in pairs]
    if "C" in values:
        parts.append(Part("dots", values["C"], "", GREEN, "C" in changed))
    if "below" in values:
        least, most = values["below"].min(), values["below"].max()
        said = f"targets of the layer below: {least:.1f} to {most:.1f}"
        parts.append(Part("words", [CORNER], said, lit="below" in changed))
    planes = [
        Plane("Values of the two neurons, and the sigmoid's range", LIMITS, parts)
    ]
    return sketch(planes, "Values, corrected values and clamped values of six samples.")
