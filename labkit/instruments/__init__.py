"""Measure runs: traces, gradient quality, inputs and costs.

Instruments only observe: none changes what it measures or draws from a random number
generator, so a run with and without them gives bit-identical weights.
"""

from labkit.instruments.cost import Cost, cost
from labkit.instruments.gradient_noise import GradientNoise, Noise
from labkit.instruments.gradients import (
    gradient_cosine,
    gradient_variance,
    relative_variance,
)
from labkit.instruments.inputs import angle, best_ratio
from labkit.instruments.trace import Trace

__all__ = [
    "Cost",
    "GradientNoise",
    "Noise",
    "Trace",
    "angle",
    "best_ratio",
    "cost",
    "gradient_cosine",
    "gradient_variance",
    "relative_variance",
]
