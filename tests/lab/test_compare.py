"""Notebook 06: its rules, their budgets and starts, the live race, what it measures."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from labkit.instruments import gradient_cosine
from labkit.lab import problem
from labkit.lab.compare import live as compare, measured, rules, sequences, training
from labkit.lab.panels import LiveLab, Measured
from labkit.lab.problem import Problem, load_problem, percent, squared_error
from labkit.lab.race import run_race
from labkit.lab.tuning import Comparison, Sizes, halton
from labkit.rtrl import OK, TBPTT

nan = math.nan
PROBLEM = load_problem("digits", samples=240, tune=1 / 6)
IMAGES = Problem(*(replace(p, targets=p.inputs) for p in vars(PROBLEM).values()))
EXACT = replace(PROBLEM.fit, inputs=PROBLEM.fit.inputs.double())
SIZES = Sizes(3, 16, 8)
JOBS = {
    "classification": Comparison("", PROBLEM, rules.CLASSIFIERS, SIZES, percent),
    "autoencoder": Comparison(
        "", IMAGES, rules.AUTOENCODERS, SIZES, squared_error, False
    ),
    "sequences": Comparison("", PROBLEM, sequences.SEQUENCES, SIZES, percent),
}
SHORT = Sizes(2, 64, 8)  # where what is learned does not matter
RULES = [(name, label) for name, job in JOBS.items() for label in job.rules]


def middle(rule):
    return halton(rule.ranges, 1)[0]


@pytest.mark.parametrize(("name", "label"), RULES)
def test_every_rule_keeps_to_the_budget_and_learns(name, label):
    job = JOBS[name]
    run = job.runner(label, middle(job.rules[label]), on=job.problem.fit)
    looks = pd.DataFrame(run(0))
    assert looks.passes.iloc[0] > 0 and looks.passes.iloc[-1] <= 3 + 1e-9
    assert looks.passes.is_monotonic_increasing
    assert looks.seconds.iloc[0] > 0 and looks.seconds.is_monotonic_increasing
    assert np.isfinite(looks.score).all()
    if job.shares:
        assert looks.score.max() > 15  # a guess has 10 %
    else:
        net = rules.autoencoder(IMAGES.fit, 8, 0)
        start = squared_error(net(IMAGES.fit.inputs).detach(), IMAGES.fit.targets)
        assert looks.score.min() < start


@pytest.mark.parametrize(
    ("name", "label"), [("classification", "RLS+M"), ("sequences", "OK")]
)
def test_looking_does_not_change_what_is_learned(name, label, monkeypatch):
    """A rule looked at after every step ends with the same weights, to the last bit."""
    rule, lasts = JOBS[name].rules[label], []
    for looks in (2, 1000):
        monkeypatch.setattr(rules, "LOOKS", looks)
        *_, (_, _, outputs) = rule.run(PROBLEM.fit, SHORT, middle(rule), 0)
        lasts.append(outputs(PROBLEM.test.inputs))
    assert torch.equal(*lasts)


def test_a_race_is_repeatable_and_seeds_differ():
    job = JOBS["classification"]
    values = {label: middle(job.rules[label]) for label in ("Adam", "BPLS-GN")}
    one, other = (run_race(job.runners(values), seeds=2).runs for _ in range(2))
    assert one.score.equals(other.score)
    by_seed = [one[one.seed == seed].score.values for seed in (0, 1)]
    assert not np.array_equal(*by_seed)


@pytest.mark.parametrize(("width", "side"), [(1, 4), (4, 4), (13, 4), (30, 6)])
def test_columns_are_shared_out_over_the_rows_of_a_square(width, side):
    X = torch.arange(1.0, 1 + 5 * width).view(5, width)
    part = replace(PROBLEM.fit, inputs=X, targets=torch.arange(5))
    images = sequences.as_squares(Problem(part, part)).test.inputs
    rows = sequences.in_rows(images)
    assert [row.shape for row in rows] == [(5, side)] * side
    assert torch.equal(images[images > 0].view(5, width), X)  # in their order
    assert all((row > 0).any() for row in rows[:width])


def test_muon_has_the_hidden_matrices_and_adamw_all_else():
    for model in (rules.network(PROBLEM.fit, 8, 0), sequences.lstm(PROBLEM.fit, 4, 0)):
        first, rest = rules.muon(model, lr=0.1, adam_lr=0.01).parts
        mine, theirs = (
            {id(p) for group in part.param_groups for p in group["params"]}
            for part in (first, rest)
        )
        assert mine.isdisjoint(theirs)
        assert mine | theirs == {id(p) for p in model.parameters()}
        last = list(model.modules())[-1].weight
        assert id(last) in theirs
        hidden = [p for p in model.parameters() if p.ndim == 2 and p is not last]
        assert mine == {id(p) for p in hidden} and hidden


def test_a_step_of_l_bfgs_reads_all_rows_once(monkeypatch):
    calls = []
    monkeypatch.setattr(
        rules, "cross_entropy", lambda *a: calls.append(1) or cross_entropy(*a)
    )
    looks = list(rules.CLASSIFIERS["L-BFGS"].run(PROBLEM.fit, SIZES, {"lr": 0.5}, 0))
    assert len(calls) == len(looks) == SIZES.passes


# Who starts where


def test_broad_learning_scores_by_class_and_has_as_many_weights():
    values = {"ridge": 0.1, "shrink": 0.5}
    *_, (_, _, last) = rules.broad(PROBLEM.fit, Sizes(4, 1, 8), values, 0)
    held = (cell.cell_contents for cell in last.__closure__)
    model = next(each for each in held if hasattr(each, "weights_"))
    weights = 8 * 65 + 10 * 9
    assert weights - 10 * 3 <= model.weights_.size <= max(weights, 10 * 90)
    inputs = PROBLEM.test.inputs.double()
    predicted = torch.as_tensor(model.predict(inputs.numpy()))
    assert torch.equal(last(inputs).argmax(1), predicted)


def test_the_sequence_rules_start_from_one_network_and_estimate_its_gradient():
    X, y = EXACT.inputs[:16], EXACT.targets[:16]
    model = sequences.lstm(EXACT, 4, seed=0)
    cell, readout = sequences.as_online(model)
    torch.testing.assert_close(sequences.read(cell, readout, X), model(X))
    (layer,) = model.layers
    weights = layer.weight_hh_l0, layer.weight_ih_l0, layer.bias_ih_l0
    loss = torch.nn.functional.cross_entropy(model(X), y)
    exact = sequences.online_layout(*torch.autograd.grad(loss, weights))

    def estimate(kind, **options):
        learner = kind(cell, batch_size=16, **options)
        return sequences.last_gradient(learner, readout, X, y)[0]

    off = [estimate(TBPTT, horizon=rows) - exact for rows in (8, 2)]
    whole, two = (float(each.norm() / exact.norm()) for each in off)
    assert whole < 1e-13 < 0.01 < two < 1  # float64
    g = torch.Generator().manual_seed(0)
    ones, eights = (
        torch.stack([estimate(OK, rank=r, generator=g) for _ in range(20)])
        for r in (1, 8)
    )
    drawn = (ones[0], ones.mean(0), eights[0])
    one, mean, eight = (float(gradient_cosine(d, exact)) for d in drawn)
    assert one < mean <= 1 and one < eight <= 1


# Verdicts


@pytest.mark.parametrize(
    ("name", "label"), [(n, k) for n, k in RULES if JOBS[n].rules[k].gradients]
)
def test_noise_on_the_gradient_reaches_every_rule_that_has_one(name, label):
    """It is drawn anew at each step, from the seed; without it nothing is changed."""
    job, rule = replace(JOBS[name], sizes=SHORT), JOBS[name].rules[label]
    scores = [
        [look["score"] for look in job.runner(label, middle(rule), **noise)(0)]
        for noise in ({}, {"gradient_noise": 2.0}, {"gradient_noise": 2.0})
    ]
    assert scores[1] == scores[2] != scores[0]


def test_a_rule_without_a_gradient_is_left_out_under_its_noise():
    job = JOBS["classification"]
    solved = [label for label, rule in job.rules.items() if not rule.gradients]
    assert solved == ["Hessian-free", "BPLS", "BPLS-GN", "broad"]
    values = {label: middle(rule) for label, rule in job.rules.items()}
    assert list(job.runners(values, gradient_noise=0.0)) == list(job.rules)
    raced = job.runners(values, gradient_noise=1.0)
    assert list(raced) == [label for label in job.rules if label not in solved]
    with pytest.raises(ValueError, match="BPLS has no gradient that noise could be"):
        job.runner("BPLS", values["BPLS"], gradient_noise=1.0)
    with pytest.raises(ValueError, match="gradient_noise must be"):
        job.runner("Adam", values["Adam"], gradient_noise=-1.0)


def test_noise_on_a_gradient_is_as_large_as_asked_for():
    g = torch.Generator().manual_seed(0)
    gradient = 3.0 * torch.randn(100, 100, generator=g)
    assert problem.disturbed(gradient, 0.0, g) is gradient
    added = problem.disturbed(gradient, 0.5, g) - gradient
    assert float(added.norm() / gradient.norm()) == pytest.approx(0.5, rel=0.05)
    assert abs(float((added * gradient).mean())) < 0.1  # it knows nothing of it


# The live race

MIDDLE = {label: middle(rules.CLASSIFIERS[label]) for label in compare.ALL}


def live(values=MIDDLE, knobs=None, **options):
    given = (compare.RACE, PROBLEM, values, 8)
    return LiveLab(*given, knobs=knobs, interactive=False, **options)


def test_the_live_race_writes_what_its_panels_show(tmp_path):
    made = live(folder=str(tmp_path))
    frame = made.run(9)
    drawn = {c for panel in made.plot.panels for c in panel.columns}
    assert drawn == set(MIDDLE) and drawn <= set(frame.columns)
    assert frame["Adam"].notna().sum() == 3  # at steps 1, 4 and 8
    assert made.note.value.startswith("minibatch 9")
    made.controls.set(input_noise=1.0, label_noise=0.9, batch=128)
    frame = made.run(4)
    assert len(frame) == 13 and made.trace.frame()["turned"].notna().sum() == 1
    made.controls.set(seed=7)
    assert len(made.run(2)) == 2
    made.trace.close()


def test_a_rule_that_fails_live_ends_alone():
    made = live(MIDDLE | {"RLS": {"lr": 1e6, "mean_weight": 0.1}})
    frame = made.run(12)
    assert frame["ended"].iloc[-1] == "RLS" and "failure: RLS" in made.note.value
    assert frame["Adam"].iloc[-1] < 100 and pd.isna(frame["RLS"].iloc[-1])


def test_minibatches_carry_the_noise_asked_for():
    knobs = compare.RaceKnobs(label_noise=0.5, batch=128)
    g, fit = torch.Generator().manual_seed(0), PROBLEM.fit
    drawn = [training.draw(fit, knobs, g) for _ in range(20)]
    X, y = (torch.cat(each) for each in zip(*drawn, strict=True))
    clean = fit.targets[torch.cdist(X, fit.inputs).argmin(1)]
    assert 0.41 < float((clean != y).double().mean()) < 0.49  # 0.45 of 2,560 labels


def test_a_rule_has_one_look_and_no_two_of_a_panel_share_one():
    figure, colours = live().plot.figure, {}
    for trace in figure["data"]:
        if "line" in trace and trace["name"] in rules.CLASSIFIERS:
            look = trace["line"]["color"], trace["line"]["dash"]
            colours.setdefault(trace["name"], set()).add(look)
    assert len(colours) == 10 and all(len(each) == 1 for each in colours.values())
    for panel in compare.RACE.panels:
        shown = set.union(*(colours[column] for column in panel.columns))
        assert len(shown) == len(panel.columns)


def test_another_data_set_is_chosen_in_the_panel(tmp_path):
    """An offer runs, and so does a path; what will not do is refused in words."""
    given = (compare.RACE_ON_DATA, lambda: PROBLEM, MIDDLE, 4)
    made = LiveLab(*given, interactive=True)
    menu = made.controls.widgets["data"]
    assert set(compare.OFFERED) <= set(menu.options)
    first = made.run(1).Adam.iloc[-1]
    menu.value = "iris"
    assert made.controls.value.data == "iris" and len(made.trace) == 0
    on_iris = made.run(4)
    assert on_iris.Adam.iloc[-1] != first
    table = pd.DataFrame({"x": range(20), "y": ["u", "v"] * 10})
    table.to_csv(path := tmp_path / "mine.csv", index=False)
    menu.value = str(path)
    assert len(made.run(1)) == 1 and made.controls.value.data == str(path)
    for wrong, message in (
        ("none.csv", "there is no file none.csv"),
        ("iriss", "unknown data set"),
    ):
        menu.value = wrong
        assert message in made.controls.widget.children[4].value
        assert menu.value == made.controls.value.data == str(path)
    made.close()


# What is measured

FEW = {"data": "digits", "target": "", "device": "cpu"}
FEW |= {"samples": 200, "hidden": 8, "passes": 2, "seeds": 2}


def test_a_tuned_race_takes_the_best_trial_of_each_rule_and_keeps_the_budget():
    rules_of = {name: rules.CLASSIFIERS[name] for name in ("Adam", "BPLS")}
    found = [*measured.tuned_race(rules=rules_of, trials=3, **FEW)]
    shares = [each for each in found if isinstance(each, float)]
    assert shares == sorted(shares) and shares[-1] == 1.0
    rows = pd.DataFrame([each for each in found if not isinstance(each, float)])
    assert set(rows["label"]) == set(rules_of) and set(rows["seed"]) == {0, 1}
    assert rows["passes"].max() <= 2 + 1e-9
    assert (rows["error"] == 100 - rows["score"]).all()
    ended = measured.ends(rows)
    assert ended["mean"].is_monotonic_increasing


def test_noise_is_put_on_one_kind_after_another():
    noise = {"input_noise": 1.0, "label_noise": 0.9, "gradient_noise": 3.0}
    found = measured.noisy_race(**noise, **FEW)
    rows = pd.DataFrame([each for each in found if not isinstance(each, float)])
    assert list(dict.fromkeys(rows["noise"])) == ["none", *measured.KINDS]
    table = measured.under_noise(rows)
    assert table.loc["BPLS", "gradient_noise"] != table.loc["BPLS", "gradient_noise"]
    assert table.loc["Adam", "label_noise"] > table.loc["Adam", "none"]


def test_each_record_holds_beyond_two_standard_errors():
    own = measured.own_race(rules.CLASSIFIERS["SGD"])
    for each in (measured.RACE_TUNED, measured.RACE_NOISY, own):
        shown = Measured(each)
        assert shown.finding.holds, shown.finding
