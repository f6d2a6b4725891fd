"""What a saved state and a file of results belong to, and what is refused."""

import os
import pickle
import resource
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from labkit.lab.runs import RunRefused, jobs
from labkit.lab.runs.jobs import Checkpoint
from reproduction import results, units
from reproduction.command import RESULTS, app
from reproduction.studies import find_study, studies

NAME = "broad/first-column"
STUDY = find_study(NAME)
BELONGS = {"study": "a/b", "arguments": {"rate": 0.1, "sizes": (1, 2)}}
STATE = {"net": {"weight": torch.ones(3)}, "rows": [{"loss": float("nan")}], "at": 3}


@pytest.fixture
def saved(tmp_path):
    checkpoint = Checkpoint(tmp_path / "unit", BELONGS)
    checkpoint.save(STATE, now=True)
    return checkpoint


def refused(checkpoint, message):
    with pytest.raises(RunRefused, match=message) as caught:
        checkpoint.load()
    text = str(caught.value)
    assert str(checkpoint.folder) in text and "\n" not in text
    assert "remove the folder" in text


@pytest.mark.parametrize(
    "belongs",
    [
        BELONGS | {"arguments": {"rate": 1.0, "sizes": (1, 2)}},
        BELONGS | {"study": "a/c"},
    ],
)
def test_a_state_of_something_else_is_refused(saved, belongs):
    message = r'it is of {.*"rate": 0.1, .*"a/b"}, not of {.*'
    refused(Checkpoint(saved.folder, belongs), message)


def test_a_damaged_state_is_refused_wherever_a_bit_is_another(saved):
    path = saved.folder / "state.pt"
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            weight = saved.load()["net"]["weight"]
        except RunRefused:
            continue
        assert torch.equal(weight, torch.ones(3))  # what no one reads was damaged
    for cut in (b"", whole[:-9], whole[: len(whole) // 2]):
        path.write_bytes(cut)
        refused(saved, r"state\.pt cannot be taken up")


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


def test_no_code_in_a_state_is_run(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved.save({"x": Evil()}, now=True)
    refused(saved, r"cannot be taken up: Weights only load failed")
    (saved.folder / "state.pt").write_bytes(pickle.dumps(Evil()))
    refused(saved, "cannot be taken up")
    assert not (tmp_path / "evil").exists()


def test_the_old_state_stays_until_the_new_one_is_there(saved, monkeypatch):
    def fall(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(jobs.os, "replace", fall)
        saved.save(STATE | {"at": 4}, now=True)
    again = Checkpoint(saved.folder, BELONGS).load()
    assert torch.equal(again["net"]["weight"], torch.ones(3)) and again["at"] == 3
    saved.save(STATE | {"at": 5}, now=True)
    assert saved.load()["at"] == 5
    assert [path.name for path in saved.folder.iterdir()] == ["state.pt"]


def test_a_full_disk_is_told_and_leaves_the_last_state(saved):
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, kept[1]))
    try:
        with pytest.raises(OSError, match=r"cannot be written to .*; make room there"):
            saved.save({"x": torch.zeros(100_000)}, now=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert saved.load()["at"] == 3


# Units


@pytest.fixture
def two(tmp_path, monkeypatch):
    """A study of two units, and a function that carries them out here."""
    study = replace(STUDY, units={"a": STUDY.small, "b": STUDY.small | {"seeds": [2]}})

    def run(study=study):
        monkeypatch.setattr(units, "find_study", lambda _: study)
        outcomes = {}
        for unit, outcome in units.run(study, study.units, tmp_path / "r", tmp_path):
            outcomes[unit] = outcome
        return outcomes

    monkeypatch.setattr(units, "carry_out", one_by_one)
    run.study, run.folder = study, tmp_path
    run.results = results.path_of(study, tmp_path / "r")
    return run


def one_by_one(function, calls, **_):
    for number, arguments in calls.items():
        try:
            yield number, function(*arguments)
        except Exception as error:
            yield number, error


def test_a_unit_with_a_bad_state_is_refused_and_blocks_no_other(two):
    folder = two.folder / NAME / "a"
    folder.mkdir(parents=True)
    (folder / "gram-0.pt").write_text("{")
    outcomes = two()
    assert outcomes["b"] == units.DONE and "cannot be taken up" in outcomes["a"]
    assert outcomes["a"].endswith(f"remove the folder {folder} to begin this job anew")
    assert two()["a"] == outcomes["a"] and "b" not in two()


def test_results_of_other_arguments_are_refused(two):
    two()
    changed = two.study.units | {"a": two.study.units["a"] | {"seeds": [7]}}
    ended = two(replace(two.study, units=changed))
    assert [*ended] == ["a"]
    assert ended["a"].startswith("REFUSED: a was computed with ")
    assert "'seeds': [0, 1]" in ended["a"] and "'seeds': [7]" in ended["a"]


def test_every_process_that_worked_on_a_unit_is_listed(two, monkeypatch):
    folder = two.folder / NAME / "a"
    earlier = Checkpoint(folder, {"study": NAME} | units.belonging(two.study, "a"))
    monkeypatch.setattr(jobs, "commit", lambda: "0123456789")
    earlier.begin()
    monkeypatch.setattr(jobs, "commit", lambda: "abcdefabcd+")
    monkeypatch.setattr(units, "commit", lambda: "abcdefabcd+")
    two()
    headers, _ = results.read(two.study, two.folder / "r")
    commits = [process["commit"] for process in headers["a"]["processes"]]
    assert commits == ["0123456789", "abcdefabcd+"]
    assert {"began", "versions"} <= headers["a"]["processes"][0].keys()
    assert headers["a"]["commit"] == "abcdefabcd+" and "processes" not in headers["b"]


# Before the work begins


def command(*arguments, folder):
    options = ["--results", str(folder / "r"), "--out", str(folder / "out")]
    return CliRunner().invoke(app, [*arguments, *options])


@pytest.fixture
def no_work(monkeypatch):
    def work(*_, **__):
        raise AssertionError("work was begun")

    monkeypatch.setattr(units, "carry_out", work)


FILE, LINE = f"r/{NAME}.csv", '#\n# {"unit": "draws-00", "arguments": {}}\n'


@pytest.mark.parametrize(
    ("place", "text", "message"),
    [
        (FILE, "#\n# {unit\n", "Expecting property name"),
        (FILE, f"{LINE}unit,label\ndraws-00,1\ndraws-00,x,y\n", "Expected 2 fields"),
        ("r", "a file", "r is not a folder"),
        ("out", "a file", "out is not a folder"),
    ],
)
def test_what_takes_no_results_is_refused_before_the_work(
    tmp_path, no_work, place, text, message
):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    answer = command("run", NAME, folder=tmp_path)
    assert answer.exit_code == 2 and message in answer.stderr
    assert str(path) in answer.stderr and len(answer.stderr.splitlines()) == 1
    if place == FILE:
        listed = CliRunner().invoke(app, ["list", "--results", str(tmp_path / "r")])
        assert listed.exit_code == 2 and message in listed.stderr


def test_without_git_nothing_is_begun(tmp_path, no_work, monkeypatch):
    monkeypatch.setattr(units, "commit", lambda: None)
    answer = command("run", NAME, folder=tmp_path)
    assert answer.exit_code == 2 and "install git, or work in a clone" in answer.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_read_only_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs.os, "access", lambda *_: False)
    with pytest.raises(RunRefused, match=f"{tmp_path} is not a folder that takes"):
        jobs.check_folder(tmp_path / "results")


@pytest.mark.parametrize("name", studies())
def test_recorded_results_are_of_the_arguments_that_there_are_now(name):
    study = find_study(name)
    recorded, rows = results.read(study, RESULTS)
    assert {*rows["unit"]} == set(recorded)
    assert not any(results.difference(study, each) for each in recorded.values())
