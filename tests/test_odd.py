"""A fixed sample of the odd inputs in ``make test``, all of them in ``test-long``."""

from importlib import import_module
from inspect import isfunction

import pytest

from tests import odd

CALLS = odd.tables()
SAMPLE = 2  # draws of each function
AWAY = {"lab: load_imdb", "lab: load_ptb"}  # whose files are not here
# Steps that hold a paper's lines alone, as notebooks and exercises show them: what is
# handed to them is checked by the optimiser, the solver or the loop that calls them.
STEPS = {
    "gain": "RLS",
    "rls_step": "RLS",
    "loss_mse": "train",
    "loss_one_hot": "train",
    "cg_steps": "cg",
    "lsmr_steps": "lsmr",
    "batch_gradient_variance": "train",
    "diagonal_estimate": "diagonal_preconditioner",
}
# Functions that take no argument.
WITHOUT = {"available", "done", "show_race"}


@pytest.mark.parametrize("room", odd.ROOMS)
def test_a_sample_of_odd_inputs_is_right_or_refused_in_words(room):
    fallen = {}
    for name, (call, right) in CALLS.items():
        if name.startswith(f"{room}:"):
            count, found = odd.tried(call, right, SAMPLE)
            assert count == SAMPLE
            fallen |= {name: found} if found else {}
    assert not fallen


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
def test_an_odd_input_is_right_or_refused_in_words(name):
    count, found = odd.tried(*CALLS[name], 30)
    assert count == 30 and not found


@pytest.mark.parametrize("name", sorted(CALLS.keys() - AWAY))
def test_what_is_right_is_taken(name):
    call, right = CALLS[name]
    call(**right)


@pytest.mark.parametrize("room", odd.ROOMS)
def test_every_public_function_is_in_the_tables(room):
    module = import_module(f"labkit.{room}")
    public = {name for name in module.__all__ if isfunction(getattr(module, name))}
    tables = import_module(f"tests.{room}.odd").CALLS
    tried = {name.split(",")[0].split(".")[0].split(" ")[0] for name in tables}
    assert not public - tried - STEPS.keys() - WITHOUT


@pytest.mark.parametrize("step", STEPS)
def test_what_checks_for_a_step_is_in_the_tables(step):
    rooms = {name.split(": ")[0] for name in CALLS}
    home = next(
        room for room in rooms if step in import_module(f"labkit.{room}").__all__
    )
    assert f"{home}: {STEPS[step]}" in CALLS
