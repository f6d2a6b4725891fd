"""The rules that the steps of SHF and of Martens' method share."""

import math

import pytest
import torch

from labkit.hessian_free import Autoencoder, HessianFree, MartensHF
from labkit.hessian_free.step import adapted_damping, line_search


def test_damping_rule():
    ratios = (-math.inf, 0.1, 0.25, 0.5, 0.75, 0.8)
    next_ones = [adapted_damping(1.0, rho, 0.5) for rho in ratios]
    assert next_ones == [2.0, 2.0, 1.0, 1.0, 1.0, 0.5]
    assert adapted_damping(1e-18, 0.8, 0.5) == 1e-18
    assert adapted_damping(1e18, -math.inf, 0.5) == 1e18


@pytest.mark.parametrize("kind", [HessianFree, MartensHF])
def test_steps_that_all_fail_raise_the_damping_no_further_than_float32_holds(kind):
    torch.manual_seed(0)
    made = kind(Autoencoder((5, 3, 5), incoming=3), damping=1e18, damping_decay=0.01)
    for _ in range(12):
        made.step(torch.zeros(8, 5))
    assert made.param_groups[0]["damping"] == 1e18
    assert all(weight.isfinite().all() for weight in made.model.parameters())


def quadratic(x):
    return 0.5 * (x - 1) ** 2


def test_line_search_halves_to_a_sufficient_decrease():
    tried = []

    def trial(s):
        tried.append(s)
        return quadratic(5 * s), "here"

    s, f, found = line_search(trial, quadratic(0), -5.0, alpha=1e-4)
    assert tried == [1.0, 0.5, 0.25]
    assert (s, f, found) == (0.25, quadratic(1.25), "here")


@pytest.mark.parametrize("slope", [0.0, 1e-9, math.nan])
def test_line_search_refuses_to_go_uphill(slope):
    def trial(s):
        raise AssertionError("nothing to try")

    assert line_search(trial, 1.0, slope, alpha=1e-4) == (0.0, 1.0, None)


@pytest.mark.parametrize("value", [2.0, math.nan, math.inf])
def test_line_search_ends(value):
    tried = []
    found = line_search(lambda s: (tried.append(s) or value, s), 1.0, -1.0, alpha=1e-4)
    assert found == (0.0, 1.0, None)
    assert len(tried) == 61  # 1 and sixty halvings
