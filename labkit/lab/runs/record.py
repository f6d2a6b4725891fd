"""What a run's folder says of it: its record and its traces, whole or damaged.

The folders are the user's: files in them may be cut off, edited, renamed meanwhile, or
no files at all. What cannot be read counts as absent; nothing here raises or hangs.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIELDS = {  # of run.json, with what stands in where one is missing
    "name": (str, ""),
    "status": (str, "unreadable"),
    "profile": (str, ""),
    "parameters": (dict, {}),
    "device": (str, ""),
    "started": (str, ""),
    "seconds": ((int, float, type(None)), None),
    "error": ((str, type(None)), None),
}


def read_record(folder: Path) -> dict[str, Any] | None:
    """Read a run's ``run.json``; None where it is missing or not as runs write it."""
    try:
        path = folder / "run.json"
        record = json.loads(path.read_text("utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    found = {name: record.get(name, other) for name, (_, other) in FIELDS.items()}
    if all(isinstance(found[name], kind) for name, (kind, _) in FIELDS.items()):
        return _printable(found)
    return None


def traces(folder: Path) -> list[Path]:
    """Find the trace files below a run's folder; what is no plain file is none."""
    return sorted(path for path in folder.rglob("*.jsonl") if path.is_file())


def rows(path: Path) -> Iterator[dict]:
    """Yield the rows of a trace; neither the header nor a torn or damaged line."""
    with path.open("rb") as file:
        for line in file:
            row = _parsed(line)
            if "step" in row:
                yield _printable(row)


def count_rows(path: Path) -> int:
    """Count the whole lines of a trace but for its header, without reading them."""
    with path.open("rb") as file:
        first = file.readline()
        count = sum(line.endswith(b"\n") for line in file)
    return count + (first.endswith(b"\n") and "step" in _parsed(first))


def _parsed(line: bytes) -> dict:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _printable(value):
    """Put a mark for what no file can hold: halves of characters beyond 16 bits."""
    if isinstance(value, dict):
        return {_printable(k): _printable(v) for k, v in value.items()}
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value
