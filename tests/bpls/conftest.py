"""What the tests of this room share: random numbers, least squares by NumPy, images."""

import os

import numpy as np
import pytest
import torch

from labkit.bpls import random_weights
from labkit.lab.datasets import load
from tests.draws import seeded

IMAGES = ("mnist", "fashion-mnist")
TRAIN = 40_000  # the first of the training file, as the reference counts have it


def start(*sizes, seed=0, dtype=torch.float64, **options):
    return random_weights(sizes, generator=seeded(seed), dtype=dtype, **options)


def ols(X, Y, X_new=None):
    """Minimum-norm least squares by NumPy's pseudoinverse, evaluated on X_new."""
    W = np.linalg.pinv(X.numpy(), rcond=1e-10) @ Y.numpy()
    return torch.from_numpy((X if X_new is None else X_new).numpy() @ W)


def blobs(samples=60, classes=3, *, seed=0, spread=2.0):
    """Overlapping classes around random centres."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=samples)
    centres = spread * rng.normal(size=(classes, 4))
    X = centres[y] + rng.normal(size=(samples, 4))
    return torch.from_numpy(X), torch.from_numpy(y)


def assert_all_close(found, expected, **tolerance):
    """The same weights, layer by layer."""
    for W, V in zip(found, expected, strict=True):
        torch.testing.assert_close(W, V, **tolerance)


def finite(weights):
    return all(torch.isfinite(W).all() for W in weights)


def images(name, dtype=torch.float64):
    """(X, y, X_test, y_test): 40,000 training and the 10,000 test images."""
    if not os.environ.get("LABKIT_DATA"):
        pytest.skip("LABKIT_DATA is not set")
    train, test = (load(name, split, dtype=dtype) for split in ("train", "test"))
    return train.inputs[:TRAIN], train.targets[:TRAIN], test.inputs, test.targets
