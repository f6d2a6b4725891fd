"""Roweis's USPS file: which way up, which class, which split."""

import numpy as np
import pytest
import scipy.io
import torch

from labkit.lab.datasets import images, load

SIZES = {"train": 8000, "test": 2000, "valid": 1000}


def pattern(sample, digit):
    """An upright image that tells rows from columns and knows where it belongs."""
    image = np.zeros((16, 16), dtype=np.uint8)
    image[3, 12] = 255
    image[0, 0], image[15, 0] = sample, digit
    return image


@pytest.fixture
def small(tmp_path, monkeypatch):
    """22 samples of each class, laid out as in the file."""
    data = np.zeros((256, 22, 10), dtype=np.uint8)
    for sample in range(22):
        for place, digit in enumerate([1, 2, 3, 4, 5, 6, 7, 8, 9, 0]):
            # Fortran order: down the columns.
            data[:, sample, place] = pattern(sample, digit).ravel(order="F")
    scipy.io.savemat(tmp_path / "usps.mat", {"data": data})
    monkeypatch.setattr(images, "fetch", lambda file: tmp_path / "usps.mat")


def test_images_stand_upright_and_the_splits_part_every_eleven(small):
    samples = {}
    for split in SIZES:
        data = load("usps", split, dtype=torch.float64)
        images = (data.inputs * 255).round().long().reshape(-1, 16, 16)
        assert torch.equal(images[:, 15, 0], data.targets)
        assert (images[:, 3, 12] == 255).all() and (images[:, 12, 3] == 0).all()
        assert data.targets[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
        found = images[:, 0, 0].reshape(-1, 10)
        assert (found == found[:, :1]).all()
        samples[split] = found[:, 0].tolist()
    train, test, valid = [*range(8), *range(11, 19)], [8, 9, 19, 20], [10, 21]
    assert samples == {"train": train, "test": test, "valid": valid}
