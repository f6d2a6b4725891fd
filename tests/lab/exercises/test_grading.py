"""Student versions and their grades: a row for each, whatever a submission does."""

import csv

import nbformat
import pytest
from typer.testing import CliRunner

from labkit.lab.command import app
from labkit.lab.exercises import Exercise, check
from labkit.lab.exercises.grading import grade, grade_folder, grades, submissions
from labkit.lab.exercises.student import chosen, student_version
from labkit.lab.exercises.versions import draw
from labkit.lab.exercises.words import exercise

SAMPLE = (0, 7, 41)
ONE = "rls-gain"


def solved(seed, names=()):
    """Return a version with the library's own lines in all steps."""
    book = student_version(seed, names)
    for name in book.metadata["labkit"]["exercises"]:
        step(book, name).source = exercise(name, seed).solved_text
    return book


def step(book, name):
    (cell,) = (cell for cell in book.cells if cell.id == f"{name}-step")
    return cell


def with_lines(lines, name=ONE, seed=7):
    """Return a version of one exercise, with lines in the place of its step."""
    book = student_version(seed, [name])
    step(book, name).source = lines
    return book


def assert_gradable(seed, path):
    """The open version has open exercises alone, and the solved one right ones."""
    for book, kind in ((student_version(seed), "open"), (solved(seed), "right")):
        nbformat.validate(book)
        nbformat.write(book, path)
        rows = list(grades(path, seed, chosen(seed)))
        assert [row["exercise"] for row in rows] == chosen(seed)
        assert {row["kind"] for row in rows} == {kind}, rows


@pytest.mark.parametrize("seed", SAMPLE)
def test_a_seed_gives_a_version_that_can_be_graded(seed, tmp_path):
    assert_gradable(seed, tmp_path / "version.ipynb")


@pytest.mark.long
def test_a_hundred_seeds_give_a_hundred_versions(tmp_path):
    texts = set()
    for seed in range(100):
        assert_gradable(seed, tmp_path / "version.ipynb")
        texts.add(str([exercise(name, seed).theorems for name in chosen(seed)]))
    assert len(texts) == 100


def test_sizes_constants_and_equations_are_drawn():
    assert len({tuple(chosen(seed)) for seed in range(30)}) > 20
    said = {
        check(ONE, solve=True, seed=seed).judgement.findings[1].example
        for seed in range(9)
    }
    assert len(said) == 9
    bounds = {"n": (4, 8), "m": (4, 8), "ridge": (0.5, 0.9)}
    for seed in range(50):
        values = draw(bounds, seed)
        assert all(low <= values[k] <= high for k, (low, high) in bounds.items())
        assert values["n"] != values["m"] and values == draw(bounds, seed)


def test_a_version_is_a_notebook_of_its_seed():
    book = student_version(7)
    assert book == student_version(7) and book.cells[0].source.startswith("# Write")
    assert len(book.metadata["labkit"]["exercises"]) == 5
    for name in book.metadata["labkit"]["exercises"]:
        found = exercise(name)
        assert isinstance(found, Exercise)
        assert step(book, name).source == found.open_text.rstrip("\n")


def test_nbgrader_finds_its_metadata():
    book = student_version(7, [ONE], nbgrader=True)
    ours = [c.metadata["nbgrader"] for c in book.cells if "nbgrader" in c.metadata]
    assert [each["solution"] for each in ours] == [True, False]
    assert [each["grade"] for each in ours] == [False, True] and ours[1]["points"] == 1
    assert len({each["grade_id"] for each in ours}) == 2


def test_two_steps_of_one_name_are_told_apart(tmp_path):
    names, path = ["rtrl-uoro-factors", "rtrl-uoro-mix"], tmp_path / "both.ipynb"
    book = solved(3, names)
    first = step(book, names[0])
    first.source = first.source.replace("balance(norm(v, 2)", "2 * balance(norm(v, 2)")
    nbformat.write(book, path)
    assert [row["kind"] for row in grades(path, 3, names)] == ["wrong", "right"]


RIGHT = exercise(ONE).solved_text
HEADER = "def gain(P, x_mean, *, forgetting=1.0, mean_weight=0.1, steps=1):\n"
SUBMITTED = {
    "right": (RIGHT, "right"),
    "wrong": (RIGHT.replace("P @ x_mean", "-P @ x_mean"), "wrong"),
    "open": (exercise(ONE).open_text, "open"),
    "empty": ("", "missing"),
    "no python": ("def gain(:", "missing"),
    "raises": ("raise SystemExit('away')", "missing"),
    "crashes": ("import os\nos._exit(3)", "ended"),
    "killed": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "ended"),
    "endless cell": ("while True:\n    pass", "time"),
    "endless step": (f"{HEADER}    while True:\n        pass", "error"),
    "eats memory": ("x = 'labkit'\nwhile True:\n    x += x", "memory"),
    "eats in the step": (f"{HEADER}    return bytearray(10**12), 1", "memory"),
    "tensor": (f"{HEADER}    return torch.zeros(10**11), 1\nimport torch", "memory"),
}


# Of those that take long, each in a process of its own; a crash has a test below.
FEW = ("right", "wrong", "endless cell", "eats memory")


ALL = pytest.param(SUBMITTED, marks=pytest.mark.long)


@pytest.mark.parametrize("names", [FEW, ALL], ids=["few", "all"])
def test_every_submission_gets_its_row(names, tmp_path):
    submitted = {name: SUBMITTED[name] for name in names}
    for name, (lines, _) in submitted.items():
        nbformat.write(with_lines(lines), tmp_path / f"{name}.ipynb")
    (tmp_path / "torn.ipynb").write_text('{"cells": [')
    (tmp_path / "other.ipynb").write_text('{"cells": [], "metadata": {}}')
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints/right.ipynb").write_text("")
    rows = grade_folder(tmp_path, seconds=6, megabytes=600, workers=2)
    kinds = {row.submission.removesuffix(".ipynb"): row.kind for row in rows}
    wanted = {name: kind for name, (_, kind) in submitted.items()}
    assert kinds == wanted | {"torn": "unreadable", "other": "unreadable"}
    assert [row.submission for row in rows if row.points] == ["right.ipynb"]
    (wrong,) = (row for row in rows if row.kind == "wrong")
    assert wrong.slip == "sign" and wrong.seed == 7 and wrong.exercise == ONE


def test_what_was_judged_before_a_crash_counts(tmp_path):
    book = solved(7, [ONE, "rtrl-ok-u"])
    crash = "    import os\n    os._exit(1)\n"
    last = step(book, "rtrl-ok-u")
    head, body = last.source.split("):\n", 1)
    last.source = f"{head}):\n{crash}{body}"
    nbformat.write(book, tmp_path / "half.ipynb")
    rows = grade(tmp_path / "half.ipynb", tmp_path)
    assert [row.kind for row in rows] == ["right", "ended"]


def test_the_command_lists_makes_and_grades(tmp_path):
    run = lambda *words: CliRunner().invoke(app, ["exercise", *map(str, words)])  # noqa: E731
    assert "rtrl-ok-u" in run("list").output
    made = run("make", ONE, "--seed", 7, "--seed", 8, "--out", tmp_path / "new")
    assert made.exit_code == 0, made.output
    assert len(submissions(tmp_path / "new")) == 2
    graded = run("grade", tmp_path / "new", "--workers", 2)
    assert graded.exit_code == 0 and "2 submissions: 2 open" in graded.output
    with (tmp_path / "new/grades.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["seed"] for row in table] == ["7", "8"]
    assert {row["exercise"] for row in table} == {ONE}
    for words in (("make", "rls-nothing"), ("grade", tmp_path / "none")):
        assert run(*words).exit_code == 2
    (tmp_path / "bare").mkdir()
    assert "no notebook" in run("grade", tmp_path / "bare").output
