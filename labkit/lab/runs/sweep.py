"""Sweeps: one notebook over every combination of values, several runs at a time.

A sweep has a folder of its own, ``sweep-<notebook>-<digest>``.  The digest is of the
notebook's code and of the parameters of every run, so the same request finds the same
folder again, and a changed notebook never mixes its results with those of the old one.
In the folder each run is a run like any other (`execute`): complete under its name, or
hidden and unfinished.  What is finished is therefore read off the folder itself, and a
sweep that was killed goes on from there.

Processes of this machine, or the workers of a Dask cluster, take the runs, and one
whose process dies is repeated.  Each run has a lock, which its process holds and the
system frees when that process ends: whoever gets the lock keeps a finished run, removes
a half-written one, and only then begins.  So a run that is believed lost, or a second
sweep of the same request, cannot compute anything twice.
"""

import contextlib
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.lab.runs import sweep_folder
from labkit.lab.runs.execute import Plan, check_downloads, execute_quietly
from labkit.lab.runs.jobs import once, write_atomically
from labkit.lab.runs.parameters import RunRefused, Value
from labkit.lab.runs.report import report
from labkit.lab.runs.sweep_folder import RunOutcome
from labkit.lab.runs.sweep_plan import MANIFEST, SweepPlan, code_digest, prepare_sweep
from labkit.lab.runs.workers import SchedulerLost, carry_out, check_guarded

if TYPE_CHECKING:
    import pandas as pd

RESULTS = "results.csv"


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
    download: bool = False,
) -> SweepResult:
    """Run a notebook with every combination of values, several runs at a time.

    Parameters
    ----------
    name : str, ``"rtrl"`` or ``"05_rtrl"`` for ``05_rtrl.ipynb``
    values : mapping
        For each parameter the values to take, ``{"rank": [1, 2, 8], "seed":
        range(5)}``; a single value stands for a list of one.
    profile, device, out, notebook_dir, download : as for `run`
    cluster : str
        ``"local"`` takes processes of this machine for as long as the sweep lasts,
        which nobody else can reach.  Anything else is the address of a Dask
        scheduler, such as ``"tls://10.0.0.5:8786"``; its workers need labkit and must
        see the notebook and `out` under the same paths as this machine.  Whoever
        reaches a scheduler without TLS can run code as its owner.
    workers : int, optional, processes on this machine, else one per processor
    resume : bool
        Go on with a sweep of the same notebook and values: finished runs are kept,
        unfinished and failed ones start again. A run that had other parameters, or
        whose traces are no longer as it wrote them, is refused and stops no other.

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
        folder will not do, when the sweep was begun before and `resume` is not set,
        or when it was not and `resume` is; when a script calls this without the
        guard of the notes.

    Notes
    -----
    A run whose process dies is repeated on another, and given up after three deaths (on
    a Dask cluster ``distributed.scheduler.allowed-failures``).  A script calls this
    under ``if __name__ == "__main__":``: this machine's processes import the script.
    """
    check_guarded()
    options = (profile, device, cluster, workers, resume, out, notebook_dir)
    plan = prepare_sweep(name, values, *options)
    check_downloads(plan.runs, download)
    return execute_sweep(plan)


def execute_sweep(plan: SweepPlan) -> SweepResult:
    """Execute a sweep; see `sweep`. Progress and failures go to stderr."""
    from tqdm import tqdm

    outcomes = sweep_folder.on_disk(plan)
    left = []
    for number, found in outcomes.items():
        if found.state == "refused":
            _tell(plan, number, found)
        elif found.state != "finished":
            left.append(number)
    try:
        if left:
            sweep_folder.begin(plan)
            total, done = len(plan.runs), len(plan.runs) - len(left)
            # disable=None: unless on a terminal
            bar = tqdm(total=total, initial=done, unit="run", disable=None)
            with bar, contextlib.closing(_carry_out(plan, left)) as ended:
                for number, outcome in ended:
                    outcomes[number] = outcome
                    bar.update()
                    if outcome.error:
                        _tell(plan, number, outcome)
    finally:
        if plan.folder.is_dir():
            sweep_folder.remove_unfinished(plan)
    table = sweep_folder.tabulate(plan, outcomes)
    csv = plan.folder / RESULTS
    write_atomically(csv, table.to_csv(index=False))
    ok, html = bool((table["state"] == "finished").all()), report(plan.folder)
    return SweepResult(plan.folder, csv, html, table, plan.varied, ok)


def _tell(plan: SweepPlan, number: int, outcome: RunOutcome) -> None:
    """Say on stderr, above the bar, why a run is not finished."""
    from tqdm import tqdm

    told = f"{plan.runs[number].name} {outcome.state.upper()}: {outcome.error}\n"
    tqdm.write(told, file=sys.stderr)


def _carry_out(plan: SweepPlan, left: list[int]) -> Iterator[tuple[int, RunOutcome]]:
    """Execute the runs; yield the number and outcome of each as it ends."""
    jobs = {n: (plan.runs[n], n, plan.notebook, plan.code) for n in left}
    ended = carry_out(
        _run_one,
        jobs,
        cluster=plan.cluster,
        workers=plan.workers,
        name=plan.folder.name,
    )
    with contextlib.closing(ended):
        for number, answer in ended:
            if isinstance(answer, SchedulerLost):
                answer = RunOutcome("not run", error=f"{answer}; --resume goes on")
            elif isinstance(answer, Exception):
                answer = RunOutcome("failed", error=str(answer))
            yield number, answer


def _run_one(plan: Plan, number: int, notebook: str, code: str) -> RunOutcome:
    """Execute one run unless it is finished; Dask calls this on a worker."""
    if not (plan.out / MANIFEST).is_file():
        raise RunRefused(
            f"the worker on {socket.gethostname()} does not see {plan.out}; all "
            "workers of a sweep need its folder and its notebook under the same paths"
        )

    def folders() -> list[Path]:
        return sweep_folder.find_folders(plan.out, notebook).get(number, [])

    def finished() -> RunOutcome | None:
        outcome = sweep_folder.outcome_of(folders(), plan)
        return outcome if outcome.state in ("finished", "refused") else None

    def work() -> RunOutcome:
        if code_digest(plan.notebook) != code:
            raise RunRefused(f"{plan.notebook} was changed after the sweep began")
        sweep_folder.remove_partial(folders())
        try:
            execute_quietly(plan)
        finally:
            sweep_folder.remove_partial(folders())
        return sweep_folder.outcome_of(folders(), plan)

    return once(sweep_folder.lock(plan.out, number), finished, work)
