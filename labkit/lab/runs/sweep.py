"""Sweeps: one notebook over every combination of values, several runs at a time.

A sweep has a folder of its own, ``sweep-<notebook>-<digest>``.  The digest is of the
notebook's code and of the parameters of every run, so the same request finds the same
folder again, and a changed notebook never mixes its results with those of the old one.
In the folder each run has a fixed name, under which its folder appears when it is
complete (`execute`).  What is finished is therefore read off the folder itself, and the
same request goes on where a sweep was cut off.

Processes of this machine, or the workers of a Dask cluster, take the runs, and one
whose process dies is repeated.  Each run has a lock, which its process holds and the
system frees when that process ends: whoever gets the lock keeps a finished run, or
removes a half-written one and begins.  So a run that is believed lost, or a second
sweep of the same request, cannot compute anything twice.
"""

import contextlib
import hashlib
import itertools
import json
import math
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.lab.runs.execute import (
    Plan,
    execute_quietly,
    failed,
    prepare,
)
from labkit.lab.runs.jobs import once, write_atomically
from labkit.lab.runs.parameters import ParameterError, RunRefused, Value
from labkit.lab.runs.report import MANIFEST, report
from labkit.lab.runs.run_folder import read_summary, rows, scalars, trace_name, traces
from labkit.lab.runs.workers import SchedulerLost, carry_out, check_scheduler

if TYPE_CHECKING:
    import pandas as pd

RESULTS, LOCKS = "results.csv", ".locks"
MAX_RUNS = 10_000
MAX_NAME = 150  # characters of a run's name; file systems take 255
RANGE = re.compile(r"(-?\d{1,18}):(-?\d{1,18})")


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that has passed every check and has not begun.

    Attributes
    ----------
    folder : Path, the sweep's own folder
    notebook : str, the notebook's name without its digits
    code : str, the digest of the notebook's code cells
    varied : tuple of str, the parameters that were given lists of values
    runs : tuple of Plan, one per combination, the last parameter varying fastest
    cluster : str, ``local`` or the address of a Dask scheduler
    workers : int or None, processes of this machine; None for one per processor
    """

    folder: Path
    notebook: str
    code: str
    varied: tuple[str, ...]
    runs: tuple[Plan, ...]
    cluster: str
    workers: int | None


@dataclass(frozen=True)
class SweepResult:
    """The files and the outcome of a sweep.

    Attributes
    ----------
    path : Path, the sweep's folder
    csv, html : Path, the table of results and the index over the runs, both in it
    table : pandas.DataFrame, a row per run, see `sweep`
    varied : tuple of str, the columns of the parameters that were given lists of values
    ok : bool, whether every run is finished
    """

    path: Path
    csv: Path
    html: Path
    table: "pd.DataFrame"
    varied: tuple[str, ...]
    ok: bool


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run of a sweep."""

    state: str  # finished, failed or not run
    seconds: float | None = None  # of the wall clock
    error: str | None = None  # a failed cell's, or what kept the run from its end
    path: Path | None = None


def sweep(
    name: str,
    values: Mapping[str, Iterable[Value] | Value],
    *,
    profile: str = "quick",
    device: str | None = None,
    cluster: str = "local",
    workers: int | None = None,
    out: str | Path = "runs",
    notebook_dir: str | Path | None = None,
) -> SweepResult:
    """Run a notebook with every combination of values, several runs at a time.

    A sweep of the same notebook and values that was cut off goes on: finished runs are
    kept, unfinished and failed ones start again. Without its folder it begins anew.

    Parameters
    ----------
    name : str, ``"rtrl"`` or ``"05_rtrl"`` for ``05_rtrl.ipynb``
    values : mapping
        For each parameter the values to take, ``{"rank": [1, 2, 8], "seed":
        range(5)}``; a single value stands for a list of one.
    profile, device, out, notebook_dir : as for `run`
    cluster : str
        ``"local"`` takes processes of this machine for as long as the sweep lasts,
        which nobody else can reach.  Anything else is the address of a Dask
        scheduler, such as ``"tls://10.0.0.5:8786"``; its workers need labkit and must
        see the notebook and `out` under the same paths as this machine.  Whoever
        reaches a scheduler without TLS can run code as its owner.
    workers : int, optional, processes on this machine, else one per processor

    Returns
    -------
    SweepResult
        With ``ok=False`` when a run failed; the others are carried out.  The table has
        a row per run with the columns ``run`` (the folder), one for every parameter,
        ``state``, ``seconds``, ``error`` (its last line) and, for every scalar of every
        trace, ``<trace>.<scalar>`` with the last value that was logged.

    Raises
    ------
    RunRefused
        Before anything is written, when a name, a value, the cluster or the output
        folder will not do.

    Notes
    -----
    A run whose process dies is repeated once (on a Dask cluster
    ``distributed.scheduler.allowed-failures`` times).
    """
    plan = prepare_sweep(
        name,
        values,
        profile=profile,
        device=device,
        cluster=cluster,
        workers=workers,
        out=out,
        notebook_dir=notebook_dir,
    )
    return execute_sweep(plan)


def parse_values(name: str, text: str) -> list[str | int]:
    """Read the values of one parameter as given to ``-p``.

    Items are parted by commas; ``a:b`` counts from ``a`` to ``b - 1``, as in Python.

    >>> parse_values("rank", "1,2,8"), parse_values("seed", "0:3,7")
    (['1', '2', '8'], [0, 1, 2, '7'])
    """
    found: list[str | int] = []
    for item in text.split(","):
        match = RANGE.fullmatch(item)
        counted = range(int(match[1]), int(match[2])) if match else [item]
        if not item or not counted:
            raise ParameterError(
                f"{name}={text} has an empty item; write {name}=1,2,8 or {name}=0:5, "
                "which counts from 0 to 4, as in Python"
            )
        found += counted[: MAX_RUNS + 1]
    return found


def prepare_sweep(
    name: str,
    values: Mapping[str, Iterable[Value] | Value],
    *,
    profile: str = "quick",
    device: str | None = None,
    cluster: str = "local",
    workers: int | None = None,
    out: str | Path = "runs",
    notebook_dir: str | Path | None = None,
) -> SweepPlan:
    """Check all runs of a sweep before it begins; arguments are those of `sweep`."""
    if not isinstance(values, Mapping) or not values:
        raise ParameterError("a sweep needs values, as in -p rank=1,2,8 -p seed=0:5")
    if workers is not None and (cluster != "local" or workers < 1):
        raise RunRefused(
            f"workers={workers} is not allowed; give 1 or more, for processes of this "
            "machine, as a cluster has its own"
        )
    lists = {key: _as_list(key, items) for key, items in values.items()}
    count = math.prod(map(len, lists.values()))
    if count > MAX_RUNS:
        raise ParameterError(
            f"these are {count:,} runs or more; a sweep takes {MAX_RUNS:,} at most"
        )

    def check(given: dict[str, Value]) -> Plan:
        return prepare(name, given, profile, device, out, notebook_dir)

    first = {key: items[0] for key, items in lists.items()}
    base = check(first)
    # bounds and types hold for each parameter by itself: with every value every
    # combination of them is checked. What reads as the same number is run once.
    typed = {
        key: dict.fromkeys(check({**first, key: item}).values[key] for item in items)
        for key, items in lists.items()
    }
    if cluster != "local":
        check_scheduler(cluster)
    combinations = [
        {**base.values, **dict(zip(typed, chosen, strict=True))}
        for chosen in itertools.product(*typed.values())
    ]
    code = code_digest(base.notebook)
    whole = json.dumps([code, base.profile, combinations], sort_keys=True)
    folder = base.out / f"sweep-{base.name}-{_sha256(whole)[:8]}"
    shown = [*typed, *({"seed"} & base.values.keys() - typed.keys())]
    runs = []
    for number, taken in enumerate(combinations):
        words = [f"{number:0{len(str(count - 1))}}"]  # which makes it unique
        words += [f"{key}={taken[key]}" for key in shown]
        run_name = re.sub(r"[^A-Za-z0-9._+=-]", "_", "-".join(words))[:MAX_NAME]
        runs.append(replace(base, values=taken, final=folder / run_name))
    return SweepPlan(
        folder, base.name, code, tuple(typed), tuple(runs), cluster, workers
    )


def execute_sweep(plan: SweepPlan) -> SweepResult:
    """Execute a sweep; see `sweep`. Progress and failures go to stderr."""
    from tqdm import tqdm

    outcomes = dict(enumerate(map(outcome_of, plan.runs)))
    left = [n for n, found in outcomes.items() if found.state != "finished"]
    if left:
        plan.folder.mkdir(parents=True, exist_ok=True)
        about = {"notebook": plan.notebook, "code": plan.code, "varied": plan.varied}
        write_atomically(plan.folder / MANIFEST, json.dumps(about))
        total, done = len(plan.runs), len(plan.runs) - len(left)
        # disable=None: unless on a terminal
        bar = tqdm(total=total, initial=done, unit="run", disable=None)
        with bar, contextlib.closing(_carry_out(plan, left)) as ended:
            for number, outcome in ended:
                outcomes[number] = outcome
                bar.update()
                if outcome.error:
                    name, state = plan.runs[number].final.name, outcome.state.upper()
                    told = f"{name} {state}: {outcome.error}\n"
                    tqdm.write(told, file=sys.stderr)
    table = tabulate(plan, outcomes)
    csv = plan.folder / RESULTS
    write_atomically(csv, table.to_csv(index=False))
    ok, html = bool((table["state"] == "finished").all()), report(plan.folder)
    return SweepResult(plan.folder, csv, html, table, plan.varied, ok)


def outcome_of(run: Plan) -> RunOutcome:
    """Return the outcome of a run of a sweep, from its folder."""
    for folder in (run.final, failed(run.final)):
        summary = read_summary(folder)
        if summary and summary["status"] in ("finished", "failed"):
            status, seconds = summary["status"], summary["seconds"]
            return RunOutcome(status, seconds, summary["error"], folder)
    return RunOutcome("not run")


def tabulate(plan: SweepPlan, outcomes: dict[int, RunOutcome]) -> "pd.DataFrame":
    """Return the table of results, a row per run; see `sweep` for its columns."""
    import pandas as pd

    table = []
    for number, run in enumerate(plan.runs):
        outcome = outcomes[number]
        error = (outcome.error or "").strip().splitlines()
        own = {"state": outcome.state, "seconds": outcome.seconds}
        own["error"] = error[-1] if error else None
        measured = last_values(outcome.path) if outcome.path else {}
        folder = outcome.path or run.final
        table.append({"run": folder.name, **run.values, **own, **measured})
    return pd.DataFrame(table).astype({"seconds": float, "error": "string"})


def last_values(folder: Path) -> dict[str, Value]:
    """Return the last value of every scalar of the traces in a run's folder."""
    return {
        f"{trace_name(path, folder)}.{name}": value
        for path in traces(folder)
        for row in rows(path)
        for name, value in scalars(row).items()
    }


def code_digest(notebook: Path) -> str:
    """Return the digest of a notebook's code cells, without outputs."""
    import nbformat

    cells = nbformat.read(notebook, as_version=4).cells
    return _sha256(json.dumps([c.source for c in cells if c.cell_type == "code"]))


def _carry_out(plan: SweepPlan, left: list[int]) -> Iterator[tuple[int, RunOutcome]]:
    """Execute the runs; yield the number and outcome of each as it ends."""
    jobs = {number: (plan.runs[number], plan.code) for number in left}
    ended = carry_out(run_once, jobs, cluster=plan.cluster, workers=plan.workers)
    with contextlib.closing(ended):
        for number, answer in ended:
            if isinstance(answer, SchedulerLost):
                error = f"{answer}; the same command goes on"
                answer = outcome_of(plan.runs[number])  # its answer may be lost alone
                if answer.state == "not run":
                    answer = RunOutcome("not run", error=error)
            elif isinstance(answer, Exception):
                answer = RunOutcome("failed", error=str(answer))
            yield number, answer


def run_once(plan: Plan, code: str) -> RunOutcome:
    """Execute one run of a sweep unless it is finished, in whatever process."""
    folder = plan.final.parent
    if not folder.is_dir():
        raise RunRefused(
            f"the worker on {socket.gethostname()} does not see {folder}; all "
            "workers of a sweep need its folder and its notebook under the same paths"
        )

    def finished() -> RunOutcome | None:
        outcome = outcome_of(plan)
        return outcome if outcome.state == "finished" else None

    def work() -> RunOutcome:
        if code_digest(plan.notebook) != code:
            raise RunRefused(f"{plan.notebook} was changed after the sweep began")
        execute_quietly(plan)
        return outcome_of(plan)

    return once(folder / LOCKS / plan.final.name, finished, work)


def _as_list(key: str, items: Iterable[Value] | Value) -> list[Value]:
    if isinstance(items, str | bool | int | float):
        return [items]
    taken = isinstance(items, Iterable) and [*itertools.islice(items, MAX_RUNS + 1)]
    if not taken:
        raise ParameterError(f"{key}={items!r} is no value and no list of values")
    return taken


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
