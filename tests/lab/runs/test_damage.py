"""Folders of runs as a user may leave them: what is damaged stops nothing else."""

import json
import os
import subprocess
import sys
import threading

import pandas as pd
import pytest

from labkit.lab.runs import report, sweep_folder, sweep_plan
from labkit.lab.runs.run_folder import read_summary
from tests.lab.runs.conftest import labkit, wait_for

REPORT = sys.modules[
    "labkit.lab.runs.report"
]  # the function hides the module of its name
GOOD = {
    "name": "rls",
    "status": "finished",
    "profile": "quick",
    "parameters": {"rank": 8},
    "device": "cpu",
    "started": "2030-01-02T03:04:05+00:00",
    "seconds": 1.5,
    "error": None,
}
WRONG = [{"parameters": None}, {"parameters": [1]}, {"seconds": "long"}, {"name": 3}]
WRONG += [{"started": None}, {"status": ["finished"]}, {"error": {"cell": 3}}]
UNREADABLE = ["", "{", "[]", "null", '"text"', "[" * 100_000]
UNREADABLE += [json.dumps(GOOD | wrong) for wrong in WRONG]
ODD = [
    {"name": "/etc/passwd"},
    {"name": "../" * 40 + "etc/passwd"},
    {"name": "x" * 5000},
    {"name": "half \ud800 a character"},
    {"parameters": {"\udcff": "\ud800"}},
    {"error": "\ud800"},
    {"seconds": 10**40},
]


@pytest.fixture
def out(tmp_path):
    """A folder of runs with one good run and one to be damaged."""
    for name in ("20300102-030405-rls", "20300102-030406-odd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(GOOD))
    return tmp_path


def index_of(out):
    """Write the index in the time that it takes, not in that of a hanging read."""
    done = []
    thread = threading.Thread(target=lambda: done.append(report(out)), daemon=True)
    thread.start()
    thread.join(300)
    assert done, "the index hangs or raised"
    return done[0].read_text("utf-8")


@pytest.mark.parametrize("content", UNREADABLE, ids=lambda text: text[-25:])
def test_an_unreadable_summary_is_told_in_the_index(out, content):
    (out / "20300102-030406-odd/run.json").write_text(content)
    assert read_summary(out / "20300102-030406-odd") is None
    index = index_of(out)
    assert "2 runs" in index and "unreadable" in index and "rank=8" in index


@pytest.mark.parametrize("changed", ODD, ids=str)
def test_an_odd_summary_is_shown_as_it_is(out, changed):
    (out / "20300102-030406-odd/run.json").write_text(json.dumps(GOOD | changed))
    index = index_of(out)
    assert "2 runs" in index and "etc/passwd.html" not in index


KINDS = {"folder": os.mkdir, "pipe": os.mkfifo}
KINDS["dangling"] = lambda path: path.symlink_to("nowhere")


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", ["a.jsonl", "run.json"])
def test_what_is_no_file_is_not_read(out, make, name):
    folder = out / "20300102-030406-odd"
    (folder / "run.json").unlink(missing_ok=name == "run.json")
    make(folder / name)
    assert read_summary(folder) is None
    assert "rank=8" in index_of(out)
    assert sweep_folder._scalars(folder) == {}


def test_names_that_are_no_text_are_shown_with_a_mark(out):
    raw = os.fsencode(out) + b"/20300102-030406-odd/\xff.jsonl"
    with open(raw, "w") as file:
        file.write('{"step": 0}\n')
    os.rename(out / "20300102-030405-rls", os.fsencode(out) + b"/2030-\xfe")
    index = index_of(out)
    assert "\ufffd.jsonl" in index and "%FF.jsonl" in index and "2 runs" in index


def test_a_run_that_gets_its_name_meanwhile_is_in_the_index(out, monkeypatch):
    partial = out / ".20300102-030407-late.partial"
    partial.mkdir()
    (partial / "run.json").write_text(json.dumps(GOOD | {"name": "late"}))
    found = REPORT.traces

    def rename_then_find(folder):
        if folder == partial and partial.exists():
            partial.rename(out / "20300102-030407-late")
        return found(folder)

    monkeypatch.setattr(REPORT, "traces", rename_then_find)
    index = index_of(out)
    assert "3 runs" in index and "Cut off" not in index


@pytest.fixture
def place(tmp_path, write_notebook, monkeypatch):
    write_notebook("01_tiny", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


ODD_STATUS = json.dumps(GOOD | {"status": "odd"})


@pytest.mark.parametrize("content", [*UNREADABLE, ODD_STATUS], ids=lambda t: t[-25:])
def test_a_damaged_run_of_a_sweep_counts_as_none(place, content):
    plan = sweep_plan.prepare_sweep("tiny", {"rank": [1, 2]})
    sweep_folder.begin(plan)
    good = json.dumps(GOOD | {"parameters": plan.runs[1].values})
    for run, text in zip(plan.runs, (content, good), strict=True):
        folder = plan.folder / f"20300102-030405-{run.name}"
        folder.mkdir()
        (folder / "run.json").write_text(text)
        (folder / "a.jsonl").mkdir()
    outcomes = sweep_folder.on_disk(plan)
    assert [outcomes[n].state for n in (0, 1)] == ["not run", "finished"]
    table = sweep_folder.tabulate(plan, outcomes)
    table.to_csv(place / "t.csv")


@pytest.mark.parametrize(
    "values",
    [(10**40, 3), (-(10**40), 3), (2**63, 3), ("\ud800", 3), (True, 2.5, "three")],
)
def test_every_logged_value_can_be_tabulated(place, values):
    """Columns of mixed types, too."""
    plan = sweep_plan.prepare_sweep("tiny", {"rank": range(1, len(values) + 1)})
    outcomes = {}
    for number, logged in enumerate(values):
        folder = plan.folder / str(number)
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_text(json.dumps({"step": 0, "odd": logged}) + "\n")
        outcomes[number] = sweep_folder.RunOutcome("finished", 1.0, None, folder)
    sweep_folder.tabulate(plan, outcomes).to_csv(place / "t.csv")
    shown = [str(value).encode("utf-8", "replace").decode() for value in values]
    assert list(pd.read_csv(place / "t.csv", dtype=str)["a.odd"]) == shown


# What the command says where the machine refuses


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run tiny --out /proc/none/runs", "/proc/none"),
        (f"sweep tiny -p rank=0:{9**30}", "a sweep takes 10000 runs"),
        (f"sweep tiny -p rank=0:{'9' * 5000}", "rank=0:999"),
        ("run tiny -p corpus=\udcff", "corpus takes str, text|ptb"),
        ("run tiny -p device=\udcff", r"device=\udcff is not allowed"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(place, arguments, message):
    outcome = labkit(*arguments.split())
    assert outcome.exit_code in (1, 2) and message in outcome.stderr


def test_a_full_disk_is_said_in_a_line(place, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "page.html")

    monkeypatch.setattr("labkit.lab.runs.page.write_page", full)
    outcome = labkit("run", "tiny")
    assert outcome.exit_code == 1
    assert "labkit: [Errno 28] No space left on device" in outcome.stderr


def test_one_unreadable_notebook_hides_no_other(place):
    (place / "notebooks/00_bad.ipynb").write_text("not json")
    outcome = labkit("list")
    assert outcome.exit_code == 2
    assert "tiny\n  rank = 8" in outcome.stdout
    assert "00_bad.ipynb cannot be read as a notebook" in outcome.stderr


@pytest.mark.parametrize("user", [0, 1000], ids=["root", "a user"])
def test_root_opens_the_lab_and_is_told(place, monkeypatch, user):
    calls = []
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(place / "workspaces"))
    monkeypatch.setattr(os, "execve", lambda _, command, __: calls.append(command))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    told = labkit("lab").stderr
    assert ("--allow-root" in calls[0]) == (user == 0)
    assert told.startswith("labkit: you are root") if user == 0 else told == ""
    assert "--ip=127.0.0.1" in calls[0]


@pytest.mark.parametrize("command", ["list", "--help", "reproduce show", "report"])
def test_a_reader_who_has_seen_enough_hears_nothing(place, command):
    """As in `labkit list | head -1`: the pipe is closed before all is written."""
    (place / "runs").mkdir()
    script = [sys.executable, "-m", "labkit", *command.split()]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(script, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.returncode == 1 and done.stderr == ""


def test_an_interrupted_run_ends_in_a_line(place, write_notebook, interrupts):
    write_notebook("02_long", 'import time; open("begun", "w"); time.sleep(600)')
    command = [sys.executable, "-m", "labkit.lab.runs.cli", "run", "long"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for((place / "begun").exists)
    process.send_signal(2)
    _, told = process.communicate(timeout=600)
    assert process.returncode == 130
    assert told.startswith("labkit: stopped; the hidden folder"), told
    assert len(told.splitlines()) == 1
