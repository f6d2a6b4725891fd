"""Every exercise and question: what a learner is given, and what the table says."""

import ast
import inspect
import re
import textwrap

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit.lab import check
from labkit.lab.exercises import Exercise, exercises
from labkit.lab.exercises.running import in_place, text_of
from labkit.lab.runs.page import markdown
from tests import ROOT

STEPS = {n: t for n, t in exercises().items() if isinstance(t, Exercise)}
BOOKS = sorted(ROOT.glob("notebooks/0[1-6]*.ipynb"))
each_step = pytest.mark.parametrize("name", STEPS)


@pytest.mark.parametrize("task", exercises().values(), ids=exercises())
def test_hints_and_solution_lie_folded_in_each_other(task):
    assert len(set(task.hints)) == 3
    assert all(text.endswith((".", "?")) for text in (*task.hints, task.title))
    shown = task.check(...)._repr_markdown_()
    assert task.title in shown and shown.endswith("</details>" + "\n\n</details>" * 3)
    order = [shown.index(text) for text in (*task.hints, task.solution)]
    assert order == sorted(order)
    # An exported page loads no script that typesets what stands between dollars.
    page = markdown(shown, escape=True)
    assert page.count("<details><summary>") == page.count("</details>") == 4
    assert "$" not in page and "&lt;" not in re.sub("<(math|pre).*?</", "", page)


@each_step
def test_the_line_that_is_left_out_is_the_librarys(name):
    task = STEPS[name]
    text = text_of(task.function)
    assert text.count(task.line) == 1 and task.line not in task.open_text
    source = inspect.getsource(inspect.unwrap(task.function))
    assert parts_of(text) == parts_of(textwrap.dedent(source))


def parts_of(text):
    """Return the arguments and statements of a function, without docstring."""
    (node,) = ast.parse(text).body
    body = [
        n for n in node.body if not isinstance(getattr(n, "value", n), ast.Constant)
    ]
    names = [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)]
    return names, [ast.unparse(each) for each in body]


@each_step
def test_every_slip_is_wrong_and_has_its_name(name):
    task = STEPS[name]
    assert len(task.slips) >= 4
    for slip, part, other in task.slips:
        assert task.answer.count(part) == 1
        verdict = check(name, task.filled(task.answer.replace(part, other)))
        assert (verdict.kind, verdict.slip) == ("wrong", slip)
        assert slip in str(verdict)


@each_step
def test_each_theorem_of_an_exercise_fails_for_a_wrong_line(name):
    """A theorem that could not fail would judge nothing."""
    task, held = STEPS[name], []
    for _, part, other in task.slips:
        wrong = task.filled(task.answer.replace(part, other))
        with in_place(task.function, wrong):
            held.append([holds(theorem) for theorem in task.theorems])
    for theorem, column in zip(task.theorems, zip(*held, strict=True), strict=True):
        any_factors = name == "rtrl-uoro-factors" and "unbiased" in str(theorem)
        assert any_factors or not all(column), theorem


def holds(theorem):
    try:
        return theorem().holds
    except Exception:  # a solver that cannot go on
        return False


def test_what_is_unknown_is_named_with_what_is_known():
    with pytest.raises(KeyError, match=r"no exercise 'rls-gain'.*rls-P"):
        check("rls-gain")


# The notebooks


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_its_exercises_open(path):
    """Each step as it is made from the library; all cells run, and nothing fails."""
    cells = {cell.get("id"): cell for cell in nbformat.read(path, as_version=4).cells}
    names = exercises(path.stem[3:])
    shell, kinds = InteractiveShell.instance(), {}

    def judged(name, answer):
        kinds[name] = check(name, answer).kind

    for name, task in names.items():
        assert f"**{task.title.rstrip('.')}" in cells[f"{name}-text"].source
        parts = [f"{name}-step", f"{name}-check"]
        if isinstance(task, Exercise):
            assert cells[parts[0]].source == task.open_text.rstrip("\n")
        else:
            parts = [f"{name}-answer"]
        for part in parts:
            shell.user_ns["check"] = judged
            shell.run_cell(cells[part].source).raise_error()
    assert kinds == dict.fromkeys(names, "open")
    there = {i.rpartition("-")[0] for i in cells if i.endswith(("-check", "-answer"))}
    assert there == names.keys()


@each_step
def test_a_cell_solves_its_exercise_with_the_cells_own_imports(name):
    task, space = STEPS[name], {}
    exec(task.open_text.replace(task.blank, task.answer), space)
    verdict = check(name, space[task.function.__name__])
    assert verdict.right, verdict
    assert not {"check", "trying", "display"} & space.keys()
