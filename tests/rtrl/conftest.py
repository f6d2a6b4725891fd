"""Cells, inputs and small helpers that the tests of this room share."""

import pytest
import torch

from labkit.rtrl import LEARNERS, GRUCell, LSTMCell, RHNCell, RNNCell
from tests.draws import seeded

CELLS = {"rnn": RNNCell, "rhn": RHNCell, "lstm": LSTMCell, "gru": GRUCell}
# Every row of the table: its name and a rank.
CASES = [
    (name, rank)
    for name, row in LEARNERS.items()
    for rank in ((1, 3) if row.rank_argument else (1,))
]

every = pytest.mark.parametrize(("name", "rank"), CASES)
B, D_X, N = 3, 2, 3  # sequences, input width, units


def make_cell(kind, input_size, hidden_size, *, seed=0, scale=0.4, dtype=torch.float64):
    """Return a cell with weights, bias row included, large enough to matter."""
    generator = seeded(seed)
    cell = CELLS[kind](input_size, hidden_size, generator=generator, dtype=dtype)
    with torch.no_grad():
        cell.weight.normal_(0, scale, generator=generator)
    return cell


def small(kind="rhn", **kwargs):
    return make_cell(kind, D_X, N, **kwargs)


def make(name, rank, cell, *, batch_size=3, seed=0):
    """Return the learner of a row with a generator of its own."""
    options = {"batch_size": batch_size, "generator": seeded(seed)}
    return LEARNERS[name].make(cell, rank, **options)


def read(learner, xs):
    """Step through inputs; returns the learner."""
    for x in xs:
        learner.step(x)
    return learner


def agree(x, y, tol=1e-12):
    """Relative to the size of y as a whole."""
    return float((x - y).norm()) <= tol * float(y.norm())


@pytest.fixture(params=CELLS)
def kind(request):
    return request.param
