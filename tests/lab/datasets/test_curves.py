"""The stand-in for CURVES: how it is drawn, and its statistics."""

import itertools
import math

import numpy as np
import pytest
import scipy.ndimage
import torch

from labkit.lab.datasets import load
from labkit.lab.datasets.synthetic import draw_curves

POINTS = [
    [[3.0, 4.0], [20.5, 9.25], [8.0, 24.0]],
    [[12.0, 12.0], [12.0, 12.0], [12.0, 12.0]],  # no length
    [[5.0, 5.0], [5.0, 15.0], [5.0, 23.0]],  # straight, and not evenly run
    [[4.0, 3.5], [3.0, 24.0], [23.0, 3.0]],  # leaves the canvas
]


def naive(points):
    """Draw one image, with loops."""
    curve = []
    for k in range(201):
        t = k / 200
        a, b, c = (1 - t) * (1 - 2 * t), 4 * t * (1 - t), t * (2 * t - 1)
        place = a * points[0] + b * points[1] + c * points[2]
        curve.append(np.clip(place, 0, 27))
    lengths = [math.dist(p, q) for p, q in itertools.pairwise(curve)]
    run = np.concatenate([[0], np.cumsum(lengths)])
    image = np.zeros((29, 29))
    for k in range(120):
        s = (k + 0.5) / 120 * run[-1]
        y, x = (np.interp(s, run, [p[axis] for p in curve]) for axis in (0, 1))
        i, j = math.floor(y), math.floor(x)
        for di, dj in ((0, 0), (0, 1), (1, 0), (1, 1)):
            share = (1 - abs(y - i - di)) * (1 - abs(x - j - dj))
            image[i + di, j + dj] += 1.3 * run[-1] / 120 * share
    image = image[:28, :28]
    for axis in (0, 1):
        blur = [0.15, 0.7, 0.15]
        image = scipy.ndimage.convolve1d(image, blur, axis=axis, mode="constant")
    return np.minimum(image, 1)


def test_a_curve_is_drawn_as_described():
    found = draw_curves(torch.tensor(POINTS, dtype=torch.float64))
    # Both sum some hundred terms in float64.
    for image, points in zip(found, POINTS, strict=True):
        np.testing.assert_allclose(image, naive(np.array(points)), rtol=0, atol=1e-12)


def test_statistics():
    inputs = load("curves", "test", dtype=torch.float64).inputs
    assert inputs.shape == (10_000, 784)
    assert inputs.min() >= 0 and inputs.max() == 1
    # Of images drawn apart: a standard error of 1 %, and the figures' rounding.
    assert inputs.mean().item() == pytest.approx(0.037, rel=0.05)
    assert inputs.square().sum(1).mean().item() == pytest.approx(16.4, rel=0.05)
