"""Races and tuning: rules made up, whose numbers are known."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.errors import DivergedError
from labkit.lab import race as lab
from labkit.lab.books.compare import wrong
from labkit.lab.books.compare_measured import at_best_values
from labkit.lab.datasets import Labelled
from labkit.lab.problem import Problem
from labkit.lab.tuning import Comparison, Rule, Sizes, halton
from tests.draws import seeded


def part(seed, n=360):
    X = torch.randn(n, 2, generator=seeded(seed))
    return Labelled("made up", X, (X[:, 0] > 0).long())


PROBLEM, SIZES = Problem(part(0), part(1), part(2)), Sizes(3, 8, 4)


def outputs(X, missed=0):
    """Outputs that tell all rows right but the first few."""
    miss = torch.arange(len(X)) < missed
    return torch.where(miss, -1, 1)[:, None] * X[:, :1] * torch.tensor([-1, 1])


def after(looks, error=None):
    """A rule that tells all rows right, until it fails if it does."""

    def run(*_):
        for step in range(looks):
            yield step + 1.0, 0.1 * (step + 1), outputs
        if error:
            raise error

    return run


def near(best):
    """A rule that tells more rows wrong, the further its rate is from ``best``."""

    def run(fit, sizes, values, seed):
        missed = 50 * abs(math.log(values["lr"] / best))
        yield float(sizes.passes), float(seed), lambda X: outputs(X, missed)

    return run


def job(problem=PROBLEM, **rules):
    rules = {k: Rule(run, {"lr": (0.01, 1.0)}) for k, run in rules.items()}
    return Comparison(problem, rules, SIZES, wrong)


def test_a_failing_run_ends_with_its_reason_and_the_others_go_on():
    bad, never = after(1, DivergedError("it is inf")), after(0, FloatingPointError())
    made = job(bad=bad, never=never, Adam=after(3))
    result = lab.run_race(made.runners({k: {} for k in made.rules}), seeds=2)
    last = result.last().set_index(["label", "seed"])
    assert last.failed["bad", 1] == "it is inf"
    assert last.failed["never", 0] == "FloatingPointError"
    assert math.isnan(last.error["bad", 0]) and last.passes["bad", 0] == 1
    assert last.error["Adam", 0] == 0 and last.look["Adam", 0] == 2
    assert (result.labels, result.seeds) == (["bad", "never", "Adam"], 2)
    assert lab.spread(result.last(), "error")["mean"].isna().tolist() == [1, 1, 0]
    with pytest.raises(KeyError):  # other errors are not swallowed
        lab.run_race(job(bad=after(1, KeyError("lr"))).runners({"bad": {}}), seeds=1)


def test_a_rule_is_judged_by_rows_that_it_does_not_see_and_noise_is_on_its_own():
    seen = []

    def look(fit, sizes, values, seed):
        seen.append((fit, seed))
        yield 1.0, 1.0, lambda X: seen.append(X) or X

    made = job(it=look)
    lab.run_race(made.runners({"it": {}}, input_noise=0.5), seeds=1)
    lab.run_race({"it": made.runner("it", {}, on=PROBLEM.tune, first=1000)}, seeds=1)
    (noisy, seed), on, (clean, later), other = seen
    assert (seed, later) == (0, 1000)
    assert on is PROBLEM.test.inputs and other is PROBLEM.tune.inputs
    assert clean.inputs is PROBLEM.fit.inputs
    assert not torch.equal(noisy.inputs, clean.inputs)
    assert torch.equal(noisy.targets, clean.targets)


def test_what_cannot_be_run_is_refused():
    with pytest.raises(ValueError, match="rule must be one of Adam"):
        job(Adam=after(3)).runner("Newton", {})
    with pytest.raises(ValueError, match=r"trials must be an integer in 1\.\."):
        halton({"lr": (0.1, 1.0)}, 0)
    with pytest.raises(ValueError, match="passes must be an integer >= 1, got 0"):
        Sizes(passes=0, batch=1, hidden=1)


def test_every_rule_gets_the_same_points_in_its_ranges():
    """On a logarithmic scale; two ranges of one rule have other points."""
    both = halton({"a": (1e-3, 10), "b": (2, 3)}, 5)
    alone = halton({"c": (0.5, 0.9)}, 5)

    def places(trials, name, low, high):
        tried = np.array([trial[name] for trial in trials])
        return np.log(tried / low) / np.log(high / low)

    first, second = places(both, "a", 1e-3, 10), places(both, "b", 2, 3)
    assert all(((0 < each) & (each < 1)).all() for each in (first, second))
    np.testing.assert_allclose(first, places(alone, "c", 0.5, 0.9))
    assert not np.allclose(first, second)


def test_the_best_trial_is_taken_on_tuning_rows_by_seeds_that_serve_no_race():
    tests = Problem(PROBLEM.fit, part(1, 0), PROBLEM.tune)  # no row to look at
    made = job(tests, fits=near(0.3), Adam=near(0.02), bad=after(1, DivergedError()))
    found = [*at_best_values(made, 4, 2)]
    shares = [each for each in found if isinstance(each, float)]
    assert shares == sorted(shares) and shares[-1] == 1.0
    looks = [each for each in found if isinstance(each, dict)]
    chosen = {look["label"]: look["values"] for look in looks}
    given = [each["lr"] for each in halton({"lr": (0.01, 1.0)}, 4)]
    for label, best in (("fits", 0.3), ("Adam", 0.02)):
        nearest = min(given, key=lambda lr: abs(math.log(lr / best)))
        assert chosen[label] == f"lr {nearest:.3g}"
    assert chosen["bad"] == f"lr {given[0]:.3g}"


def test_a_figure_has_the_mean_of_every_rule_in_both_views():
    looks = {"label": "broad", "look": [0, 1], "seconds": [1.0, 2.0], "passes": [1, 2]}
    broad = [
        pd.DataFrame(looks | {"seed": seed, "score": scores})
        for seed, scores in enumerate(([96.0, 98.0], [98.0, 100.0]))
    ]
    adam = [each.assign(label="Adam") for each in broad]
    views = [lab.View(x, "score", x, x, "score, %") for x in ("seconds", "passes")]
    figure = lab.race_figure(lab.Race(pd.concat(broad + adam)), views)
    drawn = {(t["name"], t["xaxis"]): t for t in figure["data"] if t.get("name")}
    assert drawn.keys() == {(n, x) for n in ("Adam", "broad") for x in ("x", "x2")}
    assert list(drawn["Adam", "x"]["y"]) == [97.0, 99.0]
