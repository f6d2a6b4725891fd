"""CIFAR-10 from its binary version: the archive, its batches, or some of them."""

import tarfile
import warnings
from pathlib import PurePosixPath

import numpy as np
import torch

from labkit.datasets.digits import Labelled
from labkit.datasets.fetch import fetch, find
from labkit.datasets.images import unit_interval
from labkit.datasets.registry import CIFAR10, CIFAR10_ARCHIVE, CIFAR10_TEST_CUT

_RECORD = 1 + 3 * 32 * 32  # the label, then the red, green and blue plane
_WORDS = {"train": "training", "test": "test"}


def load_cifar10(split, dtype=torch.float32):
    """Read CIFAR-10: 60,000 colour photographs of 32 x 32 pixels.

    The classes 0 to 9: airplane, automobile, bird, cat, deer, dog, frog, horse, ship,
    truck. What is read is the first of these that is there: all batches of the split,
    unpacked; the archive, read in place; a part of the batches, with a warning that
    names the part; the archive, downloaded (170 MB).

    Parameters
    ----------
    split : {"train", "test"}
        The official parts, in the order of the files.
    dtype : torch.dtype
        Of the inputs.

    Returns
    -------
    Labelled
        `inputs` (N, 3, 32, 32): red, green and blue in [0, 1], pixels in row order;
        N is 50,000 or 10,000 if all is there. `targets`: 0 to 9.

    Warns
    -----
    UserWarning
        If only a part of the split is on this machine.

    Raises
    ------
    ChecksumError, DatasetUnavailable
        See `labkit.datasets.fetch.fetch`.

    References
    ----------
    A. Krizhevsky, *Learning multiple layers of features from tiny images*, University
    of Toronto, 2009.
    """
    files, whole = _files_here(split)
    if files and (whole or find(CIFAR10_ARCHIVE) is None):
        if not whole:
            # Of `load`'s caller, as this function is called by `load`.
            warnings.warn(f"cifar10: {_extent(split, files)}. {_ADVICE}", stacklevel=3)
        contents = {_name(file): fetch(file).read_bytes() for file in files}
    else:
        names = [_name(file) for file in CIFAR10[split]]
        contents = read_members(fetch(CIFAR10_ARCHIVE), names)
    parts = [read_records(content, name) for name, content in contents.items()]
    pixels, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    targets = torch.from_numpy(labels.astype(np.int64))
    return Labelled("cifar10", unit_interval(pixels, dtype), targets)


def look_for_cifar10():
    """Look for CIFAR-10 in the data folders, without opening a file.

    Returns
    -------
    here : bool
        Whether both splits load without a download, in whole or in part.
    part : str
        What is here if not all is: ``"10,000 of 50,000 training images
        (data_batch_1.bin)"``. Empty if all or nothing is.
    """
    if find(CIFAR10_ARCHIVE) is not None:
        return True, ""
    found = {split: _files_here(split) for split in CIFAR10}
    if all(whole for _, whole in found.values()):
        return True, ""
    parts = [_extent(split, files) for split, (files, _) in found.items() if files]
    return all(files for files, _ in found.values()), ", ".join(parts)


_ADVICE = (
    f"For all of them, put {CIFAR10_ARCHIVE.urls[0]} as it is into the folder cifar10 "
    "of a data folder"
)


def _name(file):
    return PurePosixPath(file.path).name


def _files_here(split):
    """Return the pinned files of a split that lie here, and whether they are all."""
    files = [file for file in CIFAR10[split] if find(file) is not None]
    whole = len(files) == len(CIFAR10[split])
    if split == "test" and not files and find(CIFAR10_TEST_CUT) is not None:
        files = [CIFAR10_TEST_CUT]
    return files, whole


def _extent(split, files):
    images, total = (
        sum(f.size for f in fs) // _RECORD for fs in (files, CIFAR10[split])
    )
    names = ", ".join(map(_name, files))
    return f"{images:,} of {total:,} {_WORDS[split]} images ({names})"


def read_members(path, names):
    """Read some files out of a gzipped tar archive, without unpacking it.

    Parameters
    ----------
    path : path-like
    names : list of str
        Names of the files, without their folders.

    Returns
    -------
    dict of str to bytes
        By name, in the order of `names`.

    Raises
    ------
    ValueError
        If the archive lacks one of them.
    """
    contents = dict.fromkeys(names)
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if name in contents and member.isfile():
                contents[name] = archive.extractfile(member).read()
    if missing := [name for name, content in contents.items() if content is None]:
        raise ValueError(f"{path} has no {', '.join(missing)}")
    return contents


def read_records(content, name):
    """Part the bytes of a batch into pictures and labels.

    Parameters
    ----------
    content : bytes
        N records of 3,073 bytes: the label, then the red, green and blue plane.
    name : str
        For the error.

    Returns
    -------
    pixels : numpy.ndarray, shape (N, 3, 32, 32), uint8
    labels : numpy.ndarray, shape (N,), uint8

    Raises
    ------
    ValueError
        If there is no record, the last one is not whole, or a label is above 9.
    """
    if not content or len(content) % _RECORD:
        raise ValueError(
            f"{name} has {len(content):,} bytes, not a multiple of {_RECORD:,}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() > 9:
        raise ValueError(f"{name} has the label {labels.max()}; there are 0 to 9")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels
