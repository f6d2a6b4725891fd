"""Diagonal preconditioners (float64)."""

import pytest
import torch

from labkit.hessian_free import diagonal_preconditioner, linearise
from labkit.theorems.hessian_free import (
    joined,
    per_example_gradients,
    unbiased_diagonal,
)
from tests.draws import seeded

from .conftest import rand, relative, small_net


def a_point(n=4):
    net, X = small_net((2, 3, 2)), rand(n, 2)
    return net, X, linearise(net, X)


def test_expectation_over_all_signs_is_the_diagonal():
    finding = unbiased_diagonal(small_net((2, 3, 2)), rand(4, 2))
    assert finding.holds, finding


def test_one_draw_is_the_formula_example_by_example():
    net, X = small_net(), rand(6, 5)
    c = joined(diagonal_preconditioner(linearise(net, X), generator=seeded(1)))
    bits = torch.randint(0, 2, (6, 5), generator=seeded(1), dtype=torch.float64)
    signs = bits * 2 - 1
    squares = per_example_gradients(net, X, X, signs).square().sum(0)
    assert relative(c, 1 / (1 + (squares / 6).sqrt())) < 1e-12
    assert 0 < c.min() and c.max() <= 1


def test_fisher_is_martens():
    net, X, point = a_point(n=6)
    c = joined(diagonal_preconditioner(point, "fisher", damping=0.3))
    squares = per_example_gradients(net, X, X).square().mean(0)
    M = (squares + 0.3**2) ** 0.75
    assert relative(c, M**-0.5) < 1e-12


def test_jacobi_makes_the_diagonal_equal():
    _, _, point = a_point()
    options = {"damping": 0.3, "generator": seeded(2)}
    c = joined(diagonal_preconditioner(point, "jacobi", **options))
    signs = joined(diagonal_preconditioner(point, generator=seeded(2)))
    estimate = (1 / signs - 1) ** 2
    assert torch.allclose(c**2 * (estimate + 0.09), torch.ones_like(c))


def test_none_is_none_and_draws_nothing():
    _, _, point = a_point()
    generator = seeded()
    assert diagonal_preconditioner(point, "none", generator=generator) is None
    assert torch.equal(generator.get_state(), seeded().get_state())


def test_jacobi_needs_damping():
    _, _, point = a_point()
    with pytest.raises(ValueError, match="needs damping > 0, got 0"):
        diagonal_preconditioner(point, "jacobi", damping=0)
