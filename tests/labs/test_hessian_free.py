"""The Hessian-free lab: problems, live labs, the frozen subproblem, race and claims."""

import math
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from labkit.hessian_free import squared_error
from labkit.hessian_free.tuples import norm
from labkit.labs import hessian_free as lab
from labkit.labs.hessian_free.claims import _generalises
from labkit.labs.hessian_free.live import CHECKS
from labkit.labs.hessian_free.race import ADAM, BATCH, FULL, SHF, as_sequential


@pytest.fixture(scope="module")
def problem():
    """Digits, with a small net and few rows, in float64."""
    whole = lab.make_problem("digits", samples=300, dtype=torch.float64)
    small = replace(whole.setting, encoder=(64, 16, 6), n1=30, nmax=200, maxiter=30)
    return replace(whole, setting=small, valid=whole.valid[:80], test=whole.test[:80])


@pytest.fixture(scope="module")
def kept(problem):
    return lab.moments(problem, after=(1, 8), rows=60)


# Problems


def test_digits_come_in_three_disjoint_parts():
    problem = lab.make_problem("digits")
    assert [len(rows) for rows in problem.parts] == list(lab.SIZES["digits"])
    rows = torch.cat(problem.parts)
    pixels = torch.tensor(load_digits().data / 16, dtype=rows.dtype)
    assert len(rows) == 1797  # in another order, each image as often as in the file
    for ours, theirs in zip(
        rows.unique(dim=0, return_counts=True),
        pixels.unique(dim=0, return_counts=True),
        strict=True,
    ):
        assert torch.equal(ours, theirs)
    again = lab.make_problem("digits", samples=100)
    assert torch.equal(again.train, problem.train[:100]) and again.setting.nmax == 100
    assert torch.equal(again.test, problem.test)


def test_problems_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="unknown data 'cats'; there are digits, usps"):
        lab.make_problem("cats")
    with pytest.raises(ValueError, match="the paper has no digits; it has curves"):
        lab.make_problem("digits", published=True)


def test_the_papers_settings_reach_the_knobs():
    curves = lab.make_problem("curves", published=True, samples=300)
    knobs = lab.knobs_of(replace(curves, setting=replace(curves.setting, nmax=2500)))
    assert (knobs.n1, knobs.nmax, knobs.lam1, knobs.drop) == (250, 2500, 5.0, 0.99)
    assert curves.setting.nmax == 300 and curves.side == (28, 28)


# The live training


def make_live(problem, **changes):
    knobs = lab.knobs_of(problem, **changes)
    return lab.training_lab(problem, knobs, interactive=False)


def test_the_live_training_writes_what_its_panels_show(problem):
    live = make_live(problem)
    frame = live.run(12)
    drawn = {c for panel in live.plot.panels for c in panel.columns}
    missing = {name for name in drawn - set(frame.columns) if "k=" not in name}
    assert not missing
    assert {f"k={k}" for k in CHECKS[:3]} <= set(frame.columns)
    assert frame["validation"].iloc[-1] < frame["validation"].iloc[0]
    grown = frame[frame.grew == "variance"]
    assert len(grown) and (grown["next, by variance"] > grown["n"]).all()
    assert frame["next, by variance"].notna().sum() == len(grown)
    shown = np.array(live.pictures.figure.data[0].z, dtype=float)
    assert np.nanmax(shown) <= 1 and live.pictures.figure.layout.title.text == "Step 12"
    fall = 100 * (1 - frame["validation"] / frame["validation"].shift())
    whole = frame["step length"].eq(1) & fall.notna()
    assert whole.any()
    assert np.allclose(fall[whole], frame["gain taken"][whole])


def test_a_stall_is_marked_as_one(problem):
    """With validation rows of noise the loss stalls, and theta tolerates any noise."""
    noise = torch.rand(80, 64, dtype=torch.float64)
    live = make_live(replace(problem, valid=noise), theta=0.95, n1=150, nmax=300)
    frame = live.run(10)
    stalled = frame[frame.grew == "stalled"]
    assert len(stalled)
    assert (stalled["next, stalled"] == -(-1005 * stalled["n"] // 1000)).all()


EXTREMES = [
    {f.name: value}
    for f in fields(lab.TrainingKnobs)
    for value in (
        f.metadata["choices"]
        or ((True,) if f.type is bool else (f.metadata["low"], f.metadata["high"]))
    )
]


@pytest.mark.parametrize("change", EXTREMES, ids=str)
def test_every_knob_works_at_its_ends(problem, change):
    frame = make_live(problem, **change).run(3)
    assert len(frame) == 3 and frame["validation"].notna().all()


# Another value for each knob that needs no restart, and what shows it at once.
LIVE = {
    "theta": (0.05, "noise bound"),
    "nmax": (40, None),
    "drop": (0.5, None),
    "preconditioner": ("none", "validation"),
    "budget": (3, "budget"),
    "recover": (0, None),
    "published": (True, "taken"),
    "noise": (0.4, "batch before"),
    "damping": ("scaled", "validation"),
    "centre": ("start", "validation"),
}


def test_what_needs_no_restart_is_what_is_tried_here():
    live = {f.name for f in fields(lab.TrainingKnobs) if not f.metadata["restart"]}
    assert set(LIVE) == live


@pytest.fixture(scope="module")
def plain(problem):
    return make_live(problem).run(8)


@pytest.mark.parametrize("name", LIVE)
def test_a_knob_turned_in_a_run_changes_the_next_step_and_none_before(
    problem, plain, name
):
    value, shown = LIVE[name]
    live = make_live(problem)
    before = live.run(3)
    live.controls.set(**{name: value})
    assert len(live.trace.rows) == 3
    frame = live.run(1)
    assert frame["validation"].iloc[:3].equals(before["validation"])
    assert frame["validation"].iloc[:3].equals(plain["validation"].iloc[:3])
    assert frame["turned"].notna().tolist() == [False, False, False, True]
    if shown:
        assert frame[shown].iloc[3] != plain[shown].iloc[3]


@pytest.mark.parametrize("name", LIVE)
def test_a_value_from_the_start_on_is_the_same_however_it_came(problem, name):
    """Set when made, or turned before the first step: the same to the last bit."""
    value, _ = LIVE[name]
    live = make_live(problem)
    live.controls.set(**{name: value})
    one, two = live.run(4), make_live(problem, **{name: value}).run(4)
    clocks = ["turned", "time", "seconds"]
    one, two = (f.drop(columns=clocks, errors="ignore") for f in (one, two))
    assert one.equals(two)


def test_the_damping_falls_by_the_drop_of_the_moment(problem):
    live = make_live(problem)
    live.run(2)
    live.controls.set(drop=0.5)
    lam = live.run(3)["lambda"]
    assert lam.loc[2] == pytest.approx(0.8 * lam.loc[1])
    assert lam.loc[4] == pytest.approx(0.5 * lam.loc[3])


def test_a_turned_budget_grows_along_from_there(problem):
    live = make_live(problem, theta=0.2)
    live.controls.set(budget=7)
    frame = live.run(9)
    live.controls.set(budget=5)
    frame = live.run(3)
    assert frame["budget"].loc[1] == 7 < frame["budget"].loc[9]
    assert frame["budget"].loc[10] == 5
    for step in (10, 11):
        grown = -(-frame["n"].loc[step + 1] * frame["budget"].loc[step])
        assert frame["budget"].loc[step + 1] == -(-grown // frame["n"].loc[step])


def test_what_a_run_begins_with_restarts_it(problem):
    live = make_live(problem)
    first = live.run(2)["validation"].tolist()
    for change in ({"n1": 80}, {"lam1": 5.0}, {"seed": 1}):
        live.controls.set(**change)
        assert len(live.trace.rows) == 0
        assert live.run(2)["validation"].tolist() != first
        live.controls.reset()
        assert live.run(2)["validation"].tolist() == first


def test_what_the_knobs_say_to_look_for_is_there():
    digits = lab.make_problem("digits")
    live = make_live(digits)
    live.run(20)
    live.controls.set(noise=0.3)
    frame = live.run(8)
    noise, n = frame["noise"], frame["n"]
    assert 4 < noise.loc[21] / noise.loc[20] < 10 and n.loc[28] > n.loc[21]
    live.controls.set(budget=5)
    frame = live.run(2)
    assert frame["iterations"].loc[30] == frame["budget"].loc[30]
    slow = make_live(digits, drop=0.99).run(30)["validation"]
    assert slow.loc[30] > 4 > 2 > frame["validation"].loc[20]
    assert make_live(digits, n1=300).run(11)["n"].loc[11] < 650


def test_every_knob_says_what_to_look_for():
    for knobs in (lab.TrainingKnobs, lab.KrylovKnobs):
        for field in fields(knobs):
            assert field.metadata["look_for"] and field.metadata["help"], field.name
            name = field.metadata["label"] or field.name
            room = 23 - len(field.metadata["unit"] and f" [{field.metadata['unit']}]")
            assert len(name) <= room or field.type is bool, field.name  # else cut off


def test_a_run_that_stops_being_finite_tells(problem):
    spoiled = replace(problem, train=problem.train.clone())
    live = make_live(spoiled, n1=200)
    live.run(2)
    spoiled.train.fill_(math.nan)
    frame = live.run(3)
    assert "finite" in frame["note"].iloc[-1] and "finite" in live.note.value
    assert len(frame) == 3


def test_looking_changes_nothing(problem):
    """With pictures and panels the run is the same, to the last bit."""
    knobs = lab.knobs_of(problem, noise=0.1)
    net, _, records = lab.start(problem, lambda: knobs, steps=6)
    plain = [record.validation_error for record in records]
    live = make_live(problem, noise=0.1)
    assert live.run(6)["validation"].tolist() == plain
    assert float(squared_error(net, problem.valid)) == plain[-1]


# The frozen subproblem


def test_a_moment_gives_the_same_problem_again(kept):
    one, two = (kept[8].subproblem(0.1) for _ in range(2))
    assert torch.equal(one.b, two.b)
    assert all(map(torch.equal, one.scale, two.scale))
    assert float(norm(one.x0)) > 0 and one.damp == 0.1
    assert kept[8].subproblem().damp < kept[1].subproblem().damp


def test_model_value_and_gradient_are_those_of_the_damped_model(kept):
    problem = kept[8].subproblem(0.3)
    g = torch.Generator().manual_seed(0)
    d = tuple(torch.randn(t.shape, generator=g, dtype=t.dtype) for t in problem.x0)
    want = 0.5 * (problem.point.forward_map(d) - problem.b).square().sum()
    want += 0.5 * 0.3**2 * norm(d) ** 2 - 0.5 * problem.b.square().sum()
    assert lab.model_value(problem, d) == pytest.approx(float(want))
    answer = lab.exact(problem)
    assert lab.gradient_norm(problem, answer) < 1e-8 * lab.gradient_norm(problem, d)
    zero = tuple(0 * t for t in d)
    assert 2 * float(problem.point.loss()) == pytest.approx(kept[8].error(zero))


def test_the_two_methods_compare_as_the_theory_says(kept):
    """At equal k: CG has the lower value and, without c, LSMR the smaller gradient."""
    problem = kept[8].subproblem(0.05, preconditioner="none")
    for k, each in zip(range(40), lab.iterates(problem), strict=False):
        value = {name: lab.model_value(problem, d) for name, d in each.items()}
        size = {name: lab.gradient_norm(problem, d) for name, d in each.items()}
        assert value["CG"] <= value["LSMR"] + 1e-12, k
        assert size["LSMR"] <= size["CG"] * (1 + 1e-8) + 1e-12, k


def test_the_krylov_lab_writes_what_its_panels_show(kept):
    knobs = lab.KrylovKnobs(after=1, lam=0.1)
    live = lab.krylov_lab(kept, knobs, interactive=False)
    frame = live.run(60)
    drawn = {c for panel in live.plot.panels for c in panel.columns}
    assert drawn <= set(frame.columns)
    assert frame["taken"].notna().sum() == frame["stopped"].notna().sum() == 1
    assert frame["distance CG"].iloc[-1] < 0.01 * frame["distance CG"].iloc[0]
    live.controls.set(damping="scaled", centre="start", preconditioner="jacobi")
    frame = live.run(60)
    assert frame["distance LSMR"].iloc[-1] > 0.01 > frame["distance CG"].iloc[-1]


@pytest.mark.parametrize("lam", [1e-3, 10.0])
@pytest.mark.parametrize("kind", ["fisher", "jacobi", "none", "random_signs"])
def test_krylov_knobs_at_their_ends(kept, lam, kind):
    knobs = lab.KrylovKnobs(after=1, lam=lam, preconditioner=kind, recover=0)
    frame = pd.DataFrame(
        row for row, _ in zip(lab.krylov_rows(kept[1], knobs), range(5), strict=False)
    )
    assert frame["merit LSMR"].notna().all()


def test_settings_and_iterations_tables(kept):
    table = lab.settings_table(kept[8], 0.1)
    away = table["from the stated answer [%]"]
    assert len(table) == 4 and away.iloc[0] == 0 and (away.iloc[1:] > 1).all()
    needed = lab.iterations_table(kept, (0.1,), ("none", "random_signs"))
    assert needed.shape == (2, 4) and (needed > 0).all().all()
    assert (needed["none"]["CG"] <= needed["none"]["LSMR"]).all()


# Overfitting


def test_one_batch_over_and_over_is_learnt_by_heart(problem):
    frame = lab.same_batch(problem, rows=10, steps=25)
    assert frame["the batch"].iloc[-1] < 0.2
    assert frame["all training rows"].iloc[-1] > frame["all training rows"].min()
    assert (frame["the batch"].diff().dropna() <= 0).all()


def test_chunk_by_chunk(problem):
    frame = lab.chunk_by_chunk(problem, steps=8, chunks=6)
    assert len(frame) == 8
    assert (frame["its chunk, after"] <= frame["its chunk, before"]).all()


# Race and claims


@pytest.fixture(scope="module")
def result(problem):
    return lab.race(problem, seconds=0.3, seeds=2)


def test_a_race_gives_every_method_the_same_start(problem, result):
    assert list(result.runs.label.unique()) == [SHF, FULL, BATCH, ADAM]
    ends = result.runs.groupby(["label", "seed"]).seconds.max()
    assert (ends >= 0.3).all()
    assert set(result.rates) == {1e-3, 2e-3, 4e-3, 8e-3}
    net, _ = problem.network(0)
    same = as_sequential(net)(problem.valid)
    assert torch.allclose(net(problem.valid), same, atol=1e-12)
    full = result.runs[result.runs.label == FULL]
    assert full.rows.tolist() == [
        i + 1 for s in (0, 1) for i in range(sum(full.seed == s))
    ]
    table = lab.race_table(result)
    assert (table["validation, lowest"] > 0).all()
    assert lab.race_plot(result).data[0].x is not None


def test_a_race_refuses_unknown_methods(problem):
    with pytest.raises(
        ValueError, match="unknown method 'SGD'; there are SHF, Martens"
    ):
        lab.race(problem, seconds=1, methods=("SGD",))


def test_levels_are_the_first_time_there():
    made = made_up({SHF: (1.0, [5, 3, 4, 1]), FULL: (4.0, [5, 4, 3, 2])})
    table = lab.levels_table(made, (3.0, 1.5))
    assert (
        table.loc[SHF, ("rows / N", 3.0)] == 2 and table.loc[FULL, "seconds"][3.0] == 3
    )
    assert table.loc[SHF, ("rows / N", 1.5)] == 4
    assert math.isnan(table.loc[FULL, ("rows / N", 1.5)])


def test_claims_are_decided_by_the_numbers():
    made = made_up(
        {
            SHF: (1.0, [5, 3, 2, 1]),
            FULL: (4.0, [3, 2, 1, 1]),
            ADAM: (1.0, [6, 6, 6, 6]),
        }
    )
    krylov = pd.DataFrame({"gradient LSMR": [3.0, 2.0], "gradient CG": [3.0, 4.0]})
    cells = {("random_signs", "LSMR"): 9.0, ("random_signs", "CG"): 8.0}
    cells |= {("none", "LSMR"): 12.0, ("none", "CG"): 11.0}
    iterations = pd.DataFrame({(10, 0.1): cells}).T
    training = pd.DataFrame({"n": [60, 90], "grew": ["variance", ""]})
    table = lab.claims_table(made, (3.0, 2.0), krylov, iterations, training)
    verdicts = dict(zip(table["paper"], table["verdict"], strict=True))
    find = lambda text: next(v for k, v in verdicts.items() if text in k)  # noqa: E731
    assert find("less data") == "yes"
    assert find("rapid: against Martens") == "no"
    assert find("tuned Adam") == "not decided by this run"
    assert find("generalisation").startswith("open: when time was up SHF still")
    assert find("LSMR converges faster") == "no"
    assert find("falls steadily") == "yes"
    assert find("preconditioner") == "yes"
    assert find("grows by need") == "yes"
    assert "Table 2" not in " ".join(verdicts)
    ended = made_up({SHF: (1.0, [5, 3, 1, 2]), FULL: (4.0, [3, 1, 2, 2])})
    claims = _generalises(ended, "here")
    assert claims[-1] == "not decided by this run"
    usps = replace(made, problem="usps")
    table = lab.claims_table(usps, (3.0,), krylov, iterations, training)
    assert sum("Table 2" in claim for claim in table["paper"]) == 2


def made_up(errors):
    """Runs of two seeds alike: rows a step, and the error after each."""
    rows = [
        {
            "label": label,
            "seed": seed,
            "seconds": float(i),
            "rows": each * i,
            "train": float(error),
            "validation": float(error),
            "test": error + 0.5 * seed,
        }
        for label, (each, series) in errors.items()
        for seed in (0, 1)
        for i, error in enumerate(series, start=1)
    ]
    return lab.Race("made up", "2 seeds", 4.0, pd.DataFrame(rows), {})


# The paper's own data


@pytest.mark.real_data
@pytest.mark.parametrize("dataset", ["usps", "mnist"])
def test_the_papers_nets_take_a_step(dataset):
    problem = lab.make_problem(dataset, published=True, samples=400)
    knobs = lab.knobs_of(problem, budget=5)
    live = lab.training_lab(problem, knobs, interactive=False)
    frame = live.run(1)
    assert frame["n"].iloc[0] == problem.setting.n1
    assert frame["batch after"].iloc[0] < frame["batch before"].iloc[0]
