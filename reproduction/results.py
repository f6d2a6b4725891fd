"""Results on disk: one CSV file for each study, which also says how units were run.

The file begins with a line ``# {...}`` of JSON for each unit that is done. The table
follows. Both are in the order of the study's units, whichever finished first.
"""

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


def path_of(study: Study, folder: Path) -> Path:
    """Return the path of the results of a study in a folder."""
    return folder / f"{study.name}.csv"


def read(study: Study, folder: Path) -> tuple[dict[str, dict], pd.DataFrame]:
    """Return how each unit was run, by its name, and all rows as text.

    Raises
    ------
    RunRefused : if the file is not as :func:`append` writes it; the message names the
        file, what is wrong and what to do
    """
    path = path_of(study, folder)
    if not path.exists():
        return {}, pd.DataFrame({"unit": []})
    try:
        text = path.read_text("utf-8")
        lines = [line for line in text.splitlines() if line.startswith("# {")]
        runs = {
            header["unit"]: header
            for header in (json.loads(line[2:]) for line in lines)
        }
        rows = pd.read_csv(
            io.StringIO(text), skiprows=1 + len(lines), dtype=str, keep_default_na=False
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip()
        raise RunRefused(
            f"the results in {path} are damaged: {reason}; bring the file back with "
            f"'git checkout -- {path.name}' in its folder, or move it away"
        ) from error
    return runs, rows


def frame(study: Study, folder: Path) -> pd.DataFrame:
    """Return all rows, with numbers; the column ``unit`` names the unit of each."""
    _, rows = read(study, folder)
    return pd.read_csv(io.StringIO(rows.to_csv(index=False)))


def difference(study: Study, header: Mapping) -> str:
    """Return in words how recorded results differ from what the study computes now.

    It is empty if the arguments of the unit are the same.
    """
    unit = header["unit"]
    was, now = header["arguments"], json.loads(json.dumps(study.units.get(unit)))
    return "" if was == now else f"{unit} was computed with {was}, and it is {now} now"


def append(
    study: Study, folder: Path, header: Mapping, rows: Iterable[Mapping]
) -> None:
    """Write a unit's header and rows to the study's file, all at once or not at all."""
    path, unit = path_of(study, folder), header["unit"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        headers, kept = read(study, folder)
        headers[unit] = header
        added = (
            {"unit": unit} | {name: as_text(value) for name, value in row.items()}
            for row in rows
        )
        table = pd.concat(
            [kept[kept["unit"] != unit], pd.DataFrame(added)], ignore_index=True
        )
        order = [*dict.fromkeys([*study.units, *headers])]
        places = table["unit"].map(order.index)
        table = table.loc[places.sort_values(kind="stable").index]
        lines = [f"# labkit reproduce run {study.name}; never edited by hand"]
        lines += [
            f"# {json.dumps(headers[name])}"
            for name in sorted(headers, key=order.index)
        ]
        text = table.to_csv(index=False, lineterminator="\n")
        write_atomically(path, "\n".join([*lines, text]))


def as_text(value: object) -> str:
    """Return a value as it stands in the file."""
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)
