"""SnAp-1: what it keeps, and when that is all there is."""

import pytest
import torch

from labkit.rtrl import RTRL, SnAp1
from labkit.rtrl.exact import rtrl_step

from .conftest import agree, make_cell, randn


def test_it_is_rtrl_with_all_but_a_weights_own_unit_forgotten(kind):
    """The definition: G is masked after every step."""
    cell = make_cell(kind, 2, 3)
    learner = SnAp1(cell, batch_size=2)
    G = torch.zeros_like(learner.influence())
    own = torch.eye(3).bool()[None, :, None, None, :]  # of (P, n, m, K, n)
    for x in randn(6, 2, 2):
        step = cell.step(x, learner.state)
        G = rtrl_step(G, step.H, step.h_hat, step.D)
        G = (G.view(2, cell.parts, 3, -1, cell.blocks, 3) * own).view_as(G)
        learner.step(x)
        assert agree(learner.influence(), G)


@pytest.mark.parametrize("units", [1, 4])
def test_it_is_exact_where_no_unit_reads_another(kind, units):
    cell = make_cell(kind, 2, units)
    with torch.no_grad():
        W_h = cell.weight[:units].unflatten(1, (-1, units))
        W_h *= torch.eye(units)[:, None]
    learner, exact = SnAp1(cell, batch_size=2), RTRL(cell, batch_size=2)
    for x in randn(9, 2, 2):
        learner.step(x)
        exact.step(x)
    assert agree(learner.influence(), exact.influence())
