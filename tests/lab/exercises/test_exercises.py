"""Every exercise: what a learner is given, and that right answers are right."""

import re
from functools import cache
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit.lab.exercises import Exercise, exercise, exercises, hint, judge, solution
from labkit.lab.exercises.blank import compiled
from labkit.lab.exercises.shown import Checked, folded
from labkit.lab.exercises.words import check

STEPS = {n: e for n, e in exercises().items() if isinstance(e, Exercise)}
each_step = pytest.mark.parametrize("found", STEPS.values(), ids=STEPS)


def test_a_paper_has_two_steps_or_more():
    for room in ("rls", "bpls", "broad"):
        assert sum(name.startswith(f"{room}-") for name in STEPS) >= 2


@pytest.mark.parametrize("found", exercises().values(), ids=exercises())
def test_it_has_three_hints_in_whole_sentences(found):
    assert len(found.hints) == 3 and len(set(found.hints)) == 3
    assert all(text.endswith((".", "?")) for text in (*found.hints, found.title))


@each_step
def test_its_imports_take_no_word_of_the_notebook(found):
    """`labkit.check.check` in the place of `check` would judge nothing."""
    space = {}
    exec(compile(found.open_text, found.name, "exec"), space)
    assert not {"check", "hint", "solution", "done", "display"} & space.keys()


def test_a_name_means_one_thing_in_the_steps_of_a_version():
    """A version has a step of each paper, and later imports would hide earlier ones."""
    meanings = {}
    for name, found in STEPS.items():
        space = {}
        exec(compile(found.open_text, name, "exec"), space)
        del space["__builtins__"], space[found.function.__name__]
        for word, meant in space.items():
            assert meanings.setdefault(word, meant) is meant, f"{word} in {name}"


@each_step
def test_the_open_step_is_open_and_nothing_fails(found):
    told = check(found.name, compiled(found.open_text, found.function, "open"))
    assert told.judgement.kind == "open" and not told.right
    assert check(found.name).judgement.kind == "open"


@each_step
def test_the_librarys_own_line_is_right(found):
    """What ``solve`` judges, the same lines as a text, is solved in the notebooks."""
    assert check(found.name, found.function).right


@each_step
def test_a_plain_way_to_write_it_is_right(found):
    told = judge(found, compiled(found.plain_text, found.function, "plain"))
    assert told.right, told.text


@each_step
def test_its_example_repeats(found):
    again = [[each.tolist() for each in found.example()] for _ in range(2)]
    assert again[0] == again[1]


THEOREMS = {t: [] for e in STEPS.values() for t in e.theorems}
for _found in STEPS.values():
    for _theorem in _found.theorems:
        THEOREMS[_theorem].append(_found)


# Every other slip in OK treats each sequence alike, or ends in LAPACK's own error.
FIRST = {"rtrl-ok-u": ("u = ...", "u = X[:1].mT @ u")}


def slips(found):
    """Return the texts of an exercise's wrong answers."""
    own = [found.open_text.replace(*FIRST[found.name])] if found.name in FIRST else []
    return [mutant.text for mutant in found.mutants()] + own


@cache
def violated(found, text):
    """Return the theorems of an exercise that one of its wrong answers violates."""
    told = judge(found, compiled(text, found.function, "mutant"))
    pairs = zip(found.theorems, told.findings, strict=False)
    return {theorem for theorem, each in pairs if not each.holds}


@pytest.mark.parametrize("found", STEPS.values(), ids=STEPS)
def test_an_exercise_has_a_theorem_that_its_slips_violate(found):
    assert any(violated(found, text) for text in slips(found))


each_theorem = pytest.mark.parametrize("theorem", THEOREMS, ids=range(len(THEOREMS)))


@each_theorem
def test_a_theorem_repeats(theorem):
    assert theorem().found.tolist() == theorem().found.tolist()


@each_theorem
def test_a_theorem_can_fail(theorem):
    """A slip violates it, in one of the exercises that name it.

    Not in each of them: UORO is unbiased with any factors, and its mixing decides.
    """
    wrong = ((found, text) for found in THEOREMS[theorem] for text in slips(found))
    assert any(theorem in violated(*each) for each in wrong)


BOOKS = sorted(Path(__file__).parents[3].glob("notebooks/*.ipynb"))


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_steps_as_they_are(path):
    cells = {cell.get("id"): cell for cell in nbformat.read(path, as_version=4).cells}
    tagged = [c for c in cells.values() if "exercise" in c.metadata.get("tags", [])]
    for cell in tagged:
        name = cell.id.removesuffix("-step")
        assert cell.source == exercise(name).open_text.rstrip("\n")
    if path.stem != "06_compare" and path.stem != "00_tour":
        assert len(tagged) >= 2


def judged(cells, solved=False):
    """Run a notebook's exercises and questions, and return the judgements by name.

    With ``solved``, the library's lines and the answers of the runs are put in.
    """
    found, shell = {}, InteractiveShell.instance()

    def judging(name, answer=...):
        question = solved and not isinstance(exercise(name), Exercise)
        found[name] = check(name, answer, solve=question).judgement

    for cell in cells:
        tags, source = cell.metadata.get("tags", []), cell.source
        if solved and "exercise" in tags:
            source = exercise(cell.id.removesuffix("-step")).solved_text
        if {"exercise", "check"} & {*tags} or cell.id.endswith("-answer"):
            shell.user_ns["check"] = judging
            shell.run_cell(source).raise_error()
    return found


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebooks_exercises_are_open_and_can_be_solved(path):
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.get("id")]
    told, right = judged(cells), judged(cells, solved=True)
    assert {each.kind for each in told.values()} <= {"open"}
    assert all(each.right for each in right.values()) and told.keys() == right.keys()


def test_every_question_stands_in_a_notebook():
    ids = [c.get("id", "") for p in BOOKS for c in nbformat.read(p, as_version=4).cells]
    asked = [i.removesuffix("-answer") for i in ids if i.endswith("-answer")]
    assert sorted(asked) == sorted(exercises().keys() - STEPS.keys())


def test_hints_come_in_order_and_then_the_line():
    found = exercise("broad-rinv")
    said = [hint("broad-rinv").text for _ in range(4)]
    assert [text[:15] for text in said] == [f"**Hint {i} of 3.*" for i in (1, 2, 3, 3)]
    assert "solution" in said[2] and found.hints[2] in said[2]
    assert "with_ridge(" in solution("broad-rinv").text


def test_on_a_page_hints_lie_folded_in_each_other():
    page = folded(exercise("rls-gain"))
    order = [
        page.index(f"<summary>{each}") for each in ("Hint 1", "Hint 3", "Solution")
    ]
    assert order == sorted(order) and page.count("<details>") == 4
    assert page.endswith("</details>" * 4) and "u = P @ x_mean" in page


def test_on_a_page_formulas_are_mathml():
    """An exported page loads no script that typesets what stands between dollars."""
    for found in exercises().values():
        page = folded(found)
        assert "$" not in page and "\\" not in re.sub("<code>.*?</code>", "", page)
    assert "<code>ridge</code> is <math" in folded(exercise("broad-chol2"))


def test_what_is_unknown_is_named_with_what_is_known():
    with pytest.raises(KeyError, match=r"no exercise 'rls-nothing'.*rls-gain"):
        check("rls-nothing")


def test_a_wrong_answer_is_drawn_beside_the_wanted_one():
    found = exercise("rls-P")
    text = found.open_text.replace("...  # (37)", "P / forgetting  # (37)")
    told = check("rls-P", compiled(text, found.function, "wrong"))
    assert isinstance(told, Checked) and told.judgement.kind == "wrong"
    assert told.judgement.slip == "missing term"
    titles = [each["text"] for each in told.figure()["layout"]["annotations"]]
    assert "your P_new" in str(titles) and "wanted P_new" in str(titles)
    assert check("rls-P", solve=True).figure() is None


def test_the_three_words_are_the_labs():
    from labkit import lab

    assert lab.check is check and lab.hint is hint and lab.solution is solution
