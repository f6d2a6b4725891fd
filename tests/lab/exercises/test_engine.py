"""The parts of an exercise: its blank, its place in the library, limits, slips."""

import ast
import builtins
import inspect
import itertools
import math
import sys
import textwrap
import threading
import time

import pytest
import torch

from labkit.lab.exercises import Exercise, exercises, judge
from labkit.lab.exercises.blank import (
    blanks,
    compiled,
    imports_of,
    is_open,
    names_of,
    text_of,
    with_blank,
)
from labkit.lab.exercises.guard import Stopped, limited
from labkit.lab.exercises.in_place import in_place, plain
from labkit.lab.exercises.mutants import KINDS, mutants
from labkit.lab.exercises.rls import EXERCISES
from labkit.rls import optimizer, update
from labkit.theorems import Finding, rls as theorems

GAIN, NEW_P = EXERCISES[:2]
STEPS = {n: e for n, e in exercises().items() if isinstance(e, Exercise)}


def written(text, function=update.gain, name="hers"):
    """Return a learner's function from its text, as a cell of a notebook defines it."""
    return compiled(textwrap.dedent(text), function, name)


def gain_of(u="P @ x_mean", h="forgetting + mean_weight * steps * (x_mean @ u)"):
    return written(
        f"""
        def gain(P, x_mean, *, forgetting=1.0, mean_weight=0.1, steps=1):
            u = {u}
            h = {h}
            return u, h
        """
    )


# The text


@pytest.mark.parametrize("name", STEPS)
def test_the_cell_is_the_librarys_source(name):
    """Nothing but the docstring, the annotations and the decorators is left out."""
    exercise = STEPS[name]
    source = textwrap.dedent(inspect.getsource(plain(exercise.function)))
    node = ast.parse(source).body[0]
    node.decorator_list, node.returns = [], None
    if ast.get_docstring(node) is not None:
        del node.body[0]
    for each in ast.walk(node.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    assert ast.unparse(ast.parse(exercise.text)) == ast.unparse(node)


@pytest.mark.parametrize("name", STEPS)
def test_the_open_cell_runs_alone_and_lacks_the_equation(name):
    exercise = STEPS[name]
    space = {}
    exec(compile(exercise.open_text, name, "exec"), space)
    assert is_open(exercise.open_text) and not is_open(exercise.solved_text)
    left_out = {ast.unparse(n) for g in blanks(exercise.text, exercise.tags) for n in g}
    kept = {
        ast.unparse(n)
        for n in ast.walk(ast.parse(exercise.open_text))
        if isinstance(n, ast.stmt)
    }
    assert not left_out <= kept
    code = space[exercise.function.__name__].__code__
    assert names_of(code) <= space.keys() | vars(builtins).keys()


def test_imports_are_all_that_the_text_uses():
    assert imports_of(update.rls_step) == (
        "from labkit.rls.update import descend, gain"
    )
    assert imports_of(update.clip_factor) == ""
    assert imports_of(update.loss_one_hot).splitlines()[0] == "import torch"


def test_a_tag_that_no_line_has_is_refused():
    with pytest.raises(LookupError, match="no line is tagged 99"):
        with_blank(text_of(update.gain), ["99"])


# In the library's place


def test_every_module_that_imported_the_name_calls_hers():
    P, x = torch.eye(2), torch.ones(2)
    hers = gain_of(u="P @ x_mean + 1")
    right = update.gain(P, x)[0]
    with in_place(update.gain, hers):
        assert torch.equal(update.gain(P, x)[0], right + 1)
        assert torch.equal(optimizer.gain(P, x)[0], right + 1)
    assert torch.equal(optimizer.gain(P, x)[0], right)


def test_it_is_taken_out_after_an_error():
    code = update.gain.__code__
    with pytest.raises(ZeroDivisionError), in_place(update.gain, gain_of(u="1 / 0")):
        update.gain(torch.eye(2), torch.ones(2))
    assert update.gain.__code__ is code


def test_two_panels_side_by_side_keep_their_own_steps():
    """One with a wrong line; their steps are taken in turns, and inside each other."""
    P, x = torch.eye(2), torch.ones(2)
    right = update.gain(P, x)[0]

    def panel(hers):
        while True:
            if hers is None:
                yield update.gain(P, x)[0]
            else:
                with in_place(update.gain, hers):
                    value = update.gain(P, x)[0]
                yield value

    wrong, plain_panel = panel(gain_of(u="-P @ x_mean")), panel(None)
    other = panel(gain_of(u="2 * P @ x_mean"))
    for _ in range(3):
        assert torch.equal(next(wrong), -right)
        assert torch.equal(next(plain_panel), right)
        assert torch.equal(next(other), 2 * right)


def test_another_thread_keeps_the_librarys_step():
    P, x = torch.eye(2), torch.ones(2)
    right, seen = update.gain(P, x)[0], []
    with in_place(update.gain, gain_of(u="-P @ x_mean")):
        thread = threading.Thread(target=lambda: seen.append(update.gain(P, x)[0]))
        thread.start()
        thread.join()
        assert torch.equal(update.gain(P, x)[0], -right)
    assert torch.equal(seen[0], right)


def test_two_threads_put_two_functions_in_the_same_place():
    P, x = torch.eye(2), torch.ones(2)
    right, seen, both = update.gain(P, x)[0], {}, threading.Barrier(2)

    def run(factor):
        with in_place(update.gain, gain_of(u=f"{factor} * P @ x_mean")):
            both.wait()
            seen[factor] = update.gain(P, x)[0]
            both.wait()

    threads = [threading.Thread(target=run, args=(k,)) for k in (2, 3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(torch.equal(seen[k], k * right) for k in (2, 3))
    assert torch.equal(update.gain(P, x)[0], right)


def test_a_function_that_calls_the_librarys_gets_the_librarys():
    hers = lambda *a, **k: update.gain(*a, **k)  # noqa: E731
    with in_place(update.gain, hers):
        u, _ = update.gain(torch.eye(2), torch.ones(2))
    assert torch.equal(u, torch.ones(2))


def test_a_closure_is_refused_in_words():
    inside = (lambda y: lambda: y)(1)
    with pytest.raises(TypeError, match="closure"), in_place(inside, gain_of()):
        pass


@pytest.mark.parametrize("name", STEPS)
def test_the_librarys_own_lines_in_place_change_no_number(name):
    exercise = STEPS[name]
    plainly = exercise.example()
    with in_place(exercise.function, exercise.own()):
        swapped = exercise.example()
    assert all(map(torch.equal, plainly, swapped))


# Limits


def endless():
    while True:
        pass


def deep():
    return sum(1 for _ in itertools.count())


def keeps():
    while True:
        try:
            time.sleep(0)
        except Exception:
            pass


@pytest.mark.parametrize("function", [endless, deep, keeps])
def test_an_endless_loop_is_stopped(function):
    with pytest.raises(Stopped, match="lines"), limited(function, lines=500):
        function()
    assert sys.gettrace() is None or "coverage" in repr(sys.gettrace())


def test_a_line_that_waits_is_stopped():
    def waits():
        time.sleep(60)

    with pytest.raises(Stopped, match=r"0\.05 seconds"), limited(waits, seconds=0.05):
        waits()


def test_a_call_that_works_for_too_long_is_stopped():
    def works():
        for _ in range(10**6):
            torch.ones(99).sum()

    with pytest.raises(Stopped, match=r"0\.05 seconds"), limited(works, seconds=0.05):
        works()


def test_what_else_the_machine_does_is_not_her_fault(monkeypatch):
    """Her thread has worked for no time at all while the clock went on."""
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)

    def waits():
        time.sleep(0.2)
        return "done"

    with limited(waits, seconds=0.1):
        assert waits() == "done"


def test_the_librarys_lines_are_not_counted():
    def hers():
        return [update.clip_factor(torch.ones(()), math.inf) for _ in range(300)]

    with limited(hers, lines=1000):
        assert len(hers()) == 300


# The answers


def test_open_wrong_and_right_in_turn():
    opened = written(GAIN.open_text)
    assert judge(GAIN, opened).kind == "open"
    told = judge(GAIN, gain_of(h="forgetting - mean_weight * steps * (x_mean @ u)"))
    assert (told.kind, told.slip) == ("wrong", "sign")
    assert "plus and minus" in told.text and r"h\,P_s \bar x" in told.text
    assert r"$\lambda = 0.9$" in told.text
    assert "The one in row 1 and column 1 differs most: nan on one side" in told.text
    assert judge(GAIN, gain_of()).right


def test_any_equal_way_of_writing_it_is_right():
    assert judge(GAIN, gain_of(u="x_mean @ P")).right
    assert judge(GAIN, gain_of(u="(P * x_mean).sum(1)")).right
    outer = "torch.einsum('i,j->ij', u, u)"
    for line in (
        f"P / forgetting - mean_weight * steps / (forgetting * h) * {outer}",
        "(P - torch.outer(u, u) * (steps * mean_weight / h)) / forgetting",
    ):
        text = NEW_P.open_text.replace("...  # (37)", line)
        found = judge(NEW_P, written(text, update.rls_step))
        assert found.right, found.text


def test_an_error_shows_her_line_and_the_shapes_in_it():
    told = judge(GAIN, gain_of(u="P @ x_mean[:2]"))
    assert told.kind == "error" and "→     u = P @ x_mean[:2]" in told.text
    assert "`P` is a tensor of shape (5, 5)" in told.text
    assert "labkit" not in told.text and "Traceback" not in told.text


def test_an_error_in_the_library_after_her_line_is_told_as_such():
    told = judge(GAIN, written(GAIN.solved_text.replace("return u, h", "return u")))
    assert told.kind == "error" and "cannot go on" in told.text


def test_a_number_in_the_place_of_a_tensor_is_said_to_be_one():
    """The library's error was told, and a slip that leads to the same error."""
    right = "forgetting + mean_weight * steps * float(x_mean @ u)"
    told = judge(GAIN, gain_of(h=right))
    assert (told.kind, told.slip) == ("shape", "")
    assert "`h` is the number 3.08209, a Python float, and has" in told.text
    assert "`h` is None" in judge(GAIN, gain_of(h="None")).text
    assert judge(GAIN, gain_of(h="forgetting")).slip == "missing term"


def test_an_endless_loop_in_an_answer_is_told():
    hers = written(
        """
        def gain(P, x_mean, *, forgetting=1.0, mean_weight=0.1, steps=1):
            while True:
                u = P @ x_mean
            return u, u
        """
    )
    told = judge(GAIN, hers)
    assert told.kind == "error" and "loop without an end" in told.text


def test_shapes_and_types_come_before_numbers():
    told = judge(GAIN, gain_of(u="(P @ x_mean)[:, None][:, 0].float().double()[None]"))
    assert told.kind in ("shape", "error")
    told = judge(GAIN, gain_of(h="(x_mean * u)[:1] + forgetting"))
    assert told.kind == "shape"
    assert "`h` is a tensor of shape (1,)" in told.text
    assert "a single number in a tensor" in told.text


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="needs the function gain"):
        judge(GAIN, torch.zeros(2))


def test_a_fresh_tensor_does_not_spoil_the_second_step():
    """The given line writes it to where the library keeps P."""
    assert "P.copy_(P_new)" in NEW_P.open_text
    found = judge(NEW_P, written(NEW_P.plain_text, update.rls_step))
    assert found.right, found.text


# Findings and slips


def test_a_finding_that_is_not_finite_or_of_another_shape_does_not_hold():
    one = torch.ones(2)
    assert Finding("", one, one, "").holds
    assert not Finding("", one * torch.nan, one, "").holds
    assert not Finding("", one, torch.ones(3), "").holds
    assert not Finding("", one + 1e-7, one, "").holds


def test_mutants_are_of_all_kinds_and_differ():
    steps = [e for e in EXERCISES if isinstance(e, Exercise)]
    found = [m for e in steps for m in mutants(e.text, e.tags)]
    assert {m.kind for m in found} == set(KINDS) and len(found) > 30
    assert len({m.text for m in found}) == len(found)


@pytest.mark.parametrize(
    "theorem", theorems.THEOREMS.values(), ids=lambda t: t.__name__
)
def test_no_theorem_holds_for_a_gain_that_is_wrong(theorem):
    """A theorem that could not fail would judge nothing."""
    wrong = gain_of(u="2 * P @ x_mean", h="2 * forgetting + abs(x_mean @ u)")
    with in_place(update.gain, wrong):
        found = theorem()
    of_other_lines = {theorems.P_stays_symmetric, theorems.a_clip_is_a_scaled_gradient}
    of_other_lines |= {theorems.l1_acts_without_a_gradient}
    assert found.holds == (theorem in of_other_lines)
