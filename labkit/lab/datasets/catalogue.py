"""The catalogue of the data sets, and the one function that loads them.

The loaders of the sets take `split` and, where inputs are numbers, `dtype` as `load`
does; those that need files raise what `labkit.lab.datasets.fetch.fetch` raises.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from labkit.check import check_device, check_kind
from labkit.errors import DataError
from labkit.lab.datasets.cifar import load_cifar10, look_for_cifar10
from labkit.lab.datasets.fetch import FILES, find, megabytes
from labkit.lab.datasets.images import load_digits, load_idx, load_usps
from labkit.lab.datasets.imdb import load_imdb, look_for_imdb
from labkit.lab.datasets.own import (
    BUNDLED,
    FILES_OF_ONES_OWN,
    is_own,
    load_own,
)
from labkit.lab.datasets.results import Labelled, Text
from labkit.lab.datasets.synthetic import load_copy, load_curves
from labkit.lab.datasets.text import load_ptb, load_text


@dataclass(frozen=True)
class DatasetInfo:
    """The description of a data set before it is loaded; prints as one line.

    Attributes
    ----------
    description : str, one line
    splits : tuple of str, the values that `load` takes as `split`
    here : bool, whether it loads without a download. Files are looked for, not checked
    part : str
        What of it is on this machine, where that is neither all nor nothing: if
        `here`, that part is what `load` gives, with a warning. Else empty.
    download : int, how much `load` would download, in bytes; 0 if it is here
    """

    description: str
    splits: tuple[str, ...]
    here: bool
    part: str = ""
    download: int = 0

    def __str__(self) -> str:
        if self.part:
            state = f"only in part here: {self.part}"
        else:
            size = f"to be downloaded, {megabytes(self.download)}"
            state = "here" if self.here else size
        return f"{self.description} [{', '.join(self.splits)}; {state}]"


@dataclass(frozen=True)
class _Entry:
    description: str
    splits: tuple[str, ...]
    load: Callable
    look: Callable | None = None  # gives `here` and `part`, where parts will do
    takes_dtype: bool = True

    def info(self, name: str) -> DatasetInfo:
        files = [file for path, file in FILES.items() if path.startswith(f"{name}/")]
        missing = [file for file in files if find(file.path) is None]
        here, part = self.look() if self.look else (not missing, "")
        download = 0 if here else sum(file.size for file in missing if file.urls)
        return DatasetInfo(self.description, self.splits, here, part, download)


_TWO, _THREE = ("train", "test"), ("train", "valid", "test")
_CATALOGUE = {
    "text": _Entry(
        "Python's language reference from the standard library, as characters",
        _THREE,
        load_text,
        takes_dtype=False,
    ),
    "ptb": _Entry(
        "Penn Treebank (Mikolov's word files), as characters, 50 symbols",
        _THREE,
        load_ptb,
        takes_dtype=False,
    ),
    "digits": _Entry(
        "1,797 handwritten digits of 8 x 8 pixels, from scikit-learn", _TWO, load_digits
    ),
    "copy": _Entry(
        "the Copy task: 1,000 rows of five bits to repeat, synthetic",
        _THREE,
        load_copy,
        takes_dtype=False,
    ),
    "mnist": _Entry(
        "70,000 handwritten digits of 28 x 28 pixels",
        _TWO,
        partial(load_idx, "mnist"),
    ),
    "fashion-mnist": _Entry(
        "70,000 pieces of clothing in ten classes, 28 x 28 pixels",
        _TWO,
        partial(load_idx, "fashion-mnist"),
    ),
    "cifar10": _Entry(
        "60,000 colour photographs in ten classes, 32 x 32 pixels",
        _TWO,
        load_cifar10,
        look=look_for_cifar10,
    ),
    "usps": _Entry(
        "11,000 handwritten digits of 16 x 16 pixels, Roweis's file",
        _THREE,
        load_usps,
    ),
    "curves": _Entry(
        "30,000 drawn curves of 28 x 28 pixels, a stand-in for CURVES, synthetic",
        _TWO,
        load_curves,
    ),
    "imdb": _Entry(
        "50,000 film reviews with their verdict, as rows of 256 words",
        _TWO,
        load_imdb,
        look=look_for_imdb,
        takes_dtype=False,
    ),
}


def available() -> dict[str, DatasetInfo]:
    """Return the data sets that `load` knows, by name.

    Each has a description, its splits, and whether it, or which part of it, is here.
    NotADirectoryError if ``$LABKIT_DATA`` names something that is not a folder.

    >>> print(available()["digits"])
    1,797 handwritten digits of 8 x 8 pixels, from scikit-learn [train, test; here]
    """
    return {name: entry.info(name) for name, entry in _CATALOGUE.items()}


def load(
    name: str,
    split: str = "train",
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    target: str = "",
    seed: int = 0,
) -> Labelled | Text:
    """Load one split of a data set, the same at every call.

    Parameters
    ----------
    name : str
        One that `available` lists, see Returns; or data of one's own: a file
        ``.csv``, ``.npz`` or ``.txt``, or a set that comes with scikit-learn
        (``iris``, ``wine``, ``breast-cancer``, ``diabetes``). See
        :func:`labkit.lab.datasets.load_own`.
    split : str
        ``"train"``, ``"valid"`` or ``"test"``; only ``text``, ``ptb``, ``copy`` and
        ``usps`` have a ``"valid"``.
    device : torch.device or str, optional, where the tensors go; the CPU if not given
    dtype : torch.dtype, optional
        Of inputs that are no indices, float32 if not given; all else is int64.
    target, seed : str and int
        Of data of one's own: the column to be predicted, and which rows are held out.

    Returns
    -------
    Labelled or Text

        ========================================  ==========  =====================
        ``text``, ``ptb``                         `Text`      tokens (T,)
        ``digits``, ``usps``                      `Labelled`  inputs (N, 64 or 256)
        ``mnist``, ``fashion-mnist``, ``curves``  `Labelled`  inputs (N, 784)
        ``cifar10``                               `Labelled`  inputs (N, 3, 32, 32)
        ``copy``, ``imdb``                        `Labelled`  inputs (N, 12 or 256)
        ========================================  ==========  =====================

        Pictures have ink or light in [0, 1]; ``copy`` and ``imdb`` have indices into
        their `vocabulary`. ``curves`` is generated, a stand-in for a file that could
        not be reached, and has no targets; ``imdb`` has 20,000 words, and
        `labkit.lab.datasets.load_imdb` takes other numbers.

    Warns
    -----
    UserWarning : if only a part of the split is on this machine (``cifar10``)

    Raises
    ------
    ValueError
        If `name`, `split` or `dtype` is none of the above, or, as a DataError, if data
        of one's own cannot be learned from.
    ChecksumError : if a file on this machine or from a source is not the pinned one
    DatasetUnavailable : if a file is neither here nor to be had
    NotADirectoryError
        If ``$LABKIT_DATA`` names something that is not a folder and is needed.

    Examples
    --------
    >>> digits = load("digits", "test", dtype=torch.float64)
    >>> digits.inputs.shape, digits.inputs.dtype
    (torch.Size([360, 64]), torch.float64)
    """
    check_kind("name", name, str, "the name of a data set")
    check_kind("split", split, (str, type(None)), "the name of a split")
    check_device(device, meta=True)
    mine = name not in _CATALOGUE
    if mine and not is_own(name):
        known = ", ".join((*_CATALOGUE, *BUNDLED))
        raise DataError(
            f"unknown data set {name!r}; there are: {known}, and files "
            f"that end in {', '.join(FILES_OF_ONES_OWN)}"
        )
    if not mine and (target or seed):
        raise DataError(f"target and seed are of data of one's own, not of {name!r}")
    dtype = torch.float32 if dtype is None else dtype
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(
            f"dtype must be a floating-point torch.dtype, got {dtype!r}; "
            "tokens and labels are int64 in any case"
        )
    if mine:
        data = load_own(name, split, dtype, target=target, seed=seed)
    else:
        entry = _CATALOGUE[name]
        if split not in entry.splits:
            known = ", ".join(entry.splits)
            raise DataError(f"{name!r} has no split {split!r}; it has: {known}")
        data = entry.load(split, dtype) if entry.takes_dtype else entry.load(split)
    if device is None:
        return data
    values = vars(data).items()
    moved = {k: v.to(device) for k, v in values if isinstance(v, torch.Tensor)}
    return replace(data, **moved)
