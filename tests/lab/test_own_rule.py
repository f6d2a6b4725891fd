"""An optimiser of one's own in the race of notebook 06, and what is refused."""

import pytest
import torch

from labkit.lab.books.rules import optimizer_rule
from labkit.lab.problem import load_problem, percent
from labkit.lab.race import run_race
from labkit.lab.tuning import Comparison, Sizes

PROBLEM = load_problem("digits", samples=240, tune=1 / 6)
SIZES = Sizes(3, 16, 8)


def test_an_optimiser_or_a_function_of_ones_own_joins_by_one_line():
    def function(model, lr):
        return torch.optim.RMSprop(model.parameters(), lr=lr)

    made = {"a": torch.optim.RMSprop, "b": function}
    rules = {k: optimizer_rule(each, lr=(1e-3, 1e-2)) for k, each in made.items()}
    job = Comparison(PROBLEM, rules, SIZES, percent)
    runs = run_race(job.runners({"a": {"lr": 0.01}, "b": {"lr": 0.01}}), seeds=1).runs
    a, b = (runs[runs.label == label].error.tolist() for label in "ab")
    assert a == b and a[-1] > 50


MADE = torch.optim.SGD([torch.zeros(1, requires_grad=True)])


@pytest.mark.parametrize(
    ("optimizer", "lr", "error", "words"),
    [
        (MADE, (0.1, 1.0), TypeError, "to an optimiser, got SGD: each run has a model"),
        (torch.optim.SGD, 0.1, ValueError, r"lr must be two .* got 0\.1"),
        (torch.optim.SGD, (1.0, 0.1), ValueError, "with 0 < low <= high"),
    ],
)
def test_what_is_no_optimiser_or_range_is_refused(optimizer, lr, error, words):
    with pytest.raises(error, match=words):
        optimizer_rule(optimizer, lr=lr)


def test_a_function_that_returns_no_optimiser_is_refused():
    rule = optimizer_rule(lambda model: model)
    with pytest.raises(TypeError, match=r"must return a torch\.optim\.Optimizer, got"):
        next(rule.run(PROBLEM.fit, SIZES, {}, 0))
