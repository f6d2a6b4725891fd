"""Units are done once, survive a kill, and what they found stays as it was written."""

import math
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from filelock import FileLock
from typer.testing import CliRunner

from labkit.errors import DataError
from labkit.lab.runs import RunRefused
from reproduction import results, rtrl_online, units
from reproduction.command import CHECKOUT as ROOT, app
from reproduction.studies import find_studies, find_study, studies

ALL = studies()


def small(name):
    """The study with one unit of seconds."""
    return replace(ALL[name], units={"small": ALL[name].small})


def do(name, folder, cut=False, until=math.inf):
    """Do the small unit; if ``cut``, be killed as soon as a state is saved.

    Or when all is computed and nothing written, where no state is.
    """

    def killed(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def save(checkpoint, state, *name, **_):
        saved(checkpoint, state, *name, now=True)
        if cut:
            killed()

    saved = units.Checkpoint.save
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units.Checkpoint, "save", save)
        if cut:
            patch.setattr(units.results, "append", killed)
        patch.setattr(units, "find_study", small)
        return units.do_unit(name, "small", folder / "results", folder, until=until)


def rows_in(name, folder, place="results"):
    header, rows = results.read(small(name), folder / place)
    kept = [each for each in rows if not each.startswith("seconds")]
    filled = [row[row != ""].to_dict() for _, row in rows[kept].iterrows()]
    return header["small"], filled


def goes_on(name, cut, whole):
    """A second process finishes the unit; return its rows, those of an uncut one."""
    assert not results.path_of(small(name), cut / "results").exists()
    assert do(name, cut) == do(name, whole) == units.DONE
    (header, rows), (_, same) = (rows_in(name, each) for each in (cut, whole))
    assert rows == same and rows
    assert len(header["processes"]) == 2 and "goes_on" not in header
    return rows


@pytest.mark.parametrize("name", ALL)
def test_a_unit_that_was_killed_gives_the_same_numbers(name, tmp_path):
    """Where it has saved a state it goes on from there."""
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=do, args=(name, cut, True))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    goes_on(name, cut, whole)
    assert not (cut / name / "small").exists()


@pytest.mark.parametrize("name", ["rtrl/table2-online", "rtrl/fig1-copy"])
def test_a_unit_whose_minutes_are_over_goes_on_to_the_same_numbers(name, tmp_path):
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    with pytest.MonkeyPatch.context() as patch:  # after 75 steps, between two looks
        patch.setattr(rtrl_online, "CHUNK", 25)
        patch.setattr(units, "time", stopped(at=[0.0, 0.0, 0.0, 1.0]))
        assert do(name, cut, until=0.5) == units.OVER
    _, so_far = rows_in(name, cut, units.SO_FAR)
    rows = goes_on(name, cut, whole)
    assert so_far == rows[: len(so_far)] != rows


def stopped(at):
    """The module of time, whose seconds since the epoch are these, one a call."""
    clock = iter(at)
    return SimpleNamespace(**{**vars(time), "time": lambda: next(clock)})


def test_a_run_of_all_images_refuses_a_part_of_them(tmp_path):
    study, states = ALL["rls/fig2b-full"], units.Checkpoint(tmp_path, {})
    with pytest.raises(DataError, match="50,000 training images of digits"):
        study.work(states, **study.units["Adam-0"] | {"data": "digits"})


def test_a_unit_is_not_begun_when_the_minutes_are_over(tmp_path):
    assert do("rtrl/table2-online", tmp_path, until=0.0) == units.OVER
    assert not (tmp_path / "rtrl/table2-online/small").exists()


def test_a_unit_that_is_done_is_not_repeated(tmp_path, monkeypatch):
    name = "broad/first-column"
    do(name, tmp_path)
    found = rows_in(name, tmp_path)

    def work(checkpoint, **_):
        raise AssertionError("done again")

    monkeypatch.setitem(ALL, name, replace(ALL[name], work=work))
    assert do(name, tmp_path) == units.DONE
    assert rows_in(name, tmp_path) == found


def test_a_unit_counts_denormal_numbers_as_zero_and_its_process_does_not(tmp_path):
    def tiny():
        return float(torch.tensor(1e-30) * 1e-10)

    unit = replace(
        small("broad/table2"), work=lambda checkpoint, **_: [{"tiny": tiny()}]
    )
    header, rows = units.done(unit, "small", units.Checkpoint(tmp_path))
    assert (header["denormals"], rows[0]["tiny"]) in (("flushed", 0), ("kept", tiny()))
    assert tiny() > 0


def test_a_unit_computes_on_the_device_that_is_named(tmp_path, monkeypatch):
    """Its state is not taken over by another one, whose bits differ."""

    def work(checkpoint, device="cpu", **_):
        if device != "cpu":
            checkpoint.save({"begun": True}, now=True)
            raise KeyboardInterrupt
        return [{"where": device, "begun": bool(checkpoint.load())}]

    each = replace(small("rtrl/table2-3"), work=work)
    monkeypatch.setattr(units, "find_study", lambda _: each)
    here = each.name, "small", tmp_path / "results", tmp_path
    with pytest.raises(KeyboardInterrupt):
        units.do_unit(*here, "cpu:0")
    with pytest.raises(RunRefused, match=r'"device": "cpu:0".*, not of'):
        units.do_unit(*here)
    assert units.here("cpu:0")["device"].startswith("cpu:0; cpu, ")


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        ("rls/tables1-2", "cpu:0", "computes on the CPU alone, not on 'cpu:0'"),
        ("rtrl/table2-3", "cuda:99", "a device of this torch, got 'cuda:99'"),
    ],
)
def test_a_device_that_cannot_be_used_is_refused(name, device, message, tmp_path):
    options = "--device", device, "--out", str(tmp_path / "out")
    result = CliRunner().invoke(app, ["run", name, *options])
    assert result.exit_code == 2 and message in result.output
    assert not list(tmp_path.iterdir())


def test_a_unit_that_is_at_work_elsewhere_is_left_to_it(tmp_path):
    name = "broad/first-column"
    folder = tmp_path / name
    folder.mkdir(parents=True)
    with FileLock(folder / "small.lock"):
        context = multiprocessing.get_context("fork")
        pipe, there = context.Pipe()
        child = context.Process(target=lambda: there.send(do(name, tmp_path)))
        child.start()
        assert pipe.recv() == units.BUSY
        child.join()


def test_units_whose_names_differ_behind_a_dot_run_at_once(tmp_path, monkeypatch):
    """Of k-0.01-0 and k-0.1-0 the second was taken for the first, at work elsewhere."""

    def work(checkpoint, inner=None):
        here = "broad/first-column", inner, tmp_path / "results", tmp_path
        return [{"found": units.do_unit(*here) if inner else "nothing"}]

    names = {"k-0.01-0": {"inner": "k-0.1-0"}, "k-0.1-0": {}}
    both = replace(ALL["broad/first-column"], units=names, work=work)
    monkeypatch.setattr(units, "find_study", lambda _: both)
    work(None, "k-0.01-0")
    _, rows = results.read(both, tmp_path / "results")
    assert [*rows["found"]] == [units.DONE, "nothing"]


def test_results_stand_in_the_order_of_the_units(tmp_path):
    each = replace(ALL["broad/first-column"], units={"a": {}, "b": {}})
    for unit, value in (("b", 1.0 / 3), ("a", 2)):
        header = {"unit": unit, "arguments": {}}
        results.append(each, tmp_path, header, [{"label": "x", unit: value}])
    lines = results.path_of(each, tmp_path).read_text().splitlines()
    for line, unit in zip(lines[1:3], "ab", strict=True):
        assert line == f'# {{"unit": "{unit}", "arguments": {{}}}}'
    assert lines[3:] == [
        "unit,label,b,a",
        "a,x,,2",
        "b,x,0.3333333,",
    ]
    assert list(results.read(each, tmp_path)[0]) == ["a", "b"]


def test_a_name_that_there_is_not_is_refused():
    with pytest.raises(RunRefused, match="unknown study 'broad/x'; there are broad/"):
        find_study("broad/x")
    for verb in ("run", "list", "show"):
        result = CliRunner().invoke(app, [verb, "x"])
        assert result.exit_code == 2 and "unknown study 'x'" in result.output
    for name in ("broad/table2", "broad"):
        result = CliRunner().invoke(app, ["run", name, "--units", "x"])
        assert result.exit_code == 2
        assert f"no unit of {name} matches 'x': " in result.output
        assert "seed-0, seed-1, seed-2" in result.output


def test_a_unit_has_one_thread(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_THREADS", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        do("rls/tables1-2", tmp_path)
    finally:
        torch.set_num_threads(threads)
    assert rows_in("rls/tables1-2", tmp_path)[0]["threads"] == 1


@pytest.mark.parametrize("name", ALL)
def test_an_experiment_says_what_it_is(name):
    each = ALL[name]
    room = each.work.__module__.removeprefix("reproduction.")
    assert (ROOT / f"reproduction/{room}.py").is_file()  # so that workers find it
    assert room.startswith(name.split("/")[0])
    assert each.units and each.minutes <= 60 and each.memory <= 12
    assert all(" " not in unit and "/" not in unit for unit in each.units)


def test_list_and_show_tell_of_all_studies_or_those_of_a_paper(tmp_path, monkeypatch):
    """In any folder they read the results of the checkout."""
    monkeypatch.chdir(tmp_path)
    for verb, of_the_paper in ("list", "1 of 1 units done"), ("show", "Criterion: "):
        output = CliRunner().invoke(app, [verb, "rls"]).output
        assert of_the_paper in output and "rls/fig2a-3a" in output
        assert "rtrl/" not in output
        output = CliRunner().invoke(app, [verb, "--results", "none"]).output
        assert all(name in output for name in ALL)
    names = [each.name for each in find_studies(["bpls", "rls/tables1-2", "bpls"])]
    assert names == [name for name in ALL if "bpls/" in name] + ["rls/tables1-2"]
