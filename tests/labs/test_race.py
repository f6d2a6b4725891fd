"""Races, tuning and verdicts: rules made up, whose numbers are known."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.datasets import Labelled
from labkit.errors import DivergedError
from labkit.labs import race as lab
from labkit.labs.problem import Problem, percent
from labkit.labs.rules import Job, Rule, Sizes, halton, tune

nan = math.nan


def part(seed, n=360):
    X = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return Labelled("made up", X, (X[:, 0] > 0).long())


PROBLEM = Problem(part(0), part(1), part(2))


def told(X, wrong=0):
    """Outputs that tell all rows right but the first few."""
    miss = torch.arange(len(X)) < wrong
    return torch.where(miss, -1, 1)[:, None] * X[:, :1] * torch.tensor([-1, 1])


def right(fit, sizes, values, seed):
    for step in range(sizes.passes):
        yield step + 1.0, 0.1 * (step + 1), told


def explode(*_):
    yield 0.5, 0.1, told
    raise DivergedError("the loss is inf")


def at_once(*_):
    raise FloatingPointError
    yield


def near(best):
    """A rule that tells more rows wrong, the further its rate is from ``best``."""

    def run(fit, sizes, values, seed):
        wrong = 50 * abs(math.log(values["lr"] / best))
        yield float(sizes.passes), float(seed), lambda X: told(X, wrong)

    return run


def job(shares=True, **rules):
    rules = {k: Rule(run, {"lr": (0.01, 1.0)}, "it") for k, run in rules.items()}
    return Job("made up", PROBLEM, rules, Sizes(3, 8, 4), percent, shares)


def made_up(runs):
    """Rule -> (scores by seed, seconds to each, score at first): two looks."""
    rows = [
        {"label": label, "seed": seed, "look": look, "passes": 1.0 + look}
        | {"seconds": seconds * (1 + look), "score": score if look else start}
        for label, (scores, seconds, start) in runs.items()
        for seed, score in enumerate(scores)
        for look in (0, 1)
    ]
    return lab.Race(pd.DataFrame(rows))


# The harness


def test_a_failing_run_ends_with_its_reason_and_the_others_go_on(tmp_path):
    runners = job(bad=explode, never=at_once, Adam=right).runners(
        {label: {} for label in ("bad", "never", "Adam")}
    )
    result = lab.race(runners, seeds=2, setting="here", path=tmp_path / "race.jsonl")
    last = result.last().set_index(["label", "seed"])
    assert last.failed["bad", 1] == "the loss is inf"
    assert last.failed["never", 0] == "FloatingPointError"
    assert math.isnan(last.score["bad", 0]) and last.passes["bad", 0] == 0.5
    assert last.score["Adam", 0] == 100 and last.look["Adam", 0] == 2
    assert (result.labels, result.seeds) == (["bad", "never", "Adam"], 2)
    assert lab.spread(result.last(), "score")["mean"].isna().tolist() == [1, 1, 0]
    lines = (tmp_path / "race.jsonl").read_text().splitlines()
    assert len(lines) == len(result.runs) + 1 and '"here"' in lines[0]


def test_other_errors_are_not_swallowed():
    def wrong(*_):
        raise KeyError("lr")
        yield

    with pytest.raises(KeyError):
        lab.race(job(bad=wrong).runners({"bad": {}}), seeds=1)


def test_best_is_the_earliest_best_look():
    runs = pd.DataFrame(
        {"label": "a", "seed": 0, "look": range(4), "score": [1.0, 3.0, 3.0, nan]}
    )
    result = lab.Race(runs)
    assert result.best("score").look.tolist() == [1]
    assert result.best("score", higher=False).look.tolist() == [0]


def test_a_rule_is_scored_on_rows_that_it_does_not_see_and_noise_is_on_its_own():
    seen = []

    def look(fit, sizes, values, seed):
        seen.append((fit, seed))
        yield 1.0, 1.0, lambda X: seen.append(X) or X

    made = job(it=look)
    lab.race(made.runners({"it": {}}, inputs=0.5), seeds=1)
    lab.race({"it": made.runner("it", {}, on=PROBLEM.tune, first=1000)}, seeds=1)
    (noisy, seed), on, (clean, later), other = seen
    assert (seed, later) == (0, 1000)
    assert on is PROBLEM.test.inputs and other is PROBLEM.tune.inputs
    assert clean.inputs is PROBLEM.fit.inputs
    assert not torch.equal(noisy.inputs, clean.inputs)
    assert torch.equal(noisy.targets, clean.targets)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: job(Adam=right).runner("Newton", {}), "rule must be one of Adam"),
        (lambda: halton({"lr": (0.1, 1.0)}, 0), "trials must be an integer >= 1"),
        (lambda: Sizes(0, 8, 4), "passes must be an integer >= 1, got 0"),
        (lambda: Sizes(3, 0, 4), "batch must be an integer >= 1, got 0"),
    ],
)
def test_what_cannot_be_run_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Equal tuning


def test_every_rule_gets_the_same_points_in_its_ranges():
    ranges = [
        {"lr": (0.01, 1.0)}, {"a": (1e-3, 10.0), "b": (2.0, 3.0)}, {"c": (0.5, 0.9)}
    ]  # fmt: skip
    places = [
        [
            [math.log(t[k] / low) / math.log(high / low) for t in halton(each, 5)]
            for k, (low, high) in each.items()
        ]
        for each in ranges
    ]
    assert all(0 < u < 1 for place in places for us in place for u in us)
    for place in places:
        np.testing.assert_allclose(place[0], places[0][0])
    assert not np.allclose(places[1][0], places[1][1])


def test_the_best_trial_is_taken_on_tuning_rows_by_seeds_that_serve_no_race():
    tests = Problem(PROBLEM.fit, part(1, 0), PROBLEM.tune)  # no row to look at
    made = job(fits=near(0.3), Adam=near(0.02), bad=explode)
    made = Job("made up", tests, made.rules, made.sizes, percent)
    chosen, tried = tune(made, 4, seeds=2)
    assert tried.label.value_counts().tolist() == [4, 4, 4]
    for label, best in (("fits", 0.3), ("Adam", 0.02)):
        given = [each["lr"] for each in halton({"lr": (0.01, 1.0)}, 4)]
        assert chosen[label]["lr"] == min(
            given, key=lambda lr: abs(math.log(lr / best))
        )
        assert tried[tried.label == label].seconds.tolist() == [1000.5] * 4
    bad = tried[tried.label == "bad"]
    assert bad["mean"].isna().all() and chosen["bad"] == bad["values"].iloc[0]


# Verdicts


@pytest.mark.parametrize(
    ("a", "b", "higher", "said"),
    [
        ((95.0, 0.5), (93.0, 0.5), True, "ahead"),
        ((95.0, 0.5), (93.0, 0.5), False, "behind"),
        ((95.0, 1.5), (93.0, 0.5), True, "level"),
        ((95.0, nan), (93.0, 0.5), True, "level"),  # one seed decides nothing
        ((nan, nan), (93.0, 0.5), True, "behind"),
        ((95.0, 0.5), (nan, 0.5), False, "ahead"),
    ],
)
def test_ahead_is_by_more_than_both_spreads(a, b, higher, said):
    a, b = ({"mean": mean, "sd": sd} for mean, sd in (a, b))
    assert lab.compared(a, b, higher=higher) == said
    assert lab.compared(a, b, higher=higher, least=3.0) in ("level", said)
    told = {"ahead": lab.YES, "behind": lab.NO}.get(said, lab.UNDECIDED)
    failed = math.isnan(a["mean"] + b["mean"])
    assert lab.verdict(a, b, higher=higher) == (lab.UNDECIDED if failed else told)


RUNS = {
    "Adam": ((95.0, 95.2), 1.0, 50.0),
    "SGD": ((94.9, 95.5), 2.0, 50.0),
    "RLS": ((85.0, 94.0), 0.1, 50.0),
    "broad": ((99.0, 99.1), 0.3, 97.0),
    "BPLS": ((nan, 99.0), 0.3, 97.0),
}


def test_verdicts_follow_the_numbers():
    result, made = made_up(RUNS), job()
    assert lab.goal(made, result) == pytest.approx(99.05 - lab.POINTS)
    pays = lab.pays_table(made, result)
    assert pays["at the end"].to_dict() == {
        "SGD": "level", "RLS": "level", "broad": "ahead", "BPLS": "behind"
    }  # fmt: skip
    assert pays.loc["broad", "seconds to goal"] == "ahead"
    assert pays.loc["SGD", "pays here"] == pays.loc["BPLS", "pays here"] == "no"
    ends = lab.spread(result.last(), "score")
    assert lab.leaders(made, ends) == ["broad"]
    told = lab.findings(made, result)
    assert "At the end of the budget broad (99.0 ± 0.1 %) is ahead" in told
    assert "Adam does not get there in every seed" in told
    assert "Not at 96.0 % in every seed: Adam, SGD, RLS, BPLS." in told


def test_who_is_first_is_said_once():
    runs = {"Adam": ((95.0, 95.2), 1.0, 95.0), "RLS": ((90.0, 90.2), 1.0, 50.0)}
    told = lab.findings(job(), made_up(runs))
    assert "by seconds of its own work: Adam (1 s).\n" in told
    assert "passes over the rows: Adam (1 passes).\n" in told


@pytest.mark.parametrize(
    ("adam", "rls", "said"),
    [
        # 360 rows: a standard error of 1.15 points at 95 %
        ((95.0, 95.0), (95.5, 95.5), "level"),
        ((95.0, 95.0), (96.2, 96.2), "ahead"),
        ((50.0,), (95.5,), "level"),
    ],
)
def test_few_test_rows_and_few_seeds_decide_nothing(adam, rls, said):
    result = made_up({"Adam": (adam, 1.0, 50.0), "RLS": (rls, 1.0, 50.0)})
    assert lab.pays_table(job(), result).loc["RLS", "at the end"] == said


def test_errors_are_better_when_lower():
    runs = {"Adam": ((3.0, 3.1), 1.0, 9.0), "RLS": ((1.0, 1.1), 2.0, 9.0)}
    result, made = made_up(runs), job(shares=False)
    assert lab.goal(made, result) == pytest.approx(1.05 * lab.FACTOR)
    pays = lab.pays_table(made, result).loc["RLS"]
    assert pays["at the end"] == "ahead" and pays["seconds to goal"] == "ahead"
    assert "RLS (1.05 ± 0.07) is ahead of all" in lab.findings(made, result)


@pytest.mark.parametrize(
    ("seconds", "scores", "said"),
    [
        (1.0, (95.0, 95.2), "ahead"),
        (1.7, (95.0, 95.2), "level"),
        (3.0, (95.0, 95.2), "behind"),
        (1.0, (80.0, 95.2), "level"),  # one seed misses the goal, the ends are level
        (1.0, (80.0, 80.2), "behind"),
        (1.0, (nan, 95.2), "behind"),
    ],
)
def test_clocks_are_compared_with_a_margin(seconds, scores, said):
    runs = {"Adam": ((95.0, 95.2), 2.0, 50.0), "RLS": (scores, seconds, 50.0)}
    pays = lab.pays_table(job(), made_up(runs))
    assert pays.loc["RLS", "seconds to goal"] == said


def test_who_misses_the_goal_in_one_seed_is_not_first():
    runs = {"Adam": ((95.0, 60.0), 2.0, 50.0), "RLS": ((nan, 95.0), 1.0, 50.0)}
    times = lab.to_goal(job(), made_up(runs)).seconds
    assert lab.fastest(times) == ["Adam"] and math.isnan(times["RLS"])


def test_noise_is_judged_by_the_mean_over_its_levels():
    def level(*scores):
        return made_up({"Adam": ((90.0, 90.0), 1, 50), "RLS": (scores, 1, 50)})

    races = {0.2: level(90.0, 92.0), 0.4: level(80.0, 82.0)}
    table = lab.under_noise(races)
    assert table.loc["RLS"].tolist() == pytest.approx([86.0, math.sqrt(2)])
    noise = {"labels": races}
    assert (
        lab.pays_table(job(), races[0.2], noise).loc["RLS", "noisy labels"] == "behind"
    )
    assert "Noise on labels, mean over its levels" in lab.findings(
        job(), races[0.2], noise
    )


def test_a_figure_has_every_rule_in_both_views_and_in_its_colour():
    result = made_up({"broad": RUNS["broad"], "Adam": RUNS["Adam"]})
    views = [
        lab.View(x, "score", x.title(), x, "score, %", log_x=True)
        for x in ("seconds", "passes")
    ]
    figure = lab.race_figure(result, views, order=["Adam", "SGD", "broad"])
    drawn = {(t.name, t.xaxis): t for t in figure.data if t.name}
    assert drawn.keys() == {(n, x) for n in ("Adam", "broad") for x in ("x", "x2")}
    assert list(drawn["Adam", "x"].y) == pytest.approx([50.0, 95.1])
    alone = lab.race_figure(lab.Race(result.runs[result.runs.label == "broad"]), views)
    first = next(trace for trace in alone.data if trace.name)
    assert drawn["Adam", "x"].line.color == first.line.color  # the first of its order
    assert drawn["broad", "x"].line.color != first.line.color
