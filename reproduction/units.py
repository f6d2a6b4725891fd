"""Units of work: the jobs of a study, kept in the job store.

A unit is done when its rows stand in the results. A unit that was killed is begun
again, from the state that it saved last if it saved one.
"""

import contextlib
import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch

import labkit
from labkit.lab.runs.jobs import Busy, Checkpoint, once
from labkit.lab.runs.parameters import RunRefused
from labkit.lab.runs.workers import carry_out
from labkit.threads import set_threads
from reproduction import results
from reproduction.studies import Study, find_study

SOURCE = Path(__file__).resolve().parents[1]
DONE, BUSY = "done", "at work elsewhere"


def run(
    study: Study,
    units: Iterable[str],
    results_dir: Path,
    out: Path,
    *,
    workers: int = 1,
    cluster: str = "local",
) -> Iterator[tuple[str, str]]:
    """Carry out those units of a study that are not done; yield as each ends.

    Parameters
    ----------
    study : Study
    units : iterable of str, which of its units; see :meth:`Study.chosen`
    results_dir, out : path, of results, and of states and locks
    workers : int, processes of this machine
    cluster : str, ``local``, or the address of a Dask scheduler whose workers see
        both folders under the same paths

    Yields
    ------
    unit, what became of it : str; "done", "at work elsewhere", or why it failed
    """
    done, _ = results.read(results.path_of(study, results_dir))
    left = [unit for unit in units if unit not in done]
    folders = str(Path(results_dir).absolute()), str(Path(out).absolute())
    jobs = {n: (study.name, unit, *folders) for n, unit in enumerate(left)}
    name = f"reproduce-{study.name}"
    ended = carry_out(do_unit, jobs, cluster=cluster, workers=workers, name=name)
    with contextlib.closing(ended):
        for number, answer in ended:
            yield left[number], str(answer)


def do_unit(name: str, unit: str, results_dir: str, out: str) -> str:
    """Carry out one unit unless it is done or another process is at it."""
    set_threads()
    study, folder = find_study(name), Path(out) / name / unit

    def finished() -> str | None:
        headers, _ = results.read(results.path_of(study, Path(results_dir)))
        return DONE if unit in headers else None

    def work() -> str:
        checkpoint = Checkpoint(folder)
        header, rows = done(study, unit, checkpoint)
        results.append(study, Path(results_dir), header, rows)
        checkpoint.clear()
        return DONE

    try:
        return once(folder.with_name(f"{unit}.lock"), finished, work, wait=False)
    except Busy:
        return BUSY


def done(study: Study, unit: str, checkpoint: Checkpoint) -> tuple[dict, list[dict]]:
    """Do the work of a unit; return how it was run, and its rows."""
    arguments = study.units[unit]
    began, spent, load = time.monotonic(), time.process_time(), os.getloadavg()[0]
    times = checkpoint.folder / "times.json"  # of earlier processes that were cut off
    before = json.loads(times.read_text()) if times.is_file() else []
    start = {"began": datetime.now(UTC).isoformat(timespec="seconds")}
    times.write_text(json.dumps([*before, start]))
    # float32 numbers below 1e-38 take a processor far longer: compare the seconds of
    # mnist-adam-0 (kept) and mnist-adam-1 (flushed) in results/bpls/competitors.csv.
    flushed = torch.set_flush_denormal(True)
    try:
        rows = [dict(row) for row in study.work(checkpoint, **arguments)]
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
    """Return what runs here: commit, versions, device and threads."""
    versions = {"labkit": labkit.__version__, "torch": str(torch.__version__)}
    versions["python"] = platform.python_version()
    device = f"cpu, {_processor()}, {os.cpu_count()} cores"
    threads = {"threads": torch.get_num_threads()}
    return {"commit": commit(), "versions": versions, "device": device} | threads


def commit() -> str:
    """Return the commit of the source, with a + where files were changed after it."""

    def git(*command: str) -> subprocess.CompletedProcess:
        given = ["git", "-c", f"safe.directory={SOURCE}", *command]
        return subprocess.run(given, cwd=SOURCE, capture_output=True, text=True)

    head = git("rev-parse", "--short=10", "HEAD")
    if head.returncode:
        raise RunRefused(f"{SOURCE} is no git checkout: results name their commit")
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
