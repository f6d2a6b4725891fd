"""A learner's function in the library's place, its limits, and errors in words."""

import itertools
import math
import sys
import threading
import time

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
    assert torch.equal(optimizer.gain(P, X)[0], RIGHT)


def test_it_is_taken_out_after_an_error():
    code = update.gain.__code__
    with pytest.raises(ZeroDivisionError), in_place(update.gain, lambda *_: 1 / 0):
        update.gain(P, X)
    assert update.gain.__code__ is code


def test_another_thread_keeps_the_librarys_step():
    seen = []
    with in_place(update.gain, times(-1)):
        thread = threading.Thread(target=lambda: seen.append(update.gain(P, X)[0]))
        thread.start()
        thread.join()
        assert torch.equal(update.gain(P, X)[0], -RIGHT)
    assert torch.equal(seen[0], RIGHT)


def test_two_threads_put_two_functions_in_the_same_place():
    seen = {}

    def run(factor):
        for _ in range(20):
            with in_place(update.gain, times(factor)):
                time.sleep(1e-4)
                seen.setdefault(factor, []).append(update.gain(P, X)[0])

    threads = [threading.Thread(target=run, args=(k,)) for k in (2, 3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(torch.equal(u, k * RIGHT) for k, found in seen.items() for u in found)
    assert torch.equal(update.gain(P, X)[0], RIGHT)


def test_a_function_that_calls_the_librarys_gets_the_librarys():
    with in_place(update.gain, lambda P, x: update.gain(P, x)):
        assert torch.equal(update.gain(P, X)[0], RIGHT)


# Limits


def endless():
    while True:
        pass


def deep():
    return sum(1 for _ in itertools.count())


def beside():
    endless()


def keeps():
    while True:
        try:
            torch.ones(99).sum()
        except Exception:
            pass


@pytest.mark.parametrize("function", [endless, deep, beside, keeps])
def test_an_endless_loop_is_stopped(function):
    before = sys.gettrace()
    with pytest.raises(Stopped, match=r"0\.05 seconds"):
        limited(function, seconds=0.05)()
    assert sys.gettrace() is before


def test_the_librarys_time_is_hers_in_one_call_and_not_in_many(monkeypatch):
    """Each call has its own limit, however often the library calls."""
    monkeypatch.setattr(time, "thread_time", itertools.count(step=0.4).__next__)
    step = limited(lambda: math.pi, seconds=1.0)
    assert {step() for _ in range(50)} == {math.pi}


# In words


def test_an_error_shows_the_line_and_the_shapes_in_it():
    told = check("rls-P", exercise("rls-P").filled("P.copy_(P @ u[:2])"))
    assert told.kind == "error" and "```python\nP.copy_(P @ u[:2])\n```" in told.text
    assert "`P` is a tensor of shape (5, 5), `u` is" in told.text
    assert "labkit" not in told.text and "Traceback" not in told.text


def test_a_cell_is_open_where_a_value_is_wanted_and_not_where_dots_index():
    task = exercise("bpls-neurons")
    assert is_open(task.filled(task.blank)) and is_open(...)
    assert "[..., i" in task.answer and not is_open(task.filled(task.answer))


def test_a_function_with_other_arguments_is_told():
    told = check("rls-P", lambda P: P)
    assert told.kind == "error" and "cannot go on with your function" in told.text
    assert "unexpected keyword argument" in told.text


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="needs the function rls_step"):
        check("rls-P", torch.zeros(2))
