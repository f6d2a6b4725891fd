"""Real steps of RTRL and its kin, to be recorded; each made anew at every call."""

from functools import partial

import torch

from labkit import rtrl
from labkit.lab.panels.lines.source import equations_of
from labkit.rtrl.low_rank import mixing_matrix
from tests.device.rtrl import train
from tests.draws import seeded
from tests.rtrl.conftest import make, read
from tests.walks import Walk, random


def learner(name, cell=rtrl.RHNCell):
    """A step and its gradient; the docstring of the row's step says what is met."""
    row = rtrl.LEARNERS[name]
    cell = cell(3, 4, generator=seeded(), dtype=torch.float64)
    *before, x = random((2, 3), (2, 3), (2, 3), (2, 3))
    made = read(make(name, 2, cell, batch_size=2, seed=1), before)

    def call():
        return made.step(x), made.backward(torch.ones(2, 4).double())

    kept = lambda: (list(cell.parameters()), made.state_dict())  # noqa: E731
    shows = {f: " ".join(equations_of(f.__doc__)) for f in (row.step, cell.linearise)}
    return Walk(call, kept, shows, follow=("labkit.rtrl",))


def low_rank():
    (C,) = random((5, 4))
    generator = seeded(1)
    call = partial(rtrl.optimal_low_rank, C, 2, generator=generator)
    shows = {rtrl.optimal_low_rank: "1 2 3", mixing_matrix: "1 2 3 4"}
    return Walk(call, lambda: (C, generator), shows)


WALKS = {
    **{name: partial(learner, name) for name in rtrl.LEARNERS},
    "OK RNNCell": partial(learner, "OK", rtrl.RNNCell),
    "OK LSTMCell": partial(learner, "OK", rtrl.LSTMCell),
    "optimal low rank": low_rank,
}
# The walked function, and a step of the table of devices that goes through it.
STEPS = {rtrl.OK.step: partial(train, name="OK", rank=1)}
