"""What several notebooks need: their common knobs, places in a knob, a judgement."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from labkit.lab.panels import knob
from labkit.lab.panels.measured import Finding

live_knob = partial(knob, restart=False)
seed_knob = partial(knob, 0, low=0, high=99)
noise_knob = partial(knob, low=0.0, high=1.0, step=0.05, unit="sd")
labels_knob = partial(knob, 0.0, low=0.0, high=0.8, step=0.05, unit="share")


def place_of(name: str, text: str, wide: float) -> np.ndarray:
    """Parse the place (2,) that a knob of this name has; a ValueError if it is none."""
    try:
        place = np.array([float(each) for each in text.split()])
        if place.shape == (2,) and (abs(place) <= wide).all():
            return place
    except ValueError:
        pass
    allowed = f"two numbers from {-wide:g} to {wide:g}, such as '0.5 -1'"
    raise ValueError(f"{name} must be {allowed}, got {text!r}")


def place_dragged(
    _now: object,
    _knobs: object,
    name: str,
    _index: int,
    point: Sequence[float],
    *,
    low: float,
    high: float,
) -> dict[str, str]:
    """Return the knob of the place that a hand has dragged, cut to its bounds."""
    first, second = np.clip(point, low, high)
    return {name: f"{first:.2f} {second:.2f}"}


def judged(words: str, values: pd.Series, least: float = 0.0) -> Finding:
    """Judge whether a number, one for each seed, is above ``least`` in the mean.

    ``words`` have ``{}`` for the mean and its standard error.
    """
    mean, error = float(values.mean()), float(values.sem())
    return Finding(words.format(f"{mean:.3g} ± {error:.2g}"), mean - least, error)
