"""A learner that is cut off at any line is as it was, or as it would have been."""

from functools import partial

import pytest
import torch

from labkit.rtrl import LEARNERS, OK
from tests.cuts import lines_of

from .conftest import make, make_cell, randn, read

B, D_X, N, RANK = 2, 2, 3, 2
EVERY = 23  # of the lines that a call passes, in `make test`; all in `make test-long`


def cut(call, at):
    """Cut a call at so many lines of labkit; return False if it has fewer."""
    return lines_of(call, at) == at


def seen(learner):
    """All that a learner can be asked, in bits."""
    known = [learner.state, learner.influence(), learner.gradient(randn(B, N, seed=8))]
    known += [learner.generator.get_state(), torch.tensor(len(learner.waiting))]
    return [each.clone() for each in known]


def equal(one, two):
    return all(map(torch.equal, one, two))


def stepped(learner):
    learner.step(randn(B, D_X, seed=5))


def masked(learner):
    learner.step(randn(B, D_X, seed=5), mask=torch.tensor([True, False]))


def loaded(learner):
    other = make("UORO", 1, learner.cell, batch_size=B)  # a stranger's stream
    saved = learner.state_dict()
    saved["generator"], saved["state"] = other.generator.get_state(), 2 * saved["state"]
    learner.load_state_dict(saved)


CALLS = {
    "step": stepped,
    "masked step": masked,
    "reset": lambda learner: learner.reset(torch.tensor([False, True])),
    "reset all": lambda learner: learner.reset(),
    "backward": lambda learner: learner.backward(randn(B, N, seed=6)),
    "load_state_dict": loaded,
    "variance": lambda learner: learner.variance(
        randn(1, B, D_X), randn(B, N, seed=7), 2
    ),
    "fewer terms": lambda learner: learner.change_rank(1),
    "more terms": lambda learner: learner.change_rank(RANK + 1),
}


def cases():
    found = []
    for name, row in LEARNERS.items():
        for call in CALLS:
            if "terms" in call and row.learner is not OK:
                continue
            if call == "masked step" and name == "TBPTT":
                continue
            found.append((name, call))
    return found


def new(name, kind="lstm"):
    """A learner that has read three symbols; the same at each call."""
    cell = make_cell(kind, D_X, N)
    return read(make(name, RANK, cell, batch_size=B), randn(3, B, D_X))


def check_cuts(name, call, every):
    """Cut one call at every so many of its lines; how many cuts there were."""
    call = CALLS[call]
    before, whole = seen(new(name)), new(name)
    call(whole)
    after, made = seen(whole), 0
    stepped(whole)
    later = seen(whole)
    at, learner = 1, new(name)
    while cut(partial(call, learner), at):
        left = seen(learner)
        as_before, as_after = equal(left, before), equal(left, after)
        assert as_before or as_after, f"{name} is torn at line {at}"
        if not as_after:
            call(learner)
            assert equal(seen(learner), after), f"{name}: a repeat differs, line {at}"
        stepped(learner)
        assert equal(seen(learner), later), f"{name}: what follows differs, line {at}"
        at, made, learner = at + every, made + 1, new(name)
    return made


@pytest.mark.parametrize(("name", "call"), cases())
def test_a_cut_leaves_a_learner_whole(name, call):
    assert check_cuts(name, call, EVERY)


@pytest.mark.long
@pytest.mark.parametrize(("name", "call"), cases())
def test_any_cut_leaves_a_learner_whole(name, call):
    assert check_cuts(name, call, 1)
