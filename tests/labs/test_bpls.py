"""The BPLS lab: its live experiments, tables, race and verdicts on digits."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.bpls import random_weights, train
from labkit.instruments import Trace
from labkit.labs import bpls as lab
from labkit.labs.bpls.claims import RATIO, _stop, _toy, _verdict
from labkit.labs.bpls.live import WALK_PANELS
from labkit.labs.bpls.toy import THEORY_LINE, TOY_PANELS


@pytest.fixture(scope="module")
def digits():
    return lab.make_problem("digits", samples=300)


@pytest.fixture(scope="module")
def whole():
    return lab.make_problem("digits")


def live(problem, **values):
    return lab.walk_lab(problem, lab.WalkKnobs(**values), interactive=False)


def drawn(panels):
    return {column for panel in panels for column in panel.columns}


# The problem


def test_noise_goes_where_it_is_asked_for(digits):
    noisy = lab.with_noise(digits, sigma=0.5)
    assert torch.equal(noisy.y, digits.y) and noisy.X_test is digits.X_test
    assert float((noisy.X - digits.X).std()) == pytest.approx(0.5, rel=0.02)
    other = lab.with_noise(digits, label_noise=0.5)
    assert torch.equal(other.X, digits.X)
    changed = float((other.y != digits.y).double().mean())
    assert 0.35 < changed < 0.55  # a tenth of those drawn are right by chance
    same = lab.with_noise(digits)
    assert torch.equal(same.X, digits.X) and torch.equal(same.y, digits.y)


def test_a_reading_has_the_name_that_the_room_knows():
    assert lab.reading_of("one output") == 0
    assert lab.reading_of("cyclic") == "cyclic"


def test_an_unknown_data_set_is_refused():
    with pytest.raises(ValueError, match="nothing"):
        lab.make_problem("nothing")


# Live


def test_the_live_experiment_writes_what_its_panels_show(digits, tmp_path):
    experiment = lab.walk_lab(
        digits, lab.WalkKnobs(depth=2), interactive=False, folder=str(tmp_path)
    )
    frame = experiment.run(9)
    assert drawn(WALK_PANELS) <= set(frame.columns)
    assert frame.layer.tolist() == [3, 2, 1] * (len(frame) // 3)
    assert set(frame["overshoot output"].dropna()) == {1.0}
    ends = frame.dropna(subset=["misses"])
    assert ends["accuracy so far"].tolist() == pytest.approx(ends.train.tolist())
    assert ends.misses.iloc[0] == ends["rows"].shift(-1).iloc[0]
    experiment.trace.close()
    assert len(Trace.load(tmp_path / "walk-1.jsonl").frame()) == len(frame)


def test_another_network_restarts_the_walk(digits):
    experiment = live(digits)
    first = experiment.run(4)["accuracy so far"].tolist()
    for change in ({"width": 30}, {"depth": 2}, {"activation": "tanh"}, {"seed": 1}):
        experiment.controls.set(**change)
        assert len(experiment.trace.rows) == 0
        assert experiment.run(4)["accuracy so far"].tolist() != first
        experiment.controls.reset()
        assert experiment.run(4)["accuracy so far"].tolist() == first


# Another value for each knob that needs no restart, and rows until it shows.
LIVE = {
    "sigma": (0.4, 1),
    "label_noise": (0.4, 1),
    "reading": ("mean", 1),
    "clamp": (0.2, 1),
    "ridge": (1e-1, 1),
    "stop": (True, None),
    "walks": (3, None),
}


def test_what_needs_no_restart_is_what_is_tried_here():
    assert set(LIVE) == {
        f.name for f in dataclasses.fields(lab.WalkKnobs) if not f.metadata["restart"]
    }


@pytest.mark.parametrize("name", LIVE)
def test_a_knob_turned_in_a_run_changes_what_comes_and_nothing_before(digits, name):
    value, soon = LIVE[name]
    plain, turned = live(digits, sigma=0.2), live(digits, sigma=0.2)
    before = turned.run(4)
    turned.controls.set(**{name: value})
    assert len(turned.trace.rows) == 4 and name.replace("_", " ") in turned.turned.value
    frame, wanted = turned.run(40), plain.run(44)
    assert name.replace("_", " ") in frame["turned"].iloc[4]
    assert frame["turned"].notna().sum() == 1
    same = ["walk", "layer", "rows", "accuracy so far"]
    assert frame[same].iloc[:4].equals(before[same])
    assert frame[same].iloc[:4].equals(wanted[same].iloc[:4])
    if soon is None:
        assert len(frame) < len(wanted)
    else:
        shown = ["rows", "condition output", "clamped output", "overshoot output"]
        there, here = (f[shown].iloc[4 : 4 + soon] for f in (wanted, frame))
        assert not here.equals(there)


@pytest.mark.parametrize("name", LIVE)
def test_a_value_from_the_start_on_is_the_same_however_it_came(digits, name):
    """Set when made, or turned before the first step: the same to the last bit."""
    value, _ = LIVE[name]
    made = live(digits, sigma=0.2) if name != "sigma" else live(digits)
    made.controls.set(**{name: value})
    options = {"sigma": 0.2} | {name: value}
    one, two = made.run(12), live(digits, **options).run(12)
    times = ["turned", "time"]
    one, two = (f.drop(columns=times, errors="ignore") for f in (one, two))
    assert one.equals(two)


def test_noise_turned_in_a_run_has_its_own_misses(digits):
    experiment = live(digits)
    experiment.run(4)
    experiment.controls.set(sigma=0.6)
    frame = experiment.run(2)
    assert frame["rows"].iloc[4] > 3 * frame["misses"].iloc[3]
    noisy = lab.with_noise(digits, sigma=0.6)
    assert frame["accuracy so far"].iloc[5] == frame["train"].iloc[5]
    assert frame["misses"].iloc[5] == round(
        len(noisy.y) * (1 - frame["train"].iloc[5] / 100)
    )


def test_what_noise_says_to_look_for_is_there(whole):
    experiment = live(whole)
    experiment.run(20)
    experiment.controls.set(sigma=0.4)
    frame = experiment.run(16)
    assert frame["rows"].iloc[20] > 10 * frame["rows"].iloc[18]
    misses, test = frame["misses"].dropna(), frame["test"].dropna()
    assert misses.iloc[-1] > 3 * misses.iloc[9] and test.iloc[-8:].min() > 90
    experiment.controls.set(sigma=0.0)
    experiment.run(10)
    experiment.controls.set(label_noise=0.2)
    fallen = experiment.run(16)["test"].dropna()
    assert fallen.iloc[-1] < fallen.iloc[-9] - 8
    experiment.controls.set(label_noise=0.0)
    assert experiment.run(10)["test"].dropna().iloc[-1] > 88


def test_what_the_other_knobs_say_to_look_for_is_there(whole):
    def first(**values):
        return live(whole, **values).run(1 + values.get("depth", 1))

    tight, loose = (first(ridge=r)["condition input"].iloc[1] for r in (1e-4, 1e-2))
    assert tight / loose == pytest.approx(10, rel=0.1)
    clamped = {a: first(activation=a)["clamped output"].iloc[0] for a in ACTIVATIONS}
    assert clamped["identity"] == 0 and clamped["softmax"] > 60
    linear = [first(activation="identity", width=w).train.iloc[1] for w in (10, 200)]
    assert linear[0] == pytest.approx(linear[1], abs=0.3)
    deep = {d: first(depth=d).train.iloc[-1] for d in (1, 3)}
    assert deep[3] < deep[1] - 30
    assert first(clamp=1e-6).train.iloc[-1] < deep[1] - 8
    mean = live(whole, reading="mean", activation="identity").run(8)
    assert mean["train"].dropna().iloc[-1] < 60 < 90 < mean["train"].dropna().iloc[0]


ACTIVATIONS = ("identity", "softmax")


def test_every_knob_says_what_to_look_for():
    for knobs in (lab.WalkKnobs, lab.ToyKnobs):
        for field in dataclasses.fields(knobs):
            assert field.metadata["look_for"] and field.metadata["help"], field.name
            name = field.metadata["label"] or field.name
            room = 23 - len(field.metadata["unit"] and f" [{field.metadata['unit']}]")
            assert len(name) <= room or field.type is bool, field.name  # else cut off


ENDS = [
    (field.name, value)
    for field in dataclasses.fields(lab.WalkKnobs)
    for value in (
        field.metadata["choices"]
        or [field.metadata["low"], field.metadata["high"]] * (field.type is not bool)
        or [True, False]
    )
]


@pytest.mark.parametrize(("name", "value"), ENDS)
def test_every_knob_works_at_its_ends(digits, name, value):
    options = {"walks": 2, "width": 12} | {name: value}
    frame = live(digits, **options).run(9)
    assert len(frame) >= 1
    if "note" in frame:
        assert (name, value) == ("clamp", 1e-8)  # below float32's distance to 1
        assert "have no inverse" in frame["note"].iloc[-1]
    else:
        assert frame["accuracy so far"].between(0, 100).all()


def test_a_clamp_too_narrow_for_the_dtype_ends_with_its_reason(digits):
    experiment = live(digits, clamp=1e-8)
    frame = experiment.run(5)
    assert "have no inverse under 'sigmoid'" in frame["note"].iloc[-1]
    assert experiment.note.value == frame["note"].iloc[-1]


def test_looking_changes_nothing(digits):
    """The rows' accuracies are those of a training that nobody looks at."""
    knobs = lab.WalkKnobs(walks=3, width=12, stop=True)
    rows = [row for row in lab.walk_rows(digits, lambda: knobs) if "misses" in row]
    start = random_weights(
        digits.sizes([12]), generator=torch.Generator().manual_seed(0)
    )
    records = train(digits.X, digits.y, start, "sigmoid", ridge=1e-4, max_walks=3)
    ends = [record.end for record in records if record.end]
    assert [row["misses"] for row in rows] == [end.misses for end in ends]
    assert [row["kept"] for row in rows] == [end.kept for end in ends]


def test_the_toys_live_experiment_shows_theory_and_tail():
    linear = lab.toy_lab(lab.ToyKnobs(kind="linear", sigma=0.5), interactive=False)
    frame = linear.run(25)
    assert drawn(TOY_PANELS) <= set(frame.columns)
    assert frame["rmse plain"].iloc[-1] == pytest.approx(frame.theory.iloc[-1], rel=0.1)
    assert np.allclose(frame["rmse plain"], frame["rmse again"])
    tail = lab.toy_lab(interactive=False).run(25).iloc[-1]
    assert tail["worst plain"] > 3 * tail["worst again"]


@pytest.mark.parametrize("reading", lab.READING_NAMES)
def test_the_toys_live_experiment_takes_every_reading(reading):
    for kind in ("linear", "nonlinear"):
        knobs = lab.ToyKnobs(kind=kind, reading=reading, sigma=1.0)
        row = next(lab.toy_rows(knobs))
        assert math.isfinite(row["rmse plain"])


# Readings, clamps, later walks


def test_only_joint_corrections_survive_the_walks_on_misses(whole):
    names = ["min_norm", "gauss_seidel", "mean", "cyclic", "label", "one output"]
    table = lab.reading_table(whole, ["identity"], readings=names, seeds=2)
    later = table.xs("identity")["after 8 more [%]"]
    assert (later[["min_norm", "gauss_seidel"]] > 90).all()
    assert (later[["mean", "cyclic", "label", "one output"]] < 60).all()
    assert table.xs("identity").overshoot["min_norm"] == pytest.approx(1, abs=1e-4)


def test_the_clamp_decides_a_softmax_layer(whole):
    table = lab.clamp_table(whole, [1e-2, 1e-6], ["softmax"], width=30, seeds=2)
    kept = table.xs("softmax")["kept [%]"]
    assert kept["0.01"] > 90 and kept["1e-06"] < 85


def test_depth_harms_bounded_layers_and_not_linear_ones(whole):
    table = lab.depth_table(whole, [1, 4], ["identity", "tanh"], seeds=2)
    first = table["first walk [%]"]
    assert abs(first["identity", 4] - first["identity", 1]) < 1
    assert first["tanh", 4] < first["tanh", 1] - 20
    assert (table["kept [%]"] >= first).all()


def test_the_stop_rule_read_off_afterwards_is_the_stop_rule(whole):
    free = lab.walks(whole, "identity", max_walks=12, stop=False)
    ruled = lab.walks(whole, "identity", max_walks=12)
    assert lab.stopped(free).misses == min(end.misses for end in ruled)
    path = pd.Series({end.walk: end.accuracy for end in free})
    assert lab.kept_walk(path) == lab.stopped(free).walk
    assert lab.kept_walk(pd.Series([1.0, 2.0, 3.0])) == 2
    assert lab.kept_walk(pd.Series([1.0, 1.0, 3.0])) == 0


def test_later_walks_collapse_under_noise_and_not_without(whole):
    paths = lab.collapse(whole, sigmas=(0.0, 0.6))
    clean, noisy = paths["sigma = 0"], paths["sigma = 0.6"]
    assert clean.iloc[-1] > clean.iloc[0]
    assert noisy.iloc[-1] < noisy[lab.kept_walk(noisy)] - 3
    drawn = [curve.name for curve in lab.collapse_figure(paths).data]
    assert drawn.count("stop rule keeps this") == 2 and set(paths) <= set(drawn)


def test_the_picture_of_a_layer_shows_what_is_pushed_back(digits):
    figure = lab.layer_picture(digits, width=6, samples=9)
    H, T, C, B = (np.asarray(heat.z) for heat in figure.data)
    assert H.shape == T.shape == C.shape == B.shape == (9, 6)
    assert np.allclose(C, T.clip(0.01, 0.99))
    assert np.allclose(B, np.log(C / (1 - C)), atol=1e-4)


# The toy


def test_the_toys_curves_hold_theory_and_remedies():
    for kind, sigmas in (("linear", [0.5, 1.0]), ("nonlinear", [0.0, 0.05])):
        errors = lab.toy_errors_of(kind, sigmas, runs=400, epochs=2)
        table = lab.toy_table(kind, sigmas, errors)
        figure = lab.toy_figure(table)
        methods = set(table.index.get_level_values("method"))
        assert {curve.name for curve in figure.data} == methods
        if kind == "linear":
            ratio = table.test["BPLS"] / table.test[THEORY_LINE]
            assert ratio.tolist() == pytest.approx([1, 1], rel=0.08)
    tail = lab.tail_table(errors, 1)
    worst = tail["squared error in the worst 5% [%]"]
    assert worst["BPLS"] > worst["no correction"]
    assert worst["BPLS"] > worst["output solved again"]
    assert len(lab.tail_figure(errors, 1).data) == len(tail)


def test_the_correction_adds_nothing_on_smooth_regressions():
    table = lab.regression_table(seeds=3)
    assert table.ratio.between(0.95, 1.05).all()
    assert set(table.index) == set(lab.smooth_problems())


# The race


@pytest.fixture(scope="module")
def raced(digits):
    return lab.race(digits, lab.runners(1, 2, sweeps=2), width=12, seeds=2)


def test_a_race_measures_every_runner_in_every_seed(raced, digits):
    assert raced.labels == list(lab.runners(1, 2))
    assert len(lab.race_figure(raced).data) == len(raced.labels)
    runs = raced.runs.set_index(["label", "seed"])
    for key in runs.index.unique():
        run = runs.loc[[key]]
        assert run.seconds.is_monotonic_increasing and run.seconds.iloc[0] > 0
        assert run.passes.is_monotonic_increasing
    assert runs.loc[("Adam 1, tanh", 0), "passes"].iloc[-1] == 1
    assert runs.loc[("Adam 128, tanh", 1), "passes"].iloc[-1] == 2


def test_a_races_table_takes_the_best_and_the_first_time_there():
    result = made_up({"BPLS, sigmoid": [(80, 70), (90, 75)], "x": [(70, 60), (95, 76)]})
    table = lab.race_table(result)
    assert table.loc["BPLS, sigmoid", ["train [%]", "test [%]"]].tolist() == [90, 75]
    assert table["s to goal"].tolist() == [2, 2]
    slower = made_up({"BPLS, sigmoid": [(90, 75)], "x": [(70, 60), (95, 74)]})
    assert math.isnan(lab.race_table(slower).loc["x", "s to goal"])


def made_up(runs, seeds=1, spread=0.0):
    rows = [
        {
            "label": label,
            "seed": seed,
            "passes": float(i),
            "seconds": float(i),
            "train": float(train_),
            "test": test + spread * seed,
        }
        for label, points in runs.items()
        for seed in range(seeds)
        for i, (train_, test) in enumerate(points, start=1)
    ]
    return lab.Race("made up", "setting", pd.DataFrame(rows))


# Verdicts


def test_claims_are_decided_by_the_numbers():
    methods = ["BPLS", "Adam", "NAG", "SGD", "AdaGrad", THEORY_LINE]

    def toy(ours, others):
        values = dict.fromkeys(methods, others) | {"BPLS": ours}
        index = pd.MultiIndex.from_product([methods, [1.0]], names=["method", "sigma"])
        frame = pd.DataFrame({"test": [values[m] for m in methods]}, index=index)
        return frame.assign(train=frame.test)

    accuracies = {
        "BPLS, sigmoid": 75.0,
        "BPLS, identity": 74.0,
        "BPLS, softmax": 73.0,
        "Gauss-Newton (ours)": 85.0,
        "Adam 128, tanh": 80.0,
        "Adam 1, tanh": 80.0,
        "Adam 1, softmax (paper)": 85.1,
    }
    result = made_up({k: [(v, v)] for k, v in accuracies.items()}, 2, spread=0.5)
    paths = pd.DataFrame({"sigma = 0": [80.0, 84.0, 83.0, 70.0]})
    table = lab.claims_table(toy(1.0, 1.1), toy(2.0, 1.0), result, paths, epochs=9)
    verdicts = table.set_index("paper's claim").verdict
    assert list(table.columns)[-1] == "verdict" and table.notna().all(axis=None)
    find = lambda word: next(v for k, v in verdicts.items() if word in k)  # noqa: E731
    assert find("non-linear toy") == "no"
    assert find("Table I: test accuracy below Adam's") == "yes"
    assert find("Table I, BPLS: 90.04") == "other data: no verdict"
    assert find("Table II") == "no" and f"{RATIO:.0f}" == "1247"
    assert find("line 18") == "no: later walks undo it"
    assert find("Gauss-Newton") == "not decided by this run"
    known = lab.Race("fashion-mnist", "setting", result.runs)
    table = lab.claims_table(toy(1.0, 1.1), toy(1.02, 1), known, paths, epochs=9)
    verdicts = table[table["paper's claim"] == "Table I, BPLS: 83.99 / 82.57"].verdict
    assert verdicts.tolist()[0] == "off by 9.0 points"
    assert _toy("x", toy(1.02, 1.0), 9)[-1] == "equal to 5 %"


def test_a_verdict_needs_more_than_both_spreads():
    def row(test, sd):
        return {"test [%]": test, "sd [%]": sd}

    assert _verdict(row(90, 0.5), row(88, 0.5)) == "yes"
    assert _verdict(row(88, 0.5), row(90, 0.5)) == "no"
    assert _verdict(row(90, 1.5), row(88, 0.5)) == "not decided by this run"
    assert _verdict(row(90, math.nan), row(88, 0.5)) == "not decided by this run"
    steady = pd.DataFrame({"sigma = 0": [80.0, 84.0, 83.5]})
    assert _stop("made up", steady)[-1] == "harmless here"


@pytest.mark.real_data
def test_fashion_mnist_collapses_without_noise():
    problem = lab.make_problem("fashion-mnist", samples=40_000)
    path = lab.collapse(problem)["sigma = 0"]
    assert path.max() > 83.5 and path.iloc[-1] < 80
