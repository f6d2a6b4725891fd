"""Sweeps: one notebook over every combination of values, several runs at a time.

A sweep has a folder of its own, ``sweep-<notebook>-<digest>``.  The digest is of the
notebook's code, the versions of labkit, torch and Python, the parameters of every run
and the files that these name, so the same request finds the same folder again, and
what was changed never mixes its results with those of before.
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.lab.runs.execute import (
    Plan,
    RunResult,
    declared,
    execute,
    failed,
    plan_run,
    result_of,
)
from labkit.lab.runs.jobs import check_folder, once, versions, write_atomically
from labkit.lab.runs.parameters import ParameterError, RunRefused, Value
from labkit.lab.runs.report import report
from labkit.lab.runs.run_folder import read_measurements
from labkit.lab.runs.workers import carry_out, check_scheduler

if TYPE_CHECKING:
    import pandas as pd

RESULTS = "results.csv"
LOCKS = ".locks"
MAX_RUNS = 10_000
MAX_NAME = 150  # characters of a run's name; file systems take 255
RANGE = re.compile(r"(-?\d{1,18}):(-?\d{1,18})")


@dataclass(frozen=True)
class SweepResult:
    """The files and the outcome of a sweep.

    Attributes
    ----------
    path : Path, the sweep's folder
    csv, html : Path, the table of results and the index over the runs, both in it
    table : pandas.DataFrame, a row per run, see `sweep`
    ok : bool, whether every run is finished
    """

    path: Path
    csv: Path
    html: Path
    table: "pd.DataFrame"
    ok: bool


def sweep(
    name: str,
    values: Mapping[str, Sequence[Value] | Value],
    *,
    profile: str = "quick",
    cluster: str = "local",
    workers: int | None = None,
    out: str | Path = "runs",
) -> SweepResult:
    """Run a notebook with every combination of values, several runs at a time.

    A sweep of the same notebook, values and versions that was cut off goes on: finished
    runs are kept, unfinished and failed ones start again. Without its folder it begins
    anew. Progress and failures go to stderr.

    Parameters
    ----------
    name : str, ``"rtrl"`` or ``"05_rtrl"`` for ``05_rtrl.ipynb``
    values : mapping
        For each parameter the values to take, ``{"rank": [1, 2, 8], "seed":
        range(5)}``; a single value stands for a list of one.
    profile, out : as for `run`
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
        ``state`` (``finished``, ``failed`` or ``unfinished``), ``seconds``, ``error``
        (its last line) and, for every scalar of every trace, ``<trace>.<scalar>`` with
        the last value that was logged.

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
    from tqdm import tqdm

    plans = prepare_sweep(name, values, profile, out)
    folder, code = plans[0].final.parent, code_digest(plans[0].notebook)
    if cluster != "local":
        check_scheduler(cluster)
    left = {
        number: (plan, code)
        for number, plan in enumerate(plans)
        if not result_of(plan.final)
    }
    errors = {}
    if left:
        folder.mkdir(parents=True, exist_ok=True)
        bar = tqdm(
            total=len(plans),
            initial=len(plans) - len(left),
            unit="run",
            disable=None,  # unless on a terminal
        )
        ended = carry_out(run_once, left, cluster=cluster, workers=workers)
        with bar, contextlib.closing(ended):
            for number, answer in ended:
                bar.update()
                error = errors[number] = (
                    str(answer) if isinstance(answer, Exception) else answer.error
                )
                if error:
                    label = plans[number].final.name
                    tqdm.write(f"{label} FAILED: {error}\n", file=sys.stderr)
    table = tabulate(plans, errors)
    csv, ok = folder / RESULTS, all(table["state"] == "finished")
    write_atomically(csv, table.to_csv(index=False))
    return SweepResult(folder, csv, report(folder), table, ok)


def parse_values(name: str, text: str) -> list[str | int]:
    """Read the values of one parameter as given to ``-p``.

    Items are parted by commas; ``a:b`` counts from ``a`` to ``b - 1``, as in Python.

    >>> parse_values("rank", "1,2,8"), parse_values("seed", "0:3,7")
    (['1', '2', '8'], [0, 1, 2, '7'])
    """
    found = []
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
    values: Mapping[str, Sequence[Value] | Value],
    profile: str = "quick",
    out: str | Path = "runs",
) -> list[Plan]:
    """Check all runs of a sweep, one for every combination, before it begins.

    The arguments are those of `sweep`; the last parameter varies fastest.
    """
    lists = {
        key: [items]
        if isinstance(items, str) or not isinstance(items, Iterable)
        else list(items)
        for key, items in values.items()
    }
    count = math.prod(map(len, lists.values()))
    if not lists or not count:
        raise ParameterError("a sweep needs values, as in -p rank=1,2,8 -p seed=0:5")
    if count > MAX_RUNS:
        raise ParameterError(
            f"these are {count:,} runs or more; a sweep takes {MAX_RUNS:,} at most"
        )
    (notebook, parameters), out = declared(name), check_folder(out)
    plans = {}  # what reads as the same number is run once
    for chosen in itertools.product(*lists.values()):
        given = dict(zip(lists, chosen, strict=True))
        plan = plan_run(notebook, parameters, given, profile, out)
        plans[json.dumps(plan.values)] = plan
    given = {str(value) for plan in plans.values() for value in plan.values.values()}
    request = [code_digest(notebook), versions(), profile, list(plans)]
    digest = hashlib.sha256(json.dumps(request).encode())
    for path in map(Path, sorted(given)):
        if path.is_absolute() and path.is_file():
            digest.update(path.read_bytes())
    first = next(iter(plans.values()))
    folder = out / f"sweep-{first.name}-{digest.hexdigest()[:8]}"
    shown = [*lists, *({"seed"} & first.values.keys() - lists.keys())]
    runs, digits = [], len(str(len(plans) - 1))
    for number, plan in enumerate(plans.values()):
        words = [f"{number:0{digits}}"]  # which makes it unique
        words += [f"{key}={plan.values[key]}" for key in shown]
        label = re.sub(r"[^A-Za-z0-9._+=-]", "_", "-".join(words))[:MAX_NAME]
        runs.append(replace(plan, final=folder / label))
    return runs


def tabulate(plans: list[Plan], errors: Mapping[int, str | None]) -> "pd.DataFrame":
    """Return the table of results, a row per run; see `sweep` for its columns."""
    import pandas as pd

    table = []
    for number, plan in enumerate(plans):
        result = result_of(plan.final) or result_of(failed(plan.final))
        row = {
            "run": plan.final.name,
            **plan.values,
            "state": "unfinished",
            "seconds": None,
            "error": errors.get(number),
        }
        if result:
            row |= {
                "run": result.path.name,
                "state": "finished" if result.ok else "failed",
                "seconds": result.seconds,
                "error": result.error,
            }
            for trace, _, name, value in read_measurements(result.path):
                row[f"{trace}.{name}"] = value  # the last one stays
        row["error"] = (row["error"] or "").strip().rpartition("\n")[2] or None
        table.append(row)
    return pd.DataFrame(table).astype({"seconds": float, "error": "string"})


def code_digest(notebook: Path) -> str:
    """Return the digest of a notebook's code cells, without outputs."""
    import nbformat

    cells = nbformat.read(notebook, as_version=4).cells
    code = json.dumps([cell.source for cell in cells if cell.cell_type == "code"])
    return hashlib.sha256(code.encode()).hexdigest()


def run_once(plan: Plan, code: str) -> RunResult:
    """Execute one run of a sweep unless it is finished, in whatever process."""
    folder = plan.final.parent
    if not folder.is_dir():
        raise RunRefused(
            f"the worker on {socket.gethostname()} does not see {folder}; all "
            "workers of a sweep need its folder and its notebook under the same paths"
        )

    def work() -> RunResult:
        if code_digest(plan.notebook) != code:
            raise RunRefused(f"{plan.notebook} was changed after the sweep began")
        return execute(plan)

    return once(folder / LOCKS / plan.final.name, lambda: result_of(plan.final), work)
