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
COUNTS = {"step", "seed", "look", "epoch", "passes", "draw", "draws"}

SUMMARY = {  # of run.json, with what stands in where one is missing
    "name": "",
    "status": "unreadable",
    "profile": "",
    "parameters": {},
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
            if isinstance(row, dict) and "step" in row:
                yield row


def read_measurements(folder: Path) -> Iterator[tuple[str, int, str, Value]]:
    """Yield trace, step, name and value of all that a run has measured, in order.

    The trace's name is its path in the run's folder; numbers and words count.
    """
    for path in traces(folder):
        trace = path.relative_to(folder).with_suffix("").as_posix()
        for row in rows(path):
            step = row.pop("step")
            for name, value in row.items():
                if isinstance(value, (int, float, str)):
                    yield trace, step, name, value


def write_measurements(folder: Path, run: str, parameters: Mapping[str, Value]) -> None:
    """Write all measurements of a run as one tidy table, ``measurements.csv``.

    A row is one measurement, with the columns ``run``, ``params.<name>`` for each
    parameter, ``trace``, ``step``, ``name`` and ``value``. There is no file if there
    are no measurements.

    Parameters
    ----------
    folder : path, of the run, whose traces are read
    run : str, its name
    parameters : mapping, the run's parameters
    """
    found = [[run, *parameters.values(), *row] for row in read_measurements(folder)]
    if found:
        names = (f"params.{name}" for name in parameters)
        with (folder / MEASUREMENTS).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["run", *names, "trace", "step", "name", "value"])
            writer.writerows(found)


def measured(path: Path) -> dict[str, dict[str, float]]:
    """Return what a trace ends with: for each of its labels the numbers by name.

    A number is the last one of its name; where several seeds have one, their mean. A
    trace without labels has one, the empty text.
    """
    last = {}  # by label, name and seed
    for row in rows(path):
        numbers = last.setdefault(str(row.get("label", "")), {})
        for name, value in row.items():
            if type(value) in (int, float) and name not in COUNTS:
                numbers.setdefault(name, {})[str(row.get("seed"))] = value
    return {
        label: {name: fmean(seeds.values()) for name, seeds in numbers.items()}
        for label, numbers in last.items()
    }
