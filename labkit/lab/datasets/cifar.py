"""CIFAR-10 in its binary version: the archive, its batches, or some of them."""

import tarfile
import warnings
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from labkit.lab.datasets.fetch import FILES, fetch, find
from labkit.lab.datasets.images import unit_interval
from labkit.lab.datasets.results import Labelled

ARCHIVE = "cifar10/cifar-10-binary.tar.gz"
BATCHES = {
    "train": [f"cifar10/data_batch_{i}.bin" for i in range(1, 6)],
    "test": ["cifar10/test_batch.bin"],
}
TEST_CUT = "cifar10/test_batch_first1000.bin"
_RECORD = 1 + 3 * 32 * 32  # the label, then the red, green and blue plane
_WORDS = {"train": "training", "test": "test"}


def load_cifar10(split: str, dtype: torch.dtype = torch.float32) -> Labelled:
    """Read CIFAR-10: 60,000 colour photographs of 32 x 32 pixels.

    The classes 0 to 9: airplane, automobile, bird, cat, deer, dog, frog, horse, ship,
    truck. What is read is the first of these that is there: all batches of the split,
    unpacked; the archive, read in place; a part of the batches, with a warning that
    names the part; the archive, downloaded (170 MB).

    Returns
    -------
    Labelled
        `inputs` (N, 3, 32, 32): red, green and blue in [0, 1], pixels in row order;
        N is 50,000 or 10,000 if all is there. `targets`: 0 to 9.

    Warns
    -----
    UserWarning : if only a part of the split is on this machine

    References
    ----------
    A. Krizhevsky, *Learning multiple layers of features from tiny images*, University
    of Toronto, 2009.
    """
    paths, every = _here(split), BATCHES[split]
    if paths and (paths == every or find(ARCHIVE) is None):
        if paths != every:
            has, whole = (
                sum(FILES[path].size for path in batches) // _RECORD
                for batches in (paths, every)
            )
            # The warning names the line of `load`'s caller.
            warnings.warn(
                f"cifar10: {has:,} of {whole:,} {_WORDS[split]} images "
                f"({', '.join(map(_name, paths))}). For all of them, put "
                f"{FILES[ARCHIVE].urls[0]} as it is into the folder cifar10 of a data "
                "folder",
                stacklevel=3,
            )
        contents = [fetch(path).read_bytes() for path in paths]
    else:
        contents = read_members(fetch(ARCHIVE), [_name(path) for path in every])
    records = np.frombuffer(b"".join(contents), np.uint8)
    labels, pixels = np.split(records.reshape(-1, _RECORD), [1], axis=1)
    pixels = pixels.reshape(-1, 3, 32, 32)
    targets = torch.from_numpy(labels[:, 0].astype(np.int64))
    return Labelled("cifar10", unit_interval(pixels, dtype), targets)


def has_cifar10() -> bool:
    """Return whether both splits load without a download, in whole or in part."""
    return find(ARCHIVE) is not None or all(map(_here, BATCHES))


def _name(path):
    return PurePosixPath(path).name


def _here(split):
    """Return the files of a split on this machine."""
    whole = [path for path in BATCHES[split] if find(path)]
    cut = [TEST_CUT] if split == "test" and find(TEST_CUT) else []
    return whole or cut


def read_members(path: str | Path, names: Sequence[str]) -> list[bytes]:
    """Read some files of a gzipped tar archive, named without folders, in this order.

    It is not unpacked.
    """
    contents = {}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            if _name(member.name) in names and member.isfile():
                contents[_name(member.name)] = archive.extractfile(member).read()
    return [contents[name] for name in names]
