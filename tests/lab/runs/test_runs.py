"""Runs that start kernels: few, since each costs seconds."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import nbformat
import pandas as pd
import psutil
import pytest

from labkit.lab.runs import kernel, report, run
from tests.lab.runs.conftest import is_gone, labkit, make_notebook, wait_for

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


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("finished")
    make_notebook(place / "notebooks", "07_curve", FIGURE)
    with contextlib.chdir(place):
        return run("curve", {"rank": 3}, out=place / "runs")


def test_a_run_leaves_notebook_page_traces_table_and_summary(finished):
    assert finished.ok and finished.error is None
    assert finished.path.name.endswith("-curve")
    kept = "curve.ipynb curve.html run.json steps.jsonl measurements.csv picture.json"
    assert {path.name for path in finished.path.iterdir()} == set(kept.split())
    record = json.loads((finished.path / "run.json").read_text())
    assert record["status"] == "finished" and record["profile"] == "quick"
    assert record["parameters"]["rank"] == 3
    assert set(record["versions"]) == {"python", "torch", "labkit"}
    assert not list(finished.path.parent.glob(".*.partial"))
    (row,) = pd.read_csv(finished.path / "measurements.csv").to_dict("records")
    assert row["run"] == finished.path.name and row["params.rank"] == 3
    assert row["params.corpus"] == "text" and row["trace"] == "steps"
    assert (row["step"], row["name"], row["value"]) == (0, "loss", 1.0)


def test_the_page_and_the_index_show_what_the_kernel_of_this_python_made(finished):
    page = finished.html.read_text()
    assert f"this is {sys.executable} 3 False" in page
    (script,) = (finished.path.parent / "_static").iterdir()
    assert f'<script src="../_static/{script.name}"></script>' in page
    assert "Plotly.newPlot(" in page and "require.min.js" not in page
    assert "</script>a curve" not in page  # text of a figure cannot end its script
    index = report(finished.path.parent).read_text()
    assert f'href="{finished.path.name}/curve.html"' in index
    assert "(1 row)" in index and "rank=3" in index


def test_a_failed_run_says_so_everywhere(write_notebook, tmp_path, monkeypatch):
    write_notebook("01_broken", "before = 1", "before / 0  # the culprit")
    monkeypatch.chdir(tmp_path)
    outcome = labkit("run", "broken")
    assert outcome.exit_code == 1
    assert "the culprit" in outcome.stderr
    assert "ZeroDivisionError: division by zero" in outcome.stderr
    (folder,) = tmp_path.glob("runs/[!._]*")
    assert folder.name.endswith("-broken-failed")
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert (folder / "broken.html").exists()
    assert "ZeroDivisionError: division by zero" in report().read_text()


def test_data_that_will_not_do_end_a_run_with_one_sentence(
    write_notebook, tmp_path, monkeypatch
):
    words = "iris has no column 'leaf'; it has: sepal length"
    refuse = f"from labkit.errors import DataError\nraise DataError({words!r})"
    write_notebook("01_own", refuse)
    monkeypatch.chdir(tmp_path)
    outcome = run("own")
    assert not outcome.ok and outcome.error == words


def test_a_killed_run_keeps_its_rows_and_takes_no_name(
    write_notebook, tmp_path, monkeypatch
):
    write_notebook("01_slow", SLOW)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "runs"
    command = [sys.executable, "-m", "labkit.lab.runs.cli", "run", "slow"]
    command += ["-p", "rank=64", "-p", "rate=0.5"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        (partial,) = wait_for(lambda: list(out.glob(".*.partial")))
        trace = partial / "steps.jsonl"
        wait_for(lambda: trace.exists() and trace.read_text().count("\n") >= 3)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
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


def test_a_kernel_that_dies_leaves_what_was_shown(
    write_notebook, tmp_path, monkeypatch
):
    """Papermill saves before and after each cell, we now and then and at the end."""
    monkeypatch.setattr(kernel, "SAVED", 3600)
    look = "print('first' + ' cell' in open(f'{run_dir}/cut.ipynb').read())"
    kill = "import os\nos.kill(os.getpid(), 9)"
    write_notebook("01_cut", "print('first', 'cell')", look, kill)
    monkeypatch.chdir(tmp_path)
    outcome = run("cut")
    assert not outcome.ok and "the kernel's process ended" in outcome.error
    cells = nbformat.read(outcome.notebook, as_version=4).cells
    said = [cell.outputs[0].text for cell in cells if cell.get("outputs")]
    assert said == ["first cell\n", "False\n"]


def test_notebooks_run_side_by_side_and_each_ends_in_a_line(
    write_notebook, tmp_path, monkeypatch
):
    """The first goes on only when the second has begun."""
    wait = "import pathlib, time\nwhile not pathlib.Path('begun').exists():\n"
    write_notebook("01_first", wait + "    time.sleep(0.05)")
    write_notebook("02_second", "open('begun', 'w').close()")
    write_notebook("03_third", "1 / 0")
    write_notebook("04_fourth", "import os; os.kill(os.getppid(), 9)")
    monkeypatch.chdir(tmp_path)
    told = labkit("run", "--all", "--jobs", "2")
    assert told.exit_code == 1 and "ZeroDivisionError" in told.stderr
    lines = sorted(told.stdout.splitlines())
    assert len(lines) == 4
    assert lines[0].startswith("first finished in ")
    assert lines[1] == "fourth FAILED: its process died once"
    assert lines[2].startswith("second finished in ")
    assert lines[3].startswith("third FAILED in ")


def test_an_interrupt_leaves_no_process_and_the_traces_of_each_run(
    write_notebook, tmp_path, interrupts, monkeypatch
):
    for name in ("01_one", "02_two", "03_three"):
        write_notebook(name, SLOW)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "runs"
    command = [sys.executable, "-m", "labkit.lab.runs.cli", "run", "--all", "--jobs=2"]
    command += ["-p", "rank=64", "-p", "rate=0.5"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, start_new_session=True, **pipes)
    wait_for(lambda: len(list(out.glob(".*.partial/steps.jsonl"))) == 2)
    begun = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C: to all of the terminal
    printed, told = process.communicate(timeout=600)
    assert process.returncode == 130 and printed == ""
    assert told.startswith("labkit: stopped; the hidden folder"), told
    assert len(told.splitlines()) == 1
    assert len(begun) >= 4  # two workers, two kernels
    wait_for(lambda: all(is_gone(child.pid) for child in begun))
    assert len(list(out.iterdir())) == len(list(out.glob(".*.partial"))) == 2
