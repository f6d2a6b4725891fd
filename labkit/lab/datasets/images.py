"""Pictures from MNIST's file format: MNIST and Fashion-MNIST."""

import gzip
import zlib

import numpy as np
import torch

from labkit.lab.datasets.fetch import fetch
from labkit.lab.datasets.results import Labelled

_UNSIGNED_BYTE = 8  # the only type code of the format that these files use
_PARTS = {"train": "train", "test": "t10k"}  # as the files are called


def load_idx(name, split, dtype=torch.float32):
    """Read MNIST or Fashion-MNIST: 70,000 pictures of 28 x 28 pixels.

    Fashion-MNIST's classes 0 to 9: T-shirt/top, trouser, pullover, dress, coat, sandal,
    shirt, sneaker, bag, ankle boot.

    Returns
    -------
    Labelled
        `inputs` (60000 or 10000, 784): ink in [0, 1], pixels in row order;
        `targets`: 0 to 9.

    References
    ----------
    Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, *Gradient-based learning applied to
    document recognition*, Proceedings of the IEEE 86, 1998; H. Xiao, K. Rasul,
    R. Vollgraf, *Fashion-MNIST: a novel image dataset for benchmarking machine learning
    algorithms*, arXiv:1708.07747, 2017.
    """
    images, labels = (
        read_idx(fetch(f"{name}/{_PARTS[split]}-{what}-ubyte.gz"))
        for what in ("images-idx3", "labels-idx1")
    )
    inputs = unit_interval(images.reshape(len(images), -1), dtype)
    return Labelled(name, inputs, torch.from_numpy(labels.astype(np.int64)))


def read_idx(path):
    """Read an array of bytes from a gzipped file in MNIST's format.

    Two zero bytes, the type code, the number of axes, the length of each axis as a
    32-bit big-endian integer, then the entries in row order. The array is read-only.

    Raises
    ------
    ValueError
        If the file is not gzip, not of this format, holds another type than
        unsigned bytes, or is shorter or longer than its header says.
    """
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}") from error
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTE]):
        raise ValueError(
            f"{path} starts with the bytes {content[:4].hex(' ')}, not with "
            "00 00 08 and a number of axes"
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{path} ends within its header, after {len(content)} bytes")
    shape = np.frombuffer(content, ">u4", content[3], offset=4).tolist()
    entries = np.frombuffer(content, np.uint8, offset=start)
    if len(entries) != np.prod(shape, dtype=object):
        raise ValueError(
            f"{path} has {len(entries):,} entries, and its header says {shape}"
        )
    return entries.reshape(shape)


def unit_interval(pixels, dtype):
    """Scale bytes (of numpy) to [0, 1] (of torch), so that 255 becomes 1.

    The division is made in at least float32; the result has its own memory.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    # By numpy, since the array may be read-only, which torch warns of.
    scaled = np.divide(pixels, 255, dtype=str(wide).removeprefix("torch."))
    return torch.from_numpy(scaled).to(dtype)
