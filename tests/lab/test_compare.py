"""Notebook 06: its rules, their budgets and starts, the live race, what it measures."""

import inspect
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from labkit.lab import problem
from labkit.lab.books import compare, compare_measured as measured, rules
from labkit.lab.panels import LiveLab
from labkit.lab.problem import Problem, load_problem, squared_error
from labkit.lab.tuning import Comparison, Sizes, halton
from reproduction.compare import REBUILT, autoencoder
from tests.draws import seeded

PROBLEM = load_problem("digits", samples=240, tune=1 / 6)
IMAGES = Problem(*(replace(p, targets=p.inputs) for p in vars(PROBLEM).values()))
SIZES, SHORT = Sizes(3, 16, 8), Sizes(2, 64, 8)
JOBS = {
    "classification": Comparison(PROBLEM, rules.CLASSIFIERS, SIZES, compare.wrong),
    "autoencoder": Comparison(IMAGES, REBUILT, SIZES, squared_error),
}
RULES = [(name, label) for name, job in JOBS.items() for label in job.rules]


def middle(rule):
    return halton(rule.ranges, 1)[0]


@pytest.mark.parametrize(("name", "label"), RULES)
def test_every_rule_keeps_to_the_budget_and_learns(name, label):
    job, bar = JOBS[name], 85  # a guess has 90 % wrong
    if name == "autoencoder":
        net = autoencoder(IMAGES.fit, 8, 0)
        bar = squared_error(net(IMAGES.fit.inputs).detach(), IMAGES.fit.targets)
    run = job.runner(label, middle(job.rules[label]), on=job.problem.fit)
    looks = pd.DataFrame(run(0))
    assert looks.passes.iloc[0] > 0 and looks.passes.iloc[-1] <= 3 + 1e-9
    assert looks.passes.is_monotonic_increasing
    assert looks.seconds.iloc[0] > 0 and looks.seconds.is_monotonic_increasing
    assert np.isfinite(looks.error).all() and looks.error.min() < bar


def test_looking_does_not_change_what_is_learned(monkeypatch):
    """A rule looked at after every step ends with the same weights, to the last bit."""
    rule, lasts = rules.CLASSIFIERS["RLS+M"], []
    for looks in (2, 1000):
        monkeypatch.setattr(rules, "LOOKS", looks)
        *_, (_, _, outputs) = rule.run(PROBLEM.fit, SHORT, middle(rule), 0)
        lasts.append(outputs(PROBLEM.test.inputs))
    assert torch.equal(*lasts)


def test_muon_has_the_hidden_matrices_and_adamw_all_else():
    model = rules.network(PROBLEM.fit, 8, 0)
    parts = rules.muon(model, lr=0.1, adam_lr=0.01).parts
    by_muon, rest = ([id(p) for p in part.param_groups[0]["params"]] for part in parts)
    first, _, last = model
    assert by_muon == [id(first.weight)]
    assert rest == [id(p) for p in (first.bias, last.weight, last.bias)]


def test_a_step_of_l_bfgs_reads_all_rows_once(monkeypatch):
    calls = []
    monkeypatch.setattr(
        rules, "cross_entropy", lambda *a: calls.append(1) or cross_entropy(*a)
    )
    looks = list(rules.CLASSIFIERS["L-BFGS"].run(PROBLEM.fit, SIZES, {"lr": 0.5}, 0))
    assert len(calls) == len(looks) == SIZES.passes


def test_broad_learning_scores_by_class_and_has_as_many_weights():
    values, few = {"ridge": 0.1, "shrink": 0.5}, PROBLEM.fit.targets > 0
    lacking = problem.rows(PROBLEM.fit, few)  # none of the first class
    inputs = PROBLEM.test.inputs.double()
    for fit in (lacking, PROBLEM.fit):
        *_, (_, _, last) = rules.broad(fit, Sizes(4, 1, 8), values, 0)
        model = inspect.getclosurevars(last).nonlocals["model"]
        predicted = torch.as_tensor(model.predict(inputs.numpy()))
        assert torch.equal(last(inputs).argmax(1), predicted)
    weights = 8 * 65 + 10 * 9
    assert weights - 10 * 3 <= model.weights_.size <= max(weights, 10 * 90)


# Noise


@pytest.mark.parametrize(
    ("name", "label"), [(n, k) for n, k in RULES if JOBS[n].rules[k].gradients]
)
def test_noise_on_the_gradient_reaches_every_rule_that_has_one(name, label):
    """It is drawn anew at each step, from the seed; without it nothing is changed."""
    job, rule = replace(JOBS[name], sizes=SHORT), JOBS[name].rules[label]
    errors = [
        [look["error"] for look in job.runner(label, middle(rule), **noise)(0)]
        for noise in ({}, {"gradient_noise": 2.0}, {"gradient_noise": 2.0})
    ]
    assert errors[1] == errors[2] != errors[0]


def test_noise_on_a_gradient_is_as_large_as_asked_for():
    generator = seeded()
    gradient = 3.0 * torch.randn(100, 100, generator=generator)
    assert problem.disturbed(gradient, 0.0, generator) is gradient
    added = problem.disturbed(gradient, 0.5, generator) - gradient
    assert float(added.norm() / gradient.norm()) == pytest.approx(0.5, rel=0.05)
    assert abs(float((added * gradient).mean())) < 0.1  # it knows nothing of it


# The live race


def test_a_rule_that_fails_live_ends_alone(monkeypatch):
    values = compare.middle_values() | {"RLS": {"lr": 1e6, "mean_weight": 0.1}}
    monkeypatch.setattr(compare, "middle_values", lambda: values)
    made = LiveLab(compare.RACE, interactive=False)
    frame = made.run(6)
    assert frame["ended"].iloc[-1] == "RLS" and "failure: RLS" in made.note.value
    assert frame["Adam"].iloc[-1] < 100 and pd.isna(frame["RLS"].iloc[-1])


# What is measured


def test_noise_is_put_on_one_kind_after_another():
    noise = {"input_noise": 1.0, "label_noise": 0.9, "gradient_noise": 3.0}
    setting = {"data": "digits", "target": "", "device": "cpu", "samples": 200}
    found = measured.noisy_race(**noise, **setting, hidden=8, passes=2, seeds=2)
    rows = pd.DataFrame([each for each in found if not isinstance(each, float)])
    assert list(dict.fromkeys(rows["noise"])) == ["none", *measured.KINDS]
    table = measured.under_noise(rows)
    left_out = set(table.index[table["gradient_noise"].isna()])
    assert left_out == {"Hessian-free", "BPLS", "BPLS-GN", "broad"}
    assert table["none"].notna().all()
    assert table.loc["Adam", "label_noise"] > table.loc["Adam", "none"]
