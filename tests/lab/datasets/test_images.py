"""MNIST's file format, and the two sets that come in it."""

import gzip

import numpy as np
import pytest
import torch

from labkit.lab.datasets import load
from labkit.lab.datasets.images import read_idx, unit_interval


def test_idx_is_read_in_row_order(tmp_path):
    header = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3])
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(header + bytes([0, 1, 2, 253, 254, 255])))
    assert read_idx(path).tolist() == [[0, 1, 2], [253, 254, 255]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_pixels_are_scaled_to_the_nearest_number(dtype):
    found = unit_interval(np.arange(256, dtype=np.uint8), dtype)
    exact = torch.arange(256, dtype=torch.float64) / 255
    # Half a unit in the last place: rounding to the type, and no more.
    half = 0.5 * torch.finfo(dtype).eps
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=half, atol=0)


DIGITS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "labels", "counts", "mean", "std"),
    [
        ("mnist", [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], DIGITS, 0.1307, 0.3081),
        ("fashion-mnist", [9, 0, 0, 3, 0, 2, 7, 2], [6000] * 10, 0.2860, 0.3530),
    ],
)
def test_counts_and_published_moments(name, labels, counts, mean, std):
    data = load(name, dtype=torch.float64)
    assert data.inputs.shape == (60_000, 784)
    assert len(load(name, "test").inputs) == 10_000
    assert data.targets[: len(labels)].tolist() == labels
    assert torch.bincount(data.targets).tolist() == counts
    # Published to four places.
    assert data.inputs.mean().item() == pytest.approx(mean, abs=5e-5)
    assert data.inputs.std().item() == pytest.approx(std, abs=5e-5)
