"""Right answers in any form are right, wrong ones are told by what is wrong with them.

The rows are those of :mod:`tests.lab.exercises.cases`.
"""

import linecache
import textwrap

import pytest

from labkit.lab import check
from labkit.lab.exercises import exercise
from tests.lab.exercises.cases import RIGHT, RIGHT_ANSWERS, WRONG, WRONG_ANSWERS

SLIPS = [(name, *row) for name, rows in WRONG.items() for row in rows]
OTHERS = [(name, *row) for name, rows in WRONG_ANSWERS.items() for row in rows]


def written(name, lines):
    """Return the function of a cell in which some lines stand in the blank's place."""
    task = exercise(name)
    before = task.open_text.partition(task.blank)[0]
    indent = " " * (len(before) - len(before.rstrip(" ")))
    text = task.open_text.replace(task.blank, textwrap.indent(lines, indent).lstrip())
    file, space = f"<cell {hash(text)}>", {}
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), space)
    return space[task.function.__name__]


@pytest.mark.parametrize(
    ("name", "lines"), [(name, row) for name, rows in RIGHT.items() for row in rows]
)
def test_a_right_line_is_right_in_any_form(name, lines):
    told = check(name, written(name, lines))
    assert told.right, told


@pytest.mark.parametrize(("name", "lines", "kind", "words"), SLIPS)
def test_a_wrong_line_is_wrong_and_its_slip_is_named(name, lines, kind, words):
    told = check(name, written(name, lines))
    assert told.kind == ("wrong" if kind == "slip" else kind), told
    assert words in (told.slip if kind == "slip" else told.text), told
    assert bool(told.slip) == (kind == "slip"), told


def test_there_are_ten_of_each():
    assert RIGHT.keys() == WRONG.keys() and len(RIGHT) == 10
    assert min(len({*rows}) for rows in (*RIGHT.values(), *WRONG.values())) >= 10
    assert RIGHT_ANSWERS.keys() == WRONG_ANSWERS.keys() and len(RIGHT_ANSWERS) == 8


@pytest.mark.parametrize("name", RIGHT_ANSWERS)
def test_an_answer_is_right_however_it_is_written(name):
    for answer in RIGHT_ANSWERS[name]:
        told = check(name, answer)
        assert told.right, told


@pytest.mark.parametrize(("name", "answer", "kind", "words"), OTHERS)
def test_another_answer_is_told_by_the_run(name, answer, kind, words):
    told = check(name, answer)
    assert told.kind == kind and words in told.text, told
