"""Results on disk: one CSV file for each study, which also says how units were run.

The file begins with a line ``# {...}`` of JSON for each unit that is done. The table
follows. Both are in the order of the study's units, whichever finished first.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd
from filelock import FileLock

from labkit.lab.runs.jobs import write_atomically
from labkit.lab.runs.parameters import RunRefused
from reproduction.studies import Study

DIGITS = 7  # significant digits of a number


def path_of(study: Study, results: Path) -> Path:
    """Return the path of the results of a study."""
    return Path(results) / f"{study.name}.csv"


def name_in(path: Path) -> str:
    """Return the name of the study that the first line of a file of results gives."""
    with path.open(encoding="utf-8", errors="replace") as file:
        match = re.match(r"# labkit reproduce run (\S+);", file.readline())
    if match is None:
        raise _damaged(path, "its first line does not name a study")
    return match[1]


def read(path: Path) -> tuple[dict[str, dict], list[dict[str, str]]]:
    """Return how each unit was run, by its name, and all rows as text.

    Raises
    ------
    RunRefused : if the file is not as :func:`append` writes it; the message names the
        file, what is wrong and what to do
    """
    headers, table = _parts(path)
    reader = csv.DictReader(io.StringIO(table), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise _damaged(path, f"its table cannot be read: {error}") from error
    for row in rows:
        if None in row or None in row.values():
            raise _damaged(
                path, f"a row of unit {row['unit']!r} has too many or few cells"
            )
    for unit in dict.fromkeys(row.get("unit") for row in rows):
        if unit not in headers:
            raise _damaged(path, f"it has rows of unit {unit!r} and no line on its run")
    return headers, [{k: v for k, v in row.items() if v != ""} for row in rows]


def frame(path: Path) -> pd.DataFrame:
    """Return all rows, with numbers; the column ``unit`` names the unit of each."""
    read(path)
    _, table = _parts(path)
    return pd.read_csv(io.StringIO(table)) if table else pd.DataFrame({"unit": []})


def _parts(path: Path) -> tuple[dict[str, dict], str]:
    """Return the lines on the units' runs, by unit, and the text of the table."""
    if not os.path.lexists(path):
        return {}, ""
    try:
        lines = path.read_text("utf-8").splitlines(keepends=True)
    except (OSError, ValueError) as error:
        raise RunRefused(f"the results in {path} cannot be read ({error})") from error
    headers, table = {}, []
    for number, line in enumerate(lines, 1):
        if not line.startswith("#"):
            table.append(line)
        elif line.startswith("# {"):
            try:
                header = json.loads(line[2:])
                unit, _ = header["unit"], header["arguments"]
            except (ValueError, KeyError, RecursionError) as error:
                raise _damaged(path, f"line {number} cannot be read") from error
            headers[unit] = header
    return headers, "".join(table)


def _damaged(path: Path, reason: str) -> RunRefused:
    return RunRefused(
        f"the results in {path} are damaged: {reason}; bring the file back with "
        f"'git checkout -- {path.name}' in its folder, or move it away"
    )


def difference(study: Study, header: Mapping) -> str:
    """Return in words how recorded results differ from what the study computes now.

    It is empty if the arguments of the unit and the version of the study are the same.
    """
    unit = header["unit"]
    now = json.loads(json.dumps(study.units.get(unit)))
    if now is None:
        return f"{study.name} has no unit {unit!r}"
    was, version = header["arguments"], header.get("version", 1)
    if version != study.version:
        return (
            f"{unit} was computed by version {version}, and it is {study.version} now"
        )
    changed = [
        key for key in dict.fromkeys([*now, *was]) if now.get(key) != was.get(key)
    ]
    if not changed:
        return ""
    key = changed[0]
    was, now = was.get(key), now.get(key)
    return f"{unit} was computed with {key} {was!r}, and it is {now!r} now"


def problems(study: Study, path: Path) -> list[str]:
    """Return what is wrong with a file of results, one sentence for each fault.

    The arguments and the version of each unit must be those of the study, and it must
    have rows.

    Raises
    ------
    RunRefused : if the form of the file is not that of :func:`append`
    """
    headers, rows = read(path)
    wrong = []
    for unit, header in headers.items():
        mine = [row for row in rows if row["unit"] == unit]
        if words := difference(study, header):
            wrong.append(words)
        if not mine:
            wrong.append(f"{unit} has no rows")
    return wrong


def append(
    study: Study, results: Path, header: Mapping, rows: Iterable[Mapping]
) -> None:
    """Write a unit's header and rows to the study's file, all at once or not at all."""
    path, unit = path_of(study, results), header["unit"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        headers, kept = read(path)
        mine = [{"unit": unit} | {k: as_text(v) for k, v in r.items()} for r in rows]
        headers[unit] = header
        kept = [row for row in kept if row["unit"] != unit] + mine
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
