"""The broad learning lab: shared columns, live growth, breakdowns, sweep, claims."""

import math
from dataclasses import fields

import pandas as pd
import pytest
import torch

from labkit.broad import SOLVERS, Update, inverse_cholesky, race
from labkit.broad.cost import TERMS, start_operations, update_operations
from labkit.instruments import Trace
from labkit.labs import broad as lab


@pytest.fixture(scope="module")
def problem():
    return lab.make_problem("digits", samples=400)


@pytest.fixture(scope="module")
def columns(problem):
    return lab.make_columns(problem, lab.paper_updates(3, 20, 4), enhancement=30)


# Columns


def test_columns_are_as_wide_as_the_updates_say(columns):
    assert columns.widths == (40, 60, 80, 100)
    assert columns.A.shape == (400, 100) and columns.B.shape == (360, 100)
    assert columns.A.dtype == columns.Y.dtype == torch.float64


def test_a_start_is_the_same_whatever_is_added(problem, columns):
    alone = lab.make_columns(problem, [], enhancement=30)
    assert torch.equal(alone.A, columns.A[:, :40])
    other = lab.make_columns(problem, [], enhancement=30, seed=1)
    assert not torch.equal(other.A, alone.A)


def test_updates_are_divided_as_in_the_paper():
    assert lab.paper_updates(2, 2010, 10) == [Update(10, 750, 1250)] * 2
    assert lab.paper_updates(1, 7) == [Update(extra=7)]
    for features in (-1, 7):
        with pytest.raises(ValueError, match="features must be from 0 to 6, of 7, got"):
            lab.paper_updates(1, 7, features)


def test_noise_goes_to_the_training_part_only(problem):
    noisy = lab.make_problem("digits", samples=400, input_noise=0.5, label_noise=0.4)
    assert torch.equal(noisy.tests, problem.tests)
    assert torch.equal(noisy.targets, problem.targets)
    assert (noisy.X - problem.X).std() == pytest.approx(0.5, abs=0.02)
    changed = (noisy.Y != problem.Y).any(1).double().mean()
    assert 0.25 < float(changed) < 0.45  # a tenth of the 0.4 is right by chance


def test_unknown_data_are_refused():
    with pytest.raises(ValueError, match="unknown data set 'usps'; there are digits"):
        lab.make_problem("usps")


def test_score_is_in_percent(columns):
    W = torch.zeros(60, 10, dtype=torch.float64)
    share = float((columns.targets == 0).double().mean())  # argmax of ties is 0
    assert columns.score(W) == pytest.approx(100 * share)


# The live experiment


def knobs(**values):
    return lab.GrowthKnobs(**({"budget": 20} | values))


def make(values=None, **options):
    options = {"interactive": False, "samples": 300, "updates": 3} | options
    return lab.growth_lab(values or knobs(), **options)


def test_the_live_experiment_writes_what_its_panels_show(tmp_path):
    live = make(folder=str(tmp_path))
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


@pytest.mark.parametrize(
    "extreme",
    [
        {"ridge": 1e-12},
        {"precision": "float32", "ridge": 0.1},
        {"ridge": 100.0},
        {"budget": 10},
        {"budget": 80},
        {"features": 0},
        {"features": 9, "budget": 10},
        {"input_noise": 1.0},
        {"label_noise": 0.8},
        {"seed": 99},
        {"greville": "exg-e"},
        *({"exact": name} for name in SOLVERS if SOLVERS[name].exact),
    ],
    ids=str,
)
def test_every_knob_works_at_its_ends(extreme):
    frame = make(knobs(**extreme), updates=2).run(99)
    assert len(frame) == 3
    assert frame["accuracy greville"].between(0, 100).all()


@pytest.mark.parametrize("turn", [{"budget": 40}, {"features": 0}], ids=str)
def test_other_updates_need_no_restart(turn):
    plain, live = make(), make()
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


@pytest.mark.parametrize("turn", [{"budget": 40}, {"features": 0}], ids=str)
def test_a_value_from_the_start_on_is_the_same_however_it_came(turn):
    """Set when made, or turned before the first step: the same to the last bit."""
    turned = make()
    turned.controls.set(**turn)
    one, two = turned.run(99), make(knobs(**turn)).run(99)
    times = ["turned", "time"]
    assert one.drop(columns=times, errors="ignore").equals(
        two.drop(columns=times, errors="ignore")
    )


def test_what_the_factor_was_made_of_restarts_it():
    live = make()
    first = live.run(2)["residual exact"].tolist()
    for change in ({"ridge": 1e-2}, {"precision": "float32"}, {"exact": "r-inv"}):
        live.controls.set(**change)
        assert len(live.trace.rows) == 0
        assert live.run(2)["residual exact"].tolist() != first
        live.controls.reset()
        assert live.run(2)["residual exact"].tolist() == first


def test_in_float32_chol_1_ends_where_chol_2_grows_on():
    ends = {}
    for solver in ("chol-1", "chol-2"):
        chosen = knobs(exact=solver, precision="float32", ridge=1e-3, budget=50)
        live = make(chosen, samples=None, updates=4)
        ends[solver] = live.run(99)["accuracy exact"].count()
    assert ends["chol-1"] < ends["chol-2"] == 5
    none = make(knobs(precision="float32", ridge=1e-6), samples=None)
    frame = none.run(99)
    assert len(frame) == 1 and "orig ended" in frame["note"].iloc[0]
    assert "chol-1 ended" in frame["note"].iloc[0]


def test_columns_come_as_if_they_had_been_drawn_at_once(problem):
    updates = lab.paper_updates(3, 20, 4)
    whole = lab.make_columns(problem, updates)
    steps = lab.grow_columns(problem, iter(updates), room=200)
    for k, columns in zip(whole.widths, steps, strict=True):
        assert columns.widths[-1] == k
        assert torch.allclose(columns.A[:, :k], whole.A[:, :k], rtol=1e-12)
        assert torch.allclose(columns.B[:, :k], whole.B[:, :k], rtol=1e-12)


def test_what_the_knobs_say_to_look_for_is_there():
    def ends(**values):
        live = lab.growth_lab(lab.GrowthKnobs(**values), interactive=False)
        frame = live.run(99)
        return frame["accuracy exact"].iloc[-1], frame["accuracy greville"].iloc[-1]

    exact, greville = ends(budget=80)
    assert 25 < exact - greville < 40
    exact, greville = ends(budget=10)
    assert 10 < exact - greville < 20
    for ridge in (1e-12, 100.0):
        exact, greville = ends(ridge=ridge)
        assert abs(exact - greville) < 2
    exact, _ = ends(features=0, ridge=1e-2)
    assert exact < 94 < ends(ridge=1e-2)[0]


def test_every_knob_says_what_to_look_for():
    for kind in (lab.GrowthKnobs, lab.SweepKnobs):
        for field in fields(kind):
            assert field.metadata["look_for"] and field.metadata["help"], field.name
            name = field.metadata["label"] or field.name
            room = 23 - len(field.metadata["unit"] and f" [{field.metadata['unit']}]")
            assert len(name) <= room or field.type is bool, field.name  # else cut off


def test_who_has_lost_a_pivot_is_left_out_and_named():
    # Columns beyond what 60 samples can tell apart, at a ridge below rounding.
    live = make(knobs(ridge=1e-12, features=0, budget=80), samples=60, updates=6)
    frame = live.run(99)
    assert frame["accuracy exact"].isna().any()
    assert "chol-1 ended at" in live.note.value
    assert "smallest safe ridge" in frame["note"].iloc[-1]


def test_looking_changes_nothing(columns):
    """With and without its measurements a race ends at the same weights, to the bit."""
    options = (columns.A, columns.widths, columns.Y, 1e-4, ["chol-1", "orig"])
    plain = [record.W for record in race(*options)]
    watched = race(*options, score=columns.score, factor_error=True)
    for W, record in zip(plain, watched, strict=True):
        assert torch.equal(W, record.W)


# Races


def test_tables_hold_what_the_races_found(columns):
    frame = lab.race_frame(columns, [1e-4, 1e-2], ["chol-1", "orig"], factor_error=True)
    table = lab.accuracy_table(frame)
    assert list(table.columns) == list(columns.widths)
    assert list(table.index) == [
        (r, s) for r in ("1e-4", "1e-2") for s in ("chol-1", "orig")
    ]
    W = SOLVERS["chol-1"].start(columns.A[:, :40], columns.Y, 1e-2).W
    assert table.loc[("1e-2", "chol-1"), 40] == f"{columns.score(W):.2f}"
    errors = lab.error_table(frame)
    assert errors.loc[("1e-4", "chol-1"), "residual"] < 1e-9
    assert errors.loc[("1e-4", "orig"), "residual"] > 1e-7
    assert math.isnan(errors.loc[("1e-4", "orig"), "factor error"])


def test_the_demonstration_breaks_chol_1_and_not_chol_2():
    frame = lab.demonstration([1e-11], solvers=["chol-1", "chol-2"])
    table = lab.accuracy_table(frame)
    assert table.loc[("1e-11", "chol-1"), 705] == "NA"
    assert float(table.loc[("1e-11", "chol-2"), 705]) > 70
    [safe] = frame["safe ridge"].dropna()
    assert 1e-11 < safe < 1e-9
    there = lab.error_table(frame)
    assert there.loc[("1e-11", "chol-1"), "columns"] < 705


def test_initial_accuracies_are_those_of_the_start(columns):
    found = lab.initial_accuracies(columns, [1e-4, 1.0])
    W = SOLVERS["d-rdg"].start(columns.A[:, :40], columns.Y, 1.0).W
    assert found[1.0] == pytest.approx(columns.score(W))
    table = lab.initial_table(lab.initial_accuracies(columns))
    assert table.shape == (8, 2)


def test_the_noise_table_has_a_row_for_each_noise():
    table = lab.noise_table(
        updates=lab.paper_updates(1, 20),
        ridges=[1e-4, 1.0],
        noises=[(0.0, 0.0), (0.5, 0.3)],
        samples=300,
    )
    assert list(table.index) == ["pixels 0, labels 0", "pixels 0.5, labels 0.3"]
    assert table.shape == (2, 4) and table.notna().all(axis=None)
    calm, noisy = table[("chol-1", "1e-4")]
    assert calm > noisy


def test_costs_are_counted_by_the_formulas():
    frame = lab.cost_frame(samples=60, start=20, added=10, updates=2, solvers=SOLVERS)
    for name in SOLVERS:
        wanted = start_operations(name, 60, 20, 10)
        wanted += sum(update_operations(name, 60, k, 10, 10) for k in (20, 30))
        assert frame.loc[name, list(TERMS)].sum() == pytest.approx(wanted)
        steps = frame.loc[name, [f"seconds {i}" for i in range(3)]]
        assert frame.seconds[name] == pytest.approx(steps.sum())
    table = lab.cost_table(frame)
    assert table["operations / chol-1"]["chol-1"] == 1
    plotted = lab.cost_plot(frame).data
    assert len(plotted) == len(TERMS) + 3
    total = sum(bar.x[list(frame.index).index("orig")] for bar in plotted[:6])
    assert total == pytest.approx(table["operations [1e9]"]["orig"])


# The sweep


@pytest.fixture
def R(columns):
    A = columns.A[:, :24]
    return A.T @ A + 1e-3 * torch.eye(24, dtype=A.dtype)


@pytest.mark.parametrize("method", ["sweep", "column by column"])
@pytest.mark.parametrize("panel", [1, 5, 16])
def test_the_sweep_ends_at_the_factor(R, method, panel):
    first, *_, last = lab.sweep_rows(R, lab.SweepKnobs(method=method, panel=panel))
    assert torch.equal(first.matrix, R.triu()) and first.finished == 0
    assert last.finished == 24
    assert torch.allclose(last.matrix, inverse_cholesky(R), rtol=1e-6)
    assert last.smallest_pivot >= 0.999e-3


def test_finished_columns_stay_as_they_are(R):
    records = list(lab.sweep_rows(R, lab.SweepKnobs()))
    final = records[-1].matrix
    for record in records:
        k = record.finished
        assert torch.equal(record.matrix[:, :k], final[:, :k])


@pytest.mark.parametrize("interactive", [True, False])
def test_the_sweep_lab_shows_where_it_stands(R, interactive):
    sweep = lab.SweepLab(R, interactive=interactive)
    low, high = sweep.heat.figure.data[0].zmin, sweep.heat.figure.data[0].zmax
    assert low < high
    assert sweep.run(6).finished == 5  # step 0 is R itself
    assert sweep.heat.figure.layout.title.text.startswith("5 of 24 columns of F")
    sweep.stepper.back()
    assert sweep.heat.figure.layout.title.text.startswith("4 of 24 columns of F")
    sweep.controls.set(panel=16)
    assert sweep.run(99).step == 2
    assert sweep._repr_mimebundle_()


# Claims


def made_up(solvers, ridges, accuracy):
    rows = [
        {
            "solver": solver,
            "ridge": ridge,
            "step": step,
            "columns": 10 * (step + 1),
            "accuracy": accuracy(solver, ridge, step),
            "factor error": 1e-3,
            "safe ridge": math.nan,
        }
        for solver in solvers
        for ridge in ridges
        for step in range(3)
    ]
    return pd.DataFrame(rows)


def verdicts(races, demonstration, initial=(98.0, 90.0)):
    costs = pd.DataFrame(1.0, index=list(SOLVERS), columns=[*TERMS, "seconds"])
    table = lab.claims_table(
        races,
        demonstration,
        pd.Series(initial, index=[1e-8, 1e-1]),
        costs,
        setting="made up",
        cost_setting="made up",
    )
    return dict(zip(table["paper's claim"], table["verdict"], strict=True))


def test_claims_are_decided_by_the_numbers():
    falls = {0: 95.0, 1: 96.0, 2: 80.0}
    good = made_up(
        SOLVERS,
        [1e-4, 1e-2],
        lambda s, r, t: 95.0 + t if SOLVERS[s].exact else falls[t],
    )
    broken = good.copy()
    hit = (broken.solver == "chol-1") & (broken.ridge == 1e-4) & (broken.step == 2)
    broken.loc[hit, ["accuracy", "factor error"]] = math.nan
    broken.loc[hit, "safe ridge"] = 1e-3
    found = verdicts(good, broken)
    claims = [claim for claim, verdict in found.items() if verdict == "yes"]
    assert len(claims) == 8, found
    clocks = [v for claim, v in found.items() if " / chol-1: " in claim]
    assert clocks == ["a clock, not a test"] * 2
    stable = found["chol-2 is numerically more stable than chol-1"]
    assert stable.endswith("its factor is not more accurate")

    flat = made_up(SOLVERS, [1e-4], lambda s, r, t: 90.0 + (s == "r-inv"))
    found = verdicts(flat, good, initial=(90.0, 95.0))
    kinds = {claim: verdict for claim, verdict in found.items() if verdict == "no"}
    assert len(kinds) == 3, found  # initial, growth, and nobody ended
    parted = made_up(SOLVERS, [1e-2], lambda s, r, t: 90.0 + (s == "r-inv"))
    found = verdicts(parted, good)
    assert found["r-inv is the direct solution at ridge 1e-3 and up"] == "no"
    assert found["chol-1 is the direct solution at ridge 1e-5 and up"] == "yes"
