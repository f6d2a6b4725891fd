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


# f at step 0, 1, 1/2, ..; its slope; and the step that is taken, after how many trials
SEARCHES = [
    (lambda s: 0.5 * (5 * s - 1) ** 2, -5.0, 0.25, 3),  # to a sufficient decrease
    (lambda s: 1.0 + s, 0.0, 0.0, 0),  # never uphill
    (lambda s: 1.0 + s, math.nan, 0.0, 0),
    (lambda s: 2.0 if s else 1.0, -1.0, 0.0, 61),  # 1 and sixty halvings
    (lambda s: math.nan if s else 1.0, -1.0, 0.0, 61),
]


@pytest.mark.parametrize(("f", "slope", "wanted", "trials"), SEARCHES)
def test_the_line_search_halves_until_the_loss_falls_enough(f, slope, wanted, trials):
    tried = []
    s, found, held = line_search(
        lambda s: (tried.append(s) or f(s), "here"), f(0), slope, alpha=1e-4
    )
    assert (s, found, held) == (wanted, f(wanted), "here" if wanted else None)
    assert len(tried) == trials
