"""What a saved state and a file of results belong to, and what is refused."""

import os
import pickle
import resource
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from labkit.lab.runs import RunRefused, jobs
from labkit.lab.runs.jobs import Checkpoint
from reproduction import results, show, units
from reproduction.command import app
from reproduction.studies import find_study

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
    said = str(caught.value)
    assert str(checkpoint.folder) in said and "\n" not in said
    assert "remove the folder" in said


def test_a_state_comes_back(saved):
    again = Checkpoint(saved.folder, BELONGS).load()
    assert torch.equal(again["net"]["weight"], torch.ones(3)) and again["at"] == 3


@pytest.mark.parametrize(
    "belongs",
    [
        BELONGS | {"arguments": {"rate": 1.0, "sizes": (1, 2)}},
        BELONGS | {"study": "a/c"},
        BELONGS | {"version": 2},
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
    assert saved.load()["at"] == 3
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
        told = {}
        for unit, outcome in units.run(study, study.units, tmp_path / "r", tmp_path):
            told[unit] = outcome
        return told

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
    (folder / "state.pt").write_text("{")
    told = two()
    assert told["b"] == units.DONE and "cannot be taken up" in told["a"]
    assert told["a"].endswith(f"remove the folder {folder} to begin this job anew")
    assert two()["a"] == told["a"] and "b" not in two()


def test_a_state_of_other_arguments_is_refused(two):
    """The unit was stopped, and then the table of units was edited."""
    edited = two.study.units["a"] | {"seeds": [5]}
    belongs = {"study": NAME, "unit": "a", "arguments": edited}
    Checkpoint(two.folder / NAME / "a", belongs).save({"rows": [{}] * 8}, now=True)
    told = two()
    assert '"seeds": [5]' in told["a"] and '"seeds": [0, 1]' in told["a"]
    assert list(results.read(two.results)[0]) == ["b"]


def test_results_of_other_arguments_or_another_version_are_refused(two):
    two()
    changed = two.study.units | {"a": two.study.units["a"] | {"seeds": [7]}}
    told = two(replace(two.study, units=changed))
    words = "a was computed with seeds [0, 1], and it is [7] now"
    assert told == {"a": f"REFUSED: {words}"}
    told = two(replace(two.study, version=2))
    assert "was computed by version 1, and it is 2 now" in told["b"]


def test_every_process_that_worked_on_a_unit_is_listed(two, monkeypatch):
    folder = two.folder / NAME / "a"
    earlier = Checkpoint(folder, {"study": NAME} | units.belonging(two.study, "a"))
    monkeypatch.setattr(jobs, "commit", lambda: "0123456789")
    earlier.begin()
    monkeypatch.setattr(jobs, "commit", lambda: "abcdefabcd+")
    monkeypatch.setattr(units, "commit", lambda: "abcdefabcd+")
    two()
    headers, _ = results.read(two.results)
    commits = [process["commit"] for process in headers["a"]["processes"]]
    assert commits == ["0123456789", "abcdefabcd+"]
    assert {"began", "versions"} <= headers["a"]["processes"][0].keys()
    assert headers["a"]["commit"] == "abcdefabcd+" and "processes" not in headers["b"]


def test_the_commit_is_that_at_the_begin_of_a_unit(two, monkeypatch):
    """Results are committed while units run."""
    now = ["before"]

    def work(checkpoint, **_):
        now[0] = "after"
        return [{"label": "x"}]

    monkeypatch.setattr(units, "commit", lambda: now[0])
    two(replace(two.study, work=work))
    assert results.read(two.results)[0]["a"]["commit"] == "before"


# Before the work begins


def command(*arguments, folder):
    options = ["--results", str(folder / "r"), "--out", str(folder / "out")]
    return CliRunner().invoke(app, [*arguments, *options])


@pytest.fixture
def no_work(monkeypatch):
    def work(*_, **__):
        raise AssertionError("work was begun")

    monkeypatch.setattr(units, "carry_out", work)


def as_folder(path):
    path.mkdir()


def with_text(text):
    return lambda path: path.write_text(text)


LINE = '# {"unit": "draws-00", "arguments": {}}\n'
DAMAGED = {
    "a folder": (as_folder, "cannot be read"),
    "no text": (lambda path: path.write_bytes(b"\xff"), "cannot be read"),
    "a lost line": (with_text("unit,label\ndraws-00,x\n"), "no line on its run"),
    "no JSON": (with_text("# {unit\n"), "line 1 cannot be read"),
    "another line": (with_text('# {"unit": "a"}\n'), "line 1 cannot be read"),
    "a cut row": (with_text(f"{LINE}unit,label\ndraws-00\n"), "too many or few cells"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_results_are_refused_before_the_work(
    tmp_path, no_work, damage, message
):
    path = results.path_of(STUDY, tmp_path / "r")
    path.parent.mkdir(parents=True)
    damage(path)
    told = command("run", NAME, "--units", "draws-10", folder=tmp_path)
    assert told.exit_code == 2 and message in told.stderr
    assert str(path) in told.stderr and len(told.stderr.splitlines()) == 1
    for verb in ("list", "show"):
        shown = CliRunner().invoke(app, [verb, "--results", str(tmp_path / "r")])
        assert shown.exit_code == 2 and message in shown.stderr
        assert "rtrl/fig3" in shown.stdout


def test_without_git_nothing_is_begun(tmp_path, no_work, monkeypatch):
    monkeypatch.setattr(units, "commit", lambda: None)
    told = command("run", NAME, folder=tmp_path)
    assert told.exit_code == 2 and "results name the commit" in told.stderr
    assert "install git, or work in a clone" in told.stderr
    assert not list(tmp_path.iterdir())


def test_a_process_without_git_on_its_path_has_no_commit():
    code = "from labkit.lab.runs.jobs import commit; print(commit())"
    bare = {"PATH": "/nowhere", "PYTHONPATH": str(jobs.SOURCE)}
    told = subprocess.run(
        [sys.executable, "-c", code], env=bare, capture_output=True, text=True
    )
    assert told.stdout == "None\n", told.stderr


@pytest.mark.parametrize("part", ["r", "out"])
def test_a_folder_that_takes_no_files_is_refused(tmp_path, no_work, part):
    (tmp_path / part).write_text("a file")
    told = command("run", "rls/tables1-2", folder=tmp_path)
    assert told.exit_code == 2 and f"{tmp_path / part} is not a folder" in told.stderr


def test_a_folder_is_tried_by_writing(tmp_path, monkeypatch):
    def read_only(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(jobs.tempfile, "TemporaryFile", read_only)
    message = r"not writable \(Read-only file system\); give a folder that is"
    with pytest.raises(RunRefused, match=message):
        jobs.check_folder(tmp_path / "results")


def test_data_that_are_not_here_are_refused(tmp_path, no_work, monkeypatch):
    every = {
        name: replace(info, here=False) for name, info in units.available().items()
    }
    monkeypatch.setattr(units, "available", lambda: every)
    for name, data in (
        (NAME, "mnist"),
        ("rtrl/fig3", "ptb"),
        ("rls/fig2b-3b", "cifar10"),
    ):
        told = command("run", name, folder=tmp_path)
        assert told.exit_code == 2 and f"needs the data set '{data}'" in told.stderr
        assert f"load('{data}')" in told.stderr


def test_a_scheduler_that_is_not_there_is_refused(tmp_path, no_work):
    told = command("run", NAME, "--cluster", "nonsense", folder=tmp_path)
    assert told.exit_code == 2 and "there is no Dask scheduler at 'nons" in told.stderr


# Results from elsewhere


def check(path):
    return CliRunner().invoke(app, ["check", str(path)])


def test_results_that_are_in_order_are_judged_anew(two, monkeypatch):
    for path in sorted(units.SOURCE.glob("reproduction/results/*/*.csv")):
        told = check(path)
        assert told.exit_code == 0, told.output
        study = find_study(results.name_in(path))
        judged = show.judged(study, results.frame(path))
        assert [
            line.split(":")[0].strip() for line in told.output.splitlines()[1:]
        ] == (judged["verdict"].tolist())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"seeds": [0, 1]', '"seeds": [0, 9]', "a was computed with seeds [0, 9]"),
        ('"unit": "a"', '"unit": "z"', "has rows of unit 'a' and no line"),
        ("# labkit", "# lab", "its first line does not name a study"),
        ("run broad/", "run brod/", "unknown study 'brod/first-column'"),
    ],
)
def test_edited_results_from_elsewhere_are_refused(two, monkeypatch, old, new, message):
    two()
    monkeypatch.setattr("reproduction.studies.find_study", lambda name: two.study)
    if "brod" in new:
        monkeypatch.undo()
    text = two.results.read_text()
    assert old in text
    path = two.folder / "elsewhere.csv"
    path.write_text(text)
    if "brod" not in new:
        assert check(path).exit_code == 0
    path.write_text(text.replace(old, new, 1))
    told = check(path)
    assert told.exit_code == 2 and message in told.stderr


def test_a_file_that_is_not_there_is_refused(tmp_path):
    told = check(tmp_path / "none.csv")
    assert told.exit_code == 2 and "there is no file of results at" in told.stderr
