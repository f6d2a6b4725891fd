"""The user's own data: a table, arrays or a text; or a table of scikit-learn's.

Numbers are scaled to [0, 1] by the range of the rows to learn from, and a category
becomes a column of zeros and ones for each of its values there. A fifth of the rows,
drawn by a seed, is held out.
"""

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from labkit.check import check_kind, check_options, integer
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
LEAST_ROWS, LEAST_CHARACTERS = 10, 1000
PER_CLASS = 5  # rows that a class needs on average for whole numbers to be classes
MOST_VALUES = 100  # of one category
OPTIONS = {"seed": integer(0, 2**32 - 1)}


def is_own(name: str) -> bool:
    """Return whether a name stands for the user's own data, not for a known set."""
    return name in BUNDLED or Path(name).suffix.lower() in FILES_OF_ONES_OWN


def load_own(
    name: str,
    split: str,
    dtype: torch.dtype = torch.float32,
    *,
    target: str = "",
    seed: int = 0,
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
        The column to be predicted, the last one if empty; of arrays, their name. Words
        are classes, and so are whole numbers that each occur five times or more on
        average; any other number is predicted as a number, scaled to mean 0 and
        variance 1.
    seed : int, which rows are held out

    Returns
    -------
    Labelled or Text
        Inputs (N, columns); targets (N,) int64 of classes, (N, 1) of numbers.

    Raises
    ------
    DataError
        If the data cannot be read or learned from; one sentence gives the reason.
    ValueError
        If ``seed`` is not one of numpy's.
    FileNotFoundError
        If there is no such file.
    """
    check_kind("target", target, str, "the name of a column")
    check_options({"seed": seed}, OPTIONS)
    path = Path(name)
    if path.suffix.lower() in FILES_OF_ONES_OWN and not path.is_file():
        raise FileNotFoundError(f"there is no file {name}")
    if path.suffix.lower() == ".txt":
        return _text(path, split)
    if split not in ("train", "test"):
        raise DataError(f"{name!r} has no split {split!r}; it has: train, test")
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    inputs, targets, rows, classes = _prepared(name, stamp, target, seed)
    chosen = torch.from_numpy(rows[split])
    y = targets[chosen]
    return Labelled(
        path.stem if path.is_file() else name,
        inputs[chosen].to(dtype),
        y.to(dtype) if y.is_floating_point() else y,
        classes=classes,
    )


def _text(path: Path, split: str) -> Text:
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
    name: str, stamp: int, target: str, seed: int
) -> tuple[torch.Tensor, torch.Tensor, dict[str, np.ndarray], tuple[str, ...]]:
    """Read, check and encode the data; the cache serves both splits."""
    from sklearn.model_selection import train_test_split

    table, target = read_table(name, target)
    if len(table) < LEAST_ROWS:
        raise DataError(f"{name} has {len(table)} rows; it needs {LEAST_ROWS} or more")
    if table.shape[1] < 2:
        raise DataError(
            f"{name} has the column {target!r} and no other to predict it from"
        )
    y, classes = _targets(name, table[target])
    counts = np.bincount(y) if classes else np.array([])
    test = max(1, round(HELD_OUT * len(y)))
    even = classes and counts.min() > 1 and test >= len(classes) <= len(y) - test
    train, held_out = train_test_split(
        np.arange(len(y)),
        test_size=test,
        random_state=seed,
        stratify=y if even else None,
    )
    train, held_out = np.sort(train), np.sort(held_out)
    # Rows of a file may be in the order of their classes.
    order = np.random.default_rng(seed)
    rows = {"train": order.permutation(train), "test": order.permutation(held_out)}
    columns = [
        _column(name, table[column], train)
        for column in table.columns
        if column != target
    ]
    X = np.concatenate(columns, 1, dtype=np.float32)
    if not classes:
        y = ((y - y[train].mean()) / (y[train].std() or 1.0))[:, None]
    return torch.from_numpy(X), torch.from_numpy(y), rows, classes


def read_table(name: str, target: str = "") -> tuple["pd.DataFrame", str]:
    """Read a table, and return it with the name of the column to be predicted."""
    import pandas as pd

    path, kind = Path(name), Path(name).suffix.lower()
    if name in BUNDLED:
        from sklearn import datasets as bundled

        table = getattr(bundled, BUNDLED[name])(as_frame=True).frame
    elif kind == ".npz":
        table, target = _arrays(path, target)
    else:
        try:
            table = pd.read_csv(path, encoding="utf-8-sig", low_memory=False)
        except (ValueError, OSError) as error:  # pandas' errors are ValueErrors
            reason = " ".join(str(error).split())
            raise DataError(f"{name} cannot be read as a table: {reason}") from error
    table.columns = [str(column).strip() for column in table.columns]
    target = target or (table.columns[-1] if len(table.columns) else "")
    if target not in table.columns:
        known = ", ".join(table.columns[:20])
        raise DataError(f"{name} has no column {target!r}; it has: {known}")
    return table, target


def _arrays(path: Path, target: str) -> tuple["pd.DataFrame", str]:
    """Read inputs (N, ...) and targets (N,) from an npz file."""
    import pandas as pd

    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as npz: {error}") from error
    words = ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
    flat = [key for key, array in arrays.items() if array.ndim == 1]
    target = target or next((k for k in ("y", "targets", "labels") if k in flat), "")
    target = target or (flat[-1] if flat else "")
    rest = [key for key in arrays if key != target]
    if target not in flat or len(rest) != 1:
        raise DataError(
            f"{path} must hold two arrays, inputs (N, ...) and targets (N,); "
            f"it holds {words or 'nothing'}"
        )
    X, y = arrays[rest[0]], arrays[target]
    if len(X) != len(y) or X.dtype.kind not in "buif":
        raise DataError(
            f"{path} must hold as many rows of numbers as targets; it holds {words}"
        )
    table = pd.DataFrame(X.reshape(len(X), -1))
    table.columns = [f"{rest[0]} {i}" for i in range(table.shape[1])]
    return table.assign(**{target: y}), target


def _targets(name: str, column: "pd.Series") -> tuple[np.ndarray, tuple[str, ...]]:
    """Return classes as indices with their names, or numbers without names."""
    what = f"the target {column.name!r} of {name}"
    if (lacking := int(column.isna().sum())) > 0:
        raise DataError(f"{what} lacks {lacking:,} of {len(column):,} values")
    values = column.to_numpy()
    different = column.nunique()
    if different < 2:
        raise DataError(
            f"{what} has one value, {values[0]}; there is nothing to predict"
        )
    if values.dtype.kind in "if":
        whole = np.isfinite(values).all() and (values == np.round(values)).all()
        if not whole or different * PER_CLASS > len(values):
            if not np.isfinite(values).all():
                raise DataError(f"{what} has a number that is not finite")
            return values.astype(np.float64), ()
        values = values.astype(np.int64)
    elif different == len(values):
        raise DataError(
            f"{what} has another value in each of {len(values):,} rows; classes occur "
            "more than once"
        )
    names, indices = np.unique(values.astype(object), return_inverse=True)
    return indices.astype(np.int64), tuple(str(each) for each in names)


def _column(name: str, column: "pd.Series", train: np.ndarray) -> np.ndarray:
    """Return a column of numbers as (N, 1), or a category as (N, values)."""
    import pandas as pd

    what = f"column {column.name!r} of {name}"
    if lacking := int(column.isna().sum()):
        raise DataError(
            f"{what} lacks {lacking:,} of {len(column):,} values; fill them first, as "
            "pandas' fillna does, or leave its rows out"
        )
    if pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(np.float64)
        if not np.isfinite(values).all():
            raise DataError(f"{what} has a number that is not finite")
        low, high = values[train].min(), values[train].max()
        return ((values - low) / ((high - low) or 1.0))[:, None]
    column = column.astype(str)
    known = sorted(set(column.iloc[train]))
    if len(known) > MOST_VALUES:
        raise DataError(
            f"{what} has {len(known):,} different words; a category has "
            f"{MOST_VALUES} at most, so leave the column out"
        )
    return column.to_numpy()[:, None] == np.array(known, dtype=object)[None]
