"""Threads: few in a notebook's kernel, the user's own in her script."""

import os
import subprocess
import sys

import pytest
from joblib import cpu_count

from labkit import threads

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
import labkit.lab.panels, labkit.lab.race, labkit.lab.books.rules
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


@pytest.mark.parametrize("given", ["0", "many", "1025"])
def test_what_is_no_number_of_threads_is_refused(given, monkeypatch):
    monkeypatch.setenv("LABKIT_THREADS", given)
    with pytest.raises(ValueError, match=f"up to 1024, got '{given}'$"):
        threads.set_threads()
    monkeypatch.delenv("LABKIT_THREADS")
    with pytest.raises(ValueError, match="threads must be an integer in 0"):
        threads.set_threads(-1)
