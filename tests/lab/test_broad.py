"""The broad learning lab: live growth, the view of F, updates, the figure of costs."""

from dataclasses import fields

import pandas as pd
import pytest
import torch

from labkit.broad import SOLVERS, Update, inverse_cholesky
from labkit.broad.solvers import start_terms
from labkit.instruments import Trace
from labkit.lab import broad as lab
from labkit.lab.panels import LiveLab
from labkit.lab.problem import load_problem


@pytest.fixture(scope="module")
def whole():
    return load_problem(dtype=torch.float64)


@pytest.fixture(scope="module")
def problem():
    return load_problem(samples=300, dtype=torch.float64)


# Columns


def test_updates_are_divided_as_in_the_paper():
    assert lab.paper_update(2000, 10) == Update(10, 750, 1250)
    assert lab.paper_update(7) == Update(extra=7)
    assert lab.paper_update(1, 60) == Update(60, 0, 1)


def test_columns_are_those_of_the_start_and_of_every_update(problem):
    columns = lab.shared_columns(problem, 80)
    columns.add(*lab.start_of(2, 5, 30))
    assert [columns.add(lab.paper_update(16, 4)) for _ in range(2)] == [60, 80]
    assert columns.widths == (40, 60, 80)
    assert columns.A.shape == (300, 80) and columns.B.shape == (360, 80)
    assert columns.A.dtype == columns.Y.dtype == torch.float64


# The live experiment


def make(problem, updates=3, folder="", **values):
    knobs = lab.GrowthKnobs(**({"budget": 20} | values))
    options = {"interactive": False, "folder": folder}
    return LiveLab(lab.GROWTH, problem, updates, knobs=knobs, **options)


def test_the_live_experiment_writes_what_its_panels_show(problem, tmp_path):
    live = make(problem, folder=str(tmp_path))
    frame = live.run(99)
    drawn = {c for panel in live.plot.panels for c in panel.columns}
    assert drawn <= set(frame.columns)
    assert list(frame.index) == [110, 130, 150, 170]
    assert (frame["residual exact"] < 1e-9).all()
    assert (frame["residual greville"].iloc[1:] > 1e-7).all()
    assert (frame["pivot exact"] >= 0.999 * frame["ridge"]).all()
    within = frame["factor error"] / frame["law"]
    assert ((within > 1e-3) & (within < 1e2)).all()
    assert "170 columns" in live.note.value
    live.trace.close()
    assert len(Trace.load(tmp_path / "growth-1.jsonl").frame()) == 4


ENDS = [{"ridge": 1e-12}, {"precision": "float32", "ridge": 0.1}, {"ridge": 100.0}]
ENDS += [{"budget": 10}, {"budget": 80}, {"features": 0}, {"features": 9, "budget": 10}]
ENDS += [{"input_noise": 1.0}, {"label_noise": 0.8}, {"seed": 99}]
ENDS += [{"greville": "exg-e"}, *({"exact": name} for name in lab.EXACT)]


@pytest.mark.parametrize("extreme", ENDS, ids=str)
def test_every_knob_works_at_its_ends(extreme, problem):
    frame = make(problem, 2, **extreme).run(99)
    assert len(frame) == 3
    assert frame["accuracy greville"].between(0, 100).all()


TURNS = pytest.mark.parametrize("turn", [{"budget": 40}, {"features": 0}], ids=str)


@TURNS
def test_other_updates_need_no_restart(turn, problem):
    plain, live = make(problem), make(problem)
    live.run(2)
    live.controls.set(**turn)
    assert len(live.trace.rows) == 2
    frame, wanted = live.run(99), plain.run(99)
    kept = ["accuracy exact", "residual exact", "accuracy greville"]
    assert frame[kept].iloc[:2].equals(wanted[kept].iloc[:2])
    assert frame["turned"].notna().tolist() == [False, False, True, False]
    assert (frame["residual exact"] < 1e-9).all()
    if "budget" in turn:
        assert list(frame.index) == [110, 130, 170, 210]
    else:
        assert list(frame.index) == list(wanted.index)
        assert frame["law"].iloc[2] != wanted["law"].iloc[2]


def test_what_the_factor_was_made_of_restarts_it(problem):
    live = make(problem)
    first = live.run(2)["residual exact"].tolist()
    for change in ({"ridge": 1e-2}, {"precision": "float32"}, {"exact": "r-inv"}):
        live.controls.set(**change)
        assert len(live.trace.rows) == 0
        assert live.run(2)["residual exact"].tolist() != first
        live.controls.reset()
        assert live.run(2)["residual exact"].tolist() == first


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
    exact, _ = ends(features=0, ridge=1e-2)
    assert exact < 94 < ends(ridge=1e-2)[0]


@pytest.mark.parametrize("knobs", [lab.GrowthKnobs, lab.FactorKnobs])
def test_every_knob_says_what_to_look_for(knobs):
    for field in fields(knobs):
        assert field.metadata["look_for"] and field.metadata["help"], field.name
        name = field.metadata["label"] or field.name
        room = 23 - len(field.metadata["unit"] and f" [{field.metadata['unit']}]")
        assert len(name) <= room or field.type is bool, field.name  # else cut off


def test_who_has_lost_a_pivot_is_left_out_and_named():
    # Columns beyond what 60 samples can tell apart, at a ridge below rounding.
    small = load_problem("digits", samples=60, dtype=torch.float64)
    live = make(small, 6, ridge=1e-12, features=0, budget=80)
    frame = live.run(99)
    assert frame["accuracy exact"].isna().any()
    assert "chol-1 ended at" in live.note.value
    assert "smallest safe ridge" in frame["note"].iloc[-1]


# The view of F


@pytest.fixture
def R(problem):
    columns = lab.shared_columns(problem, 24)
    columns.add(*lab.start_of(1, 10, 14))
    A = columns.A
    return A.T @ A + 1e-3 * torch.eye(24, dtype=A.dtype)


@pytest.mark.parametrize("method", ["sweep", "column by column"])
@pytest.mark.parametrize("panel", [1, 5, 16])
def test_the_steps_end_at_the_factor_and_finished_columns_stay(R, method, panel):
    knobs = lab.FactorKnobs(method=method, panel=panel)
    (none, first), *_, (k, last) = records = list(lab.factor_steps(R, knobs))
    assert torch.equal(first, R.triu()) and none == 0
    assert k == 24
    assert len(records) == 1 + (-(-24 // panel) if method == "sweep" else 24)
    assert torch.allclose(last, inverse_cholesky(R), rtol=1e-6)
    for k, matrix in records:
        assert torch.equal(matrix[:, :k], last[:, :k])


@pytest.mark.parametrize("interactive", [True, False])
def test_the_view_shows_where_it_stands(R, interactive):
    view = lab.FactorView(R, interactive=interactive)
    figure = view.heat.figure
    assert figure["data"][0]["zmin"] < figure["data"][0]["zmax"]
    assert view.stepper.step(6)[0] == 5  # the first is R itself
    title = figure["layout"]["title"]
    assert title["text"].startswith("5 of 24 columns of F, smallest pivot")
    view.stepper.back()
    assert title["text"].startswith("4 of 24 columns of F")
    view.controls.set(panel=16)
    view.stepper.step(99)
    assert title["text"].startswith("24 of 24 columns of F")
    assert (view.widget if interactive else view.heat)._repr_mimebundle_()


# Costs


def test_the_bars_are_the_operations_and_the_seconds():
    terms = {name: start_terms(name, 60, 20, 10) for name in SOLVERS}
    operations = pd.DataFrame(terms).T
    seconds = pd.DataFrame({0: 1.0, 1: 2.0}, index=list(SOLVERS))
    figure = lab.cost_figure(operations, seconds)
    *parts, first, second = figure["data"]
    assert len(parts) <= 5  # names in the legend
    at = list(SOLVERS).index("orig")
    total = sum(bar["x"][at] for bar in parts)
    assert total == pytest.approx(sum(terms["orig"].values()) / 1e9)
    assert [bar["x"][at] for bar in (first, second)] == [1, 2]
    assert "Operations" in figure["layout"]["meta"]["alt"]
