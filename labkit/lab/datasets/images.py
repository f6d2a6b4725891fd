"""Images: MNIST and Fashion-MNIST, scikit-learn's digits, and USPS."""

import gzip
from pathlib import Path

import numpy as np
import torch

from labkit.lab.datasets.fetch import fetch
from labkit.lab.datasets.results import Labelled

DIGITS = tuple("0123456789")
CLASSES = {
    "mnist": DIGITS,
    "fashion-mnist": (
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
}
_PARTS = {"train": "train", "test": "t10k"}  # in the names of the files
N_TRAIN = 1437  # rows of the digits: four fifths of 1797
_CLASSES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 0)  # of USPS: the zeros come last in the file
_PERIOD = 11
_PLACES = {"train": range(8), "test": (8, 9), "valid": (10,)}


def load_idx(name: str, split: str, dtype: torch.dtype = torch.float32) -> Labelled:
    """Read MNIST or Fashion-MNIST: 70,000 images of 28 x 28 pixels.

    Returns
    -------
    Labelled
        `inputs` (60000 or 10000, 784): ink in [0, 1], pixels in row order;
        `targets`: 0 to 9, with their names in `classes`.

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
    targets = torch.from_numpy(labels.astype(np.int64))
    return Labelled(name, inputs, targets, classes=CLASSES[name])


def read_idx(path: str | Path) -> np.ndarray:
    """Read an array of bytes from a gzipped file in MNIST's format.

    The format is two zero bytes, the type code, the number of axes, each length as a
    32-bit big-endian integer, then the entries in row order. The array is read-only.
    """
    content = gzip.decompress(Path(path).read_bytes())
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def unit_interval(pixels: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Scale bytes from numpy to [0, 1] in torch, so that 255 becomes 1.

    The division is done in at least float32; the result has its own memory.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    # The division is numpy's, since torch warns of read-only arrays.
    scaled = np.divide(pixels, 255, dtype=str(wide).removeprefix("torch."))
    return torch.from_numpy(scaled).to(dtype)


def load_digits(split: str, dtype: torch.dtype = torch.float32) -> Labelled:
    """Read the 1,797 digit images of 8 x 8 pixels that come with scikit-learn.

    The split is fixed, stratified and random: 1,437 are ``train`` and 360 ``test``, as
    is usual. Neighbours in the file are by the same writer; a contiguous split would
    test mostly on writers not seen in training, which costs every method some five
    points, so that results would not be comparable with published ones.

    Returns
    -------
    Labelled, `inputs` (N, 64): ink in [0, 1], pixels in row order; `targets`: 0 to 9

    References
    ----------
    E. Alpaydin, C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI
    Machine Learning Repository, 1998 (the test part of that collection).
    """
    from sklearn.datasets import load_digits as sklearn_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = sklearn_digits(return_X_y=True)
    rows = train_test_split(
        range(len(labels)), train_size=N_TRAIN, random_state=0, stratify=labels
    )[0 if split == "train" else 1]
    # Sixteenths are exact in every floating-point type that torch has.
    inputs = torch.from_numpy(pixels[rows] / 16).to(dtype)
    targets = torch.tensor(labels[rows], dtype=torch.int64)
    return Labelled("digits", inputs, targets, classes=DIGITS)


def load_usps(split: str, dtype: torch.dtype = torch.float32) -> Labelled:
    """Read 11,000 handwritten digits of 16 x 16 pixels, 1,100 of each.

    The file has no official split. The stochastic Hessian-free paper takes 8,000
    images to train, 2,000 to test and 1,000 to validate without saying which; here, of
    every eleven images of a class, in the order of the file, the first eight go to
    ``train``, the next two to ``test`` and the last to ``valid``. So the sizes are the
    paper's, the classes stay balanced, and the three parts are alike, although
    neighbours in the file resemble each other. It needs no random numbers. The classes
    take turns (1, 2, ..., 9, 0), so ten rows in succession have one image of each.

    This is not the common set of 7,291 + 2,007 images, which is scaled and slanted
    otherwise; figures do not carry over.

    Returns
    -------
    Labelled
        `inputs` (8000, 1000 or 2000, 256): ink in [0, 1], pixels in row order;
        `targets`: 0 to 9.

    References
    ----------
    S. Roweis, *Data for MATLAB hackers*, file ``usps_all.mat``. Sizes of the parts:
    I. Emirahmetoglu, D. E. Stewart, *Training autoencoders using stochastic
    Hessian-free optimization with LSMR*, table 1.
    """
    pixels = read_usps(fetch("usps/usps_all.mat"))
    kept = np.isin(np.arange(len(pixels)) % _PERIOD, _PLACES[split])
    inputs = unit_interval(pixels[kept].reshape(-1, 256), dtype)
    targets = torch.tensor(_CLASSES).repeat(int(kept.sum()))
    return Labelled("usps", inputs, targets, classes=DIGITS)


def read_usps(path: str | Path) -> np.ndarray:
    """Read the images and turn them upright.

    In the file, the index of a pixel runs down the columns of its image.

    Parameters
    ----------
    path : path-like
        A MATLAB file with the bytes ``data``, (256, n, 10): pixel, sample, class.

    Returns
    -------
    numpy.ndarray, shape (n, 10, 16, 16), uint8
        Sample, class (1, 2, ..., 9, 0), row, column.
    """
    import scipy.io

    data = scipy.io.loadmat(path, variable_names=["data"])["data"]
    columns_first = data.reshape(16, 16, -1, 10)
    return columns_first.transpose(2, 3, 1, 0)
