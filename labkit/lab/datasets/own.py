"""The user's own data: a table, arrays or a text; or a table of scikit-learn's.

Numbers are scaled to [0, 1] by the range of the rows to learn from, and a category
becomes a column of zeros and ones for each of its values there. A fifth of the rows,
always the same, is held out.
"""

import zipfile
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from labkit.check import check_kind
from labkit.errors import DataError
from labkit.lab.datasets.results import Labelled, Text
from labkit.lab.datasets.text import in_splits

if TYPE_CHECKING:
    import pandas as pd

BUNDLED = {  # functions of sklearn.datasets, which takes seconds to import
    "iris": "load_iris",
    "wine": "load_wine",
    "breast-cancer": "load_breast_cancer",
    "diabetes": "load_diabetes",
}
FILES_OF_ONES_OWN = (".csv", ".npz", ".txt")
HELD_OUT = 0.2  # of the rows
LEAST_ROWS = 10
LEAST_CHARACTERS = 1000
PER_CLASS = 5  # rows that a class needs on average for whole numbers to be classes
MOST_VALUES = 100  # of one category
NUMBERS = ["number", "bool"]  # columns that are no categories


def is_own(name: str) -> bool:
    """Return whether a name stands for the user's own data, not for a known set."""
    return name in BUNDLED or Path(name).suffix.lower() in FILES_OF_ONES_OWN


def load_own(
    name: str, split: str, dtype: torch.dtype = torch.float32, *, target: str = ""
) -> Labelled | Text:
    """Load one split of a table, of arrays or of a text.

    Parameters
    ----------
    name : str
        A path that ends in ``.csv``, ``.npz`` or ``.txt``; or ``iris``, ``wine``,
        ``breast-cancer`` or ``diabetes``, which come with scikit-learn.
    split : str, ``"train"`` or ``"test"``; of a text ``"valid"`` too
    dtype : torch.dtype, of inputs, and of targets that are numbers
    target : str
        The column to be predicted, the last one if empty. Words are classes, and so are
        whole numbers that each occur five times or more on average; any other number
        is predicted as a number, scaled to mean 0 and variance 1. In a file ``.npz``
        the array with one axis is predicted.

    Returns
    -------
    Labelled or Text
        Inputs (N, columns), those of numbers first; targets (N,) int64 of classes,
        (N, 1) of numbers.

    Raises
    ------
    DataError
        If the data cannot be read or learned from; one sentence gives the reason.
    FileNotFoundError
        If there is no such file.
    """
    check_kind("target", target, str, "the name of a column")
    path = Path(name)
    here = path.is_file()
    if path.suffix.lower() in FILES_OF_ONES_OWN and not here:
        raise FileNotFoundError(f"there is no file {name}")
    stamp = path.stat().st_mtime_ns if here else 0
    if path.suffix.lower() == ".txt":
        return deepcopy(_text(path, stamp, split))
    if split not in ("train", "test"):
        raise DataError(f"{name!r} has no split {split!r}; it has: train, test")
    parts, classes = _prepared(name, stamp, target)
    inputs, targets = (torch.tensor(part) for part in parts[split])
    targets = targets if classes else targets.to(dtype)
    return Labelled(
        path.stem if here else name, inputs.to(dtype), targets, classes=classes
    )


@lru_cache(maxsize=3)
def _text(path: Path, stamp: int, split: str) -> Text:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a text in UTF-8: {error}") from error
    if len(text) < LEAST_CHARACTERS:
        raise DataError(
            f"{path} has {len(text)} characters; a text needs {LEAST_CHARACTERS:,}"
        )
    return in_splits(path.stem, text, split)


@lru_cache(maxsize=2)
def _prepared(
    name: str, stamp: int, target: str
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], tuple[str, ...]]:
    """Read, check and encode the data; the cache serves both splits."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

    table, target = _read(name, target)
    X = table.drop(columns=target)
    _check(name, X)
    y, classes = _targets(name, table[target])
    test, counts = max(1, round(HELD_OUT * len(y))), np.bincount(y) if classes else None
    even = classes and counts.min() > 1 and test >= len(classes) <= len(y) - test
    train, held_out = train_test_split(
        np.arange(len(y)), test_size=test, random_state=0, stratify=y if even else None
    )
    if not classes:
        y = ((y - y[train].mean()) / (y[train].std() or 1.0))[:, None]
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encode = make_column_transformer(
        (MinMaxScaler(), make_column_selector(dtype_include=NUMBERS)),
        (words, make_column_selector(dtype_exclude=NUMBERS)),
    ).fit(X.iloc[train])
    parts = {"train": train, "test": held_out}
    arrays = {
        part: (encode.transform(X.iloc[chosen]), y[chosen])
        for part, chosen in parts.items()
    }
    return arrays, classes


def _read(name: str, target: str) -> tuple["pd.DataFrame", str]:
    """Read a table, and return it with the name of the column to be predicted."""
    import pandas as pd

    if name in BUNDLED:
        from sklearn import datasets as bundled

        table = getattr(bundled, BUNDLED[name])(as_frame=True).frame
    elif Path(name).suffix.lower() == ".npz":
        table = _arrays(name)
    else:
        try:
            table = pd.read_csv(name, encoding="utf-8-sig", low_memory=False)
            first = pd.read_csv(
                name,
                encoding="utf-8-sig",
                header=None,
                nrows=1,
                dtype=str,
                keep_default_na=False,
            )
        except (ValueError, OSError) as error:  # pandas' errors are ValueErrors
            reason = " ".join(str(error).split())
            raise DataError(f"{name} cannot be read as a table: {reason}") from error
        # those of the table are never empty or equal: pandas makes others of such names
        names = first.iloc[0].str.strip()
        if not names.all() or not isinstance(table.index, pd.RangeIndex):
            raise DataError(
                f"{name} has a column without a name: name each in the first row, "
                "leave out the numbers of rows, and end no row in a comma"
            )
        if not names.is_unique:
            raise DataError(f"{name} has two columns of one name")
    table.columns = table.columns.astype(str).str.strip()
    target = target or table.columns[-1]
    if target not in table:
        known = ", ".join(table.columns[:20])
        raise DataError(f"{name} has no column {target!r}; it has: {known}")
    return table, target


def _native(array: np.ndarray) -> np.ndarray:
    """Return an array in the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="))


def _arrays(name: str) -> "pd.DataFrame":
    """Read inputs (N, ...) and targets (N,), the last column, from an npz file."""
    import pandas as pd

    try:
        with np.load(name) as file:
            arrays = {key: _native(each) for key, each in file.items()}
    except (TypeError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{name} cannot be read as npz: {error}") from error
    match sorted(arrays.values(), key=np.ndim):
        case [y, X] if y.ndim == 1 < X.ndim and len(y) == len(X) > 0:
            return pd.DataFrame(X.reshape(len(X), -1)).assign(target=y)
    words = ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
    raise DataError(
        f"{name} must hold two arrays, inputs (N, ...) of two axes or more and targets "
        f"(N,), as many; it holds {words or 'nothing'}"
    )


def _targets(name: str, column: "pd.Series") -> tuple[np.ndarray, tuple[str, ...]]:
    """Return classes as indices with their names, or numbers without names."""
    import pandas as pd

    what, count = f"the target {column.name!r} of {name}", len(column)
    if count < LEAST_ROWS:
        raise DataError(f"{name} has {count} rows; it needs {LEAST_ROWS} or more")
    _check_whole(what, column)
    different = column.nunique()
    if different < 2:
        raise DataError(
            f"{what} has one value, {column.iloc[0]}; there is nothing to predict"
        )
    if numeric := column.dtype.kind in "iuf":
        if different * PER_CLASS > count or (column % 1).any():
            return column.to_numpy(np.float64), ()
    elif different == count:
        raise DataError(
            f"{what} has another value in each of {count:,} rows; classes occur more "
            "than once"
        )
    indices, names = pd.factorize(column, sort=True)
    return indices, tuple(f"{each:.0f}" if numeric else str(each) for each in names)


def _check(name: str, X: "pd.DataFrame") -> None:
    """Raise DataError if columns cannot be learned from."""
    if not X.shape[1]:
        raise DataError(
            f"{name} has one column and no other to predict it from; are its columns "
            "parted by commas?"
        )
    for key, column in X.items():
        what = f"column {key!r} of {name}"
        _check_whole(what, column)
        different = column.nunique()
        if column.dtype.kind not in "iufb" and different > MOST_VALUES:
            raise DataError(
                f"{what} has {different:,} different words; a category has "
                f"{MOST_VALUES} at most, so leave the column out"
            )


def _check_whole(what: str, column: "pd.Series") -> None:
    """Raise DataError if values are missing, complex or not finite."""
    if column.dtype.kind == "c":
        raise DataError(f"{what} has complex numbers; give their parts as columns")
    if lacking := int(column.isna().sum()):
        raise DataError(
            f"{what} lacks {lacking:,} of {len(column):,} values; fill them first, as "
            "pandas' fillna does, or leave its rows out (NA and None are no values)"
        )
    if column.dtype.kind == "f" and np.isinf(column).any():
        raise DataError(f"{what} has a number that is not finite")
