"""Notebook 06: its rules' budgets, looks and starts, its verdicts, the live race."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from labkit.instruments import gradient_cosine
from labkit.lab import problem
from labkit.lab.compare import (
    live as compare,
    noise,
    rules,
    sequences,
    training,
    verdicts,
)
from labkit.lab.panels import LiveLab
from labkit.lab.problem import Problem, load_problem, percent, squared_error
from labkit.lab.race import Race, run_race
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


def made_up(**runs):
    """Rule -> (scores by seed, seconds to each, score at first): two looks."""
    rows = [
        {"label": label, "seed": seed, "look": look, "passes": 1.0 + look}
        | {"seconds": seconds * (1 + look), "score": score if look else start}
        for label, (scores, seconds, start) in runs.items()
        for seed, score in enumerate(scores)
        for look in (0, 1)
    ]
    return Race(pd.DataFrame(rows))


JOB = Comparison("made up", PROBLEM, {}, SIZES, percent)  # 360 test rows
RUNS = {
    "Adam": ((95.0, 95.2), 1.0, 50.0),
    "SGD": ((94.9, 95.5), 2.0, 50.0),
    "RLS": ((85.0, 94.0), 0.1, 50.0),
    "broad": ((99.0, 99.1), 0.3, 97.0),
    "BPLS": ((nan, 99.0), 0.3, 97.0),
}


def judged(noise=None, comparison=JOB, **runs):
    return verdicts.Judged(comparison, made_up(**runs), noise or {})


def test_verdicts_follow_the_numbers():
    made = judged(**RUNS)
    assert made.goal() == pytest.approx(99.05 - verdicts.POINTS)
    pays = verdicts.pays_table(made)
    expected = {"SGD": "level", "RLS": "level", "broad": "ahead", "BPLS": "behind"}
    assert pays["at the end"].to_dict() == expected
    assert pays.loc["broad", "seconds to goal"] == "ahead"
    assert pays.loc["SGD", "pays here"] == pays.loc["BPLS", "pays here"] == "no"
    assert verdicts.leaders(JOB, made.ends()) == ["broad"]
    words = verdicts.findings(made)
    assert "At the end of the budget, broad (99.0 ± 0.1 %) is ahead" in words
    assert "Adam does not get there in every seed" in words
    assert "Not at 96.0 % in every seed: Adam, SGD, RLS, BPLS." in words


LEVEL, SLOW = (95.0, 95.2), "seconds to goal"


@pytest.mark.parametrize(
    ("adam", "rls", "seconds", "count", "said"),
    [
        # 360 rows: a standard error of 1.15 points at 95 %
        ((95.0, 95.0), (95.5, 95.5), 2.0, "at the end", "level"),
        ((95.0, 95.0), (96.2, 96.2), 2.0, "at the end", "ahead"),
        ((50.0,), (95.5,), 2.0, "at the end", "level"),  # one seed decides nothing
        (LEVEL, LEVEL, 1.0, SLOW, "ahead"),
        (LEVEL, LEVEL, 1.7, SLOW, "level"),
        (LEVEL, LEVEL, 3.0, SLOW, "behind"),
        (LEVEL, (80.0, 95.2), 1.0, SLOW, "level"),  # the ends are, if a seed misses
        (LEVEL, (80.0, 80.2), 1.0, SLOW, "behind"),
        (LEVEL, (nan, 95.2), 1.0, SLOW, "behind"),
        # two looks, after so many seconds and after twice as many; Adam ends after 4
        (LEVEL, (99.0, 99.2), 2.0, "in Adam's seconds", "ahead"),
        (LEVEL, (99.0, 99.2), 3.0, "in Adam's seconds", "behind"),  # its first look
        (LEVEL, (99.0, 99.2), 5.0, "in Adam's seconds", "behind"),  # has none yet
    ],
)
def test_few_rows_few_seeds_and_a_close_clock_decide_nothing(
    adam, rls, seconds, count, said
):
    made = judged(Adam=(adam, 2.0, 50.0), RLS=(rls, seconds, 50.0))
    assert verdicts.pays_table(made).loc["RLS", count] == said


def test_targets_that_are_numbers_are_learned_by_squares():
    tried = pd.DataFrame({"label": ["Adam"], "mean": [90.0], "seconds": [1.0]})
    for name, of in (("classification", "cross-entropy"), ("autoencoder", "squares")):
        table = verdicts.tuning_table(JOBS[name], {"Adam": {"lr": 0.01}}, tried)
        assert table.minimises["Adam"] == of


def test_who_is_first_is_said_once_and_is_there_in_every_seed():
    words = verdicts.findings(
        judged(Adam=(LEVEL, 1.0, 95.0), RLS=((90.0, 90.2), 1.0, 50.0))
    )
    assert "by seconds of its own work: Adam (1 s).\n" in words
    assert "passes over the rows: Adam (1 pass).\n" in words
    made = judged(Adam=((95.0, 60.0), 2.0, 50.0), RLS=((nan, 95.0), 1.0, 50.0))
    times = made.to_goal().seconds
    assert verdicts.fastest(times) == ["Adam"] and math.isnan(times["RLS"])


def test_errors_are_better_when_lower():
    job = replace(JOB, shares=False)
    runs = {"Adam": ((3.0, 3.1), 1.0, 9.0), "RLS": ((1.0, 1.1), 2.0, 9.0)}
    made = judged(comparison=job, **runs)
    assert made.goal() == pytest.approx(1.05 * verdicts.FACTOR)
    pays = verdicts.pays_table(made).loc["RLS"]
    assert pays["at the end"] == "ahead" and pays["seconds to goal"] == "ahead"
    assert "RLS (1.05 ± 0.07) is ahead of all" in verdicts.findings(made)


def test_noise_is_judged_by_the_mean_over_its_levels():
    def level(*scores):
        return made_up(Adam=((90.0, 90.0), 1, 50), RLS=(scores, 1, 50))

    levels = {0.2: level(90.0, 92.0), 0.4: level(80.0, 82.0)}
    made = verdicts.Judged(JOB, levels[0.2], {"label_noise": levels})
    found = made.under_noise("label_noise").loc["RLS"].tolist()
    assert found == pytest.approx([86.0, math.sqrt(2)])
    assert verdicts.pays_table(made).loc["RLS", "label noise"] == "behind"
    assert "Label noise, mean over its levels" in verdicts.findings(made)
    table = noise.noise_table(made)
    assert table["label noise"].columns.tolist() == ["0", "0.2", "0.4"]


def test_ranks_are_of_each_seed_and_a_failure_comes_last():
    made = judged(Adam=((95.0, 95.0), 1, 50), RLS=((96.0, 94.0), 1, 50))
    made = verdicts.Judged(
        JOB, Race(pd.concat([made.race.runs, made_up(bad=((nan, nan), 1, 50)).runs]))
    )
    table = verdicts.ranks(made, made.race.last()).set_index(["label", "seed"])
    assert table["rank"]["Adam"].tolist() == [2, 1]
    assert table["rank"]["RLS"].tolist() == [1, 2]
    assert table["rank"]["bad"].tolist() == [3, 3]
    assert table.place["bad"].tolist() == [1, 1] and table.place["RLS", 0] == 0
    table = verdicts.rank_table([made])
    assert table.loc["Adam"].tolist() == ["1.5 ± 0.7", "0.25"]


def test_what_does_not_pay_says_where_it_might():
    runs = {
        "Adam": ((95.0, 95.2), 1.0, 90.0),
        "gains": ((90.0, 90.2), 1.0, 50.0),
        "stays": ((90.0, 90.2), 1.0, 90.0),
    }
    tried = [("Adam", 95.0), ("Adam", 20.0), ("gains", 10.0), ("stays", 24.0)]
    tried = pd.DataFrame(tried, columns=["label", "mean"])
    job = replace(JOB, sizes=Sizes(2, 16, 8))
    noisy = made_up(
        Adam=((50.0, 50.2), 1, 50), gains=((45.0, 45.2), 1, 50), stays=((80, 80), 1, 50)
    )
    noise = {"input_noise": {0.5: noisy}}
    rows = verdicts.idle_table(judged(noise, job, **runs), tried)
    where = {row["rule"]: row["where it might pay"] for row in rows}
    # `stays` is ahead of Adam under noise, so it is not among those that pay nowhere
    assert where == {"gains": "with more passes"}
    found = verdicts.might_pay(judged(noise, job, **runs), tried)
    assert found["stays"] == ["with more input noise", "where nothing can be tuned"]


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


def test_what_has_no_gradient_says_so_beside_what_has_one():
    runs = {"Adam": ((90.0, 90.2), 1, 50), "solved": ((91.0, 91.2), 1, 50)}
    noisy = made_up(Adam=((50.0, 50.2), 1, 50))
    made = judged({"gradient_noise": {1.0: noisy}}, **runs)
    table = noise.noise_table(made)
    assert table.loc["solved"].tolist() == [noise.NO_GRADIENT] * 2
    assert table.loc["Adam"].tolist() == ["90.1 ± 0.1 %", "50.1 ± 0.1 %"]
    assert verdicts.pays_table(made).loc["solved", "gradient noise"] == "-"
    (curve,) = [t for t in noise.noise_figure(made)["data"] if t.get("name")]
    assert list(curve["x"]) == [0.0, 1.0]
    row = noise.noise_row(made, {"gradient_noise": 1.0, "label_noise": 0.0})
    assert row["gradient_noise Adam"] == pytest.approx(50.1)
    assert row["label_noise solved"] == pytest.approx(91.1)
    assert "gradient_noise solved" not in row


def test_a_sweep_over_noise_is_one_tidy_table_and_one_figure(tmp_path):
    path = tmp_path / "results.csv"
    columns = {"label_noise": [0.2, 0.4, 0.0], "input_noise": 0.6, "state": "finished"}
    columns |= {"noise.label_noise Adam": [90.0, 80.0, 95.0], "noise.other": 1.0}
    columns |= {"noise.label_noise sd Adam": [1.0, 2.0, 0.5]}
    columns |= {"noise.label_noise RLS": [85.0, 84.0, nan]}
    pd.DataFrame(columns).to_csv(path, index=False)
    csv, page = noise.draw_sweep(path)
    table = pd.read_csv(csv)
    assert table.columns.tolist() == ["rule", "level", "score", "sd"]
    assert table.values.tolist() == [
        ["Adam", 0.0, 95.0, 0.5],
        ["Adam", 0.2, 90.0, 1.0],
        ["Adam", 0.4, 80.0, 2.0],
        ["RLS", 0.2, 85.0, 0.0],
        ["RLS", 0.4, 84.0, 0.0],
    ]
    figure = noise.sweep_figure(table)
    named = {t["name"]: t for t in figure["data"] if t.get("name")}
    assert list(named["RLS"]["y"]) == [85.0, 84.0]
    assert "Label noise: the score of each rule" in page.read_text("utf-8")
    with pytest.raises(ValueError, match=r"no run in .* has a score under input_noise"):
        noise.sweep_table(path, "input_noise")
    pd.DataFrame({"hidden": [8, 16], "label_noise": 0.4}).to_csv(path, index=False)
    assert noise.draw_sweep(path) == []


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
    given = (compare.RACE_ON_DATA, PROBLEM, MIDDLE, 4)
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
