"""The live experiments of BPLS on digits: what their knobs do, and promise."""

import dataclasses
import math

import numpy as np
import pytest

from labkit.bpls import train
from labkit.instruments import Trace
from labkit.labs import bpls as lab
from labkit.labs.problem import load_problem, with_noise
from labkit.panels import LiveLab


@pytest.fixture(scope="module")
def digits():
    return load_problem("digits", samples=300)


@pytest.fixture(scope="module")
def whole():
    return load_problem("digits")


def live(problem, folder="", **values):
    knobs = lab.WalkKnobs(**values)
    return LiveLab(lab.WALK, problem, knobs=knobs, interactive=False, folder=folder)


def toy(**values):
    return LiveLab(lab.TOY, knobs=lab.ToyKnobs(**values), interactive=False)


def drawn(experiment):
    return {column for panel in experiment.panels for column in panel.columns}


def test_the_live_experiment_writes_what_its_panels_show(digits, tmp_path):
    experiment = live(digits, str(tmp_path), depth=2)
    frame = experiment.run(9)
    assert drawn(lab.WALK) <= set(frame.columns)
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
    "interpretation": ("mean", 1),
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
    noisy = with_noise(digits, inputs=0.6)
    assert frame["accuracy so far"].iloc[5] == frame["train"].iloc[5]
    assert frame["misses"].iloc[5] == round(
        len(noisy.fit.targets) * (1 - frame["train"].iloc[5] / 100)
    )


def test_what_noise_says_to_look_for_is_there(whole):
    experiment = live(whole)
    experiment.run(20)
    experiment.controls.set(sigma=0.4)
    frame = experiment.run(16)
    assert frame["rows"].iloc[20] > 10 * frame["rows"].iloc[18]
    misses, test = frame["misses"].dropna(), frame["test"].dropna()
    assert misses.iloc[-1] > 3 * misses.iloc[9] and test.iloc[-8:].min() >= 90
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
    mean = live(whole, interpretation="mean", activation="identity").run(8)
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
    rows = [row for row in lab.walk_rows(knobs, digits) if "misses" in row]
    start = lab.start_weights(digits, 12)
    X, y = digits.fit.inputs, digits.fit.targets
    records = train(X, y, start, "sigmoid", ridge=1e-4, max_walks=3)
    ends = [record.end for record in records if record.end]
    assert [row["misses"] for row in rows] == [end.misses for end in ends]
    assert [row["kept"] for row in rows] == [end.kept for end in ends]


def test_a_run_that_diverges_ends_with_its_reason(whole):
    wild = {"interpretation": "label", "activation": "identity", "width": 200}
    frame = live(whole, **wild, seed=1).run(60)
    assert frame["note"].iloc[-1].endswith("targets are not finite")


def test_the_toys_live_experiment_shows_theory_and_tail():
    frame = toy(kind="linear", sigma=0.5).run(25)
    assert drawn(lab.TOY) <= set(frame.columns)
    assert frame["rmse plain"].iloc[-1] == pytest.approx(frame.theory.iloc[-1], rel=0.1)
    assert np.allclose(frame["rmse plain"], frame["rmse again"])
    tail = toy().run(25).iloc[-1]
    assert tail["worst plain"] > 3 * tail["worst again"]


@pytest.mark.parametrize("name", lab.NAMES)
def test_the_toys_live_experiment_takes_every_interpretation(name):
    for kind in ("linear", "nonlinear"):
        knobs = lab.ToyKnobs(kind=kind, interpretation=name, sigma=1.0)
        assert math.isfinite(next(lab.toy_rows(knobs))["rmse plain"])


def test_a_glance_has_the_panels_and_knobs_asked_for(digits):
    few = lab.WALK.glance(["misses"], ("ridge",), "look")
    assert drawn(few) == {"misses", "rows"} and few.only == ("ridge",)
    assert LiveLab(few, digits, interactive=False).run(2).misses.iloc[-1] > 0


# What notebook 02 shows of the room: the paths it takes are in its own check cells


def ends(problem, layer, width=50, depth=1, seed=0, **options):
    start = lab.start_weights(problem, *[width] * depth, seed=seed)
    X, y = problem.fit.inputs, problem.fit.targets
    return [r.end for r in train(X, y, start, layer, **options) if r.end]


def test_only_joint_corrections_survive_the_walks_on_misses(whole):
    def after(name):
        which = lab.interpretation_of(name)
        last = ends(whole, "identity", interpretation=which, max_walks=8, stop=False)
        return 100 * last[-1].accuracy

    assert all(after(name) > 90 for name in ("min_norm", "gauss_seidel"))
    assert all(after(name) < 60 for name in ("mean", "cyclic", "label", "one output"))


def test_the_clamp_decides_a_softmax_layer(whole):
    wide, narrow = (ends(whole, "softmax", 30, clamp=c) for c in (1e-2, 1e-6))
    assert max(e.accuracy for e in wide) > 0.9 > 0.85 > max(e.accuracy for e in narrow)


def test_depth_harms_bounded_layers_and_not_linear_ones(whole):
    first = {
        (layer, depth): 100 * ends(whole, layer, depth=depth)[0].accuracy
        for layer in ("identity", "tanh")
        for depth in (1, 4)
    }
    assert abs(first["identity", 4] - first["identity", 1]) < 1
    assert first["tanh", 4] < first["tanh", 1] - 20


def test_later_walks_collapse_under_noise_and_not_without(whole):
    free = {"max_walks": 12, "stop": False}
    clean, noisy = (
        ends(each, "identity", **free)
        for each in (whole, with_noise(whole, inputs=0.6))
    )
    assert clean[-1].accuracy > clean[0].accuracy
    ruled = ends(with_noise(whole, inputs=0.6), "identity", max_walks=12)
    assert [e.misses for e in ruled] == [e.misses for e in noisy][: len(ruled)]
    assert noisy[-1].accuracy < max(e.accuracy for e in ruled) - 0.03


@pytest.mark.real_data
def test_fashion_mnist_collapses_without_noise():
    problem = load_problem("fashion-mnist", samples=40_000)
    path = [e.accuracy for e in ends(problem, "identity", max_walks=12, stop=False)]
    assert max(path) > 0.835 and path[-1] < 0.8
