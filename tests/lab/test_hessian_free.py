"""The Hessian-free lab: problems, the live training, and what notebook 03 declares."""

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from labkit.hessian_free import HessianFree, squared_error
from labkit.lab import LiveLab
from labkit.lab.books import hessian_free as lab, hessian_free_bowl as bowl
from labkit.lab.books.hessian_free_training import SIZES, Training, load_images


def with_rows(problem, **rows):
    """The same with other rows in some parts."""
    parts = {p: replace(getattr(problem, p), inputs=X) for p, X in rows.items()}
    return replace(problem, **parts)


@pytest.fixture(scope="module")
def problem():
    """Digits, with a small net and few rows, in float64."""
    whole = load_images("digits", samples=300, dtype=torch.float64)
    X, V, T = whole.parts.values()
    small = {"encoder": (64, 16, 6), "batch_size": 30, "max_batch_size": 200}
    setting = replace(whole.setting, **small, maxiter=30)
    return replace(with_rows(whole, fit=X, tune=V[:80], test=T[:80]), setting=setting)


def test_digits_come_in_three_disjoint_parts():
    problem = load_images("digits")
    assert [len(rows) for rows in problem.parts.values()] == list(SIZES["digits"])
    rows = torch.cat(list(problem.parts.values()))
    pixels = torch.tensor(load_digits().data / 16, dtype=rows.dtype)
    assert len(rows) == 1797  # in another order, each image as often as in the file
    here, sklearns = (x.unique(dim=0, return_counts=True) for x in (rows, pixels))
    assert all(map(torch.equal, here, sklearns))
    again = load_images("digits", samples=100)
    assert torch.equal(again.fit.inputs, problem.fit.inputs[:100])
    assert again.setting.max_batch_size == 650
    cut = Training(again, lab.knobs_of(again.setting, batch_size=700))  # to its rows
    assert cut.settings.max_batch_size == next(cut.records).n == 100
    with pytest.raises(ValueError, match="unknown data 'cats'; there are digits, usps"):
        load_images("cats")


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("data", "sizes", "parameters", "table1"),
    [
        ("mnist", (50_000, 10_000, 10_000), 2_837_314, (300, 6000, 12.0, 49 / 50, 0.2)),
        ("usps", (8_000, 1_000, 2_000), 419_081, (200, 2000, 7.5, 99 / 100, 0.2)),
    ],
)
def test_nets_rows_and_constants_are_those_of_table_1(data, sizes, parameters, table1):
    problem = load_images(data, published=True)
    assert tuple(map(len, problem.parts.values())) == sizes
    net, _ = problem.network(0)
    assert sum(W.numel() for W in net.parameters()) == parameters
    given = problem.setting
    printed = given.batch_size, given.max_batch_size, given.damping, given.damping_decay
    assert (*printed, given.theta) == table1


def make_live(problem, **changes):
    knobs = lab.knobs_of(problem.setting, **changes)
    return LiveLab(lab.TRAINING, lambda: problem, knobs=knobs, interactive=False)


def test_batches_grow_where_the_variance_asks_and_the_error_falls(problem):
    live = make_live(problem)
    frame = live.run(12)
    error = frame["validation_error"]
    assert error.iloc[-1] < error.iloc[0]
    grown = frame[frame.grew == "variance"]
    assert len(grown) and (grown["next, variance"] > grown["n"]).all()
    assert frame["next, variance"].notna().sum() == len(grown)
    shown = live.figure["data"][0]["z"]
    assert shown.shape == (3 * 9 - 1, 16 * 9 - 1) and np.nanmax(shown) <= 1


def test_what_the_knobs_say_to_look_for_is_there():
    digits = load_images("digits")
    live = make_live(digits)
    live.run(20)
    live.controls.set(input_noise=0.3)
    frame = live.run(8)
    noise, n = frame["noise"], frame["n"]
    assert 4 < noise.loc[21] / noise.loc[20] < 10 and n.loc[28] > n.loc[21]
    slow = make_live(digits, damping_decay=0.99).run(30)["validation_error"]
    assert slow.loc[30] > 2 > 1 > frame["validation_error"].loc[20]
    assert make_live(digits, batch_size=300).run(11)["n"].loc[11] < 650


def test_a_run_that_stops_being_finite_tells(problem):
    spoiled = with_rows(problem, fit=problem.fit.inputs.clone())
    live = make_live(spoiled, batch_size=200)
    live.run(2)
    spoiled.fit.inputs.fill_(math.nan)
    frame = live.run(3)
    assert "finite" in frame["note"].iloc[-1] and "finite" in live.note.value
    assert len(frame) == 3


@pytest.fixture(scope="module")
def frozen(problem):
    training = Training(problem, lab.knobs_of(problem.setting), steps=8)
    list(training.records)
    return lab.freeze(training, 60, 0.05), training


def test_model_value_and_gradient_are_those_of_the_damped_model(frozen):
    problem, _ = frozen
    torch.manual_seed(0)
    d = tuple(map(torch.randn_like, problem.x0))
    size = sum(float(t.square().sum()) for t in d)
    want = 0.5 * (problem.point.forward_map(d) - problem.b).square().sum()
    want += 0.5 * 0.05**2 * size - 0.5 * problem.b.square().sum()
    assert lab.model_value(problem, d) == pytest.approx(float(want))
    answer = problem.solve(atol=1e-10, maxiter=700).x
    assert lab.gradient_norm(problem, answer) < 1e-8 * lab.gradient_norm(problem, d)


def test_the_two_methods_compare_as_the_theory_says(frozen):
    """At equal k: CG has the lower value and, without c, LSMR the smaller gradient."""
    problem = frozen[0]._replace(scale=None)
    for k, each in enumerate(islice(lab.side_by_side(problem), 40)):
        lsmr, cg = each["LSMR"], each["CG"]
        assert lab.model_value(problem, cg) <= lab.model_value(problem, lsmr) + 1e-12, k
        size = lab.gradient_norm(problem, cg) * (1 + 1e-8) + 1e-12
        assert lab.gradient_norm(problem, lsmr) <= size, k


def test_the_frozen_problems_rows_end_at_the_solution(frozen):
    frame = pd.DataFrame(islice(lab.krylov_rows(*frozen), 80)).assign(seed=0)
    assert frame[["value LSMR", "value CG"]].iloc[-1].max() < 1e-4
    lsmr, cg = (lab.needed(frame, name)[0] for name in ("LSMR", "CG"))
    assert frame["value CG"][cg] <= 0.01 < frame["value CG"][cg - 1]
    assert cg <= lsmr


# The opening, momentum, and what is measured


def bowl_at(**turned):
    (row,) = bowl.bowl_rows(bowl.BowlKnobs(**turned))
    return row, row["pictures"]


def test_the_bottoms_draw_together_as_the_batch_grows():
    """In 20 of 20 seeds, and four times the rows bring them to half the distance."""
    halved = 0
    for seed in range(20):
        at = {n: bowl_at(seed=seed, n=n)[0]["spread"] for n in (20, 80, 320, 400)}
        assert at[20] > at[80] > at[320] > at[400] and at[400] < 1e-9
        halved += 0.35 < at[80] / at[20] < 0.65
    assert halved >= 18


def test_the_openings_mission_has_two_ways():
    for seed in range(20):
        (free, at), (damped, then) = bowl_at(seed=seed), bowl_at(seed=seed, damping=1.0)
        assert free["spread"] > 0.2 > bowl_at(seed=seed, n=160)[0]["spread"]
        assert damped["spread"] < 0.2  # what it costs: short steps
        long, short = (math.dist(now.lowest[0], bowl.START) for now in (at, then))
        assert long > 1.3 * short


@pytest.mark.parametrize("damping", [0.1, 1.0])
def test_bowls_are_those_of_the_librarys_subproblems(damping):
    _, now = bowl_at(damping=damping)
    knobs = bowl.BowlKnobs(damping=damping)
    X, Y, orders = bowl.data(knobs.seed, knobs.noise)
    unit = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False), torch.nn.Tanh())
    unit.double()[0].weight.data = torch.tensor(bowl.START)[None]
    newton = HessianFree(unit, damping=damping, gamma=0.0, preconditioner="none")
    for rows, lowest in zip(orders[:4, :20], now.lowest[:4], strict=True):
        d = newton.subproblem(X[rows], Y[rows]).solve(atol=0.0, maxiter=9).x[0][0]
        assert np.allclose(lowest - bowl.START, d, atol=1e-8)
    ticks = np.linspace(-bowl.WIDE, bowl.WIDE, bowl.GRID)
    unit[0].weight.data = torch.tensor([[ticks[7], ticks[20]]], dtype=X.dtype)
    assert now.loss[20, 7] == pytest.approx(float(squared_error(unit, X, Y)) / 2)


def test_a_dot_is_judged_by_its_distance():
    row, now = bowl_at(guess="0.50 -3.00")
    assert row["gap"] == pytest.approx(math.dist((0.5, -3), now.lowest[0]))
    assert "your dot is" in bowl.BOWL.status(row)


@pytest.mark.real_data
@pytest.mark.parametrize(
    "dataset", ["usps", pytest.param("mnist", marks=pytest.mark.long)]
)
def test_the_papers_nets_take_a_step(dataset):
    problem = load_images(dataset, published=True, samples=400)
    setting = replace(problem.setting, maxiter=5)
    problem = replace(problem, setting=setting)
    frame = make_live(problem).run(1)
    assert frame["n"].iloc[0] == problem.setting.batch_size
    assert frame["batch_error_after"].iloc[0] < frame["batch_error"].iloc[0]
