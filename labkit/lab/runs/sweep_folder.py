"""The folder of a sweep: which runs are finished in it, and what they came to."""

import contextlib
import json
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.lab.runs.execute import Plan
from labkit.lab.runs.parameters import Value
from labkit.lab.runs.record import read_record, rows, traces
from labkit.lab.runs.sweep_plan import MANIFEST, SweepPlan

if TYPE_CHECKING:
    import pandas as pd

LOCKS = ".locks"
WIDE = 2**63  # larger integers have no column: they are written as text


@dataclass(frozen=True)
class Outcome:
    """What became of one run of a sweep."""

    state: str  # finished, failed or not run
    seconds: float | None = None  # of the wall clock
    error: str | None = None  # a failed cell's, or what kept the run from its end
    path: Path | None = None


def begin(plan: SweepPlan) -> None:
    """Write down what the sweep is, before its first run."""
    from labkit.lab.runs.page import write_atomically

    plan.folder.mkdir(parents=True, exist_ok=True)
    if (plan.folder / MANIFEST).is_file():
        return
    manifest = {
        "notebook": plan.runs[0].notebook.name,
        "code": plan.code,
        "profile": plan.runs[0].profile,
        "varied": plan.varied,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": [{"name": run.name, "parameters": run.values} for run in plan.runs],
    }
    write_atomically(plan.folder / MANIFEST, json.dumps(manifest, indent=2))


def lock(folder: Path, number: int):
    """Return the lock on a run; the system frees it when its holder ends, however."""
    from filelock import FileLock

    (folder / LOCKS).mkdir(exist_ok=True)
    return FileLock(folder / LOCKS / str(number))


def find_folders(folder: Path, notebook: str) -> dict[int, list[Path]]:
    """Find the folders of each run, complete or not, the newest last."""
    safe = re.escape(re.sub(r"[^A-Za-z0-9._+=-]", "_", notebook))
    pattern = re.compile(rf"\.?\d{{8}}-\d{{6}}-{safe}-(\d+)-.*")
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if match := pattern.fullmatch(path.name):
            found.setdefault(int(match[1]), []).append(path)
    return found


def on_disk(plan: SweepPlan) -> dict[int, Outcome]:
    """Read off the folder what has become of every run so far."""
    found = find_folders(plan.folder, plan.notebook)
    return {n: outcome_of(found.get(n, [])) for n in range(len(plan.runs))}


def outcome_of(folders: list[Path]) -> Outcome:
    """Return the finished run among the folders, else the last one that failed."""
    ended = Outcome("not run")
    for path in folders:
        if _is_partial(path):
            continue
        record = read_record(path)
        if record is None or record["status"] not in ("finished", "failed"):
            continue  # damaged by hand: it counts as no run
        ended = Outcome(record["status"], record["seconds"], record["error"], path)
        if ended.state == "finished":
            return ended
    return ended


def remove_partial(folders: list[Path]) -> None:
    """Remove the half-written ones among a run's folders; to be done under its lock."""
    for path in folders:
        if _is_partial(path):
            # the kernel of a killed worker may still write for a second; what is
            # then left is removed at the end of the sweep
            shutil.rmtree(path, ignore_errors=True)


def remove_unfinished(plan: SweepPlan) -> None:
    """Remove what dead workers left, except what another process is at work on."""
    from filelock import Timeout

    for number, folders in find_folders(plan.folder, plan.notebook).items():
        if any(_is_partial(path) for path in folders):
            free = lock(plan.folder, number)
            with contextlib.suppress(Timeout), free.acquire(timeout=0):
                remove_partial(folders)


def tabulate(plan: SweepPlan, outcomes: dict[int, Outcome]) -> "pd.DataFrame":
    """Return the table of results, a row per run; see `sweep` for its columns."""
    import pandas as pd

    table = pd.DataFrame([_row(run, outcomes[n]) for n, run in enumerate(plan.runs)])
    for column in table:
        values = table[column].dropna()
        kinds = {type(value) for value in values}
        mixed = kinds > {str} or (bool in kinds and len(kinds) > 1)
        if mixed or any(type(v) is int and not -WIDE <= v < WIDE for v in values):
            table[column] = table[column].map(str, na_action="ignore")
    return table.astype({"seconds": float, "error": "string"})


def _row(run: Plan, outcome: Outcome) -> dict[str, Value | None]:
    error = (outcome.error or "").strip().splitlines()
    return {
        "run": outcome.path.name if outcome.path else run.name,
        **run.values,
        "state": outcome.state,
        "seconds": outcome.seconds,
        "error": error[-1] if error else None,
        **_scalars(outcome.path),
    }


def last_values(path: Path) -> dict[str, Value]:
    """Return the last value of every scalar of a trace."""
    values: dict[str, Value] = {}
    for row in rows(path):
        values.update(row)
    values.pop("step", None)
    return {k: v for k, v in values.items() if isinstance(v, (int, float, str))}


def _scalars(folder: Path | None) -> dict[str, Value]:
    if folder is None:
        return {}
    return {
        f"{path.relative_to(folder).with_suffix('').as_posix()}.{name}": value
        for path in traces(folder)
        for name, value in last_values(path).items()
    }


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".partial")
