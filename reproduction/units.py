"""Units of work: each is done once, whoever runs them, and survives a kill.

A unit is done when its rows stand in the results. Its lock is held by the process that
works on it and freed by the system when that process ends, however; so a unit that was
killed is begun again, from the state that it saved last if it saved one.
"""

import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch
from filelock import FileLock, Timeout

import labkit
from labkit.lab.runs.workers import carry_out, carry_out_on
from reproduction import results
from reproduction.studies import Refused, Study, find_study

SOURCE = Path(__file__).resolve().parents[1]
SAVE_EVERY = 60.0  # seconds between two states of a unit
DONE, BUSY = "done", "at work elsewhere"


class Keep:
    """Where a unit keeps its state, so that it goes on where it was killed.

    Parameters
    ----------
    folder : path, of this unit alone
    every : float, seconds between two saves; 0 saves whenever asked
    """

    def __init__(self, folder: Path, every: float = SAVE_EVERY):
        self.folder, self.every = Path(folder), every
        self.folder.mkdir(parents=True, exist_ok=True)
        self._saved = time.monotonic()

    def load(self, name: str = "state"):
        """What was saved last under a name, if anything."""
        path = self.folder / f"{name}.pt"
        return torch.load(path, weights_only=False) if path.is_file() else None

    def save(self, state: dict, name: str = "state", *, now: bool = False) -> None:
        """Save a state, where the last save is long enough ago or it has to be now."""
        if not now and time.monotonic() - self._saved < self.every:
            return
        partial = self.folder / f"{name}.tmp"
        torch.save(state, partial)
        os.replace(partial, self.folder / f"{name}.pt")
        self._saved = time.monotonic()

    def clear(self) -> None:
        """Remove what was kept."""
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()


def run(
    name: str,
    pattern: str,
    results_dir: Path,
    out: Path,
    *,
    workers: int = 1,
    cluster: str = "local",
) -> Iterator[tuple[str, str]]:
    """Carry out those units of a study that are not done; yield as each ends.

    Parameters
    ----------
    name : str, of a study
    pattern : str, which units; see :meth:`Study.chosen`
    results_dir, out : path, of results, and of states and locks
    workers : int, processes of this machine
    cluster : str, ``local``, or the address of a Dask scheduler whose workers see
        both folders under the same paths

    Yields
    ------
    unit, what became of it : str; "done", "at work elsewhere", or why it failed
    """
    chosen, wanted = find_study(name), find_study(name).chosen(pattern)
    done, _ = results.read(results.path_of(chosen, results_dir))
    left = [unit for unit in wanted if unit not in done]
    folders = str(Path(results_dir).absolute()), str(Path(out).absolute())
    jobs = {n: (name, unit, *folders) for n, unit in enumerate(left)}
    if cluster == "local":
        ended = carry_out(do_unit, jobs, workers)
    else:
        ended = carry_out_on(cluster, do_unit, jobs, f"reproduce-{name}")
    for number, answer in ended:
        yield left[number], str(answer)


def do_unit(name: str, unit: str, results_dir: str, out: str) -> str:
    """Carry out one unit unless it is done or another process is at it."""
    chosen = find_study(name)
    folder = Path(out) / name / unit
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f"{unit}.lock"))
    try:
        with lock.acquire(timeout=0):
            if unit in results.read(results.path_of(chosen, Path(results_dir)))[0]:
                return DONE
            keep = Keep(folder)
            header, rows = done(chosen, unit, keep)
            results.append(chosen, Path(results_dir), header, rows)
            keep.clear()
    except Timeout:
        return BUSY
    return DONE


def done(chosen: Study, unit: str, keep: Keep) -> tuple[dict, list[dict]]:
    """Do a unit's work; return how it was run, and its rows."""
    arguments = chosen.units[unit]
    began, spent, load = time.monotonic(), time.process_time(), os.getloadavg()[0]
    times = keep.folder / "times.json"  # of earlier processes that were cut off
    before = json.loads(times.read_text()) if times.is_file() else []
    start = {"began": datetime.now(UTC).isoformat(timespec="seconds")}
    times.write_text(json.dumps([*before, start]))
    # float32 numbers below 1e-38 take a processor far longer: compare the seconds of
    # mnist-adam-0 (kept) and mnist-adam-1 (flushed) in results/bpls/competitors.csv.
    flushed = torch.set_flush_denormal(True)
    try:
        rows = [dict(row) for row in chosen.work(keep, **arguments)]
    finally:
        torch.set_flush_denormal(False)
    header = {"unit": unit, "arguments": dict(arguments)} | here()
    header["denormals"] = "flushed" if flushed else "kept"
    header |= {"seconds": round(time.monotonic() - began, 1)}
    header |= {"cpu_seconds": round(time.process_time() - spent, 1)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kB, of this process
    header["memory_gb"] = round(peak / 1e6, 2)
    header |= {"load": [round(load, 1), round(os.getloadavg()[0], 1)]}
    if before:
        header["begun"] = [each["began"] for each in before]
    header["ended"] = datetime.now(UTC).isoformat(timespec="seconds")
    return header, rows


def here() -> dict:
    """What runs here: commit, versions, device and threads."""
    versions = {"labkit": labkit.__version__, "torch": str(torch.__version__)}
    versions["python"] = platform.python_version()
    device = f"cpu, {_processor()}, {os.cpu_count()} cores"
    threads = {"threads": torch.get_num_threads()}
    return {"commit": commit(), "versions": versions, "device": device} | threads


def commit() -> str:
    """The commit of the source, with a + where the source was changed after it."""

    def git(*command):
        given = ["git", "-c", f"safe.directory={SOURCE}", *command]
        return subprocess.run(given, cwd=SOURCE, capture_output=True, text=True)

    head = git("rev-parse", "--short=10", "HEAD")
    if head.returncode:
        raise Refused(f"{SOURCE} is no git checkout: results name their commit")
    changed = git("status", "--porcelain", "--", "labkit").stdout
    return head.stdout.strip() + ("+" if changed else "")


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    named = [x.partition(":")[2].strip() for x in lines if x.startswith("model name")]
    return named[0] if named else platform.machine()
