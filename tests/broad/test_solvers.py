"""Seven solvers on the same columns: which are the ridge solution, and which are not.

All in float64 on normal numbers, where the condition of A is below 10.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from labkit.broad import SOLVERS, NotPositiveDefinite, inverse_cholesky
from labkit.broad.greville import orig_update, r_inv_69_update
from labkit.broad.ridge import truncated
from labkit.broad.state import DaggerState
from labkit.theorems import broad as theorems
from tests.broad.conftest import problem, residual, ridge_by_numpy
from tests.draws import close

EXACT = [name for name, solver in SOLVERS.items() if solver.exact]
WRONG = ["orig", "exg-e"]
every_solver = pytest.mark.parametrize("name", SOLVERS)
every_exact = pytest.mark.parametrize("name", EXACT)
every_wrong = pytest.mark.parametrize("name", WRONG)


def grow(name, A, blocks, Y, ridge):
    """The input and the state after the start and after every block."""
    return list(theorems.growing(name, A, blocks, Y, ridge))


def last(name, A, blocks, Y, ridge):
    return grow(name, A, blocks, Y, ridge)[-1]


def test_the_names_and_which_are_exact():
    assert set(EXACT) == {"d-rdg", "chol-1", "chol-2", "r-inv", "bordered"}
    assert set(SOLVERS) == {*EXACT, *WRONG}


@pytest.mark.parametrize(
    "theorem", theorems.THEOREMS.values(), ids=lambda t: t.__name__
)
def test_theorem(theorem):
    assert (found := theorem()).holds, found


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 100.0])
@every_exact
def test_the_ridge_gradient_vanishes_after_every_update(name, ridge):
    A, H, Y = problem(q=12)
    given = {"A": A, "Y": Y, "ridge": ridge}
    found = theorems.ridge_gradient_vanishes(name, blocks=H.split(4, 1), **given)
    assert found.holds, found
    for X, state in grow(name, A, H.split(4, 1), Y, ridge):
        assert state.W.shape == (X.shape[1], 3)
        assert close(state.W, ridge_by_numpy(X, Y, ridge))


def test_r_inv_by_69_is_the_ridge_solution_too():
    A, H, Y = problem()
    state = r_inv_69_update(SOLVERS["r-inv"].start(A, Y, 0.1), A, H, Y)
    assert residual(torch.cat([A, H], 1), Y, state.W, 0.1) < 1e-10


@every_wrong
def test_the_greville_family_leaves_the_ridge_gradient(name):
    """By a gap that is linear in the ridge, with A well-conditioned."""
    A, H, Y = problem()
    (A0, first), (whole, grown) = grow(name, A, [H], Y, 1e-3)
    assert residual(A0, Y, first.W, 1e-3) < 1e-10  # the start is the ridge solution
    assert 1e-7 < residual(whole, Y, grown.W, 1e-3) < 1e-4
    gaps = []
    for ridge in (1e-4, 1e-6):
        _, state = last(name, A, [H], Y, ridge)
        exact = torch.from_numpy(ridge_by_numpy(whole, Y, ridge))
        gaps.append(float((state.W - exact).abs().max()))
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.02)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 999), st.floats(1e-3, 1e2))
def test_orig_equals_exg_e(k, q, seed, ridge):
    A, H, Y = problem(k=k, q=q, seed=seed)
    one, two = (last(name, A, H.split(3, 1), Y, ridge)[1].W for name in WRONG)
    assert close(one, two, 1e-9)


@given(
    st.sampled_from(["chol-1", "chol-2"]),
    st.integers(1, 15),
    st.integers(1, 20),
    st.integers(0, 999),
)
def test_the_factor_of_the_ridge_solvers(name, k, q, seed):
    """F^T R F = I, F upper triangular, its leading block untouched by an update."""
    A, H, Y = problem(k=k, q=q, seed=seed)
    given = {"A": A, "blocks": [H], "Y": Y, "ridge": 0.5}
    found = theorems.factor_is_that_of_the_inverse(name, **given)
    assert found.holds, found
    (_, first), (A, grown) = grow(name, A, [H], Y, 0.5)
    F, R = grown.F, A.T @ A + 0.5 * torch.eye(k + q)
    assert torch.equal(F[:k, :k], first.F)
    assert close(F, inverse_cholesky(R), 1e-9)


def test_bordered_keeps_the_cholesky_factor():
    A, H, Y = problem()
    A, state = last("bordered", A, H.split(2, 1), Y, 0.5)
    R = A.T @ A + 0.5 * torch.eye(A.shape[1])
    assert close(state.L, torch.linalg.cholesky(R))


@every_exact
def test_duplicated_and_dependent_columns_share_their_weight(name):
    A, H, Y = problem()
    H = torch.cat([A[:, :3], H[:, :1], H[:, :1], A @ A.new_ones(A.shape[1], 1)], 1)
    A, state = last(name, A, H.split(2, 1), Y, 1e-3)
    W = state.W
    assert residual(A, Y, W, 1e-3) < 1e-8  # R's condition is some 1e6 here
    assert close(W[[0, 1, 2, 15]], W[[12, 13, 14, 16]], 1e-8)


@every_solver
@pytest.mark.parametrize(
    ("l", "k", "q", "c"),
    [(60, 3, 20, 2), (5, 9, 4, 2), (60, 4, 1, 1), (40, 1, 1, 10), (1, 1, 3, 1)],
    ids=["q > k", "k > l", "one output", "one node", "one sample"],
)
def test_every_shape(name, l, k, q, c):  # noqa: E741
    A, H, Y = problem(l, k, q, c)
    A, state = last(name, A, H.split(2, 1), Y, 1.0)
    assert state.W.shape == (k + q, c) and state.W.isfinite().all()
    if name in EXACT:
        assert residual(A, Y, state.W, 1.0) < 1e-10


@every_solver
def test_an_update_leaves_the_state_before_as_it_is(name):
    A, H, Y = problem()
    state = SOLVERS[name].start(A, Y, 0.1)
    held = [v for v in vars(state).values() if isinstance(v, torch.Tensor)]
    before = [v.clone() for v in held]
    SOLVERS[name].update(state, A, -H, Y)
    assert all(map(torch.equal, before, held))


@pytest.mark.parametrize("name", ["chol-1", "chol-2", "bordered", "exg-e"])
def test_fewer_columns_are_the_leading_block(name):
    A, H, Y = problem()
    states = [state for _, state in grow(name, A, H.split(3, 1), Y, 0.1)]
    short, X = truncated(states[-1], 15), torch.cat([A, H[:, :3]], 1)
    if name == "exg-e":  # which stands for a former state, at a boundary
        expected = states[1].F @ (states[1].F.T @ (X.T @ Y))
    else:
        expected = torch.from_numpy(ridge_by_numpy(X, Y, 0.1))
    assert close(short.W, expected)
    again = SOLVERS[name].update(short, X, H[:, 3:], Y)
    if name != "exg-e":
        assert close(again.W, states[-1].W)


def test_the_branch_of_dependent_columns():
    """(21b) with the plus sign gives the pseudo-inverse where C = 0."""
    *_, Y = problem(k=4)
    A = 2 * torch.eye(len(Y), 4).to(Y)  # so that C is 0 without rounding
    dagger, H = A.T / 4, A @ torch.ones(4, 2).to(Y)
    state = DaggerState(dagger, dagger @ Y, 1e-9, Y.new_ones(()))
    state = orig_update(state, A, H, Y)
    exact = np.linalg.pinv(np.hstack([A, H]), rcond=1e-10)
    assert close(state.A_dagger, exact, 1e-12)
    assert close(state.W, exact @ Y.numpy(), 1e-12)


@every_solver
def test_smallest_pivot_is_that_of_the_last_factorisation(name):
    A, H, Y = problem()
    states = [state for _, state in grow(name, A, [H], Y, 0.1)]
    L = np.linalg.cholesky(A.numpy().T @ A.numpy() + 0.1 * np.eye(12))
    assert float(states[0].pivot) == pytest.approx(np.diag(L).min() ** 2)
    if name in ("chol-1", "chol-2", "bordered", "r-inv"):
        X = np.hstack([A, H])
        L = np.linalg.cholesky(X.T @ X + 0.1 * np.eye(18))
        smallest = np.diag(L)[12:].min() ** 2
        assert float(states[1].pivot) == pytest.approx(smallest)


def test_a_lost_pivot_names_the_ridge_that_would_be_safe():
    A, _, Y = problem()
    H = torch.cat([A[:, :1], A[:, :1]], 1)
    with pytest.raises(NotPositiveDefinite, match="smallest safe ridge") as caught:
        last("chol-1", 1e6 * A, [1e6 * H], Y, 1e-9)
    error = caught.value
    assert error.index in (12, 13) and not error.pivot > 0
    norm = np.linalg.norm(1e6 * np.hstack([A, H]), 2) ** 2
    assert error.safe_ridge == pytest.approx(10 * np.finfo(float).eps * norm, rel=0.3)
    W = last("chol-1", 1e6 * A, [1e6 * H], Y, error.safe_ridge)[1].W
    assert W.isfinite().all()


@every_solver
def test_dtype_follows_the_columns(name):
    A, H, Y = (x.float() for x in problem())
    assert last(name, A, [H], Y, 1.0)[1].W.dtype == torch.float32


# What a solver refuses: its name, what is wrong, and its words

WRONG_STARTS = [
    ({"ridge": 0}, "ridge must be > 0 and at most 1e18, got 0"),
    ({"Y": torch.ones(59, 3).double()}, r"Y must have shape \(60, c\), got \(59, 3\)"),
    ({"Y": torch.ones(60, 3)}, "Y must have the dtype torch.float64, got"),
    ({"A": torch.ones(60, 0).double()}, "must have a row and a column or more"),
]
WRONG_UPDATES = [  # which torch would broadcast
    ({"Y": torch.ones(60, 1).double()}, r"Y must have shape \(l, 3\), got \(60, 1\)"),
    ({"H": torch.ones(1, 6).double()}, r"H must have shape \(60, q\), got \(1, 6\)"),
    ({"A": torch.ones(60, 1).double()}, r"A must have shape \(60, 12\), got \(60, 1\)"),
    ({"Y": torch.full((60, 3), np.nan).double()}, r"Y must be finite, got nan at"),
    ({"state": "none"}, "this solver needs a state .*State, as its start returns"),
]


@every_solver
def test_what_is_wrong_is_refused(name):
    A, H, Y = problem()
    for wrong, message in WRONG_STARTS:
        with pytest.raises((ValueError, TypeError), match=message):
            SOLVERS[name].start(**{"A": A, "Y": Y, "ridge": 1.0} | wrong)
    state = SOLVERS[name].start(A, Y, 0.5)
    for wrong, message in WRONG_UPDATES:
        with pytest.raises((ValueError, TypeError), match=message):
            SOLVERS[name].update(**{"state": state, "A": A, "H": H, "Y": Y} | wrong)
