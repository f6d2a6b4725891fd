"""Runs that start kernels: few, since each costs seconds."""

import json
import os
import signal
import socket
import sys

import nbformat
import pandas as pd
import psutil
import pytest
from jupyter_client.connect import LocalPortCache

from labkit.lab.runs import kernel, report, run
from tests.lab.runs.conftest import begin, is_gone, labkit, wait_for

FIGURE = """\
import json, sys
import plotly.graph_objects as go
trace = open(f"{run_dir}/steps.jsonl", "w")
print(json.dumps({"rank": rank}), file=trace)
print(json.dumps({"step": 0, "loss": 1.0}), file=trace)
trace.close()
print("this is", sys.executable, rank, interactive)
go.Figure(go.Scatter(y=[3, 1, 2]), layout={"title": "</script>a curve"})
"""
SLOW = """\
import json, os, time
with open(f"{run_dir}/kernel.pid", "w") as file:
    file.write(str(os.getpid()))
with open(f"{run_dir}/steps.jsonl", "w") as trace:
    for step in range(rank):
        print(json.dumps({"step": step}), file=trace, flush=True)
        time.sleep(rate)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_leaves_notebook_page_traces_table_and_summary(place, write_notebook):
    write_notebook("07_curve", FIGURE)
    finished = run("curve", {"rank": 3})
    assert finished.ok and finished.error is None
    folder, name = finished.path, finished.path.name
    kept = "curve.ipynb curve.html run.json steps.jsonl measurements.csv picture.json"
    assert name.endswith("-curve")
    assert {path.name for path in folder.iterdir()} == set(kept.split())
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "finished" and record["profile"] == "quick"
    assert record["parameters"]["rank"] == 3
    assert set(record["versions"]) == {"python", "torch", "labkit"}
    assert not list(folder.parent.glob(".*.partial"))
    (row,) = pd.read_csv(folder / "measurements.csv").to_dict("records")
    assert row["run"] == name and row["params.rank"] == 3
    assert row["params.corpus"] == "text" and row["trace"] == "steps"
    assert (row["step"], row["name"], row["value"]) == (0, "loss", 1.0)

    page = finished.html.read_text()
    assert f"this is {sys.executable} 3 False" in page  # a kernel of this Python
    (script,) = (folder.parent / "_static").iterdir()
    assert f'<script src="../_static/{script.name}"></script>' in page
    assert "Plotly.newPlot(" in page and "require.min.js" not in page
    assert "</script>a curve" not in page  # text of a figure cannot end its script
    index = report(folder.parent).read_text()
    assert f'href="{name}/curve.html"' in index
    assert "(1 row)" in index and "rank=3" in index


def test_a_killed_run_keeps_its_rows_and_takes_no_name(place, write_notebook):
    write_notebook("01_slow", SLOW)
    out = place / "runs"
    process = begin("run", "slow", "-p", "rank=64", "-p", "rate=0.5")
    try:
        (partial,) = wait_for(lambda: list(out.glob(".*.partial")))
        trace = partial / "steps.jsonl"
        wait_for(lambda: trace.exists() and trace.read_text().count("\n") >= 3)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    # the kernel has a session of its own and watches for the end of its parent
    kernel = int((partial / "kernel.pid").read_text())
    wait_for(lambda: is_gone(kernel))

    assert [path for path in out.iterdir() if path != partial] == []
    rows = trace.read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(len(rows)))

    again = run("slow", {"rank": 2, "rate": 0})
    assert again.ok
    index = report(out).read_text()
    assert f'href="{again.path.name}/slow.html"' in index
    assert "Cut off" in index and partial.name in index
    assert f"({len(rows)} rows)" in index and "rank=64" in index


def test_a_kernel_that_dies_leaves_what_was_shown(place, write_notebook, monkeypatch):
    """Papermill saves before and after each cell, we now and then and at the end."""
    monkeypatch.setattr(kernel, "SAVED", 3600)
    look = "print('first' + ' cell' in open(f'{run_dir}/cut.ipynb').read())"
    kill = "import os\nos.kill(os.getpid(), 9)"
    write_notebook("01_cut", "print('first', 'cell')", look, kill)
    outcome = run("cut")
    assert not outcome.ok and "the kernel's process ended" in outcome.error
    cells = nbformat.read(outcome.notebook, as_version=4).cells
    printed = [cell.outputs[0].text for cell in cells if cell.get("outputs")]
    assert printed == ["first cell\n", "False\n"]


@pytest.mark.skipif(sys.platform != "linux", reason="kernels have ports elsewhere")
def test_a_port_that_another_process_took_stops_no_run(
    place, write_notebook, monkeypatch
):
    """Jupyter chooses ports for a kernel that takes them a second later, if at all."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr(LocalPortCache, "find_available_port", lambda *_: taken)
        write_notebook("01_one", "1 + 1")
        assert run("one").ok


def test_notebooks_run_side_by_side_and_each_ends_in_a_line(place, write_notebook):
    """The first goes on only when the second has begun; a failure says so everywhere.

    Data that will not do end a run with one sentence.
    """
    wait = "import pathlib, time\nwhile not pathlib.Path('begun').exists():\n"
    write_notebook("01_first", wait + "    time.sleep(0.05)")
    write_notebook("02_second", "open('begun', 'w').close()")
    write_notebook("03_third", "before = 1", "before / 0  # the culprit")
    write_notebook("04_fourth", "import os; os.kill(os.getppid(), 9)")
    words = "iris has no column 'leaf'; it has: sepal length"
    refuse = f"from labkit.errors import DataError\nraise DataError({words!r})"
    write_notebook("05_own", refuse)
    result = labkit("run", "--all", "--jobs", "2")
    assert result.exit_code == 1 and f"\n{words}\n\n" in result.stderr
    assert "the culprit" in result.stderr
    lines = sorted(result.stdout.splitlines())
    assert len(lines) == 5
    assert lines[0].startswith("first finished in ")
    assert lines[1] == "fourth FAILED: its process died once"
    assert lines[2].startswith("own FAILED in ")
    assert lines[3].startswith("second finished in ")
    assert lines[4].startswith("third FAILED in ")
    (folder,) = place.glob("runs/[!._]*-third-failed")
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert (folder / "third.html").exists()
    for shown in (result.stderr, report().read_text()):
        assert "ZeroDivisionError: division by zero" in shown


@pytest.mark.parametrize(("names", "kernels"), [(["two"], 1), (["--all"], 2)])
def test_an_interrupt_leaves_no_process_and_the_traces_of_each_run(
    place, write_notebook, interrupts, names, kernels
):
    for name in ("01_one", "02_two", "03_three"):
        write_notebook(name, SLOW)
    out = place / "runs"
    process = begin("run", *names, "--jobs=2", "-p", "rank=64", "-p", "rate=0.5")
    wait_for(lambda: len(list(out.glob(".*.partial/steps.jsonl"))) == kernels)
    begun = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C: to all of the terminal
    printed, message = process.communicate(timeout=600)
    assert process.returncode == 130 and printed == ""
    assert message.startswith("labkit: stopped; the hidden folder"), message
    assert len(message.splitlines()) == 1
    assert len(begun) >= kernels
    wait_for(lambda: all(is_gone(child.pid) for child in begun))
    assert len(list(out.iterdir())) == len(list(out.glob(".*.partial"))) == kernels
