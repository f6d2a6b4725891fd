"""The Hessian-free lab: problems, the live training, and what notebook 03 declares."""

import ast
import math
from dataclasses import fields, replace
from itertools import islice, pairwise
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from labkit.hessian_free import mirrored, squared_error
from labkit.lab import LiveLab, Race, hessian_free as lab, spread, verdict
from labkit.lab.hessian_free.krylov import norm
from labkit.lab.hessian_free.settings import PAPER

IMPORTS = ast.Import | ast.ImportFrom
NOTEBOOK = Path(__file__).parents[2] / "notebooks/03_hessian_free.ipynb"


def with_rows(problem, **rows):
    """The same with other rows in some parts."""
    parts = {p: replace(getattr(problem, p), inputs=X) for p, X in rows.items()}
    return replace(problem, **parts)


@pytest.fixture(scope="module")
def problem():
    """Digits, with a small net and few rows, in float64."""
    whole = lab.load_images("digits", samples=300, dtype=torch.float64)
    X, V, T = whole.parts.values()
    small = {"encoder": (64, 16, 6), "batch_size": 30, "max_batch_size": 200}
    setting = replace(whole.setting, **small, maxiter=30)
    return replace(with_rows(whole, fit=X, tune=V[:80], test=T[:80]), setting=setting)


def test_digits_come_in_three_disjoint_parts():
    problem = lab.load_images("digits")
    assert [len(rows) for rows in problem.parts.values()] == list(lab.SIZES["digits"])
    rows = torch.cat(list(problem.parts.values()))
    pixels = torch.tensor(load_digits().data / 16, dtype=rows.dtype)
    assert len(rows) == 1797  # in another order, each image as often as in the file
    ours, theirs = (x.unique(dim=0, return_counts=True) for x in (rows, pixels))
    assert all(map(torch.equal, ours, theirs))
    again = lab.load_images("digits", samples=100)
    assert torch.equal(again.fit.inputs, problem.fit.inputs[:100])
    assert again.setting.max_batch_size == 650
    cut = lab.Training(again, lab.knobs_of(again, batch_size=700))  # to its rows
    assert cut.settings.max_batch_size == next(cut.records).n == 100
    assert torch.equal(again.test.inputs, problem.test.inputs)
    with pytest.raises(ValueError, match="unknown data 'cats'; there are digits, usps"):
        lab.load_images("cats")


def test_the_papers_settings_reach_the_knobs():
    curves = lab.load_images("curves", published=True, samples=300)
    # few rows of a large set are judged by few: all 10,000 took minutes
    assert [len(rows) for rows in curves.parts.values()] == [300, 250, 250]
    knobs = lab.knobs_of(curves)
    assert (knobs.batch_size, knobs.max_batch_size) == (250, 2500)
    assert (knobs.damping, knobs.damping_decay) == (5.0, 0.99)
    digits = lab.load_images("digits", published=True).setting
    assert digits.damping == PAPER["usps"].damping and digits.encoder[0] == 64


def make_live(problem, **changes):
    shown = {"pictures": lab.reconstructions(problem, interactive=False)}
    knobs = lab.knobs_of(problem, **changes)
    return LiveLab(lab.TRAINING, problem, knobs=knobs, interactive=False, **shown)


def test_the_live_training_writes_what_its_panels_show(problem):
    live = make_live(problem)
    frame = live.run(12)
    drawn = {c for panel in live.plot.panels for c in panel.columns}
    assert all("k=" in name for name in drawn - set(frame.columns))
    assert {f"k={k}" for k in lab.CHECKS[:3]} <= set(frame.columns)
    error = frame["validation_error"]
    assert error.iloc[-1] < error.iloc[0]
    grown = frame[frame.grew == "variance"]
    assert len(grown) and (grown["next, variance"] > grown["n"]).all()
    assert frame["next, variance"].notna().sum() == len(grown)
    shown = np.array(live.pictures.figure["data"][0]["z"], dtype=float)
    title = live.pictures.figure["layout"]["title"]["text"]
    assert np.nanmax(shown) <= 1 and title == "Step 12"
    fall = 100 * (1 - error / error.shift())
    whole = frame["step_length"].eq(1) & fall.notna()
    assert whole.any() and np.allclose(fall[whole], frame["gain taken"][whole])


def test_a_stall_is_marked_as_one(problem):
    """With validation rows of noise the loss stalls, and theta tolerates any noise."""
    noisy = with_rows(problem, tune=torch.rand(80, 64, dtype=torch.float64))
    frame = make_live(noisy, theta=0.95, batch_size=150, max_batch_size=300).run(10)
    stalled, grown = frame[frame.grew == "stalled"], -(-1005 * frame["n"] // 1000)
    assert len(stalled) and (stalled["next, stalled"] == grown[stalled.index]).all()


def ends(knobs):
    """Every knob at its ends, or at each of its choices."""
    return [
        {f.name: value}
        for f in fields(knobs)
        for value in f.metadata["choices"]
        or ((True,) if f.type is bool else (f.metadata["low"], f.metadata["high"]))
    ]


# Another value for each knob that needs no restart, and what shows it at once.
LIVE = {
    "theta": (0.05, "noise_bound"),
    "max_batch_size": (40, None),
    "damping_decay": (0.5, None),
    "preconditioner": ("none", "validation_error"),
    "maxiter": (3, "maxiter"),
    "patience": (0, None),
    "as_published": (True, "best"),
    "input_noise": (0.4, "batch_error"),
    "damping_norm": ("scaled", "validation_error"),
    "damp_towards": ("start", "validation_error"),
}


@pytest.fixture(scope="module")
def plain(problem):
    live = {f.name for f in fields(lab.TrainingKnobs) if not f.metadata["restart"]}
    assert set(LIVE) == live
    return make_live(problem).run(8)


@pytest.mark.parametrize("name", LIVE)
def test_a_knob_turned_changes_the_next_step_and_none_before(problem, plain, name):
    value, shown = LIVE[name]
    live = make_live(problem)
    before = live.run(3)["validation_error"]
    live.controls.set(**{name: value})
    assert len(live.trace.rows) == 3
    frame = live.run(1)
    assert frame["validation_error"].iloc[:3].equals(before)
    assert before.equals(plain["validation_error"].iloc[:3])
    assert frame["turned"].notna().tolist() == [False, False, False, True]
    if shown:
        assert frame[shown].iloc[3] != plain[shown].iloc[3]


def test_the_damping_falls_by_the_decay_of_the_moment(problem):
    live = make_live(problem)
    live.run(2)
    live.controls.set(damping_decay=0.5)
    lam = live.run(3)["damping"]
    assert lam.loc[2] == pytest.approx(0.8 * lam.loc[1])
    assert lam.loc[4] == pytest.approx(0.5 * lam.loc[3])


def test_a_turned_budget_grows_along_from_there(problem):
    live = make_live(problem, theta=0.2)
    live.controls.set(maxiter=7)
    live.run(9)
    live.controls.set(maxiter=5)
    frame = live.run(3)
    n, budget = frame["n"], frame["maxiter"]
    assert budget.loc[1] == 7 < budget.loc[9] and budget.loc[10] == 5
    for step in (10, 11):
        grown = -(-n.loc[step + 1] * budget.loc[step])
        assert budget.loc[step + 1] == -(-grown // n.loc[step])


def test_what_a_run_begins_with_restarts_it(problem):
    live = make_live(problem)
    first = live.run(2)["validation_error"].tolist()
    for change in ({"batch_size": 80}, {"damping": 5.0}, {"seed": 1}):
        live.controls.set(**change)
        assert len(live.trace.rows) == 0
        assert live.run(2)["validation_error"].tolist() != first
        live.controls.reset()
        assert live.run(2)["validation_error"].tolist() == first


def test_what_the_knobs_say_to_look_for_is_there():
    digits = lab.load_images("digits")
    live = make_live(digits)
    live.run(20)
    live.controls.set(input_noise=0.3)
    frame = live.run(8)
    noise, n = frame["noise"], frame["n"]
    assert 4 < noise.loc[21] / noise.loc[20] < 10 and n.loc[28] > n.loc[21]
    live.controls.set(maxiter=5)
    frame = live.run(2)
    assert frame["iterations"].loc[30] == frame["maxiter"].loc[30]
    slow = make_live(digits, damping_decay=0.99).run(30)["validation_error"]
    assert slow.loc[30] > 4 > 2 > frame["validation_error"].loc[20]
    assert make_live(digits, batch_size=300).run(11)["n"].loc[11] < 650


@pytest.mark.parametrize("knobs", [lab.TrainingKnobs, lab.KrylovKnobs])
def test_every_knob_says_what_to_look_for(knobs):
    for field in fields(knobs):
        assert field.metadata["look_for"] and field.metadata["help"], field.name
        name = field.metadata["label"] or field.name
        room = 23 - len(field.metadata["unit"] and f" [{field.metadata['unit']}]")
        assert len(name) <= room or field.type is bool, field.name  # else cut off


def test_a_run_that_stops_being_finite_tells(problem):
    spoiled = with_rows(problem, fit=problem.fit.inputs.clone())
    live = make_live(spoiled, batch_size=200)
    live.run(2)
    spoiled.fit.inputs.fill_(math.nan)
    frame = live.run(3)
    assert "finite" in frame["note"].iloc[-1] and "finite" in live.note.value
    assert len(frame) == 3


def test_looking_changes_nothing(problem):
    """With pictures and panels the run is the same, to the last bit."""
    training = lab.Training(problem, lab.knobs_of(problem, input_noise=0.1), steps=6)
    plain = [record.validation_error for record in training.records]
    live = make_live(problem, input_noise=0.1)
    assert live.run(6)["validation_error"].tolist() == plain
    assert float(squared_error(training.net, problem.tune.inputs)) == plain[-1]


def declared(names, **given):
    """What the notebook's cells declare, in their order, from what is given."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    space = dict(given)
    for source in (cell.source for cell in cells if cell.cell_type == "code"):
        if any(f"def {name}(" in source for name in names):
            exec(source, space)
        else:
            nodes = [n for n in ast.parse(source).body if isinstance(n, IMPORTS)]
            exec(compile(ast.Module(nodes, []), "imports", "exec"), space)
    return space


@pytest.fixture(scope="module")
def kept(problem):
    training = lab.Training(problem, lab.knobs_of(problem), steps=20)
    return lab.freeze(training, problem, (1, 5, 8, 10, 15, 20), size=60)


def test_a_frozen_problem_is_a_copy_and_can_be_posed_anew(kept):
    one, two = (kept[8].posed(0.1, "random_signs") for _ in range(2))
    assert all(map(torch.equal, one.scale, two.scale))
    assert float(norm(one.x0)) > 0 and one.options.damping == 0.1
    early, late = kept[1].problem, kept[8].problem
    assert late.options.damping < early.options.damping
    assert not torch.equal(late.point.weights[0], early.point.weights[0])
    assert len(kept[8].batch) == 60 and not torch.equal(kept[1].batch, kept[8].batch)


def test_model_value_and_gradient_are_those_of_the_damped_model(kept):
    frozen = kept[8]
    problem = frozen.posed(0.3)
    torch.manual_seed(0)
    d = tuple(map(torch.randn_like, problem.x0))
    want = 0.5 * (problem.point.forward_map(d) - problem.b).square().sum()
    want += 0.5 * 0.3**2 * norm(d) ** 2 - 0.5 * problem.b.square().sum()
    assert lab.model_value(problem, d) == pytest.approx(float(want))
    answer = lab.solution(frozen, 0.3)
    assert lab.gradient_norm(problem, answer) < 1e-8 * lab.gradient_norm(problem, d)
    before = frozen.error_after(tuple(0 * t for t in d), frozen.batch)
    assert 2 * float(problem.point.loss()) == pytest.approx(before)


def test_the_two_methods_compare_as_the_theory_says(kept):
    """At equal k: CG has the lower value and, without c, LSMR the smaller gradient."""
    problem = kept[8].posed(0.05)
    for k, each in enumerate(islice(lab.side_by_side(problem), 40)):
        ours, cg = each["LSMR"], each["CG"]
        assert lab.model_value(problem, cg) <= lab.model_value(problem, ours) + 1e-12, k
        size = lab.gradient_norm(problem, cg) * (1 + 1e-8) + 1e-12
        assert lab.gradient_norm(problem, ours) <= size, k


def krylov_frame(kept, count, **changes):
    settings = replace(lab.KrylovKnobs(after=1, damping=0.1), **changes)
    return pd.DataFrame(islice(lab.krylov_rows(settings, kept), count))


def test_the_frozen_problems_rows_mark_what_is_taken_and_where_lsmr_stops(kept):
    frame = krylov_frame(kept, 60)
    assert frame["taken"].notna().sum() == frame["stopped"].notna().sum() == 1
    away = frame[["distance LSMR", "distance CG"]].iloc[[0, -1]]
    assert (away.iloc[1] < 0.01 * away.iloc[0]).all()
    others = {"damping_norm": "scaled", "damp_towards": "start"}
    frame = krylov_frame(kept, 60, **others, preconditioner="jacobi")
    assert frame["distance LSMR"].iloc[-1] > 0.01 > frame["distance CG"].iloc[-1]


@pytest.mark.parametrize("change", ends(lab.KrylovKnobs), ids=str)
def test_the_frozen_problems_knobs_work_at_their_ends(kept, change):
    assert krylov_frame(kept, 5, **change)["merit LSMR"].notna().all()


def test_iterations_until_a_level(kept):
    problem = kept[8].posed(0.1)
    level = 0.99 * lab.model_value(problem, lab.solution(kept[8], 0.1))
    found = lab.needed(problem, level)
    assert 0 < found["CG"] <= found["LSMR"]
    assert math.isnan(lab.needed(problem, -math.inf, limit=3)["CG"])


def made_up(errors):
    """Runs of two seeds alike: rows a step, and the error after each."""
    rows = [
        {"label": label, "seed": seed, "seconds": float(i), "rows": each * i}
        | {name: float(error) for name in ("train", "validation")}
        | {"test": error + 0.5 * seed, "look": i, "failed": ""}
        for label, (each, series) in errors.items()
        for seed in (0, 1)
        for i, error in enumerate(series, start=1)
    ]
    return Race(pd.DataFrame(rows), "made up")


def test_levels_and_verdicts_are_decided_by_the_numbers():
    full, adam = "Martens, full", "Adam, tuned"
    errors = {"SHF": (1.0, [5, 3, 2, 1]), full: (4.0, [3, 2, 1, 1])}
    result = made_up(errors | {adam: (1.0, [6, 6, 3.5, 6])})
    space = declared(["first_below"], result=result, seeds=2)
    find = space["first_below"]
    assert find(3.0, "rows")["SHF"] == 2 and find(1.5, "rows")["SHF"] == 4
    assert find(3.0, "seconds")[full] == 1 and find(4.0, "rows")[adam] == 3
    assert math.isnan(find(3.0, "rows")[adam])
    columns = [(c, x) for c in ("rows", "seconds") for x in (3.0, 2.0)]
    reached = pd.DataFrame({(c, x): find(x, c) for c, x in columns})
    space |= {"reached": reached, "setting": "here"}
    space = declared(["of_all", "fewer", "still_falling"], **space)
    assert space["fewer"]("less data", "rows").verdict == "yes"
    assert space["fewer"]("rapid", "seconds").verdict == "no"
    assert space["fewer"]("rapid", "seconds", adam).verdict == "not decided by this run"
    assert space["of_all"]([True, False]) == "in part"
    assert space["still_falling"]("SHF") and not space["still_falling"](full)
    best = spread(result.best("validation", higher=False), "test")
    said = verdict(best.loc["SHF"], best.loc[full], higher=False)
    assert said == "not decided by this run"


def test_the_scenes_of_overfitting(problem):
    given = {"problem": problem, "images": problem.fit.inputs, "scene_steps": 25}
    given |= {"valid": problem.tune.inputs, "data": "digits"}
    space = declared(["one_batch", "chunk_by_chunk"], **given)
    frame = pd.DataFrame(space["one_batch"](0, rows=10))
    everyone = frame["all training rows"]
    assert frame["the batch"].iloc[-1] < 0.2  # learnt by heart
    assert everyone.iloc[-1] > everyone.min()
    assert (frame["the batch"].diff().dropna() <= 0).all()
    frame = pd.DataFrame(space["chunk_by_chunk"](0, chunks=6, steps=8))
    assert len(frame) == 8
    assert (frame["its chunk, after"] <= frame["its chunk, before"]).all()


def test_every_method_of_the_race_starts_from_the_same_weights(problem):
    net, _ = problem.network(0)
    rows = problem.tune.inputs
    assert torch.allclose(net(rows), lab.as_sequential(net)(rows), atol=1e-12)
    given = {"problem": problem, "images": problem.fit.inputs, "race_seconds": 0.2}
    given |= {"valid": rows, "data": "digits", "device": "cpu", "patience": 20}
    names = ("look", "watched", "shf", "martens", "minibatches", "descend", "adam")
    space = declared(names, **given)
    full = pd.DataFrame(space["martens"](0, "full"))
    assert full.rows.tolist() == list(range(1, len(full) + 1))
    runs = [pd.DataFrame(r) for r in (space["shf"](0), space["adam"](0, 1e-3, 0.2))]
    for looks in (full, *runs):
        assert looks.seconds.iloc[-1] >= 0.2 and (looks.validation > 0).all()


@pytest.mark.real_data
@pytest.mark.parametrize(
    "dataset", ["usps", pytest.param("mnist", marks=pytest.mark.long)]
)
def test_the_papers_nets_take_a_step(dataset):
    problem = lab.load_images(dataset, published=True, samples=400)
    frame = make_live(problem, maxiter=5).run(1)
    assert frame["n"].iloc[0] == problem.setting.batch_size
    assert frame["batch_error_after"].iloc[0] < frame["batch_error"].iloc[0]


def test_the_papers_settings():
    sizes = {name: (s.batch_size, s.max_batch_size) for name, s in PAPER.items()}
    assert sizes == {"curves": (250, 2500), "mnist": (300, 6000), "usps": (200, 2000)}
    for name, P in (("curves", 842_340), ("usps", 419_081)):
        widths = mirrored(PAPER[name].encoder)
        assert sum((m + 1) * p for m, p in pairwise(widths)) == P
