"""What there is, and the one function that loads it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from labkit.datasets.cifar import load_cifar10, look_for_cifar10
from labkit.datasets.curves import load_curves
from labkit.datasets.digits import load_digits
from labkit.datasets.fetch import find
from labkit.datasets.images import load_fashion_mnist, load_mnist
from labkit.datasets.imdb import load_imdb, look_for_imdb
from labkit.datasets.registry import FASHION_MNIST, MNIST, PTB, USPS, RemoteFile
from labkit.datasets.synthetic import load_copy
from labkit.datasets.text import load_ptb, load_text
from labkit.datasets.usps import load_usps


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set before it is loaded; prints as one line.

    Attributes
    ----------
    description : str
        One line.
    splits : tuple of str
        What `load` takes as `split`.
    here : bool
        Whether it loads without a download. Files are looked for, not checked.
    part : str
        What of it is on this machine, where that is neither all nor nothing: if
        `here`, that part is what `load` gives, with a warning. Else empty.
    """

    description: str
    splits: tuple[str, ...]
    here: bool
    part: str = ""

    def __str__(self):
        if self.part:
            state = f"only in part here: {self.part}"
        else:
            state = "here" if self.here else "to be downloaded"
        return f"{self.description} [{', '.join(self.splits)}; {state}]"


@dataclass(frozen=True)
class _Entry:
    description: str
    splits: tuple[str, ...]
    load: Callable
    files: tuple[RemoteFile, ...] = ()
    look: Callable | None = None  # in place of `files`: gives `here` and `part`
    takes_dtype: bool = False

    def info(self):
        if self.look is not None:
            return DatasetInfo(self.description, self.splits, *self.look())
        here = all(find(file) is not None for file in self.files)
        return DatasetInfo(self.description, self.splits, here)


_SPLITS = ("train", "valid", "test")
_CATALOGUE = {
    "text": _Entry(
        "Python's language reference from the standard library, as characters",
        _SPLITS,
        load_text,
    ),
    "ptb": _Entry(
        "Penn Treebank (Mikolov's word files), as characters, 50 symbols",
        _SPLITS,
        load_ptb,
        files=tuple(PTB.values()),
    ),
    "digits": _Entry(
        "1,797 handwritten digits of 8 x 8 pixels, from scikit-learn",
        ("train", "test"),
        load_digits,
        takes_dtype=True,
    ),
    "copy": _Entry(
        "the Copy task: 1,000 rows of five bits to repeat, synthetic",
        _SPLITS,
        load_copy,
    ),
    "mnist": _Entry(
        "70,000 handwritten digits of 28 x 28 pixels",
        ("train", "test"),
        load_mnist,
        files=tuple(MNIST.values()),
        takes_dtype=True,
    ),
    "fashion-mnist": _Entry(
        "70,000 pieces of clothing in ten classes, 28 x 28 pixels",
        ("train", "test"),
        load_fashion_mnist,
        files=tuple(FASHION_MNIST.values()),
        takes_dtype=True,
    ),
    "cifar10": _Entry(
        "60,000 colour photographs in ten classes, 32 x 32 pixels",
        ("train", "test"),
        load_cifar10,
        look=look_for_cifar10,
        takes_dtype=True,
    ),
    "usps": _Entry(
        "11,000 handwritten digits of 16 x 16 pixels, Roweis's file",
        _SPLITS,
        load_usps,
        files=(USPS,),
        takes_dtype=True,
    ),
    "curves": _Entry(
        "30,000 drawn curves of 28 x 28 pixels, a stand-in for CURVES, synthetic",
        ("train", "test"),
        load_curves,
        takes_dtype=True,
    ),
    "imdb": _Entry(
        "50,000 film reviews with their verdict, as rows of 256 words",
        ("train", "test"),
        load_imdb,
        look=look_for_imdb,
    ),
}


def available():
    """List the data sets that `load` knows.

    Returns
    -------
    dict of str to DatasetInfo
        By name: a description, the splits, and whether it is here already, or which
        part of it.

    Raises
    ------
    NotADirectoryError
        If ``$LABKIT_DATA`` names something that is not a folder.

    Examples
    --------
    >>> print(available()["digits"])
    1,797 handwritten digits of 8 x 8 pixels, from scikit-learn [train, test; here]
    """
    return {name: entry.info() for name, entry in _CATALOGUE.items()}


def load(name, split="train", *, device=None, dtype=None):
    """Load one split of a data set.

    Parameters
    ----------
    name : str
        One of the names that `available` lists; see Returns.
    split : str
        ``"train"``, ``"valid"`` or ``"test"``; only ``text``, ``ptb``, ``copy`` and
        ``usps`` have a ``"valid"``.
    device : torch.device or str, optional
        Where the tensors go; the CPU if not given.
    dtype : torch.dtype, optional
        Floating-point type of the inputs that are not indices, float32 if not
        given. Tokens, symbols and labels are int64 whatever it is.

    Returns
    -------
    Text, Sequences, Labelled, Images or Reviews
        The same at every call:

        ========================================  ===========  ====================
        ``text``, ``ptb``                         `Text`       tokens (T,)
        ``copy``                                  `Sequences`  inputs (N, 12)
        ``digits``, ``usps``                      `Labelled`   inputs (N, 64 or 256)
        ``mnist``, ``fashion-mnist``              `Labelled`   inputs (N, 784)
        ``cifar10``                               `Labelled`   inputs (N, 3, 32, 32)
        ``curves``                                `Images`     inputs (N, 784)
        ``imdb``                                  `Reviews`    tokens (N, 256)
        ========================================  ===========  ====================

        Pictures have ink or light in [0, 1]. ``curves`` is generated, a stand-in for a
        data set that is not to be had; ``imdb`` has 20,000 words, and
        `labkit.datasets.imdb.load_imdb` takes other numbers.

    Warns
    -----
    UserWarning
        If only a part of the split is on this machine (``cifar10``).

    Raises
    ------
    ValueError
        If `name`, `split` or `dtype` is none of the above.
    ChecksumError
        If a file on this machine or from a source is not the pinned one.
    DatasetUnavailable
        If a file is neither here nor to be had.
    NotADirectoryError
        If ``$LABKIT_DATA`` names something that is not a folder and is needed.

    Examples
    --------
    >>> digits = load("digits", "test", dtype=torch.float64)
    >>> digits.inputs.shape, digits.inputs.dtype
    (torch.Size([360, 64]), torch.float64)
    """
    if name not in _CATALOGUE:
        known = ", ".join(_CATALOGUE)
        raise ValueError(f"unknown data set {name!r}; there are: {known}")
    entry = _CATALOGUE[name]
    if split not in entry.splits:
        known = ", ".join(entry.splits)
        raise ValueError(f"{name!r} has no split {split!r}; it has: {known}")
    dtype = torch.float32 if dtype is None else dtype
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(
            f"dtype must be a floating-point torch.dtype, got {dtype!r}; "
            "tokens and labels are int64 in any case"
        )
    data = entry.load(split, dtype) if entry.takes_dtype else entry.load(split)
    return data if device is None else _to(data, device)


def _to(data, device):
    tensors = {
        name: value.to(device)
        for name, value in vars(data).items()
        if isinstance(value, torch.Tensor)
    }
    return replace(data, **tensors)
