"""Seven solvers on the same columns: which are the ridge solution, and which are not.

All in float64 on normal numbers, where the condition of A is below 10.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from labkit.broad import SOLVERS, NotPositiveDefinite, inverse_cholesky
from labkit.broad.greville import exg_e_step, exg_e_update_from, orig_step
from labkit.broad.ridge import (
    chol1_start_from,
    chol1_step,
    chol1_update_from,
    chol2_step,
    chol2_update_from,
    sums_over,
    truncated,
)
from labkit.broad.state import largest_eigenvalue, safe_ridge, squared_norm
from labkit.theorems import broad as theorems
from tests.broad.conftest import problem, residual, ridge_by_numpy

EXACT = [name for name, solver in SOLVERS.items() if solver.exact]
WRONG = ["orig", "exg-e"]
every_solver = pytest.mark.parametrize("name", SOLVERS)
every_exact = pytest.mark.parametrize("name", EXACT)
every_wrong = pytest.mark.parametrize("name", WRONG)


def grow(name, A, blocks, Y, ridge, capacity=None):
    """Yield the input and the state after the start and after every block."""
    return theorems.growing(name, A, blocks, Y, ridge, capacity)


def last(*args, **options):
    return list(grow(*args, **options))[-1]


def test_the_names_and_which_are_exact():
    assert set(EXACT) == {"d-rdg", "chol-1", "chol-2", "r-inv", "bordered"}
    assert set(SOLVERS) == {*EXACT, *WRONG}


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 100.0])
@every_exact
def test_the_ridge_gradient_vanishes_after_every_update(name, ridge, capacity):
    A, H, Y = problem(q=12)
    given = {"A": A, "Y": Y, "ridge": ridge, "capacity": capacity}
    found = theorems.ridge_gradient_vanishes(name, blocks=H.split(4, 1), **given)
    assert found.holds, found
    for X, state in grow(name, A, H.split(4, 1), Y, ridge, capacity):
        assert state.W.shape == (X.shape[1], 3)
        assert np.allclose(state.W, ridge_by_numpy(X, Y, ridge), rtol=0, atol=1e-10)


@every_wrong
def test_the_greville_family_leaves_the_ridge_gradient(name, capacity):
    A, H, Y = problem()
    (A0, first), (A, grown) = grow(name, A, [H], Y, 1e-3, capacity)
    if capacity is None:
        assert residual(A0, Y, first.W, 1e-3) < 1e-10  # the start is the ridge solution
    assert 1e-7 < residual(A, Y, grown.W, 1e-3) < 1e-4


@every_solver
def test_the_room_of_a_state_is_finite(name):
    """A state that is saved before it is full would be taken for a damaged one."""
    A, _, Y = problem()
    torch.use_deterministic_algorithms(True)  # memory that nobody has written is NaN
    try:
        state = SOLVERS[name].start(A, Y, 1e-3, A.shape[1] + 8)
    finally:
        torch.use_deterministic_algorithms(False)
    held = [x for x in vars(state).values() if isinstance(x, torch.Tensor)]
    assert held and all(x.isfinite().all() for x in held)


@every_wrong
def test_the_gap_of_the_greville_family_is_linear_in_the_ridge(name):
    """With A well-conditioned: 100 times smaller from ridge 1e-4 to 1e-6."""
    A, H, Y = problem()
    gaps = []
    for ridge in (1e-4, 1e-6):
        whole, state = last(name, A, [H], Y, ridge)
        exact = torch.from_numpy(ridge_by_numpy(whole, Y, ridge))
        gaps.append(float((state.W - exact).abs().max()))
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.02)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 999), st.floats(1e-3, 1e2))
def test_orig_equals_exg_e(k, q, seed, ridge):
    A, H, Y = problem(k=k, q=q, seed=seed)
    one = last("orig", A, H.split(3, 1), Y, ridge)[1].W
    two = last("exg-e", A, H.split(3, 1), Y, ridge)[1].W
    assert torch.allclose(one, two, rtol=0, atol=1e-9)


def test_exg_e_from_chunks_is_exg_e():
    A, H, Y = problem(q=4)
    state = SOLVERS["exg-e"].start(A, Y, 1e-2)
    split = [part.split(3) for part in (A, H, Y)]
    by_chunks = {"exg-e": exg_e_update_from, "chol-2": chol2_update_from}
    for name, update_from in by_chunks.items():
        streamed = update_from(state, lambda: zip(*split, strict=True))
        stored = SOLVERS[name].update(state, A, H, Y)
        assert torch.allclose(streamed.W, stored.W, rtol=0, atol=1e-12)
        assert torch.allclose(streamed.F, stored.F, rtol=0, atol=1e-12)


@given(
    st.sampled_from(["chol-1", "chol-2"]),
    st.sampled_from([None, 40]),
    st.integers(1, 15),
    st.integers(1, 20),
    st.integers(0, 999),
)
def test_the_factor_of_the_ridge_solvers(name, capacity, k, q, seed):
    """F^T R F = I, F upper triangular, its leading block untouched by an update."""
    A, H, Y = problem(k=k, q=q, seed=seed)
    given = {"A": A, "blocks": [H], "Y": Y, "ridge": 0.5, "capacity": capacity}
    found = theorems.factor_is_that_of_the_inverse(name, **given)
    assert found.holds, found
    (_, first), (A, grown) = grow(name, A, [H], Y, 0.5, capacity)
    F, R = grown.F, A.T @ A + 0.5 * torch.eye(k + q)
    assert torch.equal(F[:k, :k], first.F)
    assert torch.allclose(F, inverse_cholesky(R), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "theorem", theorems.THEOREMS.values(), ids=lambda t: t.__name__
)
def test_theorem(theorem):
    assert (found := theorem()).holds, found


def test_the_rows_of_r_inv_are_the_ridge_inverse(capacity):
    A, H, Y = problem()
    given = {"A": A, "blocks": H.split(2, 1), "Y": Y, "ridge": 0.5}
    found = theorems.dagger_is_the_ridge_inverse("r-inv", capacity=capacity, **given)
    assert found.holds, found


def test_the_factor_of_bordered_is_that_of_r(capacity):
    A, H, Y = problem()
    A, state = last("bordered", A, H.split(2, 1), Y, 0.5, capacity)
    R = A.T @ A + 0.5 * torch.eye(A.shape[1])
    assert np.allclose(state.L, np.linalg.cholesky(R.numpy()), rtol=0, atol=1e-10)


@every_exact
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_order_of_growth_is_nothing(name, cut, capacity):
    A, H, Y = problem(q=6)
    once = last(name, A, [H], Y, 0.1, capacity)[1].W
    often = last(name, A, H.split(cut, 1), Y, 0.1, capacity)[1].W
    assert torch.allclose(once, often, rtol=0, atol=1e-11)


@every_exact
def test_duplicated_and_dependent_columns_share_their_weight(name):
    A, H, Y = problem()
    H = torch.cat([A[:, :3], H[:, :1], H[:, :1], A @ A.new_ones(A.shape[1], 1)], 1)
    A, state = last(name, A, H.split(2, 1), Y, 1e-3)
    W = state.W
    assert residual(A, Y, W, 1e-3) < 1e-8  # R's condition is some 1e6 here
    assert torch.allclose(W[:3], W[12:15], rtol=0, atol=1e-8)
    assert torch.allclose(W[15], W[16], rtol=0, atol=1e-8)


@every_solver
@pytest.mark.parametrize(
    ("l", "k", "q", "c"),
    [(60, 3, 20, 2), (5, 9, 4, 2), (60, 4, 1, 1), (40, 1, 1, 10), (1, 1, 3, 1)],
    ids=["q > k", "k > l", "one output", "one node", "one sample"],
)
def test_every_shape(name, l, k, q, c, capacity):  # noqa: E741
    A, H, Y = problem(l, k, q, c)
    A, state = last(name, A, H.split(2, 1), Y, 1.0, capacity)
    assert state.W.shape == (k + q, c)
    assert state.W.isfinite().all()
    if name in EXACT:
        assert residual(A, Y, state.W, 1.0) < 1e-10


@every_solver
def test_without_capacity_every_state_stands_alone(name):
    A, H, Y = problem()
    states = [state for _, state in grow(name, A, [H], Y, 0.1)]
    held = [v for v in vars(states[0]).values() if isinstance(v, torch.Tensor)]
    before = [v.clone() for v in held]
    SOLVERS[name].update(states[0], A, -H, Y)
    assert all(map(torch.equal, before, held))


@pytest.mark.parametrize("name", [n for n in SOLVERS if n != "d-rdg"])
def test_with_capacity_nothing_is_allocated_anew(name):
    A, H, Y = problem()
    buffers = {s.buffer.data_ptr() for _, s in grow(name, A, [H], Y, 1.0, 18)}
    assert len(buffers) == 1
    with pytest.raises(ValueError, match="18 columns exceed the capacity of 17"):
        last(name, A, [H], Y, 1.0, 17)
    with pytest.raises(ValueError, match="12 columns exceed the capacity of 11"):
        last(name, A, [], Y, 1.0, 11)


@pytest.mark.parametrize("name", ["chol-1", "chol-2", "bordered", "exg-e"])
def test_fewer_columns_are_the_leading_block(name, capacity):
    A, H, Y = problem()
    states = [state for _, state in grow(name, A, H.split(3, 1), Y, 0.1, capacity)]
    short = truncated(states[-1], 15)
    assert short.W.shape == (15, 3)
    if name == "exg-e":  # which stands for a former state, at a boundary
        expected = states[1].F @ (states[1].F.T @ (torch.cat([A, H], 1).T @ Y)[:15])
    else:
        expected = torch.from_numpy(ridge_by_numpy(torch.cat([A, H[:, :3]], 1), Y, 0.1))
    assert torch.allclose(short.W, expected, rtol=0, atol=1e-10)
    again = SOLVERS[name].update(short, torch.cat([A, H[:, :3]], 1), H[:, 3:], Y)
    if name != "exg-e":
        assert torch.allclose(again.W, states[-1].W, rtol=0, atol=1e-10)


@given(st.integers(1, 60), st.integers(0, 99))
def test_chol_1_from_sums_over_chunks(chunk, seed):
    A, H, Y = problem(seed=seed)
    none = A[:, :0].split(chunk)
    start = sums_over(zip(none, A.split(chunk), Y.split(chunk), strict=True))
    state = chol1_start_from(start, 0.1)
    chunks = zip(A.split(chunk), H.split(chunk), Y.split(chunk), strict=True)
    state = chol1_update_from(state, sums_over(chunks))
    whole = last("chol-1", A, [H], Y, 0.1)[1]
    assert torch.allclose(state.W, whole.W, rtol=0, atol=1e-12)


def test_the_branch_of_dependent_columns():
    """(21b) with the plus sign gives the pseudo-inverse where C = 0."""
    A, _, Y = problem(k=4)
    dagger = torch.from_numpy(np.linalg.pinv(A.numpy()))
    H = A @ torch.ones(4, 2, dtype=A.dtype)
    B = torch.empty(2, 60, dtype=A.dtype)
    W, _ = orig_step(dagger, B, dagger @ Y, A, H, Y, 1e-9, tolerance=1e-10)
    exact = np.linalg.pinv(np.hstack([A, H]), rcond=1e-10)
    assert np.allclose(torch.cat([dagger, B]), exact, rtol=0, atol=1e-12)
    assert np.allclose(W, exact @ Y.numpy(), rtol=0, atol=1e-12)


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


def test_norms():
    A, H, _ = problem()
    exact = np.linalg.norm(np.hstack([A, H]), 2) ** 2
    assert 0.8 * exact < float(squared_norm(A, H, steps=5)) <= exact * (1 + 1e-12)
    assert float(squared_norm(A, H, steps=99)) == pytest.approx(exact, rel=1e-6)
    exact = np.linalg.norm(H, 2) ** 2
    assert float(largest_eigenvalue(H.T @ H, 99)) == pytest.approx(exact, rel=1e-6)


def test_a_lost_pivot_names_the_ridge_that_would_be_safe():
    A, _, Y = problem()
    H = torch.cat([A[:, :1], A[:, :1]], 1)
    with pytest.raises(NotPositiveDefinite, match="smallest safe ridge") as caught:
        last("chol-1", 1e6 * A, [1e6 * H], Y, 1e-9)
    error = caught.value
    assert error.index in (12, 13) and not error.pivot > 0
    norm = np.linalg.norm(1e6 * np.hstack([A, H]), 2) ** 2
    assert error.safe_ridge == pytest.approx(10 * np.finfo(float).eps * norm, rel=0.3)
    assert error.safe_ridge == safe_ridge(squared_norm(1e6 * A, 1e6 * H))
    W = last("chol-1", 1e6 * A, [1e6 * H], Y, error.safe_ridge)[1].W
    assert W.isfinite().all()


@every_solver
def test_refuses_a_bad_ridge_and_shapes_that_do_not_fit(name):
    A, _, Y = problem()
    for ridge in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="ridge must be > 0 and at most 1e18, got"):
            SOLVERS[name].start(A, Y, ridge)
    with pytest.raises(ValueError, match="must have the same rows, got shapes"):
        SOLVERS[name].start(A, Y[:-1], 1.0)


@every_solver
def test_dtype_follows_the_columns(name):
    A, H, Y = (x.float() for x in problem())
    assert last(name, A, [H], Y, 1.0)[1].W.dtype == torch.float32


@pytest.mark.parametrize("step", [chol1_step, chol2_step, exg_e_step])
def test_a_step_is_one_graph(step):
    """Those of orig and r-inv are not: they look before they overwrite A_dagger."""
    A, H, Y = problem()
    state = SOLVERS["chol-1"].start(A, Y, 0.5)
    F, AY, W, HY, S = state.F, state.AY, state.W, H.T @ Y, H.T @ H
    S.diagonal().add_(0.5)
    args = {
        chol1_step: (F, AY, W, A.T @ H, S, HY),
        chol2_step: (F, W, A, H, Y, 0.5),
        exg_e_step: (F, AY, W, A, H, HY, 0.5),
    }[step]
    found = torch.compile(step, fullgraph=True, backend="eager")(*args)
    for here, there in zip(found[:3], step(*args)[:3], strict=True):
        assert torch.allclose(here, there, rtol=0, atol=1e-12)


@every_solver
@pytest.mark.parametrize("change", ["one output", "no rows", "other columns", "flat"])
def test_refuses_an_update_that_would_spread(name, change):
    A, H, Y = problem()
    state = SOLVERS[name].start(A, Y, 0.5)
    wrong = {"one output": (A, H, Y[:, :1]), "no rows": (A, H[:1], Y)}
    wrong |= {"other columns": (A[:, :1], H, Y), "flat": (A, H[:, 0], Y)}
    before = state.W.clone()
    with pytest.raises(ValueError, match=r"must be \(l, 12\), \(l, q\), \(l, 3\)"):
        SOLVERS[name].update(state, *wrong[change])
    assert torch.equal(state.W, before)
