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
from labkit.lab.runs.jobs import JobBusy, once, write_atomically
from labkit.lab.runs.parameters import Value
from labkit.lab.runs.run_folder import read_summary, rows, scalars, trace_name, traces
from labkit.lab.runs.sweep_plan import MANIFEST, SweepPlan

if TYPE_CHECKING:
    import pandas as pd

LOCKS = ".locks"


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run of a sweep."""

    state: str  # finished, failed or not run
    seconds: float | None = None  # of the wall clock
    error: str | None = None  # a failed cell's, or what kept the run from its end
    path: Path | None = None


def begin(plan: SweepPlan) -> None:
    """Write the manifest of the sweep before its first run."""
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
    return {n: outcome_of(found.get(n, [])) for n in range(len(plan.runs))}


def outcome_of(folders: list[Path]) -> RunOutcome:
    """Return the outcome of the finished run, or else of the last that failed."""
    ended = RunOutcome("not run")
    for path in folders:
        if _is_partial(path):
            continue
        summary = read_summary(path)
        if summary is None or summary["status"] not in ("finished", "failed"):
            continue  # damaged by hand: it counts as no run
        ended = RunOutcome(
            summary["status"], summary["seconds"], summary["error"], path
        )
        if ended.state == "finished":
            return ended
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
