"""The live experiments of BPLS on digits: what their knobs do, and promise."""

import dataclasses

import numpy as np
import pytest

from labkit.bpls import train
from labkit.instruments import Trace
from labkit.lab import bpls as lab
from labkit.lab.panels import LiveLab
from labkit.lab.problem import load_problem, with_noise

whole, digits = load_problem("digits"), load_problem("digits", samples=300)


def knobs_of(*knobs):
    return [field for table in knobs for field in dataclasses.fields(table)]


def live(problem, folder="", **values):
    knobs = lab.WalkKnobs(**values)
    return LiveLab(lab.WALK, problem, knobs=knobs, interactive=False, folder=folder)


def toy(**values):
    return LiveLab(lab.TOY, knobs=lab.ToyKnobs(**values), interactive=False)


def drawn(experiment):
    return {column for panel in experiment.panels for column in panel.columns}


def ends(problem, layer, width=50, depth=1, seed=0, **options):
    start = lab.start_weights(problem, *[width] * depth, seed=seed)
    X, y = problem.fit.inputs, problem.fit.targets
    return [r.end for r in train(X, y, start, layer, **options) if r.end]


def test_the_live_experiment_writes_what_its_panels_show(tmp_path):
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


def test_another_network_restarts_the_walk():
    experiment = live(digits)
    first = experiment.run(4)["accuracy so far"].tolist()
    for change in ({"width": 30}, {"depth": 2}, {"activation": "tanh"}, {"seed": 1}):
        experiment.controls.set(**change)
        assert len(experiment.trace.rows) == 0
        assert experiment.run(4)["accuracy so far"].tolist() != first
        experiment.controls.reset()
        assert experiment.run(4)["accuracy so far"].tolist() == first


# Another value for each knob that needs no restart, and whether the next row shows it.
LIVE = {"sigma": (0.4, True), "label_noise": (0.4, True), "clamp": (0.2, True)}
LIVE |= {"interpretation": ("mean", True), "ridge": (1e-1, True)}
LIVE |= {"stop": (True, False), "walks": (3, False)}


def test_what_needs_no_restart_is_what_is_tried_here():
    kept = {k.name for k in knobs_of(lab.WalkKnobs) if not k.metadata["restart"]}
    assert set(LIVE) == kept


@pytest.mark.parametrize("name", LIVE)
def test_a_knob_turned_in_a_run_changes_what_comes_and_nothing_before(name):
    (value, soon), said = LIVE[name], name.replace("_", " ")
    title = lab.WalkKnobs.__dataclass_fields__[name].metadata["label"] or said
    plain, turned = live(digits, sigma=0.2), live(digits, sigma=0.2)
    before = turned.run(4)
    turned.controls.set(**{name: value})
    assert len(turned.trace.rows) == 4 and title in turned.turned.value
    frame, wanted = turned.run(40), plain.run(44)
    assert said in frame["turned"].iloc[4]
    assert frame["turned"].notna().sum() == 1
    same = ["walk", "layer", "rows", "accuracy so far"]
    assert frame[same].iloc[:4].equals(before[same])
    assert frame[same].iloc[:4].equals(wanted[same].iloc[:4])
    if not soon:
        assert len(frame) < len(wanted)
    else:
        shown = ["rows", "condition output", "clamped output", "overshoot output"]
        assert not frame[shown].iloc[4].equals(wanted[shown].iloc[4])


def test_noise_turned_in_a_run_has_its_own_misses():
    experiment = live(digits)
    experiment.run(4)
    experiment.controls.set(sigma=0.6)
    frame = experiment.run(2)
    assert frame["rows"].iloc[4] > 3 * frame["misses"].iloc[3]
    last = frame.iloc[5]
    assert last["accuracy so far"] == pytest.approx(last["train"], rel=1e-12)
    assert last["misses"] == round(len(digits.fit.targets) * (1 - last["train"] / 100))


def with_noise_turned_up(seed):
    """A run with sigma at 0.4 after ten walks, for eight more."""
    experiment = live(whole, seed=seed)
    experiment.run(20)
    experiment.controls.set(sigma=0.4)
    return experiment, experiment.run(16)


def test_the_test_holds_up_to_a_noise_of_0_4():
    """By the mean of 64 walks; at 0.45, the next step of the knob, it is below 91.

    The worst walk alone moves by 3 points with the order of a sum, the mean by 0.2. A
    walk's share of 360 images has a standard deviation of 1.5 points.
    """
    runs = [with_noise_turned_up(seed)[1] for seed in range(8)]
    test = np.stack([frame["test"].dropna().iloc[-8:] for frame in runs])
    assert test.mean() > 91 and test.min() > 91 - 4 * 1.5


def test_what_noise_says_to_look_for_is_there():
    experiment, frame = with_noise_turned_up(seed=0)
    assert frame["rows"].iloc[20] > 10 * frame["rows"].iloc[18]
    misses = frame["misses"].dropna()
    assert misses.iloc[-1] > 3 * misses.iloc[9]
    experiment.controls.set(sigma=0.0)
    experiment.run(10)
    experiment.controls.set(label_noise=0.2)
    fallen = experiment.run(16)["test"].dropna()
    assert fallen.iloc[-1] < fallen.iloc[-9] - 8
    experiment.controls.set(label_noise=0.0)
    assert experiment.run(10)["test"].dropna().iloc[-1] > 88


def test_what_the_other_knobs_say_to_look_for_is_there():
    def first(**values):
        return live(whole, **values).run(1 + values.get("depth", 1))

    tight, loose = (first(ridge=r)["condition input"].iloc[1] for r in (1e-4, 1e-2))
    assert tight / loose == pytest.approx(10, rel=0.1)
    clamped = [first(activation=a)["clamped output"] for a in ("identity", "softmax")]
    assert clamped[0].iloc[0] == 0 and clamped[1].iloc[0] > 60
    linear = [first(activation="identity", width=w).train.iloc[1] for w in (10, 200)]
    assert linear[0] == pytest.approx(linear[1], abs=0.3)
    deep = {d: first(depth=d).train.iloc[-1] for d in (1, 3)}
    assert deep[3] < deep[1] - 30
    assert first(clamp=1e-6).train.iloc[-1] < deep[1] - 8
    mean = live(whole, interpretation="mean", activation="identity").run(14)
    assert mean["train"].dropna().iloc[-1] < 60 < 90 < mean["train"].dropna().iloc[0]


def test_a_clamp_below_float32s_distance_to_1_ends_the_walk_with_its_reason():
    experiment = live(digits, walks=2, width=12, clamp=1e-8)
    frame = experiment.run(9)
    assert "have no inverse under 'sigmoid'" in frame["note"].iloc[-1]
    assert experiment.note.value == frame["note"].iloc[-1]


def test_looking_changes_nothing():
    """The rows' accuracies are those of a training that nobody looks at."""
    knobs = lab.WalkKnobs(walks=3, width=12, stop=True)
    rows = [row for row in lab.walk_rows(knobs, digits) if "misses" in row]
    plain = ends(digits, "sigmoid", 12, ridge=1e-4, max_walks=3)
    found = [(row["misses"], row["kept"]) for row in rows]
    assert found == [(end.misses, end.kept) for end in plain]


def test_a_run_that_diverges_ends_with_its_reason():
    wild = {"interpretation": "label", "activation": "identity", "width": 200}
    frame = live(whole, **wild, seed=1).run(60)
    assert frame["note"].iloc[-1].endswith("are not finite")


def test_the_toys_live_experiment_shows_theory_and_tail():
    frame = toy(kind="linear", sigma=0.5).run(25)
    assert drawn(lab.TOY) <= set(frame.columns)
    assert frame["rmse plain"].iloc[-1] == pytest.approx(frame.theory.iloc[-1], rel=0.1)
    assert np.allclose(frame["rmse plain"], frame["rmse again"])
    tail = toy().run(25).iloc[-1]
    assert tail["worst plain"] > 3 * tail["worst again"]


def test_only_joint_corrections_survive_the_walks_on_misses():
    def after(name):
        how = {"interpretation": lab.interpretation_of(name), "stop": False}
        runs = [ends(whole, "identity", seed=s, max_walks=8, **how) for s in range(4)]
        return np.array([100 * run[-1].accuracy for run in runs])

    assert all(after(name).min() > 90 for name in ("min_norm", "gauss_seidel"))
    for name in ("mean", "cyclic", "label", "one output"):  # each run by chance, and
        assert after(name).mean() < 60  # by rounding: 14 to 62 with the order of a sum


def test_depth_harms_bounded_layers_and_not_linear_ones():
    def lost(layer):
        one, four = (ends(whole, layer, depth=depth)[0].accuracy for depth in (1, 4))
        return 100 * (one - four)

    assert abs(lost("identity")) < 1 and lost("tanh") > 20


def test_later_walks_collapse_under_noise_and_not_without():
    disturbed = with_noise(whole, input_noise=0.6)
    free = {"max_walks": 12, "stop": False}
    clean, noisy = (ends(each, "identity", **free) for each in (whole, disturbed))
    assert clean[-1].accuracy > clean[0].accuracy
    ruled = ends(disturbed, "identity", max_walks=12)
    assert [e.misses for e in ruled] == [e.misses for e in noisy][: len(ruled)]
    assert noisy[-1].accuracy < max(e.accuracy for e in ruled) - 0.03


def test_what_stands_before_a_box_is_text_as_the_page_shows_it():
    titles = list(lab.answers())
    assert len(titles) == 5 and not any(mark in t for t in titles for mark in "<&;")
