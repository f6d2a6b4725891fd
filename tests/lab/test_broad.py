"""The broad learning lab: its pictures, live growth, and what is measured."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from labkit.broad import SOLVERS, Update
from labkit.lab.books import broad as lab, broad_columns as columns, broad_functions
from labkit.lab.panels import LiveLab
from labkit.lab.problem import load_problem

RIDGE, GREVILLE = columns.RULES


# The opening


def opened(**turned):
    """What is drawn of each update at these knobs."""
    rows = list(columns.column_rows(columns.ColumnKnobs(**turned)))
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    return [row["pictures"] for row in rows]


def off(now, name):
    """How far a fit is from the target."""
    return np.linalg.norm(now.runs[name][-1].fit - columns.TARGET.numpy()[:, 0])


WEIGHTS = {90: (0.45, 0.45), 30: (0.79, 0.92), 10: (0.81, 1.28), 1: (0.52, 0.92)}


@pytest.mark.parametrize("angle", WEIGHTS)
def test_greville_answers_a_column_too_loudly_where_it_adds_little(angle):
    """The formula under the picture is that of the weights, and they part."""
    now = opened(angle=angle, length=1.0)[0]
    for run, extra, wanted in zip(
        now.runs.values(), (1, 0), WEIGHTS[angle], strict=True
    ):
        whole = run[1].adds + 0.1 * (1 + extra * run[1].known)
        assert run[1].cross / whole == pytest.approx(run[1].weight)
        assert run[1].weight == pytest.approx(wanted, abs=0.005)


def test_a_fit_goes_past_the_target_where_the_coefficients_are_above_one():
    draw = np.random.default_rng(0)
    for _ in range(20):
        angle, length, ridge = draw.uniform((1, 0.5, 0.01), (90, 3, 2))
        H = columns.column(angle, length)
        state = SOLVERS["orig"].start(columns.OLD, columns.TARGET, ridge)
        state = SOLVERS["orig"].update(state, columns.OLD, H, columns.TARGET)
        fits = torch.cat([columns.OLD, H], 1) @ state.A_dagger
        known = columns.added(GREVILLE, H, ridge)[1].known
        assert (torch.linalg.eigvalsh(fits)[-1] > 1) == (known > 1)


@pytest.mark.parametrize("angle", [10, 20, 30, 45])
def test_the_opening_shows_that_greville_leaves_and_the_ridge_fit_stays(angle):
    pictures = opened(angle=angle)
    assert pictures[0].runs[GREVILLE][1].known > 1
    left = [off(now, GREVILLE) for now in pictures]
    assert left[1:] == sorted(left[1:])
    assert max(off(now, RIDGE) for now in pictures[1:]) < 0.35 < left[-1]


def test_the_openings_mission_has_two_ends_that_fail():
    """A small ridge lets Greville leave, and a large one keeps the first fit short."""
    for ridge, stays, near in (
        (0.1, False, True),
        (0.85, True, True),
        (2.0, True, False),
    ):
        pictures = opened(ridge=ridge)
        assert (off(pictures[-1], GREVILLE) < 0.1) == stays
        assert (off(pictures[0], RIDGE) < 0.2) == near
    for length, least, most in ((1.0, 0, 0.3), (1.3, 0.4, 3)):  # how the notebook ends
        assert least < off(opened(angle=10, length=length)[-1], GREVILLE) < most


# Many functions


def last_errors(**turned):
    """The errors of both fits after twelve updates, by seed."""
    found = []
    for seed in range(20):
        knobs = broad_functions.FunctionKnobs(seed=seed, **turned)
        *_, row = islice(broad_functions.function_rows(knobs), 13)
        found.append((row["error ridge"], row["error greville"]))
    return np.array(found).T


def test_after_twelve_updates_greville_has_left_the_points():
    ridge, greville = last_errors()
    assert (greville > 2 * ridge).sum() >= 18 and (ridge < 0.35).sum() >= 18
    ridge, greville = last_errors(ridge=100.0)
    assert (abs(greville - ridge) < 0.15).sum() >= 18


# The live experiment


@pytest.fixture(scope="module")
def whole():
    return load_problem(dtype=torch.float64)


def make(problem, updates=3, **values):
    knobs = replace(lab.GrowthKnobs(budget=20), **values)
    options = {"knobs": knobs, "interactive": False}
    return LiveLab(lab.GROWTH, lambda: problem, updates, **options)


def test_greville_leaves_the_solution_and_the_ridge_solver_does_not():
    assert lab.update_of(2000) == Update(4, 750, 1250)  # in the paper's proportions
    small = load_problem(samples=300, dtype=torch.float64)
    live = make(small)
    frame = live.run(99)
    assert list(frame.index) == [110, 130, 150, 170]
    assert (frame["residual exact"] < 1e-9).all()
    assert (frame["residual greville"].iloc[1:] > 1e-7).all()
    assert "170 columns" in live.note.value


def test_in_float32_chol_1_ends_where_chol_2_grows_on(whole):
    ends = {}
    for solver in ("chol-1", "chol-2"):
        chosen = {"exact": solver, "precision": "float32", "ridge": 1e-3, "budget": 50}
        ends[solver] = make(whole, 4, **chosen).run(99)["accuracy exact"].count()
    assert ends["chol-1"] < ends["chol-2"] == 5
    frame = make(whole, precision="float32", ridge=1e-6).run(99)
    assert len(frame) == 1 and "orig ended" in frame["note"].iloc[0]
    assert "chol-1 ended" in frame["note"].iloc[0]


def test_what_the_knobs_say_to_look_for_is_there(whole):
    def ends(**values):
        frame = make(whole, 12, **({"budget": 50} | values)).run(99)
        return frame["accuracy exact"].iloc[-1], frame["accuracy greville"].iloc[-1]

    looked_for = [({"budget": 80}, 25, 40), ({"budget": 10}, 10, 20)]
    looked_for += [({"ridge": 1e-12}, -2, 2), ({"ridge": 100.0}, -2, 2)]
    for knobs, least, most in looked_for:
        exact, greville = ends(**knobs)
        assert least < exact - greville < most
