"""CIFAR-10: records, the archive, and folders that hold only a part."""

import numpy as np
import pytest
import torch

from labkit.lab.datasets import available, load
from labkit.lab.datasets.cifar import ARCHIVE, BATCHES, TEST_CUT
from tests.lab.datasets.conftest import archive, pinned

FIRST, THIRD = BATCHES["train"][0], BATCHES["train"][2]


def batch(first, n=4):
    """Records whose labels count on from `first`, with pixels that differ."""
    pixels = np.random.default_rng(first).integers(0, 256, (n, 3073), dtype=np.uint8)
    pixels[:, 0] = np.arange(first, first + n) % 10
    return pixels.tobytes()


WHOLE = BATCHES["train"] + BATCHES["test"]
CONTENT = {path: batch(3 * i) for i, path in enumerate(WHOLE)}
CONTENT[TEST_CUT] = CONTENT["cifar10/test_batch.bin"][: 2 * 3073]
# Not in the order of their names, as in the published archive.
ORDER = [BATCHES["train"][3], *BATCHES["test"], *BATCHES["train"]]
CONTENT[ARCHIVE] = archive(
    {p.replace("cifar10/", "cifar-10-batches-bin/"): CONTENT[p] for p in ORDER}
)


small = pinned(CONTENT)


def some(*paths):
    return {path: CONTENT[path] for path in paths}


def naive(names):
    """Read the records byte by byte."""
    content = b"".join(CONTENT[name] for name in names)
    records = [content[i : i + 3073] for i in range(0, len(content), 3073)]
    pixels = torch.tensor([list(r[1:]) for r in records], dtype=torch.float64) / 255
    return pixels.reshape(-1, 3, 32, 32), [r[0] for r in records]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("parts", [WHOLE, [ARCHIVE], [ARCHIVE, TEST_CUT, FIRST]])
def test_what_is_whole_goes_before_a_part_and_warns_of_nothing(put, split, parts):
    put(some(*parts))
    data = load("cifar10", split, dtype=torch.float64)
    inputs, targets = naive(BATCHES[split])
    assert data.targets.dtype == torch.int64 and data.targets.tolist() == targets
    torch.testing.assert_close(data.inputs, inputs, rtol=1e-15, atol=0)
    assert available()["cifar10"].here


def test_a_part_is_read_with_a_notice(put):
    put(some(FIRST, THIRD, TEST_CUT))
    notice = (
        r"cifar10: 8 of 20 training images \(data_batch_1.bin, data_batch_3.bin\)\. "
        r"For all of them, put http://.*/cifar-10-binary\.tar\.gz"
    )
    with pytest.warns(UserWarning, match=notice) as caught:
        train = load("cifar10")
    assert caught[0].filename == __file__  # the warning points at who called load
    assert train.targets.tolist() == naive([FIRST, THIRD])[1]
    with pytest.warns(UserWarning, match=r"2 of 4 test images \(test_batch_first1000"):
        assert len(load("cifar10", "test").targets) == 2
    assert available()["cifar10"].here


@pytest.mark.real_data
@pytest.mark.filterwarnings("ignore:cifar10")
def test_the_first_records():
    # Holds for a whole set as well as for the part that may be here instead.
    data = load("cifar10")
    counts = [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert torch.bincount(data.targets[:10_000]).tolist() == counts
    # The published means of all 50,000 are known; a fifth comes near.
    published = torch.tensor([0.4914, 0.4822, 0.4465])
    mean = data.inputs.mean(dim=(0, 2, 3))
    torch.testing.assert_close(mean, published, rtol=0, atol=0.01)
    assert load("cifar10", "test").targets[:1000].bincount()[0] == 103
