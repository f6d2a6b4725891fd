"""Results on disk: one CSV file a study, with a line on how each unit was run.

The file begins with lines ``# {...}``, JSON, one for each unit that is done; then comes
the table. Both are in the order of the study's units, whoever finished first.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd
from filelock import FileLock

from labkit.lab.runs.jobs import write_atomically
from reproduction.studies import Study

DIGITS = 7  # of a number


def path_of(study: Study, results: Path) -> Path:
    """Return where the results of a study are."""
    return Path(results) / f"{study.name}.csv"


def read(path: Path) -> tuple[dict[str, dict], list[dict[str, str]]]:
    """Return how each unit was run, by its name, and all rows as text."""
    if not path.is_file():
        return {}, []
    lines = path.read_text("utf-8").splitlines(keepends=True)
    headers = [json.loads(line[2:]) for line in lines if line.startswith("# {")]
    table = "".join(line for line in lines if not line.startswith("#"))
    rows = csv.DictReader(io.StringIO(table))
    kept = [{k: v for k, v in row.items() if v != ""} for row in rows]
    return {header["unit"]: header for header in headers}, kept


def frame(path: Path) -> pd.DataFrame:
    """Return all rows, with numbers; the column ``unit`` names the unit of each."""
    text = path.read_text("utf-8") if path.is_file() else ""
    table = "".join(x for x in text.splitlines(keepends=True) if not x.startswith("#"))
    return pd.read_csv(io.StringIO(table)) if table else pd.DataFrame({"unit": []})


def append(
    study: Study, results: Path, header: Mapping, rows: Iterable[Mapping]
) -> None:
    """Write a unit's header and rows to its file, all at once or not at all."""
    path, unit = path_of(study, results), header["unit"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        headers, kept = read(path)
        headers[unit] = dict(header)
        kept = [row for row in kept if row["unit"] != unit]
        kept += [{"unit": unit} | {k: as_text(v) for k, v in r.items()} for r in rows]
        write_atomically(path, written(study, headers, kept))


def written(study: Study, headers: Mapping, rows: list[Mapping]) -> str:
    """Return the text of the file."""
    place = {unit: number for number, unit in enumerate(study.units)}
    order = sorted(headers, key=lambda unit: (place.get(unit, len(place)), unit))
    lines = [f"# labkit reproduce run {study.name}; never edited by hand\n"]
    lines += [f"# {json.dumps(headers[unit])}\n" for unit in order]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = io.StringIO()
    writer = csv.DictWriter(table, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: order.index(row["unit"])))
    return "".join(lines) + table.getvalue()


def as_text(value: object) -> str:
    """Return a value as it stands in the file."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return str(value)
