"""The cost of a step, from a learner's formula."""

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
