"""Solvers side by side on the same columns, and what their steps cost."""

import pytest
import torch

from labkit.broad import SOLVERS, SharedColumns, Update, side_by_side
from labkit.broad.solvers import start_operations, update_operations, update_terms
from tests.broad.conftest import problem
from tests.draws import close, randn


def flat(growth):
    return [record for records in growth for record in records]


def twenty_columns():
    A, H, Y = problem(l=80, q=8)
    return torch.cat([A, H], 1), Y


def test_who_is_the_ridge_solution():
    A, Y = twenty_columns()
    records = flat(side_by_side(A, [12, 16, 20], Y, 1e-2, SOLVERS, score=len))
    assert [r.solver for r in records] == [*SOLVERS] * 3
    for r in records:
        assert r.score == r.columns == len(r.W) and r.lost is None
        exact = SOLVERS[r.solver].exact or r.step == 0
        assert (r.residual < 1e-10) == exact


def test_who_loses_a_pivot_drops_out():
    A, H, Y = problem()
    A = 1e6 * torch.cat([A, A[:, :2], H], 1)
    records = flat(side_by_side(A, [12, 14, 20], Y, 1e-9, ["chol-1", "chol-2"]))
    lost = [r for r in records if r.lost is not None]
    assert [(r.solver, r.step) for r in lost] == [("chol-1", 1)]
    assert lost[0].lost.safe_ridge > 1e-9
    assert [r.solver for r in records if r.step == 2] == ["chol-2"]


def test_the_factors_that_are_kept_are_measured_and_looking_changes_nothing():
    A, Y = twenty_columns()
    options = {"score": len, "factor_error": True}
    records = flat(side_by_side(A, [12, 20], Y, 1e-2, SOLVERS, **options))
    for r in records:
        kept = r.solver in ("chol-1", "chol-2", "exg-e")
        assert (r.factor_error is not None) == kept
        if kept:
            exact = SOLVERS[r.solver].exact or r.step == 0
            assert (r.factor_error < 1e-11) == exact
    plain = flat(side_by_side(A, [12, 20], Y, 1e-2, SOLVERS))
    assert {r.factor_error for r in plain} == {None}
    for r, p in zip(records, plain, strict=True):  # to the bit
        assert torch.equal(r.W, p.W)


def test_refuses_bad_widths_and_an_unknown_solver():
    A, _, Y = problem()
    for kind in (list, iter):
        for widths in ([3, 2], [2, 2], [2, 99]):
            with pytest.raises(ValueError, match=r"at most 12 columns, got \d+ after "):
                flat(side_by_side(A, kind(widths), Y, 1.0, ["chol-1"]))
        with pytest.raises(ValueError, match="widths must hold the columns of a start"):
            flat(side_by_side(A, kind([]), Y, 1.0, ["chol-1"]))
    with pytest.raises(ValueError, match=r"solver must be one of d-rdg, .* got 'chol'"):
        next(side_by_side(A, [12], Y, 1.0, ["chol-1", "chol"]))


def test_columns_may_come_on_the_way():
    A, Y = twenty_columns()
    come = torch.full_like(A, torch.nan)

    def widths():
        for k in (12, 16, 20):
            come[:, :k] = A[:, :k]
            yield k

    whole = flat(side_by_side(A, [12, 16, 20], Y, 1e-2, SOLVERS))
    found = flat(side_by_side(come, widths(), Y, 1e-2, SOLVERS))
    for here, there in zip(found, whole, strict=True):
        assert (here.solver, here.columns) == (there.solver, there.columns)
        torch.testing.assert_close(here.W, there.W)
        assert here.residual == pytest.approx(there.residual, rel=0.1, abs=1e-10)


# Columns that solvers share


@pytest.fixture(scope="module")
def parts():
    X = randn(90, 8)
    y = (X[:, 0] > 0).long() + (X[:, 1] > 1)
    return (X[:60], y[:60]), (X[60:], y[60:])


GROWTH = [Update(4, extra=6), Update(3, 2, 5), Update(extra=7)]


def test_columns_are_the_same_whatever_comes_later(parts):
    whole, short = SharedColumns(*parts, 27), SharedColumns(*parts, 99)
    assert [whole.add(update) for update in GROWTH] == [10, 20, 27]
    short.add(*GROWTH[:2])
    assert (whole.widths, short.widths) == ((10, 20, 27), (20,))
    assert torch.allclose(whole.A[:, :20], short.A[:, :20], rtol=1e-12)
    assert torch.allclose(whole.B[:, :20], short.B[:, :20], rtol=1e-12)
    other = SharedColumns(*parts, 10, seed=1)
    other.add(GROWTH[0])
    assert not torch.equal(other.A, whole.A[:, :10])


def test_columns_of_the_test_are_those_of_its_inputs(parts):
    """Given as inputs to judge by, those to learn from have the same columns."""
    columns = SharedColumns(parts[0], parts[0], 27)
    columns.add(*GROWTH)
    assert close(columns.A, columns.B, 1e-12)


def test_score_is_in_percent(parts):
    columns = SharedColumns(*parts, 27)
    columns.add(*GROWTH)
    W = torch.zeros(10, 3, dtype=torch.float64)  # argmax of ties is 0
    share = float((parts[1][1] == 0).double().mean())
    assert columns.score(W) == pytest.approx(100 * share)
    assert columns.Y.unique().tolist() == [-1, 1]
    with pytest.raises(ValueError, match=r"W must have shape \(k, 3\), got \(10, 1"):
        columns.score(W[:, :1])


def test_classes_that_would_be_broadcast_are_refused(parts):
    (X, y), (tests, classes) = parts
    with pytest.raises(ValueError, match=r"classes must have shape \(30,\), got"):
        SharedColumns((X, y), (tests, classes[:, None]), 27)
    with pytest.raises(TypeError, match="test must be a pair of tensors, got None"):
        SharedColumns((X, y), None, 27)
    with pytest.raises(ValueError, match="classes must be 0 or more, got -1"):
        SharedColumns((X, y), (tests, classes - 1), 27)
    columns = SharedColumns(*parts, 9)
    with pytest.raises(ValueError, match="10 columns exceed the room of 9"):
        columns.add(Update(4, extra=6))
    assert columns.widths == ()


# Costs


def test_operations_have_the_papers_ratios():
    """(71), (72), (75) where l >> k > q >> c: 3 times chol-1, and more than 5/3."""
    l, k, q, c = 10**9, 2000, 1000, 1  # noqa: E741
    ops = {name: update_operations(name, l, k, q, c) for name in SOLVERS}
    assert ops["orig"] / ops["chol-1"] == pytest.approx(3, rel=2e-3)
    assert ops["exg-e"] / ops["chol-1"] == pytest.approx(9 / 5, rel=2e-3)
    assert ops["exg-e"] / ops["chol-1"] > 5 / 3
    assert ops["r-inv"] / ops["orig"] == pytest.approx(1, rel=1e-3)
    assert ops["chol-2"] / ops["exg-e"] == pytest.approx(1, rel=1e-3)
    start = [start_operations(name, l, k, c) for name in ("orig", "chol-1")]
    assert start[0] / start[1] == pytest.approx(3, rel=2e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_operations_are_told_by_what_they_are_for(solver):
    terms = update_terms(solver, 1000, 60, 20, 3)
    # Who keeps the ridge inverse has to update it; who needs C has to form it.
    assert (terms["dagger"] > 0) == (solver in ("orig", "r-inv"))
    without = ("d-rdg", "chol-1", "bordered")
    assert (terms["residual"] > 0) == (solver not in without)
