"""Units of work: the jobs of a study, kept in the job store.

A unit is done when its rows are in the results. A unit that was killed starts again,
from the last state that it saved if there is one.
"""

import contextlib
import inspect
import math
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from labkit.check import check_device
from labkit.lab.runs.jobs import (
    SOURCE,
    Checkpoint,
    JobBusy,
    check_folder,
    commit,
    once,
    versions,
)
from labkit.lab.runs.parameters import RunRefused
from labkit.lab.runs.workers import carry_out
from labkit.threads import set_threads
from reproduction import results
from reproduction.studies import Study, find_study

DONE = "done"
BUSY = "at work elsewhere"
OVER = "the minutes are over; the same command goes on"
SO_FAR = "so-far"  # the folder, in that of states, of rows of units that go on


class MinutesOver(Exception):
    """The end of the minutes that a unit has.

    Attributes
    ----------
    rows : list of mapping, the unit's rows so far
    """

    def __init__(self, rows: list[Mapping]) -> None:
        super().__init__("the minutes are over")
        self.rows = rows


class Limited(Checkpoint):
    """A checkpoint that ends the work when a time has come, its state saved.

    Parameters
    ----------
    folder, belongs : see :class:`~labkit.lab.runs.jobs.Checkpoint`
    until : float, the time, in seconds since the epoch
    """

    def __init__(self, folder: Path, belongs: Mapping[str, Any], until: float) -> None:
        super().__init__(folder, belongs)
        self.until = until

    def save(self, state: dict, name: str = "state", *, now: bool = False) -> None:
        """Save as a checkpoint does; raise MinutesOver when the time has come."""
        over = time.time() > self.until
        super().save(state, name, now=now or over)
        if over:
            raise MinutesOver(state.get("rows", []))


def run(
    study: Study,
    units: Iterable[str],
    results_dir: Path,
    out: Path,
    *,
    workers: int = 1,
    device: str = "cpu",
    until: float = math.inf,
) -> Iterator[tuple[str, str]]:
    """Carry out those units of a study that are not done; yield as each ends.

    Parameters
    ----------
    study : Study
    units : iterable of str, which of its units; see :meth:`Study.chosen`
    results_dir, out : path, of results, and of states and locks
    workers : int, processes of this machine
    device : str, the torch device that the units compute on
    until : float
        The time, in seconds since the epoch, at which units that save states stop, to
        be gone on with; their rows so far are then in the folder ``so-far`` of ``out``

    Yields
    ------
    unit, what became of it : str; "done", "at work elsewhere", that the minutes are
        over, or why it failed
    """
    recorded, _ = results.read(study, results_dir)
    left = []
    for unit in units:
        if unit not in recorded:
            left.append(unit)
        elif words := results.difference(study, recorded[unit]):
            yield unit, f"REFUSED: {words}"
    jobs = {
        number: (study.name, unit, results_dir, out, device, until)
        for number, unit in enumerate(left)
    }
    ended = carry_out(do_unit, jobs, workers=workers)
    with contextlib.closing(ended):
        for number, answer in ended:
            yield left[number], str(answer)


def check(study: Study, results_dir: Path, out: Path, device: str = "cpu") -> None:
    """Check before the first unit begins for what would make units fail at their end.

    Git must give the commit, the results must be undamaged, both folders must be
    writable, and the device must be here and one that the study can compute on.

    Raises
    ------
    RunRefused : with what is missing
    """
    if commit() is None:
        raise RunRefused(
            "results name the commit that computed them, and git gives none for "
            f"{SOURCE}; install git, or work in a clone"
        )
    try:
        check_device(device)
    except ValueError as error:
        raise RunRefused(str(error)) from error
    if device != "cpu" and "device" not in inspect.signature(study.work).parameters:
        raise RunRefused(f"{study.name} computes on the CPU alone, not on {device!r}")
    results.read(study, results_dir)
    check_folder(results.path_of(study, results_dir).parent)
    check_folder(out)


def do_unit(
    name: str,
    unit: str,
    results_dir: Path,
    out: Path,
    device: str = "cpu",
    until: float = math.inf,
) -> str:
    """Carry out one unit unless it is done or another process works on it.

    ``until`` is the time, in seconds since the epoch, at which it stops.
    """
    set_threads()
    study, folder = find_study(name), out / name / unit

    def finished() -> str | None:
        headers, _ = results.read(study, results_dir)
        return DONE if unit in headers else None

    def work() -> str:
        where = {} if device == "cpu" else {"device": device}
        owner = {"study": name} | belonging(study, unit) | where
        if time.time() > until:
            return OVER
        checkpoint = Limited(folder, owner, until)
        header, rows = done(study, unit, checkpoint, **where)
        if "goes_on" in header:
            if rows:
                results.append(study, out / SO_FAR, header, rows)
            return OVER
        results.append(study, results_dir, header, rows)
        checkpoint.clear()
        return DONE

    try:
        return once(folder.with_name(f"{unit}.lock"), finished, work, wait=False)
    except JobBusy:
        return BUSY


def done(
    study: Study, unit: str, checkpoint: Checkpoint, **where: str
) -> tuple[dict, list[dict]]:
    """Do the work of a unit, and return how it was run and its rows.

    ``where`` is empty, or has the ``device`` that is not the CPU.
    """
    arguments = study.units[unit] | where
    began, spent, load = time.monotonic(), time.process_time(), os.getloadavg()[0]
    processes, header = checkpoint.begin(), belonging(study, unit) | here(**where)
    # float32 numbers below 1e-38 take a processor far longer: compare the seconds of
    # mnist-adam-0 (kept) and mnist-adam-1 (flushed) in results/bpls/competitors.csv.
    flushed = torch.set_flush_denormal(True)
    try:
        rows = [dict(row) for row in study.work(checkpoint, **arguments)]
    except MinutesOver as stopped:
        rows, header["goes_on"] = stopped.rows, True
    finally:
        torch.set_flush_denormal(False)
    header |= {
        "denormals": "flushed" if flushed else "kept",
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time() - spent, 1),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }
    if len(processes) > 1:
        header["processes"] = processes
    return header, rows


def belonging(study: Study, unit: str) -> dict:
    """Return the unit and the arguments that a state and its rows belong to."""
    return {"unit": unit, "arguments": dict(study.units[unit])}


def here(device: str = "cpu") -> dict:
    """Return the commit, versions, device and threads of this process."""
    named = f"cpu, {_processor()}, {os.cpu_count()} cores"
    if torch.device(device).type == "cuda":
        named = f"{device}, {torch.cuda.get_device_name(device)}; {named}"
    elif device != "cpu":
        named = f"{device}; {named}"
    return {
        "commit": commit(),
        "versions": versions(),
        "device": named,
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    """Return the processor's name, or its architecture where that is all there is."""
    about = Path("/proc/cpuinfo")
    text = about.read_text("utf-8") if about.exists() else ""
    named = re.search(r"^model name\s*: (.*)", text, re.MULTILINE)
    return named[1] if named else platform.machine()
