"""The worked example of notebook 02: what two hidden neurons should have been."""

from collections.abc import Sequence

import numpy as np

from labkit.lab.panels.figures.planes import arrow, dots, path, planes, put
from labkit.lab.panels.figures.theme import COLOURS, INK

VALUES = np.array([0.2, 0.6])  # of the two neurons
WEIGHTS = np.array([1.0, 2.0])  # from them to the output
WANTED = 2.4  # the output that the sample should have
ENDS = ((-0.1, 1.4), (0.0, 1.35))
ALONE, TOGETHER = "each alone (5)", "both together (5')"


def answers() -> dict[str, float]:
    """Return what is filled in: the residual, and both neurons by (5) and by (5')."""
    residual = WANTED - VALUES @ WEIGHTS
    alone = VALUES + residual / WEIGHTS
    together = VALUES + residual * WEIGHTS / (WEIGHTS @ WEIGHTS)
    boxes = {"r": residual}
    boxes |= {f"ĥ{i}, alone": each for i, each in zip("₁₂", alone, strict=True)}
    return boxes | {f"ĥ{i}, together": e for i, e in zip("₁₂", together, strict=True)}


def worked(values: Sequence[float]) -> dict:
    """Draw the plane of both neurons, and the two corrections as they are filled in.

    ``values`` are those of :func:`answers`, nan where nothing is filled in.
    """
    figure = planes(
        ["Values of the two hidden neurons"],
        ["first neuron"],
        ["second neuron"],
        [ENDS],
        caption="On the line the output is right. (5') goes straight to it; where each "
        "neuron repairs the whole residual, both together go twice as far.",
        height=400,
        square=True,
    )
    ends = np.array(ENDS[0])
    line = np.c_[ends, (WANTED - WEIGHTS[0] * ends) / WEIGHTS[1]]
    put(figure, 0, [path(line, INK, "output is right", dash="dot")])
    put(figure, 0, [dots(VALUES, INK, "values now", size=9)])
    corrected = {ALONE: values[1:3], TOGETHER: values[3:5]}
    for (name, point), colour in zip(corrected.items(), COLOURS[1:3], strict=True):
        if np.isfinite(point).all():
            put(figure, 0, [arrow(VALUES, np.array(point), colour, name)])
    return figure
