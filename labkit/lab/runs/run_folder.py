"""The content of a run's folder: its summary, ``run.json``, and its traces.

What was cut off counts as absent: a summary, or the last line of a trace.
:func:`write_measurements` makes one table of all that a run has measured.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from labkit.lab.runs.parameters import Value

MEASUREMENTS = "measurements.csv"
PICTURE = "picture.json"  # the first figure of the run
# What a trace counts, not measures.
COUNTS = {"step", "seed", "look", "epoch", "passes", "draws"}

SUMMARY = {  # of run.json, with what stands in where one is missing
    "name": "",
    "status": "unreadable",
    "profile": "",
    "parameters": {},
    "device": "",
    "started": "",
    "seconds": None,
    "error": None,
}


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return a run's ``run.json``, or None if it is missing or damaged."""
    try:
        return SUMMARY | json.loads((folder / "run.json").read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return None


def traces(folder: Path) -> list[Path]:
    """Return the trace files in a run's folder; only plain files count."""
    return sorted(path for path in folder.rglob("*.jsonl") if path.is_file())


def rows(path: Path) -> Iterator[dict]:
    """Yield the rows of a trace without the header and incomplete or damaged lines."""
    with path.open("rb") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if "step" in row:
                yield row


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
    with table.open("w", encoding="utf-8", newline="") as file:
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
