"""The batch rule: the least n, Monte Carlo, scripted histories."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, strategies as st

from labkit.hessian_free import batch_gradient_variance, linearise, next_batch_size
from labkit.hessian_free.batch_size import grow
from labkit.theorems.hessian_free import (
    gradient_noise,
    least_batch,
    per_example_gradients,
)
from tests.draws import seeded

from .conftest import rand, small_net

positive = st.floats(1e-6, 1e6)


@given(positive, positive, st.integers(1, 10**6), st.floats(0.01, 0.99))
def test_is_the_least_n_that_meets_the_test(V, g2, N, theta):
    finding = least_batch([(V, g2, N, theta)])
    assert finding.holds, finding


@given(positive, positive, st.integers(1, 10**6), st.integers(-20, 20))
def test_does_not_change_with_the_unit_of_the_loss(V, g2, N, power):
    """f -> c f multiplies V and the squared norm by c^2; a power of 2 is exact."""
    c2 = 4.0**power
    n = next_batch_size(V, g2, N, 0.5)
    assert n == next_batch_size(c2 * V, c2 * g2, N, 0.5)


def test_without_noise_one_row_and_without_gradient_all():
    assert next_batch_size(0.0, 1.0, 500, 0.5) == 1
    assert next_batch_size(3.0, 0.0, 500, 0.5) == 500
    assert next_batch_size(0.0, 0.0, 500, 0.5) == 500
    assert next_batch_size(0.0, 1.0, 1, 0.5) == 1


def test_variance_is_that_of_an_explicit_loop():
    finding = gradient_noise(small_net(), rand(9, 5))
    assert finding.holds, finding


def test_expected_squared_error_over_every_sample():
    """Section 4.3's (11) and (12), over all samples of 3 rows out of 8: exact."""
    net, X = small_net(), rand(8, 5)
    G = per_example_gradients(net, X, X)
    full = G.mean(0)
    rows = itertools.combinations(range(8), 3)
    errors = [(G[list(S)].mean(0) - full).square().sum() for S in rows]
    want = G.var(0, unbiased=False).sum() / 3 * (8 - 3) / (8 - 1)
    assert math.isclose(torch.stack(errors).mean(), want, rel_tol=1e-12)


def test_the_batch_asked_for_has_the_noise_asked_for():
    """Monte Carlo: at n_hat of the whole data, E|error|^2 is theta^2 |grad|^2."""
    net, X = small_net(), rand(400, 5)
    N, theta = len(X), 0.3
    V, g2 = batch_gradient_variance(linearise(net, X))
    n = next_batch_size(V, g2, N, theta)
    assert 2 < n < N
    G = per_example_gradients(net, X, X)
    generator = seeded()
    rows = (torch.randperm(N, generator=generator)[:n] for _ in range(3000))
    errors = [(G[S].mean(0) - G.mean(0)).square().sum() for S in rows]
    mean = torch.stack(errors).mean()
    assert abs(mean / (theta**2 * g2) - 1) < 0.15  # n is whole: a step of 1 / n


def run(estimates, losses, n=100, maxiter=150, max_batch_size=1000):
    trace = []
    for i in range(1, len(estimates) + 1):
        growth = grow(n, maxiter, estimates[:i], losses[:i], max_batch_size)
        n, maxiter = growth.n, growth.maxiter
        trace.append(growth)
    return trace


HALVING = [1 / 2**i for i in range(6)]


def test_five_steps_are_left_alone():
    trace = run([900] * 5, [1.0] * 5)
    assert [g.n for g in trace] == [100] * 5
    assert all(g.maxiter == 150 and g.average is None and not g.reason for g in trace)


def test_the_average_is_of_the_last_five():
    trace = run([9999, 100, 200, 301, 400, 500], HALVING)
    assert trace[-1].average == math.ceil((100 + 200 + 301 + 400 + 500) / 5) == 301
    assert trace[-1] == (301, math.ceil(Fraction(301 * 150, 100)), 301, "variance")


def test_a_stalled_loss_grows_by_half_a_percent():
    growth = run([50] * 6, [1.0] * 6)[-1]
    assert growth == (101, 152, 50, "stalled")
    assert grow(1000, 10, [1] * 6, [1.0] * 6, 9999).n == 1005  # no float's 1006
    assert grow(200, 10, [1] * 6, [1.0] * 6, 9999).n == 201


@pytest.mark.parametrize(
    ("five_back", "four_back", "reason"),
    [(1.1, 1, ""), (1, 1.1, "stalled"), (1.0051, 1, ""), (1.0049, 1, "stalled")],
)
def test_the_decrease_is_over_five_steps_back(five_back, four_back, reason):
    """Only the loss of step i - 5 counts: the text's i - 4 would judge otherwise."""
    losses = [five_back, four_back, 1, 1, 1, 1]
    assert grow(100, 150, [1] * 6, losses, 999).reason == reason


def test_it_stops_at_the_cap_and_says_no_reason_there():
    growth = grow(900, 150, [5000] * 6, HALVING, 1000)
    assert growth == (1000, 167, 5000, "variance")
    assert grow(1000, 150, [5000] * 6, HALVING, 1000) == (1000, 150, 5000, "")
    assert grow(1000, 150, [5] * 6, [1.0] * 6, 1000) == (1000, 150, 5, "")


def lists(of, low):
    return st.lists(of, min_size=low, max_size=30)


@given(lists(st.integers(1, 3000), 6), lists(st.floats(0, 10), 30))
def test_it_never_shrinks(estimates, losses):
    trace = run(estimates, losses)
    steps = [(100, 150)] + [(g.n, g.maxiter) for g in trace]
    for (n, budget), (larger, more) in itertools.pairwise(steps):
        assert n <= larger <= 1000
        assert more == math.ceil(Fraction(larger * budget, n))


REFUSED = [
    ((1.0, 1.0, 100, 1.0), r"theta must be in \(0, 1\), got 1"),
    ((1.0, math.nan, 100, 0.5), "gradient_norm2 must be >= 0 and finite"),
]


@pytest.mark.parametrize(("given", "match"), REFUSED)
def test_refuses(given, match):
    with pytest.raises(ValueError, match=match):
        next_batch_size(*given)
