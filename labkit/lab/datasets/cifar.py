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
    paths, whole = _here(split)
    if paths and (whole or find(ARCHIVE) is None):
        if not whole:
            advice = f"For all of them, put {FILES[ARCHIVE].urls[0]} as it is into the "
            advice += "folder cifar10 of a data folder"
            # The warning names the line of `load`'s caller.
            warnings.warn(f"cifar10: {_extent(split, paths)}. {advice}", stacklevel=3)
        contents = {_name(path): fetch(path).read_bytes() for path in paths}
    else:
        contents = read_members(fetch(ARCHIVE), [_name(p) for p in BATCHES[split]])
    records = np.frombuffer(b"".join(contents.values()), np.uint8)
    labels, pixels = np.split(records.reshape(-1, _RECORD), [1], axis=1)
    pixels = pixels.reshape(-1, 3, 32, 32)
    targets = torch.from_numpy(labels[:, 0].astype(np.int64))
    return Labelled("cifar10", unit_interval(pixels, dtype), targets)


def look_for_cifar10() -> tuple[bool, str]:
    """Look for CIFAR-10 in the data folders, without opening a file.

    Returns
    -------
    here : bool, whether both splits load without a download, in whole or in part
    part : str
        The part that is here, if not all: ``"10,000 of 50,000 training images
        (data_batch_1.bin)"``. Empty if all or nothing is.
    """
    found = {split: _here(split) for split in BATCHES}
    if find(ARCHIVE) is not None or all(whole for _, whole in found.values()):
        return True, ""
    parts = [_extent(split, paths) for split, (paths, _) in found.items() if paths]
    return all(paths for paths, _ in found.values()), ", ".join(parts)


def _name(path):
    return PurePosixPath(path).name


def _here(split):
    """Return the files of a split on this machine, and whether they are all."""
    paths = [path for path in BATCHES[split] if find(path) is not None]
    whole = len(paths) == len(BATCHES[split])
    if split == "test" and not paths and find(TEST_CUT) is not None:
        paths = [TEST_CUT]
    return paths, whole


def _extent(split, paths):
    images, total = (
        sum(FILES[p].size for p in some) // _RECORD for some in (paths, BATCHES[split])
    )
    names = ", ".join(map(_name, paths))
    return f"{images:,} of {total:,} {_WORDS[split]} images ({names})"


def read_members(path: str | Path, names: Sequence[str]) -> dict[str, bytes]:
    """Read some files from a gzipped tar archive, without unpacking it.

    `names` are without their folders, and so are the keys of the dict of bytes that is
    returned, in this order.
    """
    contents = dict.fromkeys(names)
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            if _name(member.name) in contents and member.isfile():
                contents[_name(member.name)] = archive.extractfile(member).read()
    return contents
