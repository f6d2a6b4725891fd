"""A learner's function in the library's place, its limits, and errors in words."""

import sys
import threading

import pytest
import torch

from labkit.lab import check
from labkit.lab.exercises import exercise
from labkit.lab.exercises.running import Stopped, in_place, is_open, limited
from labkit.rls import optimizer, update

P, X = torch.eye(2), torch.ones(2)
RIGHT = update.gain(P, X)[0]


def times(factor):
    """Return a gain whose first result is multiplied."""

    def gain(P, x_mean, **options):
        return factor * P @ x_mean, torch.ones(())

    return gain


# In the library's place


def test_every_module_that_imported_the_name_calls_hers():
    with in_place(update.gain, times(3)):
        assert torch.equal(update.gain(P, X)[0], 3 * RIGHT)
        assert torch.equal(optimizer.gain(P, X)[0], 3 * RIGHT)
    with pytest.raises(ZeroDivisionError), in_place(update.gain, lambda *_: 1 / 0):
        update.gain(P, X)
    assert torch.equal(optimizer.gain(P, X)[0], RIGHT)


def test_another_thread_keeps_the_librarys_step():
    seen = []
    with in_place(update.gain, times(-1)):
        thread = threading.Thread(target=lambda: seen.append(update.gain(P, X)[0]))
        thread.start()
        thread.join()
        assert torch.equal(update.gain(P, X)[0], -RIGHT)
    assert torch.equal(seen[0], RIGHT)


def test_a_function_that_calls_the_librarys_gets_the_librarys():
    with in_place(update.gain, lambda P, x: update.gain(P, x)):
        assert torch.equal(update.gain(P, X)[0], RIGHT)


# Limits


def endless():
    while True:
        pass


def keeps():
    while True:
        try:
            torch.ones(99).sum()
        except Exception:
            pass


def on_one_line():
    while True: pass  # fmt: skip  # noqa: E701


@pytest.mark.parametrize("function", [endless, keeps, on_one_line])
def test_an_endless_loop_is_stopped(function):
    before = sys.gettrace()
    with pytest.raises(Stopped, match=r"0\.05 seconds"):
        limited(function, seconds=0.05)()
    assert sys.gettrace() is before


# In words


def test_an_error_shows_the_line_and_the_shapes_in_it():
    verdict = check("rls-P", exercise("rls-P").filled("P.copy_(P @ u[:2])"))
    assert verdict.kind == "error"
    assert "```python\nP.copy_(P @ u[:2])\n```" in verdict.text
    assert "`P` is a tensor of shape (5, 5), `u` is" in verdict.text
    assert "labkit" not in verdict.text and "Traceback" not in verdict.text
    verdict = check("rls-P", lambda P: P)
    assert verdict.kind == "error" and "unexpected keyword argument" in verdict.text
    with pytest.raises(TypeError, match="needs the function rls_step"):
        check("rls-P", torch.zeros(2))


def test_a_cell_is_open_where_a_value_is_wanted_and_not_where_dots_index():
    task = exercise("bpls-neurons")
    assert is_open(task.filled(task.blank), task.blank) and is_open(..., task.blank)
    for line in (task.answer, f"kept = ...; {task.answer}"):
        assert "[..., i" in line and not is_open(task.filled(line), task.blank)
