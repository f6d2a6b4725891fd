"""What the command says where a file is damaged, a disk full, or a reader gone."""

import os
import subprocess
import sys

import pytest

from tests.lab.runs.conftest import labkit, wait_for


@pytest.fixture
def place(tmp_path, write_notebook, monkeypatch):
    write_notebook("01_tiny", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run tiny --out /proc/none/runs", "/proc/none"),
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
