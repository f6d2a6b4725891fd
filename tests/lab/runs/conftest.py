import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from typer.testing import CliRunner

from labkit.lab.runs.cli import app

CELL = """\
rank: int = 8  # terms kept; 1..64; paper=16
rate: float = 0.1  # step size; 0..
corpus: str = "text"  # what is read; text|ptb; paper=ptb
shuffle: bool = False  # new order in each pass
device: str = "cpu"  # torch device
interactive: bool = True  # widgets; the command line sets False
run_dir: str = ""  # where traces are written; the command line sets it
"""


@pytest.fixture
def write_notebook(tmp_path):
    """Write a notebook with parameters cells and code cells; return its path."""

    def write(stem, *sources, cells=(CELL,)):
        path = tmp_path / f"notebooks/{stem}.ipynb"
        path.parent.mkdir(exist_ok=True)
        tagged = [new_code_cell(c, metadata={"tags": ["parameters"]}) for c in cells]
        code = [new_code_cell(source) for source in sources]
        book = new_notebook(cells=[new_markdown_cell("# A test"), *tagged, *code])
        nbformat.write(book, path)
        return path

    return write


def labkit(*arguments):
    """Call the command; it raises nothing."""
    outcome = CliRunner().invoke(app, list(map(str, arguments)))
    assert outcome.exception is None or isinstance(outcome.exception, SystemExit)
    return outcome


def begin(*arguments):
    """Start the command in a session of its own, as a terminal does."""
    command = [sys.executable, "-m", "labkit.lab.runs.cli", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, start_new_session=True, **pipes)


def refused(arguments, message, folder):
    """The command ends with a message before anything is written."""
    (folder / "file").write_text("kept")
    before = sorted(folder.rglob("*"))
    outcome = labkit(*arguments.split())
    assert outcome.exit_code == 2
    assert message in outcome.stderr and outcome.stdout == ""
    assert sorted(folder.rglob("*")) == before


def wait_for(condition, seconds=600):
    """Return a condition's value once it is true, however busy the machine is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    pytest.fail("waited in vain")


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
