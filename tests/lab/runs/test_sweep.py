"""Sweeps: refused at the door, gone on with after a kill; failures stop nobody."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import psutil
import pytest
from filelock import FileLock

from labkit.lab.runs import RunRefused, jobs, sweep, workers
from labkit.lab.runs.sweep import (
    code_digest,
    parse_values,
    prepare_sweep,
    run_once,
)
from tests.lab.runs.conftest import CELL, begin, is_gone, labkit, refused, wait_for

CELLS = [CELL + "seed: int = 0  # of draws; 0..100\n"]
# each run leaves a line in the folder that notebooks run in: who, and in which process
TINY = """\
import json, os, time
with open("starts.txt", "a") as file:
    file.write(f"{rank} {seed} {os.getppid()} {os.getpid()}\\n")
with open(f"{run_dir}/steps.jsonl", "w") as trace:
    print(json.dumps({"format": "a header", "rank": -1}), file=trace)
    print(json.dumps({"step": 0, "loss": 99.0, "accuracy": 0.5}), file=trace)
    print(json.dumps({"step": 1, "loss": rank / (1 + seed)}), file=trace, flush=True)
time.sleep(rate)
if rank == 13:
    raise ValueError("thirteen")
"""


@pytest.fixture
def place(tmp_path, write_notebook, monkeypatch):
    write_notebook("01_tiny", TINY, cells=CELLS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# At the door


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("tiny", "a sweep needs values, as in -p rank=1,2,8 -p seed=0:5"),
        ("tiny -p rank=1,two", "rank=two is not allowed; rank takes int, 1..64"),
        ("tiny -p seed=98:102", "seed=101 is not allowed; seed takes int, 0..100"),
        ("tiny -p seed=5:5", "seed=5:5 has an empty item; write seed=1,2,8"),
        ("tiny -p seed=0:99999999999", "a sweep takes 10,000 at most"),
        ("tiny -p rank=1 --cluster banana", "missing port number in address 'banana'"),
        ("tiny -p rank=1 --cluster 127.0.0.1:1", "no Dask scheduler at '127.0.0.1:1'"),
    ],
)
def test_refusals_come_first_with_what_is_right(place, monkeypatch, arguments, message):
    monkeypatch.setattr(workers, "CONNECT_SECONDS", 0.5)
    refused(f"sweep {arguments}", message, place)


def test_without_dask_a_cluster_is_refused_with_what_to_install(place, monkeypatch):
    monkeypatch.setattr(workers, "find_spec", lambda name: None)
    message = "a cluster, here tcp://a:1, needs Dask, which is not installed; 'pip "
    message += 'install "labkit[cluster]"\' brings it'
    refused("sweep tiny -p rank=1 --cluster tcp://a:1", message, place)


def test_what_listens_but_is_no_scheduler_is_refused(place, monkeypatch):
    monkeypatch.setattr(workers, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        message = f"no Dask scheduler at '{address}'"
        refused(f"sweep tiny -p rank=1 --cluster {address}", message, place)


# What a sweep is


def test_runs_are_every_combination_under_unique_names(place):
    values = {
        "corpus": "text",
        "shuffle": [True, False],
        "rate": ["1e-9", 0.5, 1e-9],
        "rank": np.int64(3),
    }
    plans = prepare_sweep("tiny", values, "paper")
    chosen = [(run.values["shuffle"], run.values["rate"]) for run in plans]
    assert chosen == [(True, 1e-9), (True, 0.5), (False, 1e-9), (False, 0.5)]
    assert {run.values["rank"] for run in plans} == {3}
    assert plans[0].final.name == "0-corpus=text-shuffle=True-rate=1e-09-rank=3-seed=0"
    assert len({run.final for run in plans}) == 4
    assert parse_values("seed", "-2:1,7") == [-2, -1, 0, "7"]


def test_the_code_and_the_values_make_the_sweep(place, write_notebook):
    def folder(**values):
        return prepare_sweep("tiny", {"rank": [1, 2], **values})[0].final.parent

    first = folder()
    (place / "1").touch()  # a rank, too
    assert first == folder() and first.name.startswith("sweep-tiny-")
    assert first not in (folder(seed=1), folder(rank=[2, 1]))
    path = place / "notebooks" / "01_tiny.ipynb"
    book = nbformat.read(path, as_version=4)
    book.cells[0].source = "# Another title"
    nbformat.write(book, path)
    assert first == folder()
    write_notebook("01_tiny", TINY + "# changed", cells=CELLS)
    assert first != folder()


def test_a_run_is_carried_out_once_and_only_as_it_was_planned(place, write_notebook):
    (run,) = prepare_sweep("tiny", {"rank": 1})
    code, lock = code_digest(run.notebook), run.final.parent / ".locks" / run.final.name
    with pytest.raises(RunRefused, match=r"does not see .*sweep-tiny-"):
        run_once(run, code)
    run.final.mkdir(parents=True)
    write_notebook("01_tiny", "another = 1")
    for content in ("", "[]", '{"status": "odd"}'):  # a damaged run counts as none
        (run.final / "run.json").write_text(content)
        with pytest.raises(RunRefused, match="changed after the sweep began"):
            run_once(run, code)
    (run.final / "run.json").write_text('{"status": "finished", "seconds": 7.5}')
    assert run_once(run, code).seconds == 7.5
    with FileLock(lock), pytest.raises(jobs.JobBusy):
        jobs.once(lock, int, int, wait=False)


# Sweeps that start kernels


CLUSTER = """\
from distributed import LocalCluster
cluster = LocalCluster(
    n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://",
    dashboard_address=None,
)
print(cluster.scheduler_address, flush=True)
input()
"""


@pytest.fixture
def cluster(place):
    """A scheduler and a worker in a process that can be killed; and its address."""
    command = [sys.executable, "-c", CLUSTER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=place, **pipes) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


def test_a_failed_run_stops_nobody_and_is_tried_again(place, cluster, capfd):
    values = {"rank": [13, 1], "seed": 0, "rate": 0}
    result, again = (sweep("tiny", values, cluster=cluster[1]) for _ in range(2))
    assert not result.ok and not again.ok
    failed, finished = result.table.to_dict("records")
    assert failed["state"] == "failed" and failed["error"] == "ValueError: thirteen"
    assert failed["run"] == "0-rank=13-seed=0-rate=0.0-failed"
    assert finished["state"] == "finished" and finished["steps.loss"] == 1.0
    message = capfd.readouterr().err
    assert "0-rank=13-seed=0-rate=0.0 FAILED: cell [3]:" in message
    assert sorted(start[0] for start in starts()) == ["1", "13", "13"]
    assert "rank=13" in result.html.read_text()


def test_what_a_lost_scheduler_left_is_gone_on_with(place, cluster):
    process, address = cluster
    arguments = ["tiny", "-p", "rank=1,2", "-p", "seed=0", "-p", "rate=1"]
    with begin("sweep", *arguments, "--cluster", address) as begun:
        wait_for(complete)
        process.kill()
        begun.communicate(timeout=600)
    assert begun.returncode == 1
    (csv,) = place.glob("runs/*/results.csv")
    assert sorted(pd.read_csv(csv)["state"]) == ["finished", "unfinished"]
    assert "the same command goes on" in pd.read_csv(csv)["error"].dropna().item()
    wait_for(nobody_works)
    last = labkit("sweep", *arguments)
    assert last.exit_code == 0 and len(complete()) == 2 and len(starts()) <= 3


def test_killed_and_gone_on_with_nothing_is_computed_twice(place):
    arguments = ["tiny", "-p", "rank=1:4", "-p", "seed=1", "-p", "rate=0.2"]
    process = begin("sweep", *arguments, "--workers", "2")
    try:
        wait_for(complete)
    finally:
        process.kill()  # it alone: what it started ends with it
        process.communicate()
    wait_for(nobody_works)
    before, started = complete(), [start[0] for start in starts()]
    assert 1 <= len(before) < 3

    last = labkit("sweep", *arguments)
    assert last.exit_code == 0 and last.stdout.count("finished") == 3

    after = complete()
    assert len(after) == 3 and before.items() <= after.items()
    # finished before: no further start; all others: one more than before the kill
    again = [start[0] for start in starts()]
    for rank in "123":
        kept = any(f"-rank={rank}-" in name for name in before)
        assert again.count(rank) == started.count(rank) + (not kept)
    (folder,) = (place / "runs").iterdir()
    assert {path.name for path in folder.glob(".*")} == {".locks"}

    table = pd.read_csv(folder / "results.csv")
    assert (table["steps.loss"] == table["rank"] / (1 + table["seed"])).all()
    assert (table["steps.accuracy"] == 0.5).all() and (table["seconds"] > 0).all()
    assert set(table["run"]) == set(after)
    assert last.stdout.split()[:5] == ["rank", "seed", "rate", "state", "seconds"]

    # all is there, so this starts no run
    assert labkit("sweep", *arguments).exit_code == 0
    assert complete() == after and len(starts()) == len(again)


WAITING = """
while not os.path.exists("go"):
    time.sleep(0.01)
"""


def test_no_worker_listens_and_the_run_of_one_that_dies_is_repeated(
    place, write_notebook
):
    """Nobody else can hand work to a local sweep: neither it nor its workers listen."""
    write_notebook("01_tiny", TINY + WAITING, cells=CELLS)
    process = begin("sweep", "tiny", "-p", "rank=1,2", "--workers", "2")
    wait_for(lambda: len(starts()) == 2)
    (rank, _, worker, _), (other, *_) = starts()
    assert psutil.Process(int(worker)).ppid() == process.pid
    for pid in (process.pid, int(worker)):
        found = psutil.Process(pid).net_connections(kind="inet")
        assert [c.laddr for c in found if c.status == psutil.CONN_LISTEN] == []
    os.kill(int(worker), signal.SIGKILL)
    wait_for(lambda: len(starts()) == 3)
    (place / "go").touch()
    process.communicate(timeout=600)
    assert process.returncode == 0 and len(complete()) == 2
    assert not list((place / "runs").rglob("*.partial"))
    again = [start[0] for start in starts()]
    assert again.count(rank) == 2 and again.count(other) == 1
    wait_for(nobody_works)


def starts():
    """Return rank, seed, worker's and kernel's process of each start so far."""
    with contextlib.suppress(FileNotFoundError):
        return [tuple(x.split()) for x in Path("starts.txt").read_text().splitlines()]
    return []


def nobody_works():
    """Whether each worker of this machine and each kernel is gone."""
    alive = [start[3] for start in starts() if not is_gone(int(start[3]))]
    return alive == []


def complete():
    """Map the names of complete runs to what changes if their files are touched."""
    found = {}
    for path in Path().glob("runs/sweep-*/[0-9]*"):
        summary = path / "run.json"
        assert json.loads(summary.read_text())["status"] == "finished"
        found[path.name] = (summary.stat().st_ino, summary.stat().st_mtime_ns)
    return found


def test_a_script_may_call_it(place):
    """Also one without a guard, and its runs are there for the next call."""
    script = place / "mine.py"
    call = "print(sweep('tiny', {'rank': 1}, workers=2).ok)"
    script.write_text(f"from labkit.lab import sweep\n{call}\n{call}\n")
    done = subprocess.run([sys.executable, script], cwd=place, capture_output=True)
    assert done.stdout == b"True\nTrue\n" and len(starts()) == 1
