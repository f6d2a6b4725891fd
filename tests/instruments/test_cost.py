import dataclasses

import pytest

from labkit.instruments import Cost, cost


def count(n, m, K, P, r):
    return 2 * r * m * K * n * n, r * (m + P * n)


def test_a_formula_is_put_into_numbers():
    assert cost(count, hidden=8, inputs=3) == Cost(2 * 12 * 2 * 64, 4 * (12 + 8))
    lstm = cost(count, hidden=8, inputs=3, blocks=4, parts=2, rank=5)
    assert lstm == Cost(5 * 2 * 12 * 4 * 64, 4 * 5 * (12 + 16))
    one = cost(count, hidden=16, inputs=4, rank=2)
    many = cost(count, hidden=16, inputs=4, rank=2, batch=8, dtype_bytes=8)
    assert (many.flops, many.bytes) == (8 * one.flops, 16 * one.bytes)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.flops = 0


@pytest.mark.parametrize("bad", [0, -1, 2.0, True])
@pytest.mark.parametrize("name", ["hidden", "inputs", "rank", "parts", "batch"])
def test_bad_sizes_are_named(name, bad):
    sizes = {"hidden": 16, "inputs": 4} | {name: bad}
    with pytest.raises(ValueError, match=f"{name} must be an integer >= 1, got {bad}"):
        cost(count, **sizes)
