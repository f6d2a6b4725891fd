"""Kill units, runs and sweeps at random moments; what goes on gives the same results.

    python -m tests.kills [KILLS]

A unit of a study, a run of a notebook and a sweep are each carried out once without a
kill. Then processes are started in turn and killed (SIGKILL, with all that they
started) at a random moment of their work, and started again, until there were so many
kills, 100 if not told. Rows, traces and tables that come out must be those that came
out without a kill. The command prints the kills and the results compared.
"""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tests.lab.runs.conftest import CELL, make_notebook

ROOT = Path(__file__).parents[1]
STUDY = "rtrl/table2-3"
# Carries out the small unit of a study; it saves a state as often as it is asked to.
UNIT = """
import sys
from dataclasses import replace
from labkit.lab.runs import jobs
from reproduction import studies, units
every = studies.studies()[sys.argv[1]]
small = replace(every, units={"small": every.small})
units.find_study = lambda _: small
saved = units.Checkpoint.save
units.Checkpoint.save = lambda *given, **how: saved(*given, **how | {"now": True})
print(units.do_unit(sys.argv[1], "small", sys.argv[2] + "/results", sys.argv[2]))
"""
STEPS = """
import json, time
state = seed
with open(f"{run_dir}/steps.jsonl", "w") as trace:
    for step in range(20):
        state = (1103515245 * state + 12345) % 2**31
        print(json.dumps({"step": step, "loss": state / rank}), file=trace, flush=True)
        time.sleep(0.02)
"""


@dataclass
class Job:
    """What is started, killed and started again, and how its results are read."""

    name: str
    command: Callable[[Path, bool], list[str]]  # of its folder, and whether it goes on
    results: Callable[[Path], list]  # [] where it has not ended
    kills: int = 0
    compared: int = 0
    fallen: list[str] = field(default_factory=list)
    seconds: float = 0.0  # that it takes without a kill


def unit_rows(folder: Path) -> list:
    """Return the rows of a unit that do not tell of time."""
    from reproduction import results

    path = folder / "results" / f"{STUDY}.csv"
    _, rows = results.read(path)
    return [{k: v for k, v in r.items() if not k.startswith("seconds")} for r in rows]


def run_rows(folder: Path) -> list:
    """Return the traces of the finished runs; a killed one must have taken no name."""
    found = []
    for path in sorted(folder.glob("runs/[0-9]*")):
        assert json.loads((path / "run.json").read_text())["status"] == "finished"
        found.append((path / "steps.jsonl").read_text())
    return found[:1]


def sweep_rows(folder: Path) -> list:
    """Return the table of a sweep, without names and seconds, if all is finished."""
    tables = list(folder.glob("runs/sweep-*/results.csv"))
    if not tables:
        return []
    table = pd.read_csv(tables[0])
    if not (table["state"] == "finished").all():
        return []
    starts = len(list(tables[0].parent.glob("[0-9]*")))
    assert starts == len(table), f"{starts} folders of {len(table)} runs"
    return table.drop(columns=["run", "seconds"]).to_csv().splitlines()


def labkit(*words: str) -> list[str]:
    """Return the command ``labkit`` with these words."""
    return [sys.executable, "-m", "labkit.lab.runs.cli", *words]


def unit_command(folder: Path, _: bool) -> list[str]:
    return [sys.executable, "-c", UNIT, STUDY, str(folder)]


def run_command(folder: Path, _: bool) -> list[str]:
    return labkit("run", "tiny", "-p", "rank=3", "--out", str(folder / "runs"))


def sweep_command(folder: Path, again: bool) -> list[str]:
    words = ["sweep", "tiny", "-p", "rank=1:3", "-p", "seed=0:2", "--workers", "2"]
    return labkit(*words, "--out", str(folder / "runs"), *["--resume"] * again)


JOBS = (
    ("unit", unit_command, unit_rows),
    ("run", run_command, run_rows),
    ("sweep", sweep_command, sweep_rows),
)


def start(job: Job, folder: Path, home: Path) -> subprocess.Popen:
    """Start a job, or go on with it, in a group of processes of its own."""
    begun = bool(list(folder.glob("runs/sweep-*/sweep.json")))
    return subprocess.Popen(
        job.command(folder, begun),
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LABKIT_THREADS": "1"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(job: Job, process: subprocess.Popen) -> None:
    """Wait for a job's end, which must be a good one."""
    _, told = process.communicate(timeout=600)
    if process.returncode:
        job.fallen.append(told.strip()[-500:])


def kill(process: subprocess.Popen) -> None:
    """Kill a process and all that it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def try_once(job: Job, home: Path, wanted: list, rng: random.Random, most: int) -> None:
    """Kill a job up to four times on its way, and compare what comes out at last."""
    folder = Path(tempfile.mkdtemp(dir=home, prefix=f"{job.name}-"))
    for _ in range(min(rng.randint(1, 4), most)):
        process = start(job, folder, home)
        try:
            process.wait(timeout=rng.uniform(0.2, 1.1) * job.seconds)
        except subprocess.TimeoutExpired:
            kill(process)
            job.kills += 1
        else:
            ended(job, process)
            break
    ended(job, start(job, folder, home))
    found = job.results(folder)
    job.compared += 1
    if found != wanted:
        job.fallen.append(f"{folder.name}: {found} is not {wanted}")
    shutil.rmtree(folder)


def main(kills: int = 100, seed: int = 0, minutes: float = math.inf) -> int:
    """Kill so many times, or for so long, print the counts; return the exit status."""
    rng, jobs = random.Random(seed), [Job(*row) for row in JOBS]
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        cells = [CELL + "seed: int = 0  # of draws; 0..100\n"]
        make_notebook(home / "notebooks", "01_tiny", STEPS, cells=cells)
        wanted = {}
        for job in jobs:
            folder, begun = home / f"whole-{job.name}", time.monotonic()
            folder.mkdir()
            ended(job, start(job, folder, home))
            job.seconds = time.monotonic() - begun
            wanted[job.name] = job.results(folder)
            assert wanted[job.name], job.fallen
        end = time.monotonic() + 60 * minutes
        while (left := kills - sum(job.kills for job in jobs)) > 0:
            if time.monotonic() > end:
                break
            job = min(jobs, key=lambda job: job.kills)
            try_once(job, home, wanted[job.name], rng, left)
    for job in jobs:
        told = f"{job.kills} kills, {job.compared} results compared"
        print(f"{job.name}: {told}, {len(job.fallen)} fell")
        print("\n".join(job.fallen[:3]), end="\n" * bool(job.fallen))
    fallen = sum(len(job.fallen) for job in jobs)
    print(f"all: {sum(job.kills for job in jobs)} kills, {fallen} fell")
    return int(fallen > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
