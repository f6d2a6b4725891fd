"""The content of a run's folder: its summary, ``run.json``, and its traces.

The folders are the user's: files in them may be cut off, edited, renamed meanwhile, or
no files at all. What cannot be read counts as absent; nothing here raises or hangs.
:func:`write_measurements` makes one table of all that a run has measured.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from labkit.lab.runs.jobs import checksum
from labkit.lab.runs.parameters import Value

MEASUREMENTS = "measurements.csv"
PICTURE = "picture.json"  # the first figure of the run
COUNTS = {
    "step",
    "seed",
    "look",
    "epoch",
    "passes",
    "draws",
}  # what a trace counts, not measures

FIELDS = {  # of run.json, with what stands in where one is missing
    "name": (str, ""),
    "status": (str, "unreadable"),
    "profile": (str, ""),
    "parameters": (dict, {}),
    "device": (str, ""),
    "started": (str, ""),
    "seconds": ((int, float, type(None)), None),
    "error": ((str, type(None)), None),
    "checksums": (dict, {}),  # of the traces, which old runs lack
}


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return a run's ``run.json``, or None if it is missing or malformed."""
    try:
        path = folder / "run.json"
        summary = json.loads(path.read_text("utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(summary, dict):
        return None
    found = {name: summary.get(name, other) for name, (_, other) in FIELDS.items()}
    if all(isinstance(found[name], kind) for name, (kind, _) in FIELDS.items()):
        return _printable(found)
    return None


def checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each trace in a run's folder, by its path in it."""
    return {p.relative_to(folder).as_posix(): checksum(p) for p in traces(folder)}


def difference(
    folder: Path, summary: Mapping[str, Any], parameters: Mapping[str, Value]
) -> str:
    """Return in words how a finished run is not the one that is looked for.

    It is empty if the run had these parameters and its traces are as they were written.
    """
    was = summary["parameters"]
    now = _printable(json.loads(json.dumps(parameters)))
    for name in dict.fromkeys([*now, *was]):
        if was.get(name) != now.get(name):
            return f"was run with {name} {was.get(name)!r}, not {now.get(name)!r}"
    try:
        found = checksums(folder)
    except OSError as error:
        return f"has a trace that cannot be read ({error.strerror})"
    for trace, written in summary["checksums"].items():
        if found.get(trace) != written:
            kind = "is damaged" if trace in found else "is no longer there"
            return f"has a trace that {kind}, {trace}"
    return ""


def traces(folder: Path) -> list[Path]:
    """Return the trace files in a run's folder; only plain files count."""
    return sorted(path for path in folder.rglob("*.jsonl") if path.is_file())


def rows(path: Path) -> Iterator[dict]:
    """Yield the rows of a trace without the header and incomplete or damaged lines."""
    with path.open("rb") as file:
        for line in file:
            row = _parsed(line)
            if "step" in row:
                yield _printable(row)


def scalars(row: Mapping[str, Any]) -> dict[str, Value]:
    """Return the measured numbers and words of a trace's row, without the step."""
    kept = {k: v for k, v in row.items() if isinstance(v, (int, float, str))}
    kept.pop("step", None)
    return kept


def trace_name(path: Path, folder: Path) -> str:
    """Return the name of a trace in a table: its path in the run's folder."""
    return path.relative_to(folder).with_suffix("").as_posix()


def write_measurements(
    folder: Path, run: str, parameters: Mapping[str, Value]
) -> Path | None:
    """Write all measurements of a run as one tidy table, ``measurements.csv``.

    A row is one measurement, with the columns ``run``, ``params.<name>`` for each
    parameter, ``trace``, ``step``, ``name`` and ``value``.

    Parameters
    ----------
    folder : path, of the run, whose traces are read
    run : str, its name
    parameters : mapping, the run's parameters

    Returns
    -------
    path or None
        Of the table; None, and no file, if the run has no measurements.
    """
    table = folder / MEASUREMENTS
    count, same = 0, [run, *parameters.values()]
    with table.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = (f"params.{name}" for name in parameters)
        writer.writerow(["run", *names, "trace", "step", "name", "value"])
        for path in traces(folder):
            for row in rows(path):
                for name, value in scalars(row).items():
                    trace = trace_name(path, folder)
                    writer.writerow([*same, trace, row["step"], name, value])
                    count += 1
    if count:
        return table
    table.unlink()
    return None


def count_rows(path: Path) -> int:
    """Count the complete lines of a trace without its header, without parsing them."""
    with path.open("rb") as file:
        first = file.readline()
        count = sum(line.endswith(b"\n") for line in file)
    return count + (first.endswith(b"\n") and "step" in _parsed(first))


def measured(path: Path) -> dict[str, dict[str, float]]:
    """Return what a trace ends with: for each of its labels the numbers by name.

    A number is the last one of its name; where several seeds have one, their mean. A
    trace without labels has one, the empty text.
    """
    last: dict[tuple[str, Any], dict[str, float]] = {}
    for row in rows(path):
        held = last.setdefault((str(row.get("label", "")), str(row.get("seed"))), {})
        held |= {
            name: float(value)
            for name, value in row.items()
            if type(value) in (int, float) and name not in COUNTS
        }
    by_label: dict[str, dict[str, list[float]]] = {}
    for (label, _), numbers in last.items():
        means = by_label.setdefault(label, {})
        for name, value in numbers.items():
            means.setdefault(name, []).append(value)
    return {
        label: {name: fmean(values) for name, values in means.items()}
        for label, means in by_label.items()
    }


def _parsed(line: bytes) -> dict:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _printable(value: Any) -> Any:
    """Replace the characters that no file can hold (lone surrogates) by a mark."""
    if isinstance(value, dict):
        return {_printable(k): _printable(v) for k, v in value.items()}
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value
