"""Cells and inputs that the tests of this room share."""

import pytest
import torch

from labkit.rtrl import LSTMCell, RHNCell, RNNCell

CELLS = {"rnn": RNNCell, "rhn": RHNCell, "lstm": LSTMCell}


def make_cell(kind, input_size, hidden_size, *, seed=0, scale=0.4, dtype=torch.float64):
    """Return a cell with weights, bias row included, large enough to matter."""
    g = torch.Generator().manual_seed(seed)
    cell = CELLS[kind](input_size, hidden_size, generator=g, dtype=dtype)
    with torch.no_grad():
        cell.weight.normal_(0, scale, generator=g)
    return cell


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture(params=CELLS)
def kind(request):
    return request.param
