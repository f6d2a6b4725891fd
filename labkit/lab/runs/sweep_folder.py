"""The folder of a sweep, with its finished runs and their outcomes."""

import contextlib
import json
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.lab.runs.execute import Plan
from labkit.lab.runs.jobs import JobBusy, once, this_process, write_atomically
from labkit.lab.runs.parameters import Value
from labkit.lab.runs.run_folder import (
    difference,
    read_summary,
    rows,
    scalars,
    trace_name,
    traces,
)
from labkit.lab.runs.sweep_plan import MANIFEST, SweepPlan, identity, read_manifest

if TYPE_CHECKING:
    import pandas as pd

LOCKS = ".locks"


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run of a sweep."""

    state: str  # finished, failed, refused or not run
    seconds: float | None = None  # of the wall clock
    error: str | None = None  # a failed cell's, or what kept the run from its end
    path: Path | None = None


def begin(plan: SweepPlan) -> None:
    """Write the manifest of the sweep before its first run, with this process in it.

    A sweep that goes on has each process that carried out a part of it. What a run was
    computed by stands in its own summary.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    manifest = read_manifest(plan) or {
        **identity(plan),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    manifest["processes"] = [*manifest.get("processes", []), this_process()]
    write_atomically(plan.folder / MANIFEST, json.dumps(manifest, indent=2))


def lock(folder: Path, number: int) -> Path:
    """Return the lock of a run; see :func:`labkit.lab.runs.jobs.once`."""
    return folder / LOCKS / str(number)


def find_folders(folder: Path, notebook: str) -> dict[int, list[Path]]:
    """Return the folders of each run, complete or not, with the newest last."""
    safe = re.escape(re.sub(r"[^A-Za-z0-9._+=-]", "_", notebook))
    pattern = re.compile(rf"\.?\d{{8}}-\d{{6}}-{safe}-(\d+)-.*")
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if match := pattern.fullmatch(path.name):
            found.setdefault(int(match[1]), []).append(path)
    return found


def on_disk(plan: SweepPlan) -> dict[int, RunOutcome]:
    """Return the outcome of every run so far, from the folder."""
    found = find_folders(plan.folder, plan.notebook)
    return {n: outcome_of(found.get(n, []), run) for n, run in enumerate(plan.runs)}


def outcome_of(folders: list[Path], run: Plan) -> RunOutcome:
    """Return the outcome of the finished run, or else of the last that failed.

    One that had other parameters, or whose traces were damaged since, is refused.
    """
    ended = RunOutcome("not run")
    for path in folders:
        if _is_partial(path):
            continue
        summary = read_summary(path)
        if summary is None or summary["status"] not in ("finished", "failed"):
            continue  # damaged by hand: it counts as no run
        if summary["status"] == "failed":
            ended = RunOutcome("failed", summary["seconds"], summary["error"], path)
        elif words := difference(path, summary, run.values):
            told = f"{path} {words}; remove that folder, and --resume runs it anew"
            ended = RunOutcome("refused", error=told)
        else:
            return RunOutcome("finished", summary["seconds"], summary["error"], path)
    return ended


def remove_partial(folders: list[Path]) -> None:
    """Remove the partial folders of a run; the caller must hold its lock."""
    for path in folders:
        if _is_partial(path):
            # the kernel of a killed worker may still write for a second; what is
            # then left is removed at the end of the sweep
            shutil.rmtree(path, ignore_errors=True)


def remove_unfinished(plan: SweepPlan) -> None:
    """Remove the folders of dead workers, except those that a process works on."""
    for number, folders in find_folders(plan.folder, plan.notebook).items():
        if any(_is_partial(path) for path in folders):
            with contextlib.suppress(JobBusy):
                once(
                    lock(plan.folder, number),
                    lambda folders=folders: remove_partial(folders),
                    lambda: None,
                    wait=False,
                )


def tabulate(plan: SweepPlan, outcomes: dict[int, RunOutcome]) -> "pd.DataFrame":
    """Return the table of results, a row per run; see `sweep` for its columns."""
    import pandas as pd

    table = pd.DataFrame([_row(run, outcomes[n]) for n, run in enumerate(plan.runs)])
    return table.astype({"seconds": float, "error": "string"})


def _row(run: Plan, outcome: RunOutcome) -> dict[str, Value | None]:
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
        values.update(scalars(row))
    return values


def _scalars(folder: Path | None) -> dict[str, Value]:
    if folder is None:
        return {}
    return {
        f"{trace_name(path, folder)}.{name}": value
        for path in traces(folder)
        for name, value in last_values(path).items()
    }


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".partial")
