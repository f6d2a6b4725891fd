"""SnAp-1: what it keeps, and when that is all there is."""

import pytest
import torch

from labkit.rtrl import SnAp1
from labkit.theorems import rtrl as theorems
from tests.draws import randn

from .conftest import make_cell


def test_it_is_rtrl_with_all_but_a_weights_own_unit_forgotten(kind):
    """The definition: G is masked after every step."""
    cell = make_cell(kind, 2, 3)
    learner, kept = SnAp1(cell, batch_size=2), theorems.own_unit(cell)
    judged = theorems.recursion(learner, randn(6, 2, 2), kept)
    assert judged.holds, judged.error


@pytest.mark.parametrize("units", [1, 4])
def test_it_is_exact_where_no_unit_reads_another(kind, units):
    cell = make_cell(kind, 2, units)
    with torch.no_grad():
        W_h = cell.weight[:units].unflatten(1, (-1, units))
        W_h *= torch.eye(units)[:, None]
    judged = theorems.recursion(SnAp1(cell, batch_size=2), randn(9, 2, 2))
    assert judged.holds, judged.error
