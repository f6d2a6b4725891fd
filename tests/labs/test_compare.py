"""The rules of notebook 06: budgets, looks, same starts; the live race."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.instruments import gradient_cosine
from labkit.labs import compare as lab
from labkit.labs import rules
from labkit.labs.problem import Problem, load_problem, percent, squared_error
from labkit.labs.race import race
from labkit.labs.rules import Job, Sizes, halton
from labkit.panels import LiveLab
from labkit.rtrl import OK, TBPTT

PROBLEM = load_problem("digits", samples=240, tune=1 / 6)
IMAGES = Problem(*(replace(p, targets=p.inputs) for p in vars(PROBLEM).values()))
SIZES = Sizes(3, 16, 8)
JOBS = {
    "classification": Job("", PROBLEM, lab.CLASSIFIERS, SIZES, percent),
    "autoencoder": Job(
        "", IMAGES, lab.AUTOENCODERS, SIZES, squared_error, shares=False
    ),
    "sequences": Job("", PROBLEM, lab.SEQUENCES, SIZES, percent),
}
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
        net = lab.autoencoder(IMAGES.fit, 8, 0)
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
        for _, _, outputs in rule.run(PROBLEM.fit, SIZES, middle(rule), 0):
            seen = outputs(PROBLEM.test.inputs)
        lasts.append(seen)
    assert torch.equal(*lasts)


def test_a_race_is_repeatable_and_seeds_differ():
    job = JOBS["classification"]
    values = {label: middle(job.rules[label]) for label in ("Adam", "BPLS-GN")}
    one, other = (race(job.runners(values), seeds=2).runs for _ in range(2))
    assert one.score.equals(other.score)
    by_seed = [one[one.seed == seed].score.values for seed in (0, 1)]
    assert not np.array_equal(*by_seed)


# Who starts where


def test_broad_learning_scores_by_class_and_has_as_many_weights():
    (*_, (*_, last)) = lab.broad(
        PROBLEM.fit, Sizes(4, 1, 8), {"ridge": 0.1, "shrink": 0.5}, 0
    )
    model = last.__closure__[0].cell_contents
    weights = 8 * 65 + 10 * 9
    assert weights - 10 * 3 <= model.coef_.size <= max(weights, 10 * 90)
    inputs = PROBLEM.test.inputs.double()
    predicted = torch.as_tensor(model.predict(inputs.numpy()))
    assert torch.equal(last(inputs).argmax(1), predicted)


def test_all_start_from_the_same_function():
    inputs = PROBLEM.test.inputs
    net, other = (f(IMAGES.fit, 8, 3) for f in (lab.autoencoder, lab.as_sequential))
    torch.testing.assert_close(other(inputs), net(inputs))
    model = lab.lstm(in_double(), 5, seed=2)
    cell, readout = lab.as_online(model)
    rows = inputs.double()
    torch.testing.assert_close(lab.read(cell, readout, rows), model(rows))


def in_double():
    return replace(PROBLEM.fit, inputs=PROBLEM.fit.inputs.double())


def test_gradients_of_the_sequence_rules():
    X, y = in_double().inputs[:16], PROBLEM.fit.targets[:16]
    model = lab.lstm(in_double(), 4, seed=0)
    (layer,) = model.layers
    weights = layer.weight_hh_l0, layer.weight_ih_l0, layer.bias_ih_l0
    loss = torch.nn.functional.cross_entropy(model(X), y)
    exact = lab.online_layout(*torch.autograd.grad(loss, weights))
    cell, readout = lab.as_online(model)

    def estimate(kind, **options):
        return lab.last_gradient(kind(cell, batch_size=16, **options), readout, X, y)[0]

    def off(gradient):
        return float((gradient - exact).norm() / exact.norm())

    assert off(estimate(TBPTT, horizon=8)) < 1e-13  # float64
    assert 0.01 < off(estimate(TBPTT, horizon=2)) < 1
    g = torch.Generator().manual_seed(0)
    drawn = {
        r: torch.stack([estimate(OK, rank=r, generator=g) for _ in range(20)])
        for r in (1, 8)
    }
    single = {r: float(gradient_cosine(d[0], exact)) for r, d in drawn.items()}
    mean = float(gradient_cosine(drawn[1].mean(0), exact))
    assert single[1] < mean <= 1 and single[1] < single[8] <= 1


# The live race

MIDDLE = {label: middle(rule) for label, rule in lab.CLASSIFIERS.items()}


def live(values=MIDDLE, knobs=None, **options):
    given = (lab.RACE, PROBLEM, values, 8)
    return LiveLab(*given, knobs=knobs, interactive=False, **options)


def test_the_live_race_writes_what_its_panels_show(tmp_path):
    made = live(folder=str(tmp_path))
    frame = made.run(9)
    drawn = {c for panel in made.plot.panels for c in panel.columns}
    assert drawn == set(lab.CLASSIFIERS) and drawn <= set(frame.columns)
    assert frame["Adam"].notna().sum() == 3  # at steps 1, 4 and 8
    assert made.note.value.startswith("minibatch 9")
    made.controls.set(input_noise=1.0, label_noise=0.9, batch=128)
    frame = made.run(4)
    assert len(frame) == 13 and made.trace.frame()["turned"].notna().sum() == 1
    made.controls.set(seed=7)
    assert len(made.run(2)) == 2
    made.trace.close()


@pytest.mark.parametrize("noise", [0.0, 0.9])
@pytest.mark.parametrize("batch", [4, 128])
def test_the_live_race_runs_at_the_ends_of_its_knobs(noise, batch):
    knobs = lab.RaceKnobs(input_noise=noise, label_noise=noise, batch=batch)
    frame = live(knobs=knobs).run(8)
    shown = frame[[k for k in lab.CLASSIFIERS if k not in lab.SOLVED]].iloc[-1].dropna()
    assert ((shown >= 0) & (shown <= 100)).all()


def test_a_rule_that_fails_live_ends_alone():
    made = live(MIDDLE | {"RLS": {"lr": 1e6, "mean_weight": 0.1}})
    frame = made.run(12)
    assert frame["ended"].iloc[-1] == "RLS" and "failure: RLS" in made.note.value
    assert frame["Adam"].iloc[-1] < 100 and pd.isna(frame["RLS"].iloc[-1])


def test_minibatches_carry_the_noise_asked_for():
    knobs = lab.RaceKnobs(label_noise=0.5, batch=128)
    g = torch.Generator().manual_seed(0)
    clean = {
        tuple(x.tolist()): int(y)
        for x, y in zip(PROBLEM.fit.inputs, PROBLEM.fit.targets, strict=True)
    }
    pairs = [lab.draw(PROBLEM.fit, knobs, g) for _ in range(20)]
    wrong = [
        clean[tuple(x.tolist())] != int(t)
        for X, y in pairs
        for x, t in zip(X, y, strict=True)
    ]
    assert 0.41 < np.mean(wrong) < 0.49  # 0.45 of 2,560 labels


def test_a_rule_has_one_colour_and_no_two_of_a_panel_share_one():
    figure, colours = live().plot.figure, {}
    for trace in figure.data:
        if trace.line.color and trace.name in lab.ORDER:
            colours.setdefault(trace.name, set()).add(trace.line.color)
    assert len(colours) == 9 and all(len(each) == 1 for each in colours.values())
    for panel in lab.RACE.panels:
        shown = set.union(*(colours[column] for column in panel.columns))
        assert len(shown) == len(panel.columns)
