"""Least squares of a layer against NumPy's pseudoinverse."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.testing import assert_close

from labkit import bpls
from labkit.bpls import solve_layer
from labkit.bpls.solve import METHODS, gram
from labkit.errors import DivergedError
from labkit.theorems.bpls import weights_solve_the_ridge_problem
from tests.draws import randn

EXACT = ("eigh", "svd")


def awkward(kind, dtype=torch.float64):
    """Matrices on which a bare inverse of A^T A fails."""
    return AWKWARD[kind](randn(30, 8, dtype=dtype))


def filled(A, value, *columns):
    A[:, columns] = value if isinstance(value, float) else A[:, [value]]
    return A


AWKWARD = {
    "zero first column": lambda A: filled(A, 0.0, 0),
    "zero column in the middle": lambda A: filled(A, 0.0, 4),
    "constant column": lambda A: filled(A, 1.0, 3),
    "duplicated columns": lambda A: filled(A, 1, 5, 6),
    "zero first column and duplicates": lambda A: filled(filled(A, 0.0, 0), 1, 7),
    "fewer samples than inputs": lambda A: A[:5],
    "one sample": lambda A: A[:1],
    "rank two": lambda A: A[:, :2] @ randn(2, 8, seed=1, dtype=A.dtype),
    "zero": lambda A: 0 * A,
}
DTYPES = (torch.float32, torch.float64)


def by_numpy(A, B, rcond):
    return np.linalg.pinv(A.double().numpy(), rcond=rcond) @ B.double().numpy()


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", AWKWARD)
def test_the_exact_methods_give_the_minimum_norm_solution(kind, dtype, method):
    A, exact = awkward(kind, dtype), dtype == torch.float64
    B = randn(len(A), 3, seed=2, dtype=dtype)
    W, info = solve_layer(A, B, method=method)
    assert torch.equal(W, solve_layer(A, B, ridge=0, method=method)[0])
    expected = by_numpy(A, B, 1e-9 if exact else 1e-5)
    np.testing.assert_allclose(W, expected, atol=1e-9 if exact else 1e-3)
    tolerance = 1e-6 if exact else 1e-3
    assert int(info.rank) == np.linalg.matrix_rank(A.numpy(), tol=tolerance)


@pytest.mark.parametrize("kind", AWKWARD)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_default_solves_them_close_to_minimum_norm(kind, dtype):
    A = awkward(kind, dtype)
    B = randn(len(A), 3, seed=2, dtype=dtype)
    W, info = solve_layer(A, B)
    # relative ridge 1e-4 on singular values of order one
    np.testing.assert_allclose(W.double(), by_numpy(A, B, 1e-6), atol=2e-2)
    assert torch.isfinite(info.condition)


RIDGES = st.sampled_from([1e-6, 1e-4, 1e-1, 10.0])


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 1000), RIDGES)
def test_all_methods_solve_the_same_ridge_problem(D, K, seed, ridge):
    A, B = randn(D, K, seed=seed), randn(D, 2, seed=seed + 1)
    a = A.numpy()
    lam = ridge * np.trace(a.T @ a) / K
    expected = np.linalg.solve(a.T @ a + lam * np.eye(K), a.T @ B.numpy())
    for method in METHODS:
        W, _ = solve_layer(A, B, ridge=ridge, rcond=0, method=method)
        np.testing.assert_allclose(W, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ridge", [1e-6, 0.05, 3.0])
def test_the_ridge_gradient_vanishes_in_every_layer(ridge, method):
    found = weights_solve_the_ridge_problem(ridge, method)
    assert found.holds, found


def test_leading_dimensions_are_independent_problems():
    A, B = randn(2, 5, 9, 4), randn(2, 5, 9, 3, seed=1)
    A[0, 1, :, 2] = 0
    for method in METHODS:
        W, info = solve_layer(A, B, method=method)
        assert info.rank.shape == (2, 5)
        assert int(info.rank[0, 1]) == 3 and int(info.rank[1, 1]) == 4
        for at in np.ndindex(2, 5):
            alone, _ = solve_layer(A[at], B[at], method=method)
            assert_close(W[at], alone, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(9, 255), (9, 256), (50, 301), (2, 7, 259), (9, 1)])
def test_the_gram_matrix_in_blocks(shape):
    A = randn(*shape)
    assert_close(gram(A), A.mT @ A)


def test_one_matrix_serves_many_targets():
    A, B = randn(9, 4), randn(7, 9, 3, seed=1)
    for method in METHODS:
        W, _ = solve_layer(A, B, method=method)
        assert W.shape == (7, 4, 3)
        assert_close(W[5], solve_layer(A, B[5], method=method)[0])


def test_condition_and_rank_where_they_are_known():
    Q = torch.linalg.qr(randn(20, 3)).Q
    A = Q * torch.tensor([100.0, 10.0, 1.0], dtype=torch.float64)
    for method in EXACT:
        info = solve_layer(A, Q, method=method)[1]
        assert float(info.condition) == pytest.approx(100, rel=1e-6)
    info = solve_layer(A, Q, ridge=1e-9)[1]
    assert 100 / 3 <= float(info.condition) <= 100 * 3**0.25  # the docstring's bounds
    cut = solve_layer(A, Q, method="svd", rcond=0.05)[1]
    assert int(cut.rank) == 2 and float(cut.condition) == pytest.approx(10)
    assert int(solve_layer(A, Q, ridge=0.1)[1].rank) == 1  # lambda = 336.7


def test_a_ridge_below_rounding_is_no_singular_matrix_error():
    A = awkward("duplicated columns", torch.float32)
    A = torch.cat([A, A, A], 1)
    B = A[:, :2]
    W, _ = solve_layer(A, B, ridge=1e-30)
    assert_close(A @ W, B, rtol=0, atol=1e-3)
    assert float(W.abs().max()) < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "lstsq"}, "one of cholesky, eigh, svd, got 'lstsq'"),
        ({"ridge": -1.0}, "ridge must be None or >= 0 and finite, got -1.0"),
        ({"B": randn(4)}, r"B must have shape \(..., 4, J\), got \(4,\)"),
        ({"ridge": 0, "method": "cholesky"}, 'needs a ridge > 0, got 0; .*"eigh"'),
    ],
)
def test_what_it_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        solve_layer(randn(4, 2), **{"B": randn(4, 1)} | options)


@pytest.mark.parametrize("method", METHODS)
def test_values_beyond_their_dtype_are_told(method):
    A = randn(60, 4, dtype=torch.float32)
    A[:, 0] *= 1e37
    with pytest.raises(torch.linalg.LinAlgError, match="not finite"):
        solve_layer(A, A[:, :1] / 1e37, method=method)
    walk = bpls.walk([A, A], A[:, :1] / 1e37, "identity", method=method)
    with pytest.raises(DivergedError, match=r"not finite in torch.float32; scale"):
        list(walk)
