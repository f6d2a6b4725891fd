"""Student versions and their grades: a row for each, whatever a submission does."""

import csv

import nbformat
import pytest
from typer.testing import CliRunner

from labkit.lab.command import app
from labkit.lab.exercises import Exercise, check
from labkit.lab.exercises.grading import grade_folder, grades
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


@pytest.mark.long
def test_every_submission_gets_its_row(tmp_path):
    for name, (lines, _) in SUBMITTED.items():
        nbformat.write(with_lines(lines), tmp_path / f"{name}.ipynb")
    rows = grade_folder(tmp_path, seconds=6, megabytes=600, workers=2)
    kinds = {row.submission.removesuffix(".ipynb"): row.kind for row in rows}
    assert kinds == {name: kind for name, (_, kind) in SUBMITTED.items()}
    assert [row.submission for row in rows if row.points] == ["right.ipynb"]
    (wrong,) = (row for row in rows if row.kind == "wrong")
    assert wrong.slip == "sign" and wrong.seed == 7 and wrong.exercise == ONE


def run(*words):
    """Call ``labkit exercise``."""
    return CliRunner().invoke(app, ["exercise", *map(str, words)])


def handed_in(path):
    """Write what a learner does with a version: a step each right, wrong, open, fatal.

    What was judged before the crash counts.
    """
    book = nbformat.read(path, as_version=4)
    right, wrong, _, fatal = book.metadata["labkit"]["exercises"]
    step(book, right).source = exercise(right, 7).solved_text
    step(book, wrong).source = SUBMITTED["wrong"][0]
    crash = "):\n    import os\n    os._exit(1)\n"
    step(book, fatal).source = exercise(fatal, 7).solved_text.replace("):\n", crash, 1)
    nbformat.write(book, path)


def test_the_command_lists_makes_and_grades(tmp_path):
    """Among what is graded are a cell that never ends and files that are no version."""
    assert "rtrl-ok-u" in run("list").output
    names = ["bpls-ridge", ONE, "rls-P", "rtrl-ok-u"]
    made = run("make", *names, "--seed", 7, "--seed", 8, "--out", tmp_path)
    assert made.exit_code == 0, made.output
    handed_in(tmp_path / "version-7.ipynb")
    (tmp_path / "version-8.ipynb").write_text('{"cells": [')
    (tmp_path / "other.ipynb").write_text('{"cells": [], "metadata": {}}')
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints/right.ipynb").write_text("")
    for name in ("endless cell", "eats memory"):
        nbformat.write(with_lines(SUBMITTED[name][0]), tmp_path / f"{name}.ipynb")
    limits = ["--seconds", 4, "--megabytes", 600, "--workers", 2]
    graded = run("grade", tmp_path, *limits)
    assert graded.exit_code == 0 and "5 submissions: 2 unreadable" in graded.output
    with (tmp_path / "grades.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["submission"], row["kind"]) for row in rows] == [
        ("eats memory.ipynb", "memory"),
        ("endless cell.ipynb", "time"),
        ("other.ipynb", "unreadable"),
        *(("version-7.ipynb", kind) for kind in ("right", "wrong", "open", "ended")),
        ("version-8.ipynb", "unreadable"),
    ]
    mine = rows[3:7]
    assert [row["exercise"] for row in mine] == names
    assert [row["points"] for row in mine] == ["1", "0", "0", "0"]
    assert {row["seed"] for row in mine} == {"7"} and mine[1]["slip"] == "sign"


def test_what_the_command_cannot_do_is_refused(tmp_path):
    for words in (("make", "rls-nothing"), ("grade", tmp_path / "none")):
        assert run(*words).exit_code == 2
    (tmp_path / "bare").mkdir()
    assert "no notebook" in run("grade", tmp_path / "bare").output
