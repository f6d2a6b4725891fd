"""Right answers in any form are right, wrong ones are told by what is wrong with them.

``lines.txt`` has for each exercise what learners may write in the place of the blank,
below a line with what the judgement has to be: ``right``, or a kind and words of the
text. ``slip`` is the kind of a wrong answer whose slip has these words; any other has
no slip.
"""

import linecache
import re
import textwrap
from pathlib import Path

import pytest

from labkit.lab import check
from labkit.lab.exercises import exercise, exercises
from tests.lab.exercises.questions import RIGHT_ANSWERS, WRONG_ANSWERS

TEXT = Path(__file__).with_name("lines.txt").read_text("utf-8")
PARTS = [part.partition("\n") for part in TEXT.split("======== ")[1:]]
CASES = [
    (name, *found)
    for name, _, rows in PARTS
    for found in re.findall(r"---- (\w+):? ?(.*)\n((?:(?!----).*\n)+)", rows)
]
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


@pytest.mark.parametrize(("name", "kind", "words", "lines"), CASES)
def test_what_is_written_in_the_blank_is_judged(name, kind, words, lines):
    verdict = check(name, written(name, lines))
    assert verdict.kind == {"slip": "wrong"}.get(kind, kind), verdict
    assert words in (verdict.slip if kind == "slip" else verdict.text), verdict
    assert bool(verdict.slip) == (kind == "slip"), verdict


def test_every_exercise_has_right_and_wrong_answers():
    for right in (True, False):
        names = {name for name, kind, *_ in CASES if (kind == "right") == right}
        questions = RIGHT_ANSWERS if right else WRONG_ANSWERS
        assert names | questions.keys() == exercises().keys()


@pytest.mark.parametrize("name", RIGHT_ANSWERS)
def test_an_answer_is_right_however_it_is_written(name):
    for answer in RIGHT_ANSWERS[name]:
        verdict = check(name, answer)
        assert verdict.right, verdict


@pytest.mark.parametrize(("name", "answer", "kind", "words"), OTHERS)
def test_another_answer_is_told_by_the_run(name, answer, kind, words):
    verdict = check(name, answer)
    assert verdict.kind == kind and words in verdict.text, verdict
