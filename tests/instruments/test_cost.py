import dataclasses
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from labkit.instruments import Cost, cost
from labkit.rtrl import (
    KFRTRL,
    KTP,
    OK,
    RTRL,
    TBPTT,
    UORO,
    LSTMCell,
    RHNCell,
    RNNCell,
)

METHODS = ["rtrl", "ok", "kf", "kf-avg", "uoro", "ktp", "tbptt"]
BUILD = {
    "rtrl": lambda cell, b, r, T: RTRL(cell, batch_size=b),
    "ok": lambda cell, b, r, T: OK(cell, batch_size=b, rank=r),
    "kf": lambda cell, b, r, T: KFRTRL(cell, batch_size=b),
    "kf-avg": lambda cell, b, r, T: KFRTRL(cell, batch_size=b, copies=r),
    "uoro": lambda cell, b, r, T: UORO(cell, batch_size=b),
    "ktp": lambda cell, b, r, T: KTP(cell, batch_size=b, rank=r),
    "tbptt": lambda cell, b, r, T: TBPTT(cell, batch_size=b, horizon=T),
}


def of_cell(method, cell, **sizes):
    return cost(
        method,
        hidden=cell.hidden_size,
        inputs=cell.input_size,
        blocks=cell.blocks,
        parts=cell.parts,
        **sizes,
    )


@pytest.mark.parametrize("cell_type", [RNNCell, RHNCell, LSTMCell])
@pytest.mark.parametrize("method", METHODS)
def test_bytes_are_those_of_the_learner(method, cell_type):
    cell = cell_type(3, 7)
    b, r, T = 2, 3, 4
    learner = BUILD[method](cell, b, r, T)
    tensors = [getattr(learner, name) for name in learner.tensors]
    carried = sum(t.nbytes for t in tensors if t.is_floating_point())
    assert of_cell(method, cell, batch=b, rank=r, horizon=T).bytes == carried


def counted(method, cell, b, r, T):
    """Operations of the matrix products in a step with its gradient."""
    learner = BUILD[method](cell, b, r, T)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(b, cell.input_size, generator=g)
    dL_dh = torch.randn(b, cell.hidden_size, generator=g)
    steps = T if method == "tbptt" else 1
    with FlopCounterMode(display=False) as counter:
        for _ in range(steps):
            learner.step(x)
            learner.backward(dL_dh)
    return counter.get_total_flops() / steps


# The counter sees matrix products only, and none done in place. What it misses is less
# than 10 % of the whole for the matrix formats at these sizes, known for the others.
@pytest.mark.parametrize("cell_type", [RNNCell, RHNCell, LSTMCell])
@pytest.mark.parametrize("method", ["rtrl", "ok", "kf", "kf-avg"])
def test_flops_are_those_of_the_matrix_products(method, cell_type):
    cell = cell_type(5, 32)
    b, r = 2, 4
    products = counted(method, cell, b, r, 1)
    flops = of_cell(method, cell, batch=b, rank=r).flops
    assert products <= 1.01 * flops
    assert flops <= 1.1 * products


@pytest.mark.parametrize("method", ["uoro", "ktp", "tbptt"])
def test_flops_of_the_vector_formats(method):
    n, d, b, r, T = 64, 5, 2, 4, 6
    cell = RHNCell(d, n)
    products = counted(method, cell, b, r, T)
    flops = of_cell(method, cell, batch=b, rank=r, horizon=T).flops
    m, Kn = n + d + 1, 2 * n
    unseen = {
        "uoro": 8 * m * Kn,
        "ktp": 8 * r * (m + n + Kn),
        "tbptt": 2 * m * Kn,  # the weights' gradient is an addmm_, in place
    }
    assert flops == pytest.approx(products + b * unseen[method], rel=0.05)


# Benzing et al. 2019, Table 1: exponents of n.
@pytest.mark.parametrize(
    ("method", "time", "memory"),
    [
        ("rtrl", 4, 3),
        ("ok", 3, 2),
        ("kf", 3, 2),
        ("kf-avg", 3, 2),
        ("uoro", 2, 2),
        ("ktp", 2, 1),
        ("tbptt", 2, 1),
    ],
)
def test_growth_with_the_number_of_units(method, time, memory):
    small = cost(method, hidden=10_000, inputs=4, rank=4)
    large = cost(method, hidden=20_000, inputs=4, rank=4)
    assert math.log2(large.flops / small.flops) == pytest.approx(time, abs=0.01)
    assert math.log2(large.bytes / small.bytes) == pytest.approx(memory, abs=0.01)


@pytest.mark.parametrize("method", ["ok", "kf-avg", "ktp"])
def test_growth_with_the_rank(method):
    one, four = (cost(method, hidden=10_000, inputs=4, rank=r) for r in (1, 4))
    assert four.flops / one.flops == pytest.approx(4, rel=0.3)  # a shared forward pass
    assert four.bytes == 4 * one.bytes


def test_ratios_refer_to_truncated_back_propagation():
    base = cost("tbptt", hidden=64, inputs=8, horizon=25)
    assert (base.flops_ratio, base.bytes_ratio) == (1, 1)
    ok = cost("ok", hidden=64, inputs=8, rank=8, horizon=25, batch=16)
    assert ok.flops_ratio == pytest.approx(ok.flops / base.flops / 16)
    assert ok.bytes_ratio == pytest.approx(ok.bytes / base.bytes / 16)


def test_batch_and_dtype_scale():
    one = cost("ok", hidden=16, inputs=4, rank=2)
    many = cost("ok", hidden=16, inputs=4, rank=2, batch=8, dtype_bytes=8)
    assert (many.flops, many.bytes) == (8 * one.flops, 16 * one.bytes)


def test_methods_of_one_term_ignore_the_rank():
    for method in ("rtrl", "kf", "uoro", "tbptt"):
        few, many = (cost(method, hidden=16, inputs=4, rank=r) for r in (1, 8))
        assert few == many
    kf = cost("kf", hidden=16, inputs=4)
    assert kf == cost("kf-avg", hidden=16, inputs=4, rank=1)


def test_the_result_is_frozen():
    result = cost("kf", hidden=16, inputs=4)
    assert isinstance(result, Cost)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.flops = 0


def test_unknown_method_lists_the_names():
    with pytest.raises(ValueError, match=r"kf, kf-avg, ktp, ok, .* got 'bptt'"):
        cost("bptt", hidden=16, inputs=4)


@pytest.mark.parametrize("bad", [0, -1, 2.0, True])
@pytest.mark.parametrize("name", ["hidden", "inputs", "rank", "horizon", "batch"])
def test_bad_sizes_are_named(name, bad):
    sizes = {"hidden": 16, "inputs": 4} | {name: bad}
    with pytest.raises(ValueError, match=f"{name} must be an integer >= 1, got {bad}"):
        cost("ok", **sizes)
