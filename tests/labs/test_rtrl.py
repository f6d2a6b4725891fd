"""The RTRL lab: names, the noise experiment, its panel, races and tables."""

import dataclasses
import math
from itertools import islice

import pandas as pd
import pytest
import torch

from labkit.datasets import load
from labkit.instruments import Trace
from labkit.labs import rtrl as lab
from labkit.rtrl import RTRL, CopyTask


@pytest.fixture(scope="module")
def text():
    return lab.read_text("text")


@pytest.fixture(scope="module")
def untrained(text):
    return lab.new_network(len(text.symbols), 32)


def knobs(**values):
    return lab.NoiseKnobs(**{"hidden": 8, "rank": 2} | values)


# Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("8-OK", ("OK", 8)),
        ("OK", ("OK", 1)),
        ("2-B-OK", ("B-OK", 2)),
        ("KF", ("KF-AVG", 1)),
        ("KF-RTRL", ("KF-AVG", 1)),
        ("16-KF-APPROX", ("KF-APPROX", 16)),
        ("16-KTP-SHARED", ("KTP-SHARED", 16)),
        ("UORO", ("UORO", 1)),
        ("25-TBPTT", ("TBPTT", 25)),
    ],
)
def test_names_of_methods(name, expected):
    assert lab.parse_method(name) == expected


@pytest.mark.parametrize("method", lab.METHODS)
@pytest.mark.parametrize("rank", [1, 12])
def test_a_label_is_read_back(method, rank):
    expected = (method, 1 if method in lab.UNRANKED else rank)
    assert lab.parse_method(lab.method_label(method, rank)) == expected


@pytest.mark.parametrize("name", ["0-OK", "nonsense", "", "8-", "-OK", "-1-OK", "ok"])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match=f"unknown method '{name}'; write r-NAME"):
        lab.parse_method(name)


@pytest.mark.parametrize("method", lab.METHODS)
def test_every_method_can_be_made_and_measured(method, text, untrained):
    name = lab.method_label(method, 2)
    rows = list(islice(lab.measure_noise(untrained, name, text, repeats=2), 3))
    for row in rows:
        assert all(math.isfinite(value) for value in row.values())
        assert -1 <= row["cosine"] <= 1
        assert ("theorem" in row) == (method == "OK")


def test_a_learner_has_a_generator_of_its_own(untrained):
    state = torch.get_rng_state()
    one, two = (
        lab.make_learner("8-OK", untrained.cell, batch_size=2, seed=seed)
        for seed in (3, 4)
    )
    assert one.rank == 8 and one.batch_size == 2
    assert one.generator.initial_seed() == 3 and two.generator.initial_seed() == 4
    assert torch.equal(torch.get_rng_state(), state)


# The noise experiment


def test_the_mixing_error_is_that_of_the_theorem(text):
    """Every draw has it, not only the mean: s1^2 / k - s2."""
    network = lab.new_network(len(text.symbols), 16, dtype=torch.float64)
    rank, steps = 2, 60
    records = lab.measure_noise(network, f"{rank}-OK", text, repeats=10, seed=1)
    frame = pd.DataFrame(list(islice(records, steps)))
    assert not frame[["drawn", "theorem", "level"]].isna().any(axis=None)
    assert frame["theorem"].median() > 1e-6  # there is noise to speak of
    difference = (frame["drawn"] - frame["theorem"]).abs()
    assert (difference <= 1e-9 * frame["theorem"] + 1e-20).all()
    # Nothing needs mixing as long as the sum has no more than r terms.
    assert frame["relative_variance"].iloc[:rank].max() < 1e-20
    assert frame["theorem"].iloc[:rank].max() < 1e-20
    assert frame["relative_variance"].median() > 1e-6


def test_the_spectrum_is_shown_with_its_level(text, untrained):
    rows = list(islice(lab.measure_noise(untrained, "4-OK", text), 20))
    row = rows[-1]
    d = [row[f"d{i}"] for i in range(1, 6)]
    assert "d6" not in row and d == sorted(d, reverse=True) and d[-1] >= 0
    assert d[-1] <= row["level"] <= d[0]


def test_exact_rtrl_has_no_noise(text, untrained):
    for row in islice(lab.measure_noise(untrained, "RTRL", text), 5):
        assert row["cosine"] > 1 - 1e-5 and row["relative_variance"] < 1e-10


def test_a_measurement_is_repeatable_and_its_seed_matters(text, untrained):
    def taken(seed):
        return list(islice(lab.measure_noise(untrained, "UORO", text, seed=seed), 4))

    weight = untrained.cell.weight.clone()
    assert taken(0) == taken(0)
    assert taken(0)[2:] != taken(1)[2:]
    assert torch.equal(weight, untrained.cell.weight)


def test_repeats_share_the_sequences_of_the_batch(text, untrained):
    """Repeat and batch are not mixed up: a method without noise shows none."""
    for row in islice(lab.measure_noise(untrained, "RTRL", text, batch=3), 6):
        assert row["cosine"] > 1 - 1e-5 and row["relative_variance"] < 1e-10
        assert row["cosine_sd"] < 1e-5


def test_untrained_cosines_lie_where_the_paper_has_them(text, untrained):
    table = lab.noise_table(untrained, ["2-OK", "KF", "UORO"], text, steps=150, skip=50)
    assert list(table.columns) == ["cosine", "relative_variance"]
    assert list(table.index) == ["2-OK", "KF", "UORO"]
    assert table.index.name == "method"
    assert table.cosine["2-OK"] > 0.99
    assert 0.5 < table.cosine["KF"] < 0.9
    assert table.cosine["UORO"] < 0.3
    assert table.relative_variance.is_monotonic_increasing


def test_the_table_skips_the_first_steps(text, untrained):
    table = lab.noise_table(untrained, ["KF"], text, steps=9, skip=6, repeats=3)
    rows = list(islice(lab.measure_noise(untrained, "KF", text, repeats=3), 9))[6:]
    mean = sum(row["cosine"] for row in rows) / 3
    assert table.cosine["KF"] == pytest.approx(mean, rel=1e-12)


# Training on text


def test_training_on_text_learns(text):
    updates = list(lab.train_network(text, 8, updates=60, batch=8, horizon=10))
    assert [number for number, _ in updates] == list(range(1, 61))
    first, last = updates[0][1], updates[-1][1]
    assert first.bits > 5 and last.bits < first.bits - 0.5
    again = lab.trained_network(text, 8, updates=60, batch=8, horizon=10)
    assert torch.equal(again.cell.weight, last.cell.weight)
    assert torch.equal(again.readout.weight, last.readout.weight)


# The lab


def test_the_lab_headless_writes_one_trace_per_measurement(text, tmp_path):
    noise = lab.noise_lab(text, knobs(), interactive=False, folder=str(tmp_path))
    first = noise.run(5)
    assert list(first.index) == [1, 2, 3, 4, 5]
    noise.controls.set(hidden=16, rank=3, seed=7)
    second = noise.run(4)
    assert len(second) == 4 and "d4" in second and "d4" not in first
    noise.trace.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["noise-1.jsonl", "noise-2.jsonl"]
    one, two = (Trace.load(tmp_path / name) for name in names)
    pd.testing.assert_frame_equal(one.frame(), first)
    pd.testing.assert_frame_equal(two.frame(), second)
    assert one.header["parameters"]["rank"] == 2
    assert two.header["parameters"]["rank"] == 3 and two.header["seed"] == 7


def test_the_lab_measures_what_its_knobs_say(text):
    noise = lab.noise_lab(text, knobs(method="KF-AVG", seed=5), interactive=False)
    network = lab.new_network(len(text.symbols), 8)
    rows = list(islice(lab.measure_noise(network, "2-KF-AVG", text, seed=5), 3))
    assert noise.run(3)["cosine"].tolist() == [row["cosine"] for row in rows]


def test_runs_of_the_lab_continue(text):
    whole, parts = (lab.noise_lab(text, knobs(), interactive=False) for _ in range(2))
    parts.run(2)
    pd.testing.assert_frame_equal(parts.run(3), whole.run(5))


def test_the_lab_trains_first_and_only_once(text):
    networks = {}
    noise = lab.noise_lab(
        text, knobs(trained=True), interactive=False, updates=3, networks=networks
    )
    frame = noise.run(2)
    assert frame["measured"].tolist() == [False] * 3 + [True] * 2
    assert list(frame.index) == [1, 2, 3, 4, 5]
    assert frame["bits"].iloc[:3].notna().all()
    network = networks[8]
    assert network.bits == frame["bits"].iloc[2]
    noise.controls.set(method="UORO")
    again = noise.run(2)
    assert again["measured"].tolist() == [True, True]
    assert networks == {8: network}
    expected = next(lab.measure_noise(network, "UORO", text))
    assert again["cosine"].iloc[0] == expected["cosine"]


def test_the_interactive_lab_builds_its_widget(text):
    noise = lab.noise_lab(text, knobs())
    children = noise.widget.children
    for part in (noise.controls.widget, noise.stepper.widget, noise.plot.widget):
        assert any(child is part for child in children)
    noise.stepper.step(3)
    noise.plot.update()
    assert list(noise.plot.figure.data[0].x) == [1, 2, 3]
    noise.controls.set(rank=4)
    assert len(noise.trace) == 3 and noise.stepper.position == 3
    noise.controls.set(batch=2)
    assert len(noise.trace) == 0 and noise.stepper.position == 0
    assert "application/vnd.jupyter.widget-view+json" in noise._repr_mimebundle_()


def test_the_headless_lab_shows_its_figure_alone(text):
    noise = lab.noise_lab(text, knobs(), interactive=False)
    noise.run(2)
    assert "application/vnd.plotly.v1+json" in noise._repr_mimebundle_()


# Knobs turned while it measures


def columns(frame):
    """All that was measured; ``turned`` tells of knobs."""
    return frame.drop(columns="turned", errors="ignore")


@pytest.mark.parametrize("method", ["OK", "B-OK"])
@pytest.mark.parametrize("rank", [1, 16])
def test_rank_turns_without_a_restart(text, method, rank):
    """From the next step on OK has other terms; steps before are untouched."""
    start = knobs(rank=3, method=method)
    turned, left = (
        lab.noise_lab(text, start, interactive=False, repeats=3) for _ in range(2)
    )
    turned.run(4), left.run(4)
    turned.controls.set(rank=rank)
    one, other = turned.run(3), left.run(3)
    assert list(one.index) == list(range(1, 8))
    assert one["turned"].dropna().to_dict() == {5: f"rank = {rank}"}
    pd.testing.assert_series_equal(one["cosine"].iloc[:4], other["cosine"].iloc[:4])
    # More terms of a truncated sum may agree to rounding; the numbers still move.
    assert not one["cosine"].iloc[4:].equals(other["cosine"].iloc[4:])
    if method == "OK":
        values = one.filter(regex=r"^d\d").notna().sum(axis=1)
        assert values.tolist() == [4] * 4 + [rank + 1] * 3


def test_turned_rank_and_signs_are_what_the_learner_goes_by(text):
    """Bit for bit the learner that is changed by hand."""
    turned = lab.noise_lab(text, knobs(rank=3), interactive=False, repeats=4)
    turned.run(3)
    turned.controls.set(rank=2, seed=9)
    turned.run(2)
    turned.controls.set(rank=5)
    steps = iter(range(1, 9))

    def turn(learner):
        step = next(steps)
        if step == 4:
            learner.generator.manual_seed(9)
            learner.change_rank(2)
        if step == 6:
            learner.change_rank(5)

    network = lab.new_network(len(text.symbols), 8)
    rows = lab.measure_noise(network, "3-OK", text, repeats=4, turn=turn)
    expected = [row["cosine"] for row in islice(rows, 8)]
    assert turned.run(3)["cosine"].tolist() == expected


@pytest.mark.parametrize("values", [{"rank": 5}, {"seed": 9}])
def test_a_knob_turned_before_the_first_step_is_one_given(text, values):
    turned = lab.noise_lab(text, knobs(), interactive=False)
    turned.controls.set(**values)
    given = lab.noise_lab(text, knobs(**values), interactive=False)
    pd.testing.assert_frame_equal(columns(turned.run(4)), given.run(4))


def test_signs_are_drawn_anew_from_the_next_step_on(text):
    turned, left = (lab.noise_lab(text, knobs(), interactive=False) for _ in range(2))
    turned.run(3), left.run(3)
    turned.controls.set(seed=1)
    one, other = turned.run(3)["cosine"], left.run(3)["cosine"]
    assert one.iloc[:3].equals(other.iloc[:3])
    assert not one.iloc[3:].equals(other.iloc[3:])


def test_a_knob_turned_while_the_network_trains_holds_when_it_measures(text):
    noise = lab.noise_lab(text, knobs(trained=True), interactive=False, updates=3)
    noise.stepper.step(2)
    noise.controls.set(rank=4, seed=3)
    frame = noise.run(2)
    assert frame["measured"].tolist() == [False] * 3 + [True] * 2
    assert "d5" in frame and "d6" not in frame


@pytest.mark.parametrize("method", sorted(set(lab.METHODS) - {"OK", "B-OK"}))
def test_other_methods_begin_anew_with_another_rank(text, method):
    noise = lab.noise_lab(text, knobs(method=method), interactive=False)
    noise.run(2)
    noise.controls.set(rank=3)
    assert noise.turned.value == "rank restarts the run" and len(noise.run(1)) == 1


@pytest.mark.parametrize("end", [0, -1])
@pytest.mark.parametrize("field", dataclasses.fields(lab.NoiseKnobs))
def test_every_knob_works_at_its_ends(text, field, end):
    meta = field.metadata
    bounds = (meta["low"], meta["high"]) if meta["low"] is not None else (False, True)
    value = (meta["choices"] or bounds)[end]
    noise = lab.noise_lab(text, knobs(), interactive=False, updates=2, repeats=2)
    noise.run(2)
    noise.controls.set(**{field.name: value})
    assert noise.run(2)["cosine"].notna().any()
    assert meta["look_for"]


# Races and tables

RACERS = ["2-OK", "KF", "UORO", "5-TBPTT"]


def test_the_copy_race_logs_every_method(tmp_path):
    path = tmp_path / "race.jsonl"
    trace = lab.copy_race(RACERS, hidden=8, batch=4, steps=60, path=path)
    frame = trace.frame()
    assert list(frame.index) == [20, 40, 60]
    kinds = ("level", "error", "seconds")
    assert set(frame) == {f"{kind} {name}" for kind in kinds for name in RACERS}
    for name in RACERS:
        assert (frame[f"level {name}"] == 1).all()
        assert frame[f"error {name}"].between(0.9, 1.2).all()
        assert frame[f"seconds {name}"].is_monotonic_increasing
    pd.testing.assert_frame_equal(Trace.load(path).frame(), frame)
    table = lab.race_table(trace, RACERS)
    assert list(table.index) == RACERS and table.index.name == "method"
    assert list(table.columns) == [
        "level at equal data",
        "symbols in equal time",
        "level in equal time",
        "ms per symbol",
    ]
    assert not table.isna().any(axis=None)
    assert (table["symbols in equal time"] <= 60).all()
    assert table["symbols in equal time"].max() == 60  # the fastest
    assert (table["ms per symbol"] > 0).all()
    plot = lab.race_plot(trace, RACERS, interactive=False)
    shown = [curve.legendgroup for curve in plot.figure.data if curve.legendgroup]
    assert sorted(shown) == sorted(2 * RACERS)


def test_racers_see_the_same_symbols(monkeypatch):
    seen = []

    class Recorded(CopyTask):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, level=4, **kwargs)
            seen.append(self.log)

        @property
        def log(self):
            return self.__dict__.setdefault("_log", [])

        def __next__(self):
            symbols = super().__next__()
            self.log.append(symbols)
            return symbols

    monkeypatch.setattr("labkit.labs.rtrl.race.CopyTask", Recorded)
    lab.copy_race(["2-OK", "UORO"], hidden=4, batch=3, steps=40)
    one, two = seen
    assert len(one) == len(two) == 40
    for a, b in zip(one, two, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_race_between_equals_is_even():
    """The same method by two names: also the initial weights and signs agree."""
    trace = lab.copy_race(["KF", "1-KF-AVG"], hidden=6, batch=2, steps=40)
    assert trace.column("error KF") == trace.column("error 1-KF-AVG")


def test_text_is_learned_online(text, tmp_path):
    path = tmp_path / "text.jsonl"
    names = ["2-OK", "5-TBPTT"]
    trace = lab.learn_text(names, text, hidden=8, batch=8, steps=300, path=path)
    frame = Trace.load(path).frame()
    assert list(frame.index) == list(range(25, 301, 25))
    for name in names:
        bits = frame[f"bits {name}"]
        assert 4 < bits.iloc[0] < 6.5 and bits.iloc[-1] < bits.iloc[0] - 0.3
    plot = lab.text_plot(trace, names, interactive=False)
    assert [c.legendgroup for c in plot.figure.data if c.legendgroup] == names


def test_the_papers_claims_stand_beside_a_value():
    names = ["1-OK", "2-OK", "8-OK", "8-KF-AVG", "KF", "UORO"]
    noise = pd.DataFrame(
        {"cosine": [0.5] * 6, "relative_variance": [2.0] * 6}, index=names
    )
    race = pd.DataFrame({"level at equal data": [4.0, 3.0]}, index=["8-OK", "UORO"])
    table = lab.paper_table(noise, noise, race, "n = 8")
    assert list(table.columns) == ["paper", "measured here", "setting"]
    assert len(table) == 6 and (table["setting"] == "n = 8").all()
    assert table["measured here"].str.contains(r"\d").all()
    assert table["measured here"].iloc[-1] == "8-OK 4, UORO 3"


# Acceptance on Penn Treebank


@pytest.fixture(scope="module")
def ptb():
    return load("ptb", split="train")


@pytest.mark.real_data
def test_two_terms_suffice_untrained_on_ptb(ptb):
    network = lab.new_network(len(ptb.symbols), 64)
    table = lab.noise_table(network, ["2-OK"], ptb, steps=150, skip=50, repeats=20)
    assert table.cosine["2-OK"] > 0.999


@pytest.mark.real_data
def test_more_terms_beat_more_copies_trained_on_ptb(ptb):
    """Seen with these seeds: 0.428, 0.627, 0.9925 (OK), 0.807, 0.045."""
    network = lab.trained_network(ptb, 64, updates=5000)
    assert network.bits < 2.8
    names = ["1-OK", "2-OK", "8-OK", "8-KF-AVG", "UORO"]
    table = lab.noise_table(network, names, ptb, steps=200, skip=100)
    cosine, variance = table.cosine, table.relative_variance
    assert cosine["8-OK"] > 0.99
    assert cosine["8-KF-AVG"] < 0.9
    assert cosine["UORO"] < 0.1
    assert variance["8-OK"] < 0.1 * variance["8-KF-AVG"]
    # An independent implementation measured these on another stretch of the text.
    assert cosine["1-OK"] == pytest.approx(0.455, abs=0.1)
    assert cosine["2-OK"] == pytest.approx(0.664, abs=0.1)


def test_exact_learner_is_among_the_methods(untrained):
    learner = lab.make_learner("RTRL", untrained.cell, batch_size=1, seed=0)
    assert isinstance(learner, RTRL)
