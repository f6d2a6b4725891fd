"""``make gpu`` on a CPU: its parts run, go on where they were cut off, and can fail."""

import json

import pytest
import torch

from benchmarks import gpu
from tests.device.rows import Row, in_dtype, seeded
from tests.device.table import TABLE


@pytest.fixture
def small(monkeypatch):
    """A row or two of each room, and small matrices."""
    few = {room: rows[:2] for room, rows in TABLE.items()}
    monkeypatch.setattr(gpu, "TABLE", few)
    monkeypatch.setattr(gpu, "ORDERS", (2, 5))
    return few


def run(file, *words):
    return gpu.main(["--device", "cpu", "--json", str(file), *words])


def test_steps_and_decompositions_run_and_are_done_once(small, tmp_path, capsys):
    file = tmp_path / "gpu.jsonl"
    assert run(file, "--part", "a") == run(file, "--part", "b") == 0
    written = file.read_text()
    found = [json.loads(line) for line in written.splitlines()]
    assert len(found) == sum(map(len, small.values())) + 2
    assert all(each["ok"] and each["device"].startswith("cpu") for each in found)
    assert run(file, "--part", "a") == 0 and file.read_text() == written
    run(file, "--part", "g")
    assert "part b: 2 of 2 right" in capsys.readouterr().out


def test_a_part_that_was_cut_off_goes_on(small, tmp_path, capsys):
    file = tmp_path / "gpu.jsonl"
    assert run(file, "--part", "b", "--seconds", "-1") == 1
    assert "the same command goes on" in capsys.readouterr().out
    file.write_text('{"part": "b", "na')  # the machine went in the middle of a line
    assert run(file, "--part", "b") == 0
    assert len(gpu.read(file)) == 2


def test_recorded_steps_are_those_of_the_strict_device(tmp_path, monkeypatch):
    """A short test of the same files; ``make test-device`` runs them all."""
    monkeypatch.setattr(gpu, "RECORDED", "records_nothing and rtrl_capture")
    file = tmp_path / "gpu.jsonl"
    assert run(file, "--part", "c") == 0
    (found,) = gpu.read(file)
    assert found["result"].startswith("1 passed")


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

    monkeypatch.setattr(gpu, "TABLE", {"rtrl": [Row("a step", make, 0)]})
    assert run(tmp_path / "gpu.jsonl", "--part", "a") == 1
    run(tmp_path / "gpu.jsonl", "--part", "g")
    out = capsys.readouterr().out
    assert "FAIL  rtrl: a step" in out and "part a: 0 of 1 right" in out


def test_draws_are_the_same_in_every_dtype():
    def draws():
        x = torch.empty(3).normal_(generator=seeded())
        layers = torch.nn.Linear(3, 2), torch.nn.RNN(3, 2)
        weights = [p.detach() for each in layers for p in each.parameters()]
        return x, torch.rand(2, generator=seeded()), torch.randn(2), *weights

    found = {}
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        with in_dtype(dtype), gpu.HostDraws():
            found[dtype] = draws()
    for single, double in zip(*found.values(), strict=True):
        assert single.dtype == torch.float32 and double.dtype == torch.float64
        assert torch.equal(single, double.float())


def test_a_nudge_changes_draws_by_rounding_and_leaves_signs():
    def draws(nudge):
        with in_dtype(torch.float64), gpu.HostDraws(nudge):
            x = torch.randn(100, generator=seeded())
            return x, torch.randint(0, 2, (9,), generator=seeded()).mul(2).sub(1)

    (plain, signs), (other, same) = draws(0), draws(1)
    change = (other / plain - 1).abs().max()
    assert 0 < change < torch.finfo(torch.float32).eps and torch.equal(signs, same)


def test_a_decomposition_that_is_wrong_is_found(monkeypatch):
    right = torch.ops.labkit.jacobi
    ((_, measure),) = (
        item
        for item in gpu.decompositions(torch.device("cpu"))
        if item[0].endswith(" 3")
    )
    assert measure()["ok"]

    def wrong(C):
        U, d, V = right(C)
        return U, d, V.roll(1, -1)

    monkeypatch.setattr(gpu.torch.ops.labkit, "jacobi", wrong)
    assert not measure()["ok"]


def test_the_page_shows_what_was_measured(tmp_path, monkeypatch):
    line = {"part": "f", "name": "rls: RLS.step, Linear, speed", "ok": True}
    line |= {"device": "cpu, 2 cores", "torch": "2.13", "commit": "abc", "ms": 1.0}
    line |= {"kernels": None, "strict kernels": 45, "waits": 0, "over fused Adam": 2.0}
    (tmp_path / "gpu.jsonl").write_text(json.dumps(line) + "\n")
    page = gpu.page(tmp_path / "gpu.jsonl")
    assert "| rls: RLS.step, Linear | 1 | 2 |  |  |  | 45 | 0 |" in page
    assert "GPU: none was at hand" in page
    on_gpu = {"device": "a GPU", "ms": 0.25, "kernels": 44, "over fused Adam": 1.5}
    with (tmp_path / "gpu.jsonl").open("a") as file:
        file.write(json.dumps(line | on_gpu) + "\n")
    page = gpu.page(tmp_path / "gpu.jsonl")
    assert "| rls: RLS.step, Linear | 1 | 2 | 0.25 | 1.5 | 44 | 45 | 0 |" in page
    assert "CPU: cpu, 2 cores" in page and "GPU: a GPU, torch 2.13, at abc" in page
    check = {"part": "b", "name": "jacobi, order 2", "device": "a GPU", "ok": True}
    bench = {"benchmark": "rtrl", "name": "8-OK", "device": "a GPU", "ms": 1.5}
    with (tmp_path / "gpu.jsonl").open("a") as file:
        for each in (check | {"zero": 0.0, "normal": 2e-15}, bench | {"ratio": 4.0}):
            file.write(json.dumps(each) + "\n")
    page = gpu.page(tmp_path / "gpu.jsonl")
    assert "LAPACK's | 1 of 1 | 2e-15 |" in page and "| rtrl: 8-OK | 1.5 | 4 |" in page
    assert gpu.page(tmp_path / "none.jsonl") == "Nothing has been measured.\n"


def test_the_page_in_the_docs_is_made_from_the_file_beside_it():
    assert gpu.BEGIN + gpu.page(gpu.KEPT) + gpu.END in gpu.PAGE.read_text("utf-8")


def test_a_part_measured_again_leaves_the_other_parts_as_they_were(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(gpu, "PAGE", tmp_path / "devices.md")
    monkeypatch.setattr(gpu, "KEPT", tmp_path / "devices.jsonl")
    gpu.PAGE.write_text(gpu.BEGIN + gpu.END)
    a, b = ({"device": "a GPU", "part": part, "name": "x", "ok": True} for part in "ab")
    bench = {"device": "a GPU", "benchmark": "rtrl", "name": "8-OK", "ms": 1.5}
    for each in ([a, b], [bench], [b | {"ok": False}]):
        new = tmp_path / "new.jsonl"
        new.write_text("".join(json.dumps(line) + "\n" for line in each))
        gpu.write_page(new)
    assert gpu.read(gpu.KEPT) == [a, bench, b | {"ok": False}]


def test_the_page_is_written_where_there_is_no_gpu(tmp_path, monkeypatch, capsys):
    page = tmp_path / "devices.md"
    page.write_text(gpu.BEGIN + gpu.END)
    monkeypatch.setattr(gpu, "PAGE", page)
    monkeypatch.setattr(gpu, "KEPT", tmp_path / "devices.jsonl")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--docs", "--json", str(tmp_path / "none.jsonl")]) == 0
    assert "Nothing has been measured." in page.read_text()
    with pytest.raises(SystemExit):
        gpu.main(["--part", "g"])
    assert "torch sees no CUDA device" in capsys.readouterr().err
