"""Sweeps: refused at the door, killed and resumed, with failures that stop nobody."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import pandas as pd
import psutil
import pytest
from filelock import FileLock
from hypothesis import given, settings, strategies as st

from labkit.lab.runs import (
    ParameterError,
    RunRefused,
    execute,
    jobs,
    sweep,
    sweep_folder,
    sweep_plan,
    workers,
)
from tests.lab.runs.conftest import CELL, is_gone, labkit, refused, wait_for

# the function `sweep` hides the module of that name
SWEEP = sys.modules["labkit.lab.runs.sweep"]

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


@pytest.fixture
def plan(place):
    """Of a sweep of one run that has begun."""
    plan = sweep_plan.prepare_sweep("tiny", {"rank": 1})
    sweep_folder.begin(plan)
    return plan


# At the door


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("tniy -p rank=1", "unknown notebook 'tniy'; there are: tiny"),
        ("tiny", "a sweep needs values, as in -p rank=1,2,8 -p seed=0:5"),
        ("tiny -p rakn=1,2", "did you mean 'rank'? There are: rank (int, 1..64)"),
        ("tiny -p rank=1,two", "rank=two is not allowed; rank takes int, 1..64"),
        ("tiny -p rank=1,2,65", "rank=65 is not allowed; rank takes int, 1..64"),
        ("tiny -p seed=98:102", "seed=101 is not allowed; seed takes int, 0..100"),
        ("tiny -p seed=5:5", "seed=5:5 is empty; a:b counts from a to b - 1"),
        ("tiny -p seed=0:8:2", "seed=0:8:2 is not allowed; seed takes int"),
        ("tiny -p seed=0:99999999999", "a sweep takes 10000 runs"),
        ("tiny -p rank=1:65 -p seed=0:101 -p rate=0:2", "12928 runs"),
        ("tiny -p rank=1,,2", "rank=1,,2 has an empty item"),
        ("tiny -p rate=0.1,1e-1", "rate=0.1 is given twice"),
        ("tiny -p rank", "write -p name=value"),
        ("tiny -p run_dir=x,y", "'run_dir' is set by the run itself"),
        ("tiny -p rank=1 --device banana", "device 'banana' is not available"),
        ("tiny -p device=cpu,banana", "device 'banana' is not available"),
        ("tiny -p rank=1 --profile fast", "unknown profile 'fast'"),
        ("tiny -p rank=1 --workers 0", "workers=0 is not allowed; give 1 or more"),
        ("tiny -p rank=1 --workers 2 --cluster tcp://a:1", "has its own workers"),
        ("tiny -p rank=1 --out file", "file is not a folder"),
        ("tiny -p rank=1 --resume", "there is nothing to resume"),
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


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_listens_but_is_no_scheduler_is_refused(place, monkeypatch, words):
    monkeypatch.setattr(workers, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        if words:
            monkeypatch.setattr(workers, "CONNECT_SECONDS", 20)
            threading.Thread(target=answer, args=(server, words), daemon=True).start()
        with pytest.raises(RunRefused, match=f"no Dask scheduler at '{address}'"):
            sweep("tiny", {"rank": 1}, cluster=address)
    assert not (place / "runs").exists()


def answer(server, words):
    connection, _ = server.accept()
    with connection:
        connection.sendall(words)
        connection.recv(1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "a sweep needs values"),
        ({"rank": []}, "rank is given no values"),
        ({"rank": None}, "rank=None is no value and no list of values"),
        ({"rank": [1, 2.5]}, "rank=2.5 is not allowed"),
        ({"seed": range(10**12)}, "seed has too many values"),
    ],
)
def test_the_function_refuses_like_the_command(place, values, message):
    with pytest.raises(ParameterError, match=message):
        sweep("tiny", values)


def test_a_parameter_cannot_have_the_name_of_a_column(place, write_notebook):
    write_notebook("02_odd", cells=[CELL + "seconds: float = 1.0  # to wait\n"])
    with pytest.raises(ParameterError, match=r"02_odd\.ipynb: .*'seconds'"):
        sweep("odd", {"rank": 1})


@given(st.integers(-99, 99), st.integers(1, 50))
def test_a_range_counts_as_python_does(start, length):
    expected = list(range(start, start + length))
    assert sweep_plan.parse_values("seed", f"{start}:{start + length}") == expected


# What a sweep is


def test_runs_are_every_combination_under_unique_names(place):
    values = {"corpus": ["text", "ptb"], "rate": [0.5, 1e-9], "rank": 3}
    plan = sweep_plan.prepare_sweep("tiny", values, profile="paper")
    chosen = [(run.values["corpus"], run.values["rate"]) for run in plan.runs]
    assert chosen == [("text", 0.5), ("text", 1e-9), ("ptb", 0.5), ("ptb", 1e-9)]
    assert {run.values["rank"] for run in plan.runs} == {3}
    assert plan.runs[1].name == "tiny-1-corpus=text-rate=1e-09-rank=3-seed=0"
    assert plan.varied == ("corpus", "rate", "rank")


@settings(deadline=None, max_examples=30)  # it makes folders
@given(st.lists(st.text(max_size=400), min_size=2, max_size=12, unique=True))
def test_any_text_makes_a_name_that_is_found_again(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("names")
    for number, text in enumerate(texts):
        name = sweep_plan._run_name("a.b-1", number, len(texts), {"text": text})
        (folder / f"20300102-030405-{name}-2-failed").mkdir()
        (folder / f".20300102-030406-{name}.partial").mkdir()
    found = sweep_folder.find_folders(folder, "a.b-1")
    assert sorted(found) == list(range(len(texts)))
    assert {len(paths) for paths in found.values()} == {2}


def test_the_code_and_the_values_make_the_sweep(place, write_notebook):
    def folder(**values):
        return sweep_plan.prepare_sweep("tiny", {"rank": [1, 2], **values}).folder

    first = folder()
    assert first == folder() and first.name.startswith("sweep-tiny-")
    assert first != folder(seed=1)
    path = place / "notebooks" / "01_tiny.ipynb"
    book = nbformat.read(path, as_version=4)
    book.cells[0].source = "# Another title"
    nbformat.write(book, path)
    assert first == folder()
    write_notebook("01_tiny", TINY + "# changed", cells=CELLS)
    assert first != folder()


def test_a_finished_run_is_not_carried_out_again(plan):
    (run,) = plan.runs
    folder = plan.folder / f"20300102-030405-{run.name}"
    folder.mkdir()
    summary = {"status": "finished", "seconds": 7.5, "parameters": run.values}
    (folder / "run.json").write_text(json.dumps(summary))
    outcome = SWEEP._run_one(run, 0, "tiny", plan.code)
    assert outcome == sweep_folder.RunOutcome("finished", 7.5, None, folder)


def cut(trace):
    trace.write_text(trace.read_text()[:-9])


def run_elsewhere(trace):
    path = trace.with_name("run.json")
    summary = json.loads(path.read_text())
    summary["parameters"]["rank"] = 9
    path.write_text(json.dumps(summary))


DAMAGES = {
    1: (cut, "has a trace that is damaged, steps.jsonl"),
    2: (Path.unlink, "has a trace that is no longer there, steps.jsonl"),
    3: (run_elsewhere, "was run with rank 9, not 3"),
}


def test_a_run_that_is_not_what_it_was_is_refused_and_stops_no_other(
    place, monkeypatch, capfd
):
    one_by_one(monkeypatch)
    ranks = {"rank": [*DAMAGES, 4], "rate": 0}
    assert sweep("tiny", ranks).ok
    folder = {
        rank: next(place.glob(f"runs/*/*-rank={rank}-*")) for rank in (*DAMAGES, 4)
    }
    for rank, (damage, _) in DAMAGES.items():
        damage(folder[rank] / "steps.jsonl")
    (folder[4] / "run.json").unlink()
    folder[4].rename(folder[4].with_name("away"))
    again = sweep("tiny", ranks, resume=True)
    assert not again.ok
    assert list(again.table["state"]) == ["refused"] * 3 + ["finished"]
    told = capfd.readouterr().err
    for number, (rank, (_, words)) in enumerate(DAMAGES.items()):
        expected = (
            f"{folder[rank]} {words}; remove that folder, and --resume runs it anew"
        )
        assert again.table["error"][number] == expected
        assert f"REFUSED: {expected}\n" in told and folder[rank].is_dir()
    assert [start[0] for start in starts(place)] == ["1", "2", "3", "4", "4"]
    shutil.rmtree(folder[1])
    last = sweep("tiny", ranks, resume=True)
    assert list(last.table["state"]) == ["finished", "refused", "refused", "finished"]


def one_by_one(monkeypatch):
    """Carry out runs in this process, without a kernel."""

    def carry_out(function, jobs, **_):
        yield from ((number, function(*given)) for number, given in jobs.items())

    def execute_notebook(plan, executed, run_dir):
        shutil.copy(plan.notebook, executed)
        exec(TINY, {**plan.values, "run_dir": run_dir})

    monkeypatch.setattr(SWEEP, "carry_out", carry_out)
    monkeypatch.setattr(execute, "_execute_notebook", execute_notebook)


def test_a_sweep_lists_each_process_that_worked_on_it(plan, monkeypatch):
    monkeypatch.setattr(jobs, "commit", lambda: "abcdefabcd+")
    sweep_folder.begin(plan)
    manifest = json.loads((plan.folder / "sweep.json").read_text())
    first, second = manifest["processes"]
    assert second["commit"] == "abcdefabcd+" and first["commit"] == jobs._commit()
    assert first.keys() == {"began", "commit", "versions"}
    assert manifest["runs"][0]["parameters"]["rank"] == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '"rank": 1,',
            '"rank": 2,',
            "is damaged, as its 'runs' shows",
        ),
        ('"code": "', '"code": "0', "is damaged, as its 'code' shows"),
        ("{", "[", "is damaged (Expecting"),
        ('"processes": [', '"processes": 1, "p": [', "its processes are no list"),
    ],
)
def test_a_sweep_with_a_bad_manifest_is_refused(plan, old, new, words):
    path = plan.folder / "sweep.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RunRefused) as caught:
        sweep("tiny", {"rank": 1}, resume=True)
    said = str(caught.value)
    assert words in said and str(path) in said and "\n" not in said
    assert said.endswith(f"remove the folder {plan.folder} to begin this sweep anew")


def test_what_is_not_as_it_was_when_the_sweep_began_is_not_run(plan, write_notebook):
    write_notebook("01_tiny", "another = 1")
    with pytest.raises(RunRefused, match="changed after the sweep began"):
        SWEEP._run_one(plan.runs[0], 0, "tiny", plan.code)
    (plan.folder / "sweep.json").unlink()
    with pytest.raises(RunRefused, match=r"does not see .*sweep-tiny-"):
        SWEEP._run_one(plan.runs[0], 0, "tiny", plan.code)


def test_only_what_nobody_works_on_is_removed(place):
    plan = sweep_plan.prepare_sweep("tiny", {"rank": [1, 2]})
    sweep_folder.begin(plan)
    (plan.folder / ".locks").mkdir()
    kept, left = (plan.folder / f".20300102-030405-{r.name}.partial" for r in plan.runs)
    kept.mkdir()
    left.mkdir()
    with FileLock(plan.folder / ".locks" / "0"):
        sweep_folder.remove_unfinished(plan)
    assert kept.exists() and not left.exists()


def test_the_last_value_of_every_scalar_survives_a_torn_line(tmp_path):
    path = tmp_path / "steps.jsonl"
    rows = ['{"format": "x", "rank": 3}', '{"step": 0, "loss": 2, "note": "a"}']
    rows += ['{"step": 1, "loss": NaN, "ok": true}', '{"step": 2, "loss": 1.0, "no']
    path.write_text("\n".join(rows))
    values = sweep_folder.last_values(path)
    assert pd.isna(values.pop("loss"))
    assert values == {"note": "a", "ok": True}


# Sweeps that start kernels


def test_a_failed_run_stops_nobody_and_is_tried_again(place, capfd):
    from distributed import LocalCluster

    values = {"rank": [13, 1], "seed": 0, "rate": 0}
    one = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with LocalCluster(**one, protocol="tcp://", dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        result = sweep("tiny", values, cluster=address)
        again = sweep("tiny", values, cluster=address, resume=True)
    assert not result.ok and not again.ok
    failed, finished = result.table.to_dict("records")
    assert failed["state"] == "failed" and failed["error"] == "ValueError: thirteen"
    assert failed["run"].endswith("-tiny-0-rank=13-seed=0-rate=0.0-failed")
    assert finished["state"] == "finished" and finished["steps.loss"] == 1.0
    told = capfd.readouterr().err
    assert "tiny-0-rank=13-seed=0-rate=0.0 FAILED: cell [3]:" in told
    assert "raise ValueError" in told and "ValueError: thirteen" in told
    assert [start[:2] for start in starts(place)].count(("13", "0")) == 2
    assert [start[:2] for start in starts(place)].count(("1", "0")) == 1
    assert again.table["run"][1] == finished["run"]
    assert "rank=13" in result.html.read_text()


def test_killed_and_resumed_nothing_is_computed_twice(place):
    arguments = ["tiny", "-p", "rank=1:4", "-p", "seed=1", "-p", "rate=0.2"]
    process = start_sweep(place, *arguments)
    try:
        wait_for(lambda: complete(place))
    finally:
        process.kill()  # it alone: what it started ends with it
        process.wait()
    wait_for(lambda: all(is_gone(int(pid)) for s in starts(place) for pid in s[2:]))
    before, started = complete(place), [start[:2] for start in starts(place)]
    assert 1 <= len(before) < 3

    without = labkit("sweep", *arguments)
    assert without.exit_code == 2 and "add --resume" in without.stderr

    resumed = start_sweep(place, *arguments, "--resume")
    printed, _ = resumed.communicate(timeout=600)
    assert resumed.returncode == 0

    after = complete(place)
    assert len(after) == 3 and before.items() <= after.items()
    # finished before: no further start; all others: one more than before the kill
    again = [start[:2] for start in starts(place)]
    for rank in "123":
        kept = any(f"-rank={rank}-" in name for name in before)
        assert again.count((rank, "1")) == started.count((rank, "1")) + (not kept)
    (folder,) = (place / "runs").iterdir()
    hidden = {path.name for path in folder.glob(".*")}
    assert hidden == {".locks"}

    table = pd.read_csv(folder / "results.csv")
    assert list(table["state"]) == ["finished"] * 3
    assert (table["steps.loss"] == table["rank"] / (1 + table["seed"])).all()
    assert (table["steps.accuracy"] == 0.5).all() and (table["seconds"] > 0).all()
    assert set(table["run"]) == set(after)
    heading = printed.splitlines()[0].split()
    assert heading[:5] == ["rank", "seed", "rate", "state", "seconds"]
    assert printed.count("finished") == 3 and "results.csv" in printed

    # all is there, so this starts no cluster and no run
    last = labkit("sweep", *arguments, "--resume")
    assert last.exit_code == 0 and last.stdout.count("finished") == 3
    assert complete(place) == after and len(starts(place)) == len(again)


WAITING = """
while not os.path.exists("go"):
    time.sleep(0.01)
"""


def test_no_worker_listens_and_the_run_of_one_that_dies_is_repeated(
    place, write_notebook
):
    """Nobody else can hand work to a local sweep: neither it nor its workers listen."""
    write_notebook("01_tiny", TINY + WAITING, cells=CELLS)
    process = start_sweep(place, "tiny", "-p", "rank=1,2", "-p", "rate=0")
    rank, _, worker, _ = wait_for(lambda: starts(place))[0]
    assert psutil.Process(int(worker)).ppid() == process.pid
    for pid in (process.pid, int(worker)):
        found = psutil.Process(pid).net_connections(kind="inet")
        assert [c.laddr for c in found if c.status == psutil.CONN_LISTEN] == []
    os.kill(int(worker), signal.SIGKILL)
    (place / "go").touch()
    process.communicate(timeout=600)
    assert process.returncode == 0
    assert len(complete(place)) == 2
    assert not list((place / "runs").rglob("*.partial"))
    workers = [start[2] for start in starts(place) if start[0] == rank]
    assert len(workers) == 2 and workers[0] != workers[1]
    assert len(starts(place)) == 3


def start_sweep(place, *arguments):
    command = [sys.executable, "-m", "labkit.lab.runs.cli", "sweep", *arguments]
    command += ["--workers", "2"]
    options = {"cwd": place, "start_new_session": True, "text": True}
    return subprocess.Popen(command, stdout=subprocess.PIPE, **options)


def starts(place):
    """Return rank, seed, worker's and kernel's process of each start so far."""
    with contextlib.suppress(FileNotFoundError):
        return [tuple(x.split()) for x in Path("starts.txt").read_text().splitlines()]
    return []


def complete(place):
    """Map the names of complete runs to what changes if their files are touched."""
    found = {}
    for path in place.glob("runs/sweep-*/[0-9]*"):
        summary = path / "run.json"
        assert json.loads(summary.read_text())["status"] == "finished"
        found[path.name] = (summary.stat().st_ino, summary.stat().st_mtime_ns)
    return found


@pytest.mark.parametrize("guard", ["if True:", 'if __name__ == "__main__":'])
def test_a_script_without_a_guard_is_told_of_it(place, guard):
    """Its processes import it and would begin the sweep, each of them anew."""
    script = place / "mine.py"
    call = "print(sweep('tiny', {'rank': 1}, workers=2).ok)"
    script.write_text(f"from labkit.lab import sweep\n{guard}\n    {call}\n")
    command = [sys.executable, script]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    if "__main__" in guard:
        assert done.returncode == 0 and done.stdout == "True\n"
        return
    assert done.returncode == 1 and done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert "a process ended as it imported the main script" in last
    assert "put the call under 'if __name__ == \"__main__\":'" in last
    assert not (place / "starts.txt").exists()
