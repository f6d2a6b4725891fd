"""The catalogue of the data sets, and the one function that loads them.

The loaders of the sets take `split` and, where inputs are numbers, `dtype` as `load`
does; those that need files raise what `labkit.lab.datasets.fetch.fetch` raises.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch

from labkit.check import check_device, check_kind
from labkit.errors import DataError
from labkit.lab.datasets.cifar import has_cifar10, load_cifar10
from labkit.lab.datasets.fetch import FILES, find
from labkit.lab.datasets.images import load_digits, load_idx, load_usps
from labkit.lab.datasets.imdb import has_imdb, load_imdb
from labkit.lab.datasets.own import (
    BUNDLED,
    FILES_OF_ONES_OWN,
    is_own,
    load_own,
)
from labkit.lab.datasets.results import Labelled, Text
from labkit.lab.datasets.text import load_ptb, load_text


@dataclass(frozen=True)
class DatasetInfo:
    """The description of a data set before it is loaded.

    Attributes
    ----------
    description : str, one line
    splits : tuple of str, the values that `load` takes as `split`
    here : bool, whether it loads without a download. Files are looked for, not checked
    """

    description: str
    splits: tuple[str, ...]
    here: bool


_TWO = ("train", "test")
_THREE = ("train", "valid", "test")
_CATALOGUE = {  # description, splits, and what loads one
    "text": (
        "Python's language reference from the standard library, as characters",
        _THREE,
        load_text,
    ),
    "ptb": (
        "Penn Treebank (Mikolov's word files), as characters, 50 symbols",
        _THREE,
        load_ptb,
    ),
    "digits": (
        "1,797 handwritten digits of 8 x 8 pixels, from scikit-learn",
        _TWO,
        load_digits,
    ),
    "mnist": (
        "70,000 handwritten digits of 28 x 28 pixels",
        _TWO,
        partial(load_idx, "mnist"),
    ),
    "fashion-mnist": (
        "70,000 pieces of clothing in ten classes, 28 x 28 pixels",
        _TWO,
        partial(load_idx, "fashion-mnist"),
    ),
    "cifar10": (
        "60,000 colour photographs in ten classes, 32 x 32 pixels",
        _TWO,
        load_cifar10,
    ),
    "usps": (
        "11,000 handwritten digits of 16 x 16 pixels, Roweis's file",
        _THREE,
        load_usps,
    ),
    "imdb": (
        "50,000 film reviews with their verdict, as rows of 256 words",
        _TWO,
        load_imdb,
    ),
}
_INDICES = "text", "ptb", "imdb"  # their inputs have no dtype to choose
_LOOK = {"cifar10": has_cifar10, "imdb": has_imdb}  # where more than one kind will do


def available() -> dict[str, DatasetInfo]:
    """Return the data sets that `load` knows, by name.

    NotADirectoryError if ``$LABKIT_DATA`` names something that is not a folder.

    >>> available()["digits"].here
    True
    """
    found = {}
    for name, (description, splits, _) in _CATALOGUE.items():
        files = (path for path in FILES if path.startswith(f"{name}/"))
        here = _LOOK[name]() if name in _LOOK else all(map(find, files))
        found[name] = DatasetInfo(description, splits, here)
    return found


def load(
    name: str,
    split: str = "train",
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    target: str = "",
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
        ``"train"``, ``"valid"`` or ``"test"``; only ``text``, ``ptb`` and ``usps`` have
        a ``"valid"``.
    device : torch.device or str, optional, where the tensors go; the CPU if not given
    dtype : torch.dtype, optional
        Of inputs that are no indices, float32 if not given; all else is int64.
    target : str, of data of one's own: the column to be predicted

    Returns
    -------
    Labelled or Text

        ============================  ==========  =====================
        ``text``, ``ptb``             `Text`      tokens (T,)
        ``digits``, ``usps``          `Labelled`  inputs (N, 64 or 256)
        ``mnist``, ``fashion-mnist``  `Labelled`  inputs (N, 784)
        ``cifar10``                   `Labelled`  inputs (N, 3, 32, 32)
        ``imdb``                      `Labelled`  inputs (N, 256)
        ============================  ==========  =====================

        Pictures have ink or light in [0, 1]; ``imdb`` has indices into its
        `vocabulary` of 20,000 words, and `labkit.lab.datasets.load_imdb` takes other
        numbers.

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
    own = name not in _CATALOGUE
    if own and not is_own(name):
        known = ", ".join((*_CATALOGUE, *BUNDLED))
        raise DataError(
            f"unknown data set {name!r}; there are: {known}, and files "
            f"that end in {', '.join(FILES_OF_ONES_OWN)}"
        )
    if not own and target:
        raise DataError(f"target is of data of one's own, not of {name!r}")
    dtype = torch.float32 if dtype is None else dtype
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(
            f"dtype must be a floating-point torch.dtype, got {dtype!r}; "
            "tokens and labels are int64 in any case"
        )
    if own:
        data = load_own(name, split, dtype, target=target)
    else:
        _, splits, read = _CATALOGUE[name]
        if split not in splits:
            known = ", ".join(splits)
            raise DataError(f"{name!r} has no split {split!r}; it has: {known}")
        data = read(split) if name in _INDICES else read(split, dtype)
    if device is None:
        return data
    values = vars(data).items()
    moved = {
        key: value.to(device)
        for key, value in values
        if isinstance(value, torch.Tensor)
    }
    return replace(data, **moved)
