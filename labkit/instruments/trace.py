"""Record a run in an append-only table of scalars by step, kept on disk.

The file is JSON Lines: the first line is a header (format version, parameters, library
versions, device, seed), and every further line is one row. Each row is written when it
is logged, in one write, so a killed run keeps all that it had measured. ``nan`` and the
infinities are written as ``NaN``, ``Infinity`` and ``-Infinity``, which Python's
``json`` reads back (a strict JSON reader may not).
"""

import contextlib
import dataclasses
import json
import math
import numbers
import os
import platform
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from labkit import __version__
from labkit.check import check_kind

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "labkit-trace"
FORMAT_VERSION = 1

Scalar = int | float | bool | str
Row = dict[str, Scalar]


class Trace:
    """An append-only table of scalars by step, written to disk row by row.

    Parameters
    ----------
    path : str or Path, optional
        The file to write; folders are made.  ``None`` keeps the rows in memory only.
    parameters : mapping or dataclass instance, optional
        The run's parameters, JSON-writable; kept in the header, as are those below.
    device : str or torch.device, optional, where the run computes
    seed : int, optional, the run's seed
    resume : bool or int
        Go on with the file if there is one: after its last row, or after a step, that
        of a checkpoint; rows of later steps are dropped, and so is an unfinished line.
        Its header stays.

    Attributes
    ----------
    header : dict, format, version, parameters, versions, device, seed
    path : Path or None, the file behind the trace

    Raises
    ------
    FileExistsError : if `path` exists and is not resumed: none is overwritten
    ValueError : if what is to be resumed is no trace, or had other parameters or seed
    NotADirectoryError : if `path` lies under something that is a file
    TypeError : if a parameter cannot be written as JSON

    Examples
    --------
    >>> trace = Trace(seed=0)
    >>> trace.log(0, loss=2.5)
    >>> trace.log(1, loss=torch.tensor(1.5), note="first step")
    >>> [row["loss"] for row in trace.rows]
    [2.5, 1.5]
    >>> trace.rows[1]
    {'step': 1, 'loss': 1.5, 'note': 'first step'}
    """

    def __init__(
        self,
        path: str | PathLike | None = None,
        *,
        parameters: Mapping | None = None,
        device: torch.device | str | None = None,
        seed: int | None = None,
        resume: bool | int = False,
    ):
        check_kind("resume", resume, numbers.Integral, "True, False or a step")
        self.path = None if path is None else _path(path)
        self.header = _header(parameters, device, seed)
        self._rows: list[Row] = []
        self._subscribers: dict[object, Callable[[Row], None]] = {}
        self._refusal = ""  # why the trace takes no more rows; empty if it does
        self._file = None
        if self.path is not None and resume is not False and self.path.exists():
            self._resume(math.inf if resume is True else resume)
        elif self.path is not None:
            self._file = _create(self.path)
            self._write(self.header)

    def log(self, step: int, **scalars) -> None:
        """Append one row, and write it to disk before the subscribers are called.

        Costs O(number of scalars), and waits for tensors on a GPU.

        Parameters
        ----------
        step : int, not below the row before's; several rows may share a step
        **scalars : int, float, bool, str or 0-d tensor
            The row's values by column name (numpy scalars count as numbers).

        Raises
        ------
        TypeError : for any other kind of value, naming the column and the type
        ValueError : if `step` decreases
        RuntimeError : if the trace is closed or was loaded from a file
        """
        if self._refusal:
            raise RuntimeError(f"cannot log step {step}: {self._refusal}")
        row = _row(step, scalars)
        if self._rows and row["step"] < self._rows[-1]["step"]:
            last = self._rows[-1]["step"]
            raise ValueError(
                f"step must not decrease: got {row['step']} after {last}; to go on "
                "from a checkpoint, Trace(path, resume=its_step)"
            )
        if self._file is not None:
            self._write(row)
        self._rows.append(row)
        for callback in list(self._subscribers.values()):
            callback(dict(row))

    @property
    def rows(self) -> list[Row]:
        """Return the rows so far, oldest first, each with its ``step``.

        Do not change the rows.
        """
        return list(self._rows)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def frame(self) -> "pd.DataFrame":
        """Return a DataFrame indexed by step, ``nan`` where a row lacks a value."""
        import pandas as pd

        if not self._rows:
            return pd.DataFrame(index=pd.Index([], name="step", dtype="int64"))
        return pd.DataFrame(self._rows).set_index("step")

    def subscribe(self, callback: Callable[[Row], None]) -> Callable[[], None]:
        """Call `callback(row)` after each row is written.

        The result is a function that ends the subscription; calling it again does
        nothing.
        """
        check_kind("callback", callback, Callable, "a function of a row")
        key = object()  # the same callback may subscribe twice
        self._subscribers[key] = callback
        return lambda: self._subscribers.pop(key, None)

    def close(self) -> None:
        """Close the file and refuse further rows; existing rows stay readable."""
        self._refusal = self._refusal or "the trace is closed"
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "Trace":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @classmethod
    def load(cls, path: str | PathLike) -> "Trace":
        """Read a trace from a file; it takes no further rows.

        An unfinished last line, left by a killed run, is dropped. ValueError, with the
        line number, if the header or a line before the last is malformed.
        """
        path = _path(path)
        trace = cls()
        trace.path = path
        trace.header, trace._rows, _ = _read(path)
        trace._refusal = f"the trace was loaded from {path} and is read-only"
        return trace

    def __repr__(self) -> str:
        return f"Trace({str(self.path) if self.path else None!r}, rows={len(self)})"

    def _resume(self, last_step: float) -> None:
        """Read the rows of a file up to a step, and continue writing after them."""
        header, rows, lines = _read(self.path)
        for name in ("parameters", "seed"):
            if self.header[name] not in (None, {}, header[name]):
                raise ValueError(
                    f"{self.path} is of a run with {name} {header[name]!r}; this one "
                    f"has {self.header[name]!r}: choose another path"
                )
        self.header = header
        self._rows = [row for row in rows if row["step"] <= last_step]
        kept = b"".join(line + b"\n" for line in lines[: 1 + len(self._rows)])
        self._file = open(self.path, "r+b", buffering=0)
        self._file.seek(0, os.SEEK_END)
        if len(kept) > self._file.tell():
            self._file.write(b"\n")  # the last row lacked only its newline
        self._file.truncate(len(kept))
        self._file.seek(len(kept))

    def _write(self, record: Mapping) -> None:
        data = (json.dumps(record) + "\n").encode()
        try:
            # Unbuffered: one system call a line unless the system writes only a part.
            while data:
                data = data[self._file.write(data) :]
        except BaseException:
            # Anything after a torn line would be unreadable, so no line may follow it.
            self._refusal = f"an earlier write to {self.path} failed"
            self.close()
            raise


def _path(path) -> Path:
    check_kind("path", path, (str, PathLike), "a path")
    return Path(path)


def _header(parameters, device, seed) -> dict:
    check_kind("seed", seed, (numbers.Integral, type(None)), "an integer or None")
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "parameters": _plain(parameters),
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "labkit": __version__,
        },
        "device": device and str(device),
        "seed": None if seed is None else int(seed),
    }


def _plain(parameters) -> dict:
    """Return the parameters as JSON reads them back (a tuple becomes a list)."""
    if parameters is None:
        return {}
    if dataclasses.is_dataclass(parameters):
        parameters = dataclasses.asdict(parameters)
    check_kind("parameters", parameters, Mapping, "a mapping or a dataclass")
    plain = {}
    for name, value in parameters.items():
        try:
            plain[str(name)] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"parameter {name!r} cannot be written as JSON: "
                f"{type(value).__name__} {value!r}"
            ) from error
    return plain


def _create(path: Path):
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(
                f"cannot write the trace {path}: {folder} is a file, not a folder"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return open(path, "xb", buffering=0)
    except FileExistsError as error:
        raise FileExistsError(
            f"{path} exists and a trace is never overwritten; go on with it by "
            "resume=True, choose another path, or move the old file away"
        ) from error


def _row(step, scalars: Mapping) -> Row:
    step = _scalar("step", step)
    if isinstance(step, bool) or not isinstance(step, int):
        raise TypeError(f"step must be an int, got {type(step).__name__} {step!r}")
    return {"step": step} | {
        name: _scalar(name, value) for name, value in scalars.items()
    }


def _scalar(name: str, value) -> Scalar:
    number = isinstance(value, np.generic | torch.Tensor) and value.ndim == 0
    plain = value.item() if number else value
    if isinstance(plain, (bool, int, float, str)):
        return plain
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        kind += f" of shape {tuple(value.shape)} and dtype {value.dtype}"
    raise TypeError(
        f"{name!r} must be an int, float, bool, str or 0-d tensor of these, got {kind}"
    )


def _finished_lines(data: bytes) -> list[bytes]:
    """Split into lines, without an incomplete last line."""
    *lines, rest = data.split(b"\n")
    # A cut-off JSON object never parses, so one that parses only lacks its newline.
    with contextlib.suppress(ValueError):
        json.loads(rest)
        lines.append(rest)
    return lines


def _read(path: Path) -> tuple[dict, list[Row], list[bytes]]:
    """Return the header, the rows and the finished lines of a file."""
    lines, rows = _finished_lines(path.read_bytes()), []
    if not lines:
        raise ValueError(f"{path}: line 1: no header; the run was cut off, or no trace")
    header = _parse(path, 1, lines[0])
    if header.get("format") != FORMAT:
        raise ValueError(f"{path}: line 1: not the header of a {FORMAT} file")
    if header.get("version") != FORMAT_VERSION:
        raise ValueError(
            f"{path}: line 1: format version {header.get('version')!r}, "
            f"this labkit reads {FORMAT_VERSION}"
        )
    for number, line in enumerate(lines[1:], start=2):
        record = _parse(path, number, line)
        try:
            row = _row(record.pop("step", None), record)
        except TypeError as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
        if rows and row["step"] < rows[-1]["step"]:
            raise ValueError(
                f"{path}: line {number}: step {row['step']} after {rows[-1]['step']}"
            )
        rows.append(row)
    return header, rows, lines


def _parse(path: Path, number: int, line: bytes) -> dict:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}: line {number}: not JSON: {line[:60]!r}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path}: line {number}: not a JSON object: {line[:60]!r}")
    return record
