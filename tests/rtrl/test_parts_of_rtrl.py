"""RFLO and SnAp-1: what they keep of RTRL, and when that is all there is."""

import pytest
import torch

from labkit.rtrl import RFLO, Cell, SnAp1
from labkit.rtrl.exact import rtrl_step
from labkit.theorems import rtrl as theorems
from tests.draws import randn

from .conftest import agree, make_cell


def test_snap_is_rtrl_with_all_but_a_weights_own_unit_forgotten(kind):
    """The definition: G is masked after every step."""
    cell = make_cell(kind, 2, 3)
    learner, kept = SnAp1(cell, batch_size=2), theorems.own_unit(cell)
    judged = theorems.recursion(learner, randn(6, 2, 2), kept)
    assert judged.holds, judged.error


def test_rflo_is_rtrl_without_the_recurrent_weights(kind):
    """The definition, against a plain dense version: H loses D W_h^T."""
    cell = make_cell(kind, 2, 3)
    learner = RFLO(cell, batch_size=2)
    G = torch.zeros_like(learner.influence())
    for x in randn(6, 2, 2):
        new = cell.linearise(x, learner.state)
        with torch.no_grad():
            W = cell.weight.clone()
            cell.weight[:3] = 0
            H = cell.jacobian(new)  # J_direct alone
            cell.weight.copy_(W)
        G = rtrl_step(G, H, new.h_hat, new.D)
        learner.step(x)
        assert agree(learner.influence(), G)


@pytest.mark.parametrize(("make", "own"), [(RFLO, False), (SnAp1, True)])
@pytest.mark.parametrize("units", [1, 4])
def test_they_are_exact_where_no_unit_reads_another(kind, units, make, own):
    """Under RFLO not even itself."""
    cell = make_cell(kind, 2, units)
    with torch.no_grad():
        W_h = cell.weight[:units].unflatten(1, (-1, units))
        W_h *= own * torch.eye(units)[:, None]
    judged = theorems.recursion(make(cell, batch_size=2), randn(9, 2, 2))
    assert judged.holds, judged.error


class Leaky(Cell):
    """The paper's network: h' = (1 - 1 / tau) h + tanh(z) / tau."""

    blocks, tau = 1, 4.0

    def new_state(self, z, state):
        return (1 - 1 / self.tau) * state + torch.tanh(z[..., 0, :]) / self.tau


def test_rflo_of_the_papers_network_is_the_papers_trace():
    """Equation (4): p_ab = (1 - 1 / tau) p_ab + phi'(u_a) y_b / tau."""
    cell = Leaky(2, 3, dtype=torch.float64)
    torch.nn.init.normal_(cell.weight, 0, 0.5, generator=torch.Generator())
    learner, p = RFLO(cell, batch_size=2), torch.zeros(2, 6, 3).double()
    errors, B = randn(8, 2, 4), randn(4, 3, seed=1)  # any fixed feedback
    for x, error in zip(randn(8, 2, 2), errors, strict=True):
        y = cell.augment(x, learner.state)
        slope = 1 - torch.tanh(y @ cell.weight.detach()) ** 2
        p = (1 - 1 / cell.tau) * p + y[:, :, None] * slope[:, None] / cell.tau
        learner.step(x)
        wanted = (p * (error @ B)[:, None]).sum(0)
        assert agree(learner.gradient(error @ B), wanted)
