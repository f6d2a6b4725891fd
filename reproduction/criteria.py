"""Judging against a number that a paper prints without saying how it varies."""

import math
from collections.abc import Mapping

from labkit.lab.claims import NO, UNDECIDED, YES

WITHIN = (
    "yes where the paper's number lies within two standard deviations over the seeds "
    "of our mean, no where it does not, and undecided where there is one seed"
)


def within(row: Mapping[str, float], number: float) -> str:
    """Whether a number lies within two sd of a row of `labs.race.spread`."""
    if math.isnan(row["mean"] + row["sd"]):
        return UNDECIDED
    return YES if abs(row["mean"] - number) <= 2 * row["sd"] else NO
