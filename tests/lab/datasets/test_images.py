"""MNIST's file format, and the two sets that come in it."""

import gzip

import numpy as np
import pytest
import torch

from labkit.lab.datasets import load
from labkit.lab.datasets.images import read_idx, unit_interval

HEADER = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3])
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
ENTRIES = bytes([0, 1, 2, 253, 254, 255])


@pytest.fixture
def write(tmp_path):
    def gzipped(content):
        path = tmp_path / "images.gz"
        path.write_bytes(gzip.compress(content))
        return path

    return gzipped


def test_idx_is_read_in_row_order(write):
    found = read_idx(write(HEADER + ENTRIES))
    assert found.dtype == np.uint8
    assert found.tolist() == [[0, 1, 2], [253, 254, 255]]
    one_axis = read_idx(write(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])))
    assert one_axis.tolist() == [7, 8, 9]


@pytest.mark.parametrize("dtype", FLOATS)
def test_pixels_are_scaled_to_the_nearest_number(dtype):
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    pixels.flags.writeable = False
    found = unit_interval(pixels, dtype)
    assert found.dtype == dtype and found.shape == (16, 16)
    exact = torch.arange(256, dtype=torch.float64).reshape(16, 16) / 255
    # Half a unit in the last place: rounding to the type, and no more.
    half = 0.5 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), exact, rtol=half, atol=0)


COUNTS = {
    ("mnist", "train"): [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    ("mnist", "test"): [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    ("fashion-mnist", "train"): [6000] * 10,
    ("fashion-mnist", "test"): [1000] * 10,
}


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "split"), COUNTS)
def test_counts_and_ranges(name, split):
    data = load(name, split)
    assert data.name == name
    assert data.inputs.shape == (sum(COUNTS[name, split]), 784)
    assert data.inputs.dtype == torch.float32
    assert data.inputs.min() == 0 and data.inputs.max() == 1
    assert data.targets.dtype == torch.int64
    assert torch.bincount(data.targets).tolist() == COUNTS[name, split]


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "labels", "mean", "std"),
    [
        ("mnist", [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], 0.1307, 0.3081),
        ("fashion-mnist", [9, 0, 0, 3, 0, 2, 7, 2, 5, 5], 0.2860, 0.3530),
    ],
)
def test_published_moments(name, labels, mean, std):
    data = load(name, dtype=torch.float64)
    assert data.inputs.dtype == torch.float64
    assert data.targets[:10].tolist() == labels
    # Published to four places.
    assert data.inputs.mean().item() == pytest.approx(mean, abs=5e-5)
    assert data.inputs.std().item() == pytest.approx(std, abs=5e-5)


@pytest.mark.real_data
def test_the_first_digit_stands_upright():
    five = load("mnist").inputs[0].reshape(28, 28)
    # The stroke on top of the 5 leads to the right; its foot ends at the left.
    top, foot = five[5:8].sum(0), five[22:25].sum(0)
    columns = torch.arange(28.0)
    assert (top @ columns) / top.sum() > 15 > 11 > (foot @ columns) / foot.sum()
