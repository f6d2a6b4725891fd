"""Threads: few in a notebook's kernel, the user's own in her script."""

import os
import subprocess
import sys

import nbformat
import pytest
from joblib import cpu_count
from nbformat.v4 import new_code_cell, new_notebook

from labkit import threads

TOLD = """
import json, os, torch, numpy, scipy.linalg
from threadpoolctl import threadpool_info
blas = {pool["num_threads"] for pool in threadpool_info()}
print(json.dumps([torch.get_num_threads(), *blas]))
"""
FIRST_CELL = "from labkit.threads import set_threads; set_threads()"
SET = {threads.VARIABLE, *threads.READ_LATER}


def told(code, **environment):
    """Run code in a process of its own; return the threads of torch and of BLAS."""
    bare = {k: v for k, v in os.environ.items() if k not in SET}
    done = subprocess.run(
        [sys.executable, "-c", code + TOLD],
        env=bare | environment,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "[1, 1]"),
        ({"LABKIT_THREADS": "2"}, "[2, 2]"),
        ({"LABKIT_THREADS": ""}, "[1, 1]"),
        ({"OMP_NUM_THREADS": "2"}, "[1, 1]"),
    ],
)
def test_a_notebook_settles_the_threads(environment, expected):
    assert told(FIRST_CELL, **environment).endswith(expected)


@pytest.mark.parametrize(
    "given", ["0", "many", "99999", "9" * 20, "9" * 5000, "\u0663"]
)
def test_what_is_no_number_of_threads_is_refused(given, monkeypatch):
    before = threads.torch.get_num_threads()
    monkeypatch.setenv("LABKIT_THREADS", given)
    with pytest.raises(ValueError, match=f"up to 1024, got '{given}'$"):
        threads.set_threads()
    assert threads.torch.get_num_threads() == before


def test_a_script_of_the_user_keeps_her_threads():
    code = "import labkit.rtrl, labkit.broad, labkit.rls, labkit.bpls\n"
    code += "import labkit.lab.panels, labkit.lab.race, labkit.lab.compare.rules"
    assert told(code, OMP_NUM_THREADS="2").startswith("[2, 2")


def test_no_more_threads_are_taken_than_there_are_processors():
    """With 256 on two processors a notebook had not ended after ten minutes."""
    most = min(cpu_count(), 256)
    assert told(FIRST_CELL + "; set_threads(256)") == f"[{most}, {most}]"


def test_a_notebook_may_take_more():
    assert told(FIRST_CELL + "; set_threads(2)") == "[2, 2]"
    with pytest.raises(ValueError, match="threads must be 0 to 1024, got -1"):
        threads.set_threads(-1)


def test_a_kernel_of_a_run_has_them_too(tmp_path, monkeypatch):
    from labkit.lab.runs import run

    for name in SET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LABKIT_THREADS", "1")
    declared = 'device: str = "cpu"\ninteractive: bool = True\nrun_dir: str = ""'
    cells = [
        new_code_cell(declared, metadata={"tags": ["parameters"]}),
        new_code_cell(FIRST_CELL + TOLD),
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "01_threads.ipynb")
    result = run("threads", out=tmp_path / "runs", notebook_dir=tmp_path)
    assert result.ok, result.error
    (output,) = nbformat.read(result.notebook, as_version=4).cells[-1].outputs
    assert output.text == "[1, 1]\n"
