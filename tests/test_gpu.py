"""``make gpu`` on a CPU: its parts run, go on where they were cut off, and can fail."""

import json
import subprocess
import sys

import pytest
import torch

from benchmarks import gpu
from tests import ROOT
from tests.device.rows import Row
from tests.device.table import STEPS


@pytest.fixture
def small(monkeypatch):
    """A few rows, small matrices, and few units and steps."""
    few = dict(list(STEPS.items())[::12])
    monkeypatch.setattr(gpu, "STEPS", few)
    sizes = {"ORDERS": (2, 5), "HIDDEN": 8, "TIMED": 2, "UPDATES": 4, "DRAWS": 640}
    for name, value in sizes.items():
        monkeypatch.setattr(gpu, name, value)
    return few


def test_it_needs_no_notebook():
    """A lent machine has no Jupyter; what it has stands in docs/devices.md."""
    lacking = "IPython", "ipywidgets", "traitlets", "anywidget", "plotly", "papermill"
    words = (
        f"import sys; sys.modules |= dict.fromkeys({lacking}); import benchmarks.gpu"
    )
    subprocess.run([sys.executable, "-c", words], cwd=ROOT, check=True)


def run(file, *words):
    return gpu.main(["--device", "cpu", "--json", str(file), *words])


@pytest.mark.parametrize("part", "abcde")
def test_parts_run_and_are_done_once(small, part, tmp_path, capsys):
    file = tmp_path / "gpu.jsonl"
    assert run(file, "--part", part) == 0
    count = {"b": 2, "c": 0, "d": 2, "e": 0}.get(part, len(small))
    written = file.read_text() if count else ""
    assert len(written.splitlines()) == written.count('"ok": true') == count
    assert run(file, "--part", part) == 0
    assert not count or file.read_text() == written
    assert capsys.readouterr().out.endswith(f"part {part}: {count} of {count} right\n")


def test_a_part_that_was_cut_off_goes_on(small, tmp_path, monkeypatch):
    file, whole = tmp_path / "gpu.jsonl", gpu.matrices

    def stopped(q):
        if q == 5:
            raise KeyboardInterrupt
        return whole(q)

    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(gpu, "matrices", stopped)
        run(file, "--part", "b")
    before = file.read_text()
    assert run(file, "--part", "b") == 0
    first, _ = file.read_text().splitlines(keepends=True)
    assert first == before


def test_the_kernels_of_a_step_are_named(small, tmp_path, capsys):
    """On a CPU they are torch's operators."""
    file = tmp_path / "gpu.jsonl"
    run(file, "--part", "d")
    assert " x aten::" in capsys.readouterr().out
    ok, kf = map(json.loads, file.read_text().splitlines())
    assert {"aten::bmm", "aten::linalg_svd"} <= ok["us"].keys()
    assert ok["kernels"] > kf["kernels"] > 50 and ok["copy of A, ms"] > 0


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_bias_is_told_from_noise(small, factor, monkeypatch):
    def scaled(network, learners, text):
        for drawn, exact in whole(network, learners, text):
            yield {name: factor * draws for name, draws in drawn.items()}, exact

    whole = gpu.estimates
    monkeypatch.setattr(gpu, "estimates", scaled)
    assert gpu.bias(torch.device("cpu"), tf32=False)["ok"] == (factor == 1)


@pytest.mark.parametrize("wrong", ["numbers", "an error"])
def test_what_is_wrong_on_a_device_is_named(wrong, tmp_path, monkeypatch, capsys):
    made = []

    def make(device):
        made.append(device)

        def step():
            if len(made) == 2:  # the device's first, in float64
                if wrong == "an error":
                    raise RuntimeError("no kernel image")
                return torch.tensor([1.0, 2.1])
            return torch.tensor([1.0, 2.0])

        return step

    monkeypatch.setattr(gpu, "STEPS", {"rtrl: a step": Row("a step", make)})
    assert run(tmp_path / "gpu.jsonl", "--part", "a") == 1
    out = capsys.readouterr().out
    assert "FAIL  rtrl: a step" in out and "part a: 0 of 1 right" in out


def test_a_decomposition_that_is_wrong_is_found(monkeypatch):
    right = torch.ops.labkit.jacobi
    monkeypatch.setattr(gpu, "ORDERS", (3,))
    ((_, measure),) = gpu.decompositions(torch.device("cpu"))
    assert measure()["ok"]

    def wrong(C):
        U, d, V = right(C)
        return U, d, V.roll(1, -1)

    monkeypatch.setattr(gpu.torch.ops.labkit, "jacobi", wrong)
    assert not measure()["ok"]


def test_without_a_gpu_it_says_so(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--device", "cuda:99"])
    assert "torch sees no CUDA device" in capsys.readouterr().err
