"""A cell of one's own: what follows from one function, and what is found wrong."""

import pytest
import torch

from labkit.rtrl import (
    RTRL,
    Cell,
    GRUCell,
    LSTMCell,
    RHNCell,
    RNNCell,
    check_cell,
    from_torch,
)
from labkit.theorems import rtrl as theorems
from tests.draws import randn, seeded

from .conftest import CELLS, make, make_cell


class Traced(Cell):
    """Of two parts: h' = tanh(z1 + c'), c' = sig(z2) c + z1, each its own."""

    blocks, parts = 2, 2

    def new_state(self, z, state):
        old = state[..., : self.hidden_size]
        trace = torch.sigmoid(z[..., 1, :]) * old + z[..., 0, :]
        return torch.cat([trace, torch.tanh(z[..., 0, :] + trace)], -1)


@pytest.mark.parametrize("kind", [RNNCell, RHNCell, LSTMCell, GRUCell, Traced])
def test_a_right_cell_passes_and_stays_as_it_is(kind):
    cell = kind(2, 3, generator=seeded())
    before = cell.weight.detach().clone()
    check_cell(cell, tolerance=1e-12)  # against torch.func, in float64
    assert torch.equal(cell.weight, before) and cell.weight.dtype == torch.float32


def test_shapes_and_initialisation(kind):
    cells = [CELLS[kind](5, 40, generator=seeded()) for _ in "ab"]
    assert cells[0].weight.shape == (46, cells[0].blocks * 40)
    assert float(cells[0].weight.detach().std()) == pytest.approx(0.01, rel=0.1)
    assert torch.equal(cells[0].weight, cells[1].weight)
    with pytest.raises(ValueError, match="hidden_size must be an integer >= 1, got 0"):
        CELLS[kind](3, 0)
    for x in (torch.ones(2, 4), torch.ones(5)):
        with pytest.raises(ValueError, match=r"x must have shape \(b, 5\), got"):
            cells[0].step(x, cells[0].initial_state(2))


def own(n):
    cell = Traced(2, n, dtype=torch.float64)
    torch.nn.init.normal_(cell.weight, generator=seeded())
    return cell


@pytest.mark.parametrize("rank", [1, 2])
def test_ok_of_a_cell_of_ones_own_is_right_on_average(rank):
    made = lambda count: make("OK", rank, own(2), batch_size=count)  # noqa: E731
    drawn = theorems.every_draw(made, 0.7 * randn(1, 4), randn(4, 2))
    assert theorems.mean_of_draws(drawn.draws, drawn.truth).holds
    assert drawn.draws.std(0).max() > 1e-3


def test_a_cell_of_ones_own_learns_as_by_back_propagation():
    exact = RTRL(own(3), batch_size=3)
    assert theorems.back_propagation(
        exact, randn(7, 3, 2), randn(7, 3, 3, seed=1)
    ).holds


def test_the_gru_is_torchs_where_its_rows_are():
    """Torch's candidate reads h before, and x after, the reset."""
    cell, x, h = make_cell("gru", 3, 4), randn(2, 3), randn(2, 4, seed=1)
    with torch.no_grad():
        cell.weight[4:7, 8:12], cell.weight[:4, 12:] = 0, 0
    W, other = cell.weight.detach(), torch.nn.GRUCell(3, 4).double()
    r, u, a, c = W.split(4, dim=1)
    by_h, by_x = torch.cat([r, u, a], 1), torch.cat([r, u, c], 1)
    values = {"weight_hh": by_h[:4].T, "weight_ih": by_x[4:7].T}
    values |= {"bias_hh": by_h[7], "bias_ih": torch.cat([0 * by_x[7, :8], by_x[7, 8:]])}
    other.load_state_dict(values)
    torch.testing.assert_close(cell(x, h), other(x, h), rtol=1e-12, atol=1e-12)


TORCHS = {
    torch.nn.RNNCell: RNNCell,
    torch.nn.LSTMCell: LSTMCell,
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", TORCHS)
def test_a_cell_of_torch_is_one_of_ours(kind, bias):
    module = kind(3, 4, bias=bias, dtype=torch.float64)
    cell, x, h = from_torch(module), randn(2, 3), randn(2, 4, seed=1)
    state, other = h, h
    if kind is torch.nn.LSTMCell:
        memory = randn(2, 4, seed=2)
        state, other = torch.cat([memory, h], 1), (h, memory)
    for _ in range(5):
        state, other = cell(x, state), module(x, other)
        wanted = torch.cat([*other][::-1], 1) if type(other) is tuple else other
        torch.testing.assert_close(state, wanted, rtol=1e-12, atol=1e-12)
    assert type(cell) is TORCHS[kind] and cell.weight.dtype == torch.float64
    check_cell(cell)
    with torch.no_grad():
        module.weight_hh.add_(1)  # a copy: the two live apart
    assert not torch.equal(cell(x, cell.initial_state(2)), cell(x, state))


@pytest.mark.parametrize(
    "module",
    [torch.nn.RNNCell(2, 3, nonlinearity="relu"), torch.nn.GRUCell(2, 3), None],
)
def test_what_is_no_cell_of_ours_is_refused(module):
    match = r"must be a torch.nn.RNNCell with tanh or an nn.LSTMCell, got"
    with pytest.raises(TypeError, match=match):
        from_torch(module)


def spoiled(name, change):
    """A highway cell with one of its pieces changed."""

    class Wrong(RHNCell):
        def linearise(self, x, state):
            new = super().linearise(x, state)
            return new._replace(**{name: change(getattr(new, name))})

    return Wrong(2, 3)


class Mixing(RNNCell):
    def new_state(self, z, state):
        return torch.tanh(z[..., 0, :] + 0.1 * z[..., 0, :].roll(1, -1))

    linearise = Cell.linearise


class Reaching(RHNCell):
    """Its units read each other's old state, past z."""

    def new_state(self, z, state):
        return super().new_state(z, state) + 0.1 * state.roll(1, -1)

    linearise = Cell.linearise


class Lost(RNNCell):
    """Its state is not a number, as far as it was seen."""

    def new_state(self, z, state):
        return z[..., 0, :].sqrt()

    linearise = Cell.linearise


class Silent(Cell):
    blocks = 1


@pytest.mark.parametrize(
    ("cell", "match"),
    [
        (
            spoiled("D", lambda D: 2 * D),
            r"D is wrong: at \[\d, \d, \d\] it is .*should",
        ),
        (spoiled("D", lambda D: D[:, :, :1]), r"D is wrong: it must be \(1, 2, 3\)"),
        (spoiled("direct", lambda f: 0 * f), r"H is wrong: .*\(the direct path, or"),
        (spoiled("h_hat", lambda h: h.flip(1)), r"h_hat is wrong: .*not \[h, x, 1\]"),
        (spoiled("state", lambda s: s + 1), "state is wrong: .*forward gives another"),
        (Mixing(2, 3), r"d state / d W is wrong: .*read its own z = .* \(Lemma 1\)"),
        (spoiled("D", lambda D: D[:1].expand_as(D)), "D is wrong: at"),
        (Lost(2, 3), "state is wrong: at .* it is nan"),
        (Reaching(2, 3), "H is wrong: .*units read others' old state"),
    ],
)
def test_what_is_wrong_is_named(cell, match):
    with pytest.raises(ValueError, match=match):
        check_cell(cell)


def test_a_cell_without_its_function_or_its_blocks_is_told():
    with pytest.raises(NotImplementedError, match="Silent must say its new_state"):
        check_cell(Silent(2, 3))
    match = "Blank must say how many weight blocks it has: put `blocks = K` into"
    with pytest.raises(TypeError, match=match):
        type("Blank", (Cell,), {})(2, 3)
