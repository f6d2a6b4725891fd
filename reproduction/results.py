"""Results on disk: one CSV file for each study, which also says how units were run.

The file begins with a line ``# {...}`` of JSON for each unit that is done. The table
follows. Both are in the order of the study's units, whichever finished first.
"""

import csv
import io
import json
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


def read(path: Path) -> tuple[dict[str, dict], list[dict[str, str]]]:
    """Return how each unit was run, by its name, and all rows as text.

    Raises
    ------
    RunRefused : if the file is not as :func:`append` writes it; the message names the
        file, what is wrong and what to do
    """
    if not path.exists():
        return {}, []
    try:
        lines = path.read_text("utf-8").splitlines(keepends=True)
        headers = [json.loads(line[2:]) for line in lines if line.startswith("# {")]
        table = (line for line in lines if not line.startswith("#"))
        rows = list(csv.DictReader(table, strict=True))
        runs = {header["unit"]: header for header in headers}
        if any(None in row or None in row.values() for row in rows):
            raise ValueError("a row has too many or few cells")
        if lost := {row["unit"] for row in rows} - runs.keys():
            raise ValueError(f"rows of {sorted(lost)} have no line on their run")
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise RunRefused(
            f"the results in {path} are damaged: {error}; bring the file back with "
            f"'git checkout -- {path.name}' in its folder, or move it away"
        ) from error
    return runs, [{k: v for k, v in row.items() if v != ""} for row in rows]


def frame(path: Path) -> pd.DataFrame:
    """Return all rows, with numbers; the column ``unit`` names the unit of each."""
    headers, _ = read(path)
    if not headers:
        return pd.DataFrame({"unit": []})
    return pd.read_csv(path, skiprows=1 + len(headers))


def difference(study: Study, header: Mapping) -> str:
    """Return in words how recorded results differ from what the study computes now.

    It is empty if the arguments of the unit and the version of the study are the same.
    """
    unit = header["unit"]
    was = header["arguments"], header.get("version", 1)
    now = json.loads(json.dumps(study.units.get(unit))), study.version
    if was == now:
        return ""
    return f"{unit} was computed with {was}, and it is {now} now (arguments, version)"


def append(
    study: Study, results: Path, header: Mapping, rows: Iterable[Mapping]
) -> None:
    """Write a unit's header and rows to the study's file, all at once or not at all."""
    path, unit = path_of(study, results), header["unit"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        headers, kept = read(path)
        headers[unit] = header
        kept = [row for row in kept if row["unit"] != unit]
        kept += [{"unit": unit} | {k: as_text(v) for k, v in r.items()} for r in rows]
        order = [*dict.fromkeys([*study.units, *headers])]
        text = io.StringIO()
        text.write(f"# labkit reproduce run {study.name}; never edited by hand\n")
        for name in sorted(headers, key=order.index):
            text.write(f"# {json.dumps(headers[name])}\n")
        names = dict.fromkeys(name for row in kept for name in row)
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(kept, key=lambda row: order.index(row["unit"])))
        write_atomically(path, text.getvalue())


def as_text(value: object) -> str:
    """Return a value as it stands in the file."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return str(value)
