"""Sweeps: one notebook over every combination of values, carried out by Dask.

A sweep has a folder of its own, ``sweep-<notebook>-<digest>``.  The digest is of the
notebook's code and of the parameters of every run, so the same request finds the same
folder again, and a changed notebook never mixes its results with those of the old one.
In the folder each run is a run like any other (`execute`): complete under its name, or
hidden and unfinished.  What is finished is therefore read off the folder itself, and a
sweep that was killed goes on from there.

Dask places the runs, and repeats one whose worker dies.  All that is added here is a
lock on each run, which its process holds and the system frees when that process ends:
whoever gets the lock keeps a finished run, removes a half-written one, and only then
begins.  So a run that Dask believes lost, or a second sweep of the same request, cannot
compute anything twice.
"""

import asyncio
import contextlib
import hashlib
import io
import itertools
import json
import logging
import math
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat

from .execute import Plan, execute, prepare
from .parameters import ParameterError, RunRefused, Value
from .report import report

if TYPE_CHECKING:
    import pandas as pd

MAX_RUNS = 10_000
MAX_NAME = 150  # characters of a run's name; file systems take 255
CONNECT_SECONDS = 5
MANIFEST, RESULTS, LOCKS = "sweep.json", "results.parquet", ".locks"
OWN_COLUMNS = ("run", "state", "seconds", "error")
RANGE = re.compile(r"(-?\d+):(-?\d+)")


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that has passed every check and has not begun.

    Attributes
    ----------
    folder : Path
        The sweep's own folder.
    notebook : str
        The notebook's name without its digits.
    code : str
        The digest of the notebook's code cells.
    varied : tuple of str
        The parameters that were given lists of values.
    runs : tuple of Plan
        One per combination, the last parameter varying fastest.
    cluster : str
        ``local`` or the address of a Dask scheduler.
    workers : int or None
        Processes of the local cluster; None for one per processor.
    """

    folder: Path
    notebook: str
    code: str
    varied: tuple[str, ...]
    runs: tuple[Plan, ...]
    cluster: str
    workers: int | None


@dataclass(frozen=True)
class Outcome:
    """What became of one run of a sweep.

    Attributes
    ----------
    state : str
        ``finished``, ``failed`` or ``not run``.
    seconds : float or None
        Wall-clock time of the run.
    error : str or None
        The cell that failed and what it raised, or what kept the run from its end.
    path : Path or None
        The folder of the run, if it has one.
    """

    state: str
    seconds: float | None = None
    error: str | None = None
    path: Path | None = None


@dataclass(frozen=True)
class SweepResult:
    """What a sweep left behind.

    Attributes
    ----------
    path : Path
        The sweep's folder.
    parquet, html : Path
        The table of results and the index over the runs, both in ``path``.
    table : pandas.DataFrame
        A row per run, see `sweep`.
    varied : tuple of str
        The columns of the parameters that were given lists of values.
    ok : bool
        Whether every run is finished.
    """

    path: Path
    parquet: Path
    html: Path
    table: "pd.DataFrame"
    varied: tuple[str, ...]
    ok: bool


def sweep(
    name: str,
    values: Mapping[str, Iterable[Value] | Value],
    *,
    profile: str = "quick",
    device: str | None = None,
    cluster: str = "local",
    workers: int | None = None,
    resume: bool = False,
    out: str | Path = "runs",
    notebook_dir: str | Path | None = None,
) -> SweepResult:
    """Run a notebook with every combination of values, several runs at a time.

    Parameters
    ----------
    name : str
        ``"rtrl"`` or ``"05_rtrl"`` for ``05_rtrl.ipynb``.
    values : mapping
        For each parameter the values to take, ``{"rank": [1, 2, 8], "seed":
        range(5)}``; a single value stands for a list of one.
    profile, device, out, notebook_dir
        As for `run`.
    cluster : str
        ``"local"`` starts a Dask cluster of processes on this machine, one thread
        each, for as long as the sweep lasts.  Anything else is the address of a Dask
        scheduler, such as ``"tcp://10.0.0.5:8786"``; its workers need labkit and must
        see the notebook and `out` under the same paths as this machine.
    workers : int, optional
        Processes of the local cluster, else one per processor.
    resume : bool
        Go on with a sweep of the same notebook and values: finished runs are kept,
        unfinished and failed ones start again.

    Returns
    -------
    SweepResult
        With ``ok=False`` when a run failed; that is not an exception here, and the
        other runs are carried out.  The table has a row per run with the columns
        ``run`` (the folder), one for every parameter, ``state``, ``seconds``,
        ``error`` (its last line) and, for every scalar of every trace,
        ``<trace>.<scalar>`` with the last value that was logged.

    Raises
    ------
    RunRefused
        Before anything is written, when a name, a value, the cluster or the output
        folder will not do, when the sweep was begun before and `resume` is not set,
        or when it was not and `resume` is.

    Notes
    -----
    A run whose worker dies is repeated on another by Dask, which gives it up after
    ``distributed.scheduler.allowed-failures`` deaths (3 unless configured).  In a
    script, call this under ``if __name__ == "__main__":``, since the processes of the
    local cluster import the script.
    """
    return execute_sweep(
        prepare_sweep(
            name,
            values,
            profile=profile,
            device=device,
            cluster=cluster,
            workers=workers,
            resume=resume,
            out=out,
            notebook_dir=notebook_dir,
        )
    )


def parse_values(name: str, text: str) -> list[str | int]:
    """Read the values of one parameter as given to ``-p``.

    Items are parted by commas; ``a:b`` counts from ``a`` to ``b - 1``, as in Python.

    >>> parse_values("rank", "1,2,8"), parse_values("seed", "0:3,7")
    (['1', '2', '8'], [0, 1, 2, '7'])
    """
    found: list[str | int] = []
    for item in text.split(","):
        if not item:
            raise ParameterError(
                f"{name}={text} has an empty item; write {name}=1,2,8 or {name}=0:5"
            )
        match = RANGE.fullmatch(item)
        counted = range(*map(int, match.groups())) if match else [item]
        if not counted:
            raise ParameterError(
                f"{name}={item} is empty; a:b counts from a to b - 1, as in Python"
            )
        if len(found) + len(counted) > MAX_RUNS:
            raise ParameterError(
                f"{name}={text} has too many values; a sweep takes {MAX_RUNS} runs"
            )
        found += counted
    return found


def prepare_sweep(
    name: str,
    values: Mapping[str, Iterable[Value] | Value],
    *,
    profile: str = "quick",
    device: str | None = None,
    cluster: str = "local",
    workers: int | None = None,
    resume: bool = False,
    out: str | Path = "runs",
    notebook_dir: str | Path | None = None,
) -> SweepPlan:
    """Check every run of a sweep before it begins; arguments as for `sweep`."""
    _check_workers(cluster, workers)
    lists = {key: _as_list(key, items) for key, items in values.items()}
    if not lists:
        raise ParameterError("a sweep needs values, as in -p rank=1,2,8 -p seed=0:5")
    count = math.prod(map(len, lists.values()))
    if count > MAX_RUNS:
        raise ParameterError(f"this is {count} runs; a sweep takes {MAX_RUNS} at most")

    def check(given: dict[str, Value]) -> Plan:
        return prepare(
            name,
            given,
            profile=profile,
            device=device,
            out=out,
            notebook_dir=notebook_dir,
        )

    first = {key: items[0] for key, items in lists.items()}
    base = check(first)
    # bounds and types hold for each parameter by itself: with every value every
    # combination of them is checked
    typed = {
        key: [check({**first, key: item}).values[key] for item in items]
        for key, items in lists.items()
    }
    for key, items in typed.items():
        for item in items:
            if items.count(item) > 1:
                raise ParameterError(f"{key}={item} is given twice; give it once")
    for key in base.values:
        if key in OWN_COLUMNS:
            raise ParameterError(
                f"{base.notebook.name}: no parameter of a notebook that is swept can "
                f"be called '{key}', as a column of the results is"
            )
    combinations = [
        {**base.values, **dict(zip(typed, chosen, strict=True))}
        for chosen in itertools.product(*typed.values())
    ]
    code = code_digest(base.notebook)
    identity = json.dumps([code, base.profile, combinations], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    folder = base.out / f"sweep-{base.name}-{digest}"
    _check_begun(folder, base.name, resume)
    if cluster != "local":
        _check_scheduler(cluster)
    shown = (*typed, *({"seed"} & base.values.keys() - typed.keys()))
    runs = tuple(
        replace(
            base,
            name=_run_name(base.name, number, count, {k: taken[k] for k in shown}),
            values=taken,
            out=folder,
        )
        for number, taken in enumerate(combinations)
    )
    return SweepPlan(folder, base.name, code, tuple(typed), runs, cluster, workers)


def execute_sweep(plan: SweepPlan) -> SweepResult:
    """Carry out a sweep; see `sweep`.  Progress and failures go to stderr."""
    from tqdm import tqdm

    outcomes = _on_disk(plan)
    left = [n for n, found in outcomes.items() if found.state != "finished"]
    try:
        if left:
            with _client(plan, len(left)) as client:
                _begin(plan)
                bar = tqdm(
                    total=len(plan.runs),
                    initial=len(plan.runs) - len(left),
                    unit="run",
                    disable=None,  # unless on a terminal
                )
                with bar:
                    for number, outcome in _carry_out(plan, left, client):
                        outcomes[number] = outcome
                        bar.update()
                        if outcome.error:
                            told = f"{plan.runs[number].name} {outcome.state.upper()}"
                            bar.write(f"{told}: {outcome.error}\n", file=sys.stderr)
    finally:
        if plan.folder.is_dir():
            _remove_unfinished(plan)
    table = _table(plan, outcomes)
    parquet = plan.folder / RESULTS
    partial = parquet.with_name(f".{RESULTS}.{os.getpid()}.tmp")
    table.to_parquet(partial, index=False)
    os.replace(partial, parquet)
    ok = bool((table["state"] == "finished").all())
    return SweepResult(
        plan.folder, parquet, report(plan.folder), table, plan.varied, ok
    )


def code_digest(notebook: Path) -> str:
    """Return the digest of what a notebook computes: its code cells, no outputs."""
    cells = nbformat.read(notebook, as_version=4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def last_values(path: Path) -> dict[str, Value]:
    """Return the last value of every scalar of a trace.

    The header is skipped, and so is a last line that a kill has torn.
    """
    values: dict[str, Value] = {}
    with path.open("rb") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and "step" in row:
                values.update(row)
    values.pop("step", None)
    return {k: v for k, v in values.items() if isinstance(v, (int, float, str))}


# What is refused


def _check_workers(cluster: str, workers: int | None) -> None:
    if workers is None:
        return
    if cluster != "local":
        raise RunRefused(
            f"--workers {workers} is for the local cluster; the one at {cluster} "
            "has its own workers"
        )
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise RunRefused(f"workers={workers} is not allowed; give 1 or more")


def _as_list(key: str, items: Iterable[Value] | Value) -> list[Value]:
    if isinstance(items, (str, bool, int, float)):
        return [items]
    if not isinstance(items, Iterable):
        raise ParameterError(f"{key}={items!r} is no value and no list of values")
    taken = list(itertools.islice(items, MAX_RUNS + 1))
    if not taken:
        raise ParameterError(f"{key} is given no values; give one at least")
    if len(taken) > MAX_RUNS:
        raise ParameterError(
            f"{key} has too many values; a sweep takes {MAX_RUNS} runs"
        )
    return taken


def _check_begun(folder: Path, notebook: str, resume: bool) -> None:
    begun = (folder / MANIFEST).is_file()
    if begun and not resume:
        raise RunRefused(
            f"this sweep was begun before, in {folder}; add --resume to go on with it, "
            "or remove that folder to begin anew"
        )
    if resume and not begun:
        others = sorted(
            path.parent.name for path in folder.parent.glob(f"sweep-*/{MANIFEST}")
        )
        raise RunRefused(
            f"there is nothing to resume: in {folder.parent} no sweep of '{notebook}' "
            "as it is now was begun with these values, profile and device; "
            f"begun were: {', '.join(others) or 'none'}"
        )


def _check_scheduler(address: str) -> None:
    """Refuse an address where no Dask scheduler answers within seconds."""
    try:
        # in a thread, since a notebook has an event loop of its own in this one
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(asyncio.run, _identity(address)).result()
    except TimeoutError:
        reason = f"no answer within {CONNECT_SECONDS} s"
    except (OSError, ValueError) as error:
        reason = str(error)
    except Exception as error:  # a web server's words may be read as anything
        reason = f"what answers there is none ({type(error).__name__}: {error})"
    else:
        if answer["type"] == "Scheduler":
            return
        reason = f"a Dask {answer['type'].lower()} is there"
    raise RunRefused(
        f"there is no Dask scheduler at '{address}': {reason}; give the address that "
        "'dask scheduler' prints, such as tcp://HOST:8786, or --cluster local"
    )


async def _identity(address: str) -> dict:
    from distributed import Security, rpc

    arguments = Security().get_connection_args("client")
    async with asyncio.timeout(CONNECT_SECONDS):
        # without a limit of its own it would wait for a silent listener
        async with rpc(address, connection_args=arguments) as scheduler:
            return await scheduler.identity(n_workers=0)


@contextlib.contextmanager
def _client(plan: SweepPlan, left: int) -> Iterator:
    """Connect to the scheduler at the address given, or to one of our own."""
    from dask.system import CPU_COUNT
    from distributed import Client, LocalCluster

    if plan.cluster == "local":
        cluster = LocalCluster(
            n_workers=min(plan.workers or CPU_COUNT, left),
            threads_per_worker=1,
            processes=True,
            # it would count the worker's memory, not that of the kernel it starts
            memory_limit=None,
            dashboard_address=None,
            # else workers that are closed in the middle of a heartbeat complain
            silence_logs=logging.CRITICAL,
        )
        with cluster, Client(cluster, set_as_default=False) as client:
            yield client
        return
    with Client(plan.cluster, set_as_default=False) as client:
        yield client


# One run, on a worker


def _run_one(plan: Plan, number: int, notebook: str, code: str) -> Outcome:
    """Carry out one run unless it is finished; what Dask calls on a worker."""
    if not (plan.out / MANIFEST).is_file():
        raise RunRefused(
            f"the worker on {socket.gethostname()} does not see {plan.out}; all "
            "workers of a sweep need its folder and its notebook under the same paths"
        )
    with _lock(plan.out, number).acquire():
        folders = _folders(plan.out, notebook).get(number, [])
        found = _outcome(folders)
        if found.state == "finished":
            return found
        if code_digest(plan.notebook) != code:
            raise RunRefused(f"{plan.notebook} was changed after the sweep began")
        _remove_partial(folders)
        try:
            # papermill would draw its own progress bar if this were a terminal
            with contextlib.redirect_stderr(io.StringIO()):
                execute(plan)
        finally:
            folders = _folders(plan.out, notebook).get(number, [])
            _remove_partial(folders)
        return _outcome(folders)


def _lock(folder: Path, number: int):
    from filelock import FileLock

    (folder / LOCKS).mkdir(exist_ok=True)
    return FileLock(folder / LOCKS / str(number))


# The whole sweep


def _begin(plan: SweepPlan) -> None:
    """Write down what the sweep is, before its first run."""
    from .page import write_atomically

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


def _carry_out(plan: SweepPlan, left: list[int], client) -> Iterator:
    """Have Dask carry out the runs; yield each one's number and outcome as it ends."""
    from distributed import as_completed

    futures = {
        client.submit(
            _run_one,
            plan.runs[number],
            number,
            plan.notebook,
            plan.code,
            key=f"{plan.folder.name}-{number}",
        ): number
        for number in left
    }
    for future in as_completed(futures, loop=client.loop):
        if future.status == "finished":
            outcome = future.result()
        elif future.status == "error":
            error = future.exception()
            outcome = Outcome("failed", error=f"{type(error).__name__}: {error}")
        else:
            lost = f"the scheduler was lost ({future.status}); --resume goes on"
            outcome = Outcome("not run", error=lost)
        yield futures[future], outcome
        future.release()


def _remove_unfinished(plan: SweepPlan) -> None:
    """Remove what dead workers left, except what another process is at work on."""
    from filelock import Timeout

    for number, folders in _folders(plan.folder, plan.notebook).items():
        if any(_is_partial(path) for path in folders):
            with (
                contextlib.suppress(Timeout),
                _lock(plan.folder, number).acquire(timeout=0),
            ):
                _remove_partial(folders)


def _run_name(notebook: str, number: int, count: int, shown: dict[str, Value]) -> str:
    """Name a run by its number, which makes the name unique, and its parameters."""
    width = len(str(count - 1))
    parts = [f"{notebook}-{number:0{width}}", *(f"{k}={v}" for k, v in shown.items())]
    return re.sub(r"[^A-Za-z0-9._+=-]", "_", "-".join(parts))[:MAX_NAME]


def _folders(folder: Path, notebook: str) -> dict[int, list[Path]]:
    """Find the folders of each run, complete or not, the newest last."""
    safe = re.escape(re.sub(r"[^A-Za-z0-9._+=-]", "_", notebook))
    pattern = re.compile(rf"\.?\d{{8}}-\d{{6}}-{safe}-(\d+)-.*")
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if match := pattern.fullmatch(path.name):
            found.setdefault(int(match[1]), []).append(path)
    return found


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".partial")


def _remove_partial(folders: list[Path]) -> None:
    for path in folders:
        if _is_partial(path):
            # the kernel of a killed worker may still write for a second; what is
            # then left is removed at the end of the sweep
            shutil.rmtree(path, ignore_errors=True)


def _on_disk(plan: SweepPlan) -> dict[int, Outcome]:
    found = _folders(plan.folder, plan.notebook)
    return {n: _outcome(found.get(n, [])) for n in range(len(plan.runs))}


def _outcome(folders: list[Path]) -> Outcome:
    """Return the finished run among the folders, else the last one that failed."""
    ended = Outcome("not run")
    for path in folders:
        if _is_partial(path):
            continue
        try:
            record = json.loads((path / "run.json").read_text(encoding="utf-8"))
            state, seconds = record["status"], record["seconds"]
            found = Outcome(state, seconds, record["error"], path)
        except (OSError, ValueError, KeyError):
            continue  # damaged by hand: it counts as no run
        if state == "finished":
            return found
        ended = found
    return ended


def _table(plan: SweepPlan, outcomes: dict[int, Outcome]) -> "pd.DataFrame":
    import pandas as pd

    rows = []
    for number, run in enumerate(plan.runs):
        outcome = outcomes[number]
        error = (outcome.error or "").strip().splitlines()
        row = {
            "run": outcome.path.name if outcome.path else run.name,
            **run.values,
            "state": outcome.state,
            "seconds": outcome.seconds,
            "error": error[-1] if error else None,
        }
        rows.append({**row, **_scalars(outcome.path)})
    table = pd.DataFrame(rows)
    for column in table:
        kinds = {type(value) for value in table[column].dropna()}
        if kinds > {str} or (bool in kinds and len(kinds) > 1):
            table[column] = table[column].map(str, na_action="ignore")
    return table.astype({"seconds": float, "error": "string"})


def _scalars(folder: Path | None) -> dict[str, Value]:
    if folder is None:
        return {}
    return {
        f"{path.relative_to(folder).with_suffix('').as_posix()}.{name}": value
        for path in sorted(folder.rglob("*.jsonl"))
        for name, value in last_values(path).items()
    }
