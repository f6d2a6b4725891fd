"""Threads: few in a notebook's kernel, the user's own in her script."""

import os
import subprocess
import sys

import nbformat
import pytest
from joblib import cpu_count
from nbformat.v4 import new_code_cell, new_notebook

from labkit import threads

FIRST_CELL = "from labkit.threads import set_threads; set_threads()"
TOLD = """
import json, os, torch, numpy, scipy.linalg
from threadpoolctl import threadpool_info

def tell():
    blas = {pool["num_threads"] for pool in threadpool_info()}
    print(json.dumps([torch.get_num_threads(), *blas]))

tell()
"""
SCRIPT = """
import labkit.rtrl, labkit.broad, labkit.rls, labkit.bpls
import labkit.lab.panels, labkit.lab.race, labkit.lab.compare.rules
"""
LATER = """
from labkit.threads import set_threads

for given in ("1", "2", ""):
    os.environ["LABKIT_THREADS"] = given
    set_threads()
    tell()
for count in (2, 256):
    set_threads(count)
    tell()
"""
SET = {threads.VARIABLE, *threads.READ_LATER}


def test_a_script_of_the_user_keeps_her_threads_until_she_sets_them():
    """With 256 on two processors a notebook had not ended after ten minutes."""
    bare = {k: v for k, v in os.environ.items() if k not in SET}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + TOLD + LATER],
        env=bare | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    kept, one, two, none, asked, many = done.stdout.splitlines()
    assert kept.startswith("[2, 2")
    assert (one, two, none, asked) == ("[1, 1]", "[2, 2]", "[1, 1]", "[2, 2]")
    most = min(cpu_count(), 256)
    assert many == f"[{most}, {most}]"


@pytest.mark.parametrize(
    "given", ["0", "many", "99999", "9" * 20, "9" * 5000, "\u0663"]
)
def test_what_is_no_number_of_threads_is_refused(given, monkeypatch):
    before = threads.torch.get_num_threads()
    monkeypatch.setenv("LABKIT_THREADS", given)
    with pytest.raises(ValueError, match=f"up to 1024, got '{given}'$"):
        threads.set_threads()
    assert threads.torch.get_num_threads() == before


def test_a_notebook_may_not_take_less_than_none():
    with pytest.raises(ValueError, match="threads must be 0 to 1024, got -1"):
        threads.set_threads(-1)


def test_a_kernel_of_a_run_has_one_thread(tmp_path, monkeypatch):
    """Of torch, which its first cell imports, and of what it imports later."""
    from labkit.lab.runs import run

    for name in SET:
        monkeypatch.delenv(name, raising=False)
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
