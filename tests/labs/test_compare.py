"""The comparison: fair cuts and trials, every rule, verdicts, the live race."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.labs import compare as lab
from labkit.labs.compare import autoencoders, classifiers, harness, live, minibatch
from labkit.labs.compare import recurrent as seq
from labkit.labs.compare import verdicts as judge
from labkit.labs.compare.harness import percent, scored

SIZES = {"passes": 3, "batch": 16, "hidden": 8}
MIDDLE = {"input_noise": 1.0, "label_noise": 0.9, "batch": 128}


@pytest.fixture(scope="module")
def data():
    return lab.load_data("digits", samples=240)


@pytest.fixture(scope="module")
def jobs(data):
    made = (lab.classification, lab.reconstruction, lab.sequences)
    return {make.__name__: make(data, **SIZES) for make in made}


RULES = [
    *[("classification", name) for name in classifiers.RULES],
    *[("reconstruction", name) for name in autoencoders.RULES],
    *[("sequences", name) for name in seq.RULES],
]


# The cut, the noise, the trials


def test_tuning_rows_are_no_training_rows_whatever_the_samples():
    whole, part = lab.load_data("digits"), lab.load_data("digits", samples=100)
    assert [len(p.targets) for p in vars(whole).values()] == [1198, 239, 360]
    assert len(part.fit.targets) == 100
    assert torch.equal(part.fit.inputs, whole.fit.inputs[:100])
    assert torch.equal(part.tune.inputs, whole.tune.inputs)


def test_noise_disturbs_the_rows_to_learn_from_and_no_others(data):
    noisy = lab.with_noise(data, inputs=0.5, labels=0.5, seed=1)
    assert noisy.tune is data.tune and noisy.test is data.test
    added = noisy.fit.inputs - data.fit.inputs
    assert float(added.std()) == pytest.approx(0.5, rel=0.05)  # 15,360 draws
    share = float((noisy.fit.targets != data.fit.targets).double().mean())
    assert 0.3 < share < 0.6  # of half the labels, a tenth is right by chance
    clean = lab.with_noise(data, seed=1).fit
    assert torch.equal(clean.inputs, data.fit.inputs)
    assert torch.equal(clean.targets, data.fit.targets)


@pytest.mark.parametrize("noise", [{"inputs": -0.1}, {"labels": 1.1}])
def test_noise_out_of_range_is_refused(data, noise):
    with pytest.raises(ValueError, match=r"inputs must be >= 0 and labels in \[0, 1\]"):
        lab.with_noise(data, **noise)


def test_every_rule_gets_the_same_points_in_its_ranges(jobs):
    for job in jobs.values():
        points = []
        for rule in job.rules.values():
            tried = lab.trials(rule, 5)
            place = [
                [math.log(t[k] / low) / math.log(high / low) for t in tried]
                for k, (low, high) in rule.knobs.items()
            ]
            points.append(place)
            assert all(0 < u < 1 for us in place for u in us)
        assert all(np.allclose(place[0], points[0][0]) for place in points)
        seconds = [place[1] for place in points if len(place) == 2]
        assert all(np.allclose(second, seconds[0]) for second in seconds)


def test_what_cannot_be_run_is_refused(jobs, data):
    job = jobs["classification"]
    with pytest.raises(ValueError, match="at least one trial, got 0"):
        lab.tune(job, 0)
    with pytest.raises(ValueError, match="unknown rule 'Newton'; there are SGD, Adam"):
        lab.race(job, {"Newton": {}}, seeds=1)
    with pytest.raises(ValueError, match="passes and batch must be at least 1, got 0"):
        lab.classification(data, passes=0)


# The rules


@pytest.mark.parametrize(("name", "label"), RULES)
def test_every_rule_keeps_to_the_budget_and_learns(jobs, name, label):
    job = jobs[name]
    values = lab.trials(job.rules[label], 1)[0]
    looks = list(scored(job, label, values, 0, on=job.data.fit))
    passes = [look["passes"] for look in looks]
    assert 0 < passes[0] and passes[-1] <= job.setting.passes + 1e-9
    assert sorted(passes) == passes
    seconds = [look["seconds"] for look in looks]
    assert seconds[0] > 0 and sorted(seconds) == seconds
    scores = np.array([look["score"] for look in looks])
    assert np.isfinite(scores).all()
    if job.higher:
        assert scores.max() > 15  # a guess has 10 %
    else:
        start = squared_at_start(job)
        assert scores.min() < start


def squared_at_start(job):
    net = autoencoders.autoencoder(job.data.fit, job.setting, 0)
    return job.score(net(job.data.fit.inputs).detach(), job.data.fit.targets)


def test_looking_does_not_change_what_is_learned(jobs, monkeypatch):
    """A rule looked at after every step ends with the same weights, to the last bit."""
    for name, label in (("classification", "RLS+M"), ("sequences", "OK")):
        job, lasts = jobs[name], []
        values = lab.trials(job.rules[label], 1)[0]
        for looks in (2, 1000):
            monkeypatch.setattr(minibatch, "LOOKS", looks)
            run = job.rules[label].run(job.data.fit, job.setting, values, 0)
            for look in run:
                outputs = look.outputs(job.data.test.inputs)
            lasts.append(outputs)
        assert torch.equal(*lasts)


def test_broad_learning_scores_by_class_and_has_as_many_weights(data):
    fit, setting = data.fit, harness.Setting(passes=4, batch=1, hidden=8)
    *_, last = classifiers.broad(fit, setting, {"ridge": 0.1, "shrink": 0.5}, 0)
    (model,) = last.outputs.args
    weights = 8 * 65 + 10 * 9
    assert weights - 10 * 3 <= model.coef_.size <= max(weights, 10 * 90)
    inputs = data.test.inputs.double()
    predicted = torch.as_tensor(model.predict(inputs.numpy()))
    assert torch.equal(last.outputs(inputs).argmax(1), predicted)


def test_the_autoencoders_start_from_the_same_function(data):
    setting = harness.Setting(**SIZES)
    net = autoencoders.autoencoder(data.fit, setting, 3)
    other = autoencoders.as_sequential(net)
    torch.testing.assert_close(other(data.test.inputs), net(data.test.inputs))


def test_the_online_cell_is_the_same_network_as_torchs(data):
    inputs = data.test.inputs.double()
    model = seq.lstm(inputs, 5, seed=2)
    cell, readout = seq.as_online(model)
    torch.testing.assert_close(seq.read(cell, readout, inputs), model(inputs))


def test_gradients_of_the_sequence_rules(jobs):
    job = replace(jobs["sequences"], setting=harness.Setting(3, 16, 4))
    table = lab.gradient_table(job, ranks=(1, 8), draws=20)
    assert table.loc["TBPTT, 8 of 8 rows", "relative error"] < 1e-13  # float64
    assert 0.01 < table.loc["TBPTT, 2 of 8 rows", "relative error"] < 1
    one, eight = table.loc["1-OK"], table.loc["8-OK"]
    assert one["cosine"] < one["cosine of the mean"] <= 1
    assert one["cosine"] < eight["cosine"] <= 1


# Tuning and races


def test_tuning_never_reads_the_test_rows(data):
    values = []
    for test in (data.test, replace(data.test, inputs=data.test.inputs * math.nan)):
        job = some(lab.classification(replace(data, test=test), **SIZES))
        values.append(lab.tune(job, 2).values)
    assert values[0] == values[1]


def some(job, labels=("Adam", "BPLS-GN")):
    return replace(job, rules={label: job.rules[label] for label in labels})


def test_the_best_trial_is_taken_and_the_table_tells_all(jobs):
    for name in ("classification", "reconstruction"):
        job = some(jobs[name], ("Adam", "RLS"))
        tuned = lab.tune(job, 3)
        table = lab.tuning_table(job, tuned)
        assert list(table["trials"]) == [3, 3]
        for label in job.rules:
            mine = tuned.trials[tuned.trials.label == label]
            best = mine.score.max() if job.higher else mine.score.min()
            first = mine[mine.score == best].iloc[0]
            assert first["values"] == table.loc[label, "chosen"]
            assert table.loc[label, f"best trial [{job.unit}]"] == best


def explode(*_):
    yield lab.Look(0.5, 0.1, lambda x: torch.zeros(len(x), 10))
    raise FloatingPointError("the loss is inf")


def test_a_failing_rule_is_noted_and_the_others_go_on(jobs):
    bad = lab.Rule(explode, {"rate": (0.1, 1.0)}, "nothing")
    job = some(jobs["classification"])
    job = replace(job, rules={"bad": bad, **job.rules})
    with pytest.raises(ValueError, match="all 2 trials of bad failed; widen its range"):
        lab.tune(job, 2)
    values = {label: lab.trials(rule, 1)[0] for label, rule in job.rules.items()}
    result = lab.race(job, values, seeds=2)
    table = lab.ends_table(result)
    assert math.isnan(table.loc["bad", "test [%]"])
    assert table.loc["Adam", "test [%]"] > 15
    pays = lab.pays_table(result)
    assert pays.loc["bad", "pays here"] == "no"
    assert pays.loc["bad", "at the end"] == "behind"
    assert "bad" in lab.findings(result)


def test_a_race_is_repeatable_and_seeds_differ(jobs, tmp_path):
    job = some(jobs["classification"])
    values = {label: lab.trials(rule, 1)[0] for label, rule in job.rules.items()}
    one = lab.race(job, values, seeds=2, path=tmp_path / "race.jsonl").runs
    other = lab.race(job, values, seeds=2).runs
    assert one.score.equals(other.score)
    assert not np.array_equal(
        one[one.seed == 0].score.values, one[one.seed == 1].score.values
    )
    assert len((tmp_path / "race.jsonl").read_text().splitlines()) == len(one) + 1


def test_the_noise_race_starts_from_the_clean_one(jobs):
    job = some(jobs["classification"])
    values = {label: lab.trials(rule, 1)[0] for label, rule in job.rules.items()}
    clean = lab.race(job, values, seeds=2)
    options = {"inputs": [0.5], "labels": [0.9], "clean": clean}
    noise = lab.noise_race(job, values, seeds=2, **options)
    table = lab.noise_table(noise)
    levels = [("inputs", "0"), ("inputs", "0.5"), ("labels", "0"), ("labels", "0.9")]
    assert list(table.columns) == levels and list(table.index) == list(job.rules)
    at_zero = noise.runs[noise.runs.level == 0]
    last = judge.last_looks(clean.runs).score
    assert sorted(at_zero[at_zero.kind == "labels"].score) == sorted(last)
    figure = lab.noise_figure(noise)
    drawn = [trace for trace in figure.data if trace.legendgroup]
    assert len(drawn) == 4 and all(len(trace.error_y.array) == 2 for trace in drawn)
    assert "Noise on labels" in lab.findings(clean, noise)
    with pytest.raises(ValueError, match="the clean race has 2 seeds, got 3"):
        lab.noise_race(job, values, seeds=3, **options)


# Verdicts, on numbers made up


def made_up(job, runs):
    """Rule -> (scores by seed, seconds to each): two looks, at 0 and there."""
    rows = [
        {"label": label, "seed": seed, "look": look, "passes": 1.0 + look}
        | {"seconds": seconds * (1 + look), "score": score if look else start}
        for label, (scores, seconds, start) in runs.items()
        for seed, score in enumerate(scores)
        for look in (0, 1)
    ]
    seeds = max(len(scores) for scores, _, _ in runs.values())
    return lab.Race(job, seeds, pd.DataFrame(rows))


def test_verdicts_follow_the_numbers(jobs):
    result = made_up(
        jobs["classification"],
        {
            "Adam": ((95.0, 95.2), 1.0, 50.0),
            "SGD": ((94.9, 95.5), 2.0, 50.0),
            "RLS": ((85.0, 94.0), 0.1, 50.0),
            "broad": ((99.0, 99.1), 0.3, 97.0),
            "BPLS": ((math.nan, 99.0), 0.3, 97.0),
        },
    )
    assert judge.goal(result) == pytest.approx(99.05 - judge.POINTS)
    pays = lab.pays_table(result)
    ends = dict(zip(pays.index, pays["at the end"], strict=True))
    assert ends == {
        "SGD": "level", "RLS": "level", "broad": "ahead", "BPLS": "behind"
    }  # fmt: skip
    assert pays.loc["broad", "seconds to goal"] == "ahead"
    assert pays.loc["SGD", "pays here"] == "no"
    assert judge.leaders(result, judge.ends(result)) == ["broad"]
    told = lab.findings(result)
    assert "At the end of the budget broad (99.0 ± 0.1 %) is ahead" in told
    assert "Adam does not get there in every seed" in told
    assert "Not at 96.0 % in every seed: Adam, SGD, RLS, BPLS." in told
    said = lab.idle([(result, None)])
    assert [line[4:].split("*")[0] for line in said.splitlines()] == [
        "SGD", "RLS", "BPLS"
    ]  # fmt: skip
    assert "95.2 ± 0.4 % at the end, Adam 95.1 ± 0.1 %, at 2.0 times its" in said
    summary = lab.summary_table([(result, None)])
    assert summary["best by samples"].tolist() == ["broad"]
    assert summary["best under noise"].tolist() == ["not measured"]


def test_few_test_rows_and_few_seeds_decide_nothing(jobs):
    job = jobs["classification"]
    near = {"Adam": ((95.0, 95.0), 1.0, 50.0), "RLS": ((95.5, 95.5), 1.0, 50.0)}
    result = made_up(job, near)
    assert judge.sampling_error(result, 95.0) == pytest.approx(1.15, abs=0.01)
    assert lab.pays_table(result).loc["RLS", "at the end"] == "level"
    single = {"Adam": ((50.0,), 1.0, 50.0), "RLS": ((95.5,), 1.0, 50.0)}
    assert lab.pays_table(made_up(job, single)).loc["RLS", "at the end"] == "level"


def test_errors_are_better_when_lower(jobs):
    runs = {"Adam": ((3.0, 3.1), 1.0, 9.0), "RLS": ((1.0, 1.1), 2.0, 9.0)}
    result = made_up(jobs["reconstruction"], runs)
    assert judge.goal(result) == pytest.approx(1.05 * judge.FACTOR)
    pays = lab.pays_table(result).loc["RLS"]
    assert pays["at the end"] == "ahead" and pays["seconds to goal"] == "ahead"
    assert judge.leaders(result, judge.ends(result)) == ["RLS"]


@pytest.mark.parametrize(
    ("seconds", "scores", "verdict"),
    [
        (1.0, (95.0, 95.2), "ahead"),
        (1.7, (95.0, 95.2), "level"),
        (3.0, (95.0, 95.2), "behind"),
        (1.0, (80.0, 95.2), "level"),  # one seed misses the goal, the ends are level
        (1.0, (80.0, 80.2), "behind"),
        (1.0, (math.nan, 95.2), "behind"),
    ],
)
def test_clocks_are_compared_with_a_margin(jobs, seconds, scores, verdict):
    runs = {"Adam": ((95.0, 95.2), 2.0, 50.0), "RLS": (scores, seconds, 50.0)}
    result = made_up(jobs["classification"], runs)
    assert judge.on_the_clock(result, "RLS", "seconds") == verdict


def test_where_nobody_gets_to_a_goal_in_every_seed_nobody_is_first(jobs):
    runs = {"Adam": ((95.0, 60.0), 2.0, 50.0), "RLS": ((math.nan, 95.0), 1.0, 50.0)}
    result = made_up(jobs["classification"], runs)
    assert judge.on_the_clock(result, "Adam", "passes") == "level"
    assert judge.fastest(judge.to_goal(result).seconds) == ["Adam"]


def test_a_figure_has_every_rule_in_both_views(jobs):
    runs = {"Adam": ((95.0, 95.2), 1.0, 50.0), "broad": ((99.0, 99.1), 0.3, 97.0)}
    figure = lab.race_figure(made_up(jobs["classification"], runs))
    curves = {(trace.name, trace.xaxis) for trace in figure.data if trace.name}
    assert curves == {(n, x) for n in ("Adam", "broad") for x in ("x", "x2")}
    adam = next(trace for trace in figure.data if trace.name == "Adam")
    assert list(adam.y) == pytest.approx([50.0, 4.9])


# The live race


def test_the_live_race_writes_what_its_panels_show(data, tmp_path):
    options = {"interactive": False, "folder": str(tmp_path), "hidden": 8}
    race = lab.race_lab(data, **options)
    frame = race.run(9)
    drawn = {c for panel in race.plot.panels for c in panel.columns}
    assert drawn == set(classifiers.RULES) and drawn <= set(frame.columns)
    assert frame["Adam"].notna().sum() == 3  # at steps 1, 4 and 8
    assert race.note.value.startswith("minibatch 9")
    race.controls.set(**MIDDLE)
    frame = race.run(4)
    assert len(frame) == 13 and race.trace.frame()["turned"].notna().sum() == 1
    race.controls.set(seed=7)
    assert len(race.run(2)) == 2
    race.trace.close()


@pytest.mark.parametrize("noise", [0.0, 0.9])
def test_the_live_race_runs_at_the_ends_of_its_knobs(data, noise):
    for batch in (4, 128):
        knobs = lab.RaceKnobs(input_noise=noise, label_noise=noise, batch=batch)
        race = lab.race_lab(data, knobs, interactive=False, hidden=8)
        frame = race.run(8)
        shown = frame[list(live.BY_MINIBATCH)].iloc[-1].dropna()
        assert ((shown >= 0) & (shown <= 100)).all()


def test_a_rule_that_fails_live_ends_alone(data):
    values = live.VALUES | {"RLS": {"eta": 1e6, "k": 0.1}}
    race = lab.race_lab(data, values=values, interactive=False, hidden=8)
    frame = race.run(12)
    assert frame["ended"].iloc[-1] == "RLS" and "failure: RLS" in race.note.value
    assert frame["Adam"].iloc[-1] < 100 and pd.isna(frame["RLS"].iloc[-1])


def test_minibatches_carry_the_noise_asked_for(data):
    knobs = lab.RaceKnobs(label_noise=0.5, batch=128)
    g = torch.Generator().manual_seed(0)
    pairs = [live.draw(data.fit, knobs, g) for _ in range(20)]
    clean = {tuple(x.tolist()): int(y) for x, y in zip(*vars_of(data.fit), strict=True)}
    wrong = [clean[tuple(x.tolist())] != int(t) for X, y in pairs
             for x, t in zip(X, y, strict=True)]  # fmt: skip
    assert 0.41 < np.mean(wrong) < 0.49  # 0.45 of 2,560 labels


def vars_of(labelled):
    return labelled.inputs, labelled.targets


def test_scores():
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    assert percent(outputs, torch.tensor([0, 1, 1])) == pytest.approx(200 / 3)
    assert harness.squared_error(outputs, torch.zeros(3, 2)) == pytest.approx(7 / 3)
