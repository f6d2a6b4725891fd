"""What every row of the table of learners must keep; a new row is found by itself."""

import inspect
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from labkit.instruments import cost
from labkit.lab.panels.lines.source import equations_of, tags_of_line
from labkit.rtrl import LEARNERS, LSTMCell, RHNCell, RNNCell
from labkit.theorems import rtrl as theorems
from tests.draws import randn
from tests.walks import called, code_of

from .conftest import D_X, B, N, agree, every, make, make_cell, small

# What a row must have


@pytest.mark.parametrize("name", LEARNERS)
def test_the_lines_of_a_step_have_the_tags_of_its_equations(name):
    row = LEARNERS[name]
    lines = inspect.getsource(row.step).splitlines()
    tagged = {tag for line in lines for tag in tags_of_line(line)}
    numbered = equations_of(row.step.__doc__).keys()
    assert numbered and numbered <= tagged
    assert row.unbiased or not row.exact, f"{name}: what is exact is unbiased"


@every
def test_the_step_of_the_row_is_the_one_that_runs(name, rank, monkeypatch):
    """And its signs come from the one place where tests can hand in their own."""
    row, learner, drawn = LEARNERS[name], make(name, rank, small()), []
    signs = learner._signs
    learner._signs = lambda *shape: drawn.append(shape) or signs(*shape)
    before = learner.generator.get_state()
    seen = called(lambda: walk(learner, row.rank_argument and rank))
    assert code_of(row.step) in seen, (
        f"{name}: a step does not run {row.step.__qualname__}"
    )
    moved = not torch.equal(before, learner.generator.get_state())
    assert moved == learner.draws, f"{name}: draws = {learner.draws} is not so"
    assert bool(drawn) == learner.draws, f"{name}: signs must come from self._signs"


def walk(learner, steps):
    """Steps and gradients until weights would change."""
    for x in randn(steps or 1, B, D_X):
        learner.step(x)
        learner.backward(torch.ones(B, N).double())


# What a row promises


@pytest.mark.parametrize("name", [name for name, row in LEARNERS.items() if row.exact])
def test_an_exact_learner_is_back_propagation(name, kind):
    T, n = 24, 5
    cell = make_cell(kind, D_X, n)
    xs, dLs = randn(T, B, D_X, seed=50), randn(T, B, n, seed=70)
    state = 0.7 * randn(B, cell.state_size)
    assert cell.weight[-1].abs().min() > 0  # the bias row takes part
    learner = make(name, 1, cell)
    learner.state = state.clone()
    judged = theorems.back_propagation(learner, xs, dLs)
    assert judged.holds, judged.error
    _, last = theorems.back_propagate(cell, xs, dLs, state)
    assert agree(learner.state, last, 1e-14)


@every
def test_the_mean_over_all_signs_is_the_influence(name, rank, kind):
    """Exactly, in float64, over every sequence of signs of as many steps as fit.

    A row that is not unbiased must fail the same; otherwise it promises too little.
    """
    row, cell, rank = LEARNERS[name], make_cell(kind, D_X, 2, scale=0.8), min(rank, 2)
    state, xs = 0.7 * randn(1, cell.state_size, seed=4), randn(4, D_X, seed=10)
    made = lambda count: make(name, rank, cell, batch_size=count)  # noqa: E731
    signs = theorems.signs_of(made, xs[0])
    steps = min(4, max(2, 12 // max(1, signs)))
    drawn = theorems.every_draw(made, state, xs[:steps])
    assert len(drawn.draws) == 2 ** (signs * steps)
    judged = theorems.mean_of_draws(drawn.draws, drawn.truth)
    if not row.unbiased:
        assert judged.error > 1e-3, f"{name} looks unbiased"
        return
    assert judged.holds, f"{name} is biased by {judged.error}"
    if row.exact:
        assert agree(drawn.draws[0], drawn.truth), f"{name} is not exact"
    elif steps > rank:
        assert drawn.draws.std(0).max() > 1e-3  # the draws differ


@every
def test_sequences_do_not_see_each_other(name, rank, kind):
    cell = small(kind, scale=0.8)
    made = lambda count: make(name, rank, cell, batch_size=count)  # noqa: E731
    finding = theorems.sequences_apart(made, randn(6, B, D_X))
    assert finding.holds, finding


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_learner_has_the_dtype_of_its_weights(name, rank, kind, dtype):
    learner = make(name, rank, small(kind).to(dtype))
    double = make(name, rank, small(kind))
    for x in randn(4, B, D_X):
        learner.step(x.to(dtype)), double.step(x)
    held = [getattr(learner, key) for key in ("state", *learner.tensors)]
    results = [learner.gradient(torch.ones(B, N).to(dtype)), learner.influence()]
    for value in held + results:
        assert not value.is_floating_point() or value.dtype == dtype
        assert value.isfinite().all()
    assert agree(learner.state.double(), double.state, 1e-5)


# What a row costs

CELLS = (RNNCell, RHNCell, LSTMCell)


def cost_of(name, rank, cell, batch=1):
    sizes = {"hidden": cell.hidden_size, "inputs": cell.input_size, "parts": cell.parts}
    sizes |= {"blocks": cell.blocks, "batch": batch, "rank": rank}
    return cost(LEARNERS[name].count, **sizes)


@every
@pytest.mark.parametrize("cell_type", CELLS)
def test_bytes_are_those_of_the_learner(name, rank, cell_type):
    cell, b = cell_type(3, 7), 2
    learner = LEARNERS[name].make(cell, rank, batch_size=b)
    tensors = [getattr(learner, key) for key in learner.tensors]
    carried = sum(t.nbytes for t in tensors if t.is_floating_point())
    assert cost_of(name, rank, cell, b).bytes == carried, f"{name}: see its count"


@pytest.mark.parametrize("cell_type", CELLS)
@pytest.mark.parametrize("name", LEARNERS)
def test_flops_are_those_of_the_matrix_products(name, cell_type):
    """The counter sees no product done in place and nothing done entry by entry.

    The latter is at most eight operations for each number carried and each weight.
    """
    b, r, cell = 2, 4, cell_type(5, 48)
    learner = LEARNERS[name].make(cell, r, batch_size=b)
    x, dL_dh = randn(b, 5).float(), randn(b, 48).float()
    steps = r if LEARNERS[name].rank_argument == "horizon" else 1
    with FlopCounterMode(display=False) as counter:
        for _ in range(steps):
            learner.step(x)
            learner.backward(dL_dh)
    products = counter.get_total_flops() / steps
    whole = cost_of(name, r, cell, b)
    by_entry = 8 * (whole.bytes / 4 + b * cell.weight.numel())
    assert products <= 1.01 * whole.flops, f"{name}: its count leaves products out"
    assert whole.flops <= 1.05 * (products + by_entry), f"{name}: its count is too high"


# Benzing et al. 2019, Table 1: exponents of n in time and memory; SnAp-1 like UORO.
GROWTH = {"RTRL": (4, 3), "UORO": (2, 2), "KTP": (2, 1), "TBPTT": (2, 1)}
GROWTH["RFLO"] = (2, 2)
GROWTH |= dict.fromkeys(("OK", "B-OK", "KF-AVG"), (3, 2))


@pytest.mark.parametrize("name", GROWTH)
def test_growth_with_the_number_of_units(name):
    small, large = (
        cost(LEARNERS[name].count, hidden=hidden, inputs=4, rank=4)
        for hidden in (10_000, 20_000)
    )
    found = [large.flops / small.flops, large.bytes / small.bytes]
    assert list(map(math.log2, found)) == pytest.approx(GROWTH[name], abs=0.01)
