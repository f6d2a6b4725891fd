"""What several notebooks need: a place that is written in a knob, and a judgement."""

import numpy as np
import pandas as pd

from labkit.lab.panels.measured import Finding


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


def judged(words: str, values: pd.Series, least: float = 0.0) -> Finding:
    """Judge whether a number, one for each seed, is above ``least`` in the mean.

    ``words`` have ``{}`` for the mean and its standard error.
    """
    mean, error = float(values.mean()), float(values.sem())
    return Finding(words.format(f"{mean:.3g} ± {error:.2g}"), mean - least, error)
