"""The Gauss-Newton refinement, which is ours."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn import functional as F

from labkit.errors import DivergedError
from labkit.lab.gauss_newton import gauss_newton_targets, refine, refined_scores
from tests.bpls.conftest import blobs, start
from tests.draws import randn

D, N, J = 20, 6, 3


def problem(seed=0):
    return randn(D, J, seed=seed), randn(N, J, seed=seed + 1)


@given(st.integers(0, 300), st.sampled_from([0.0, 1e-3, 1e-1, 10.0]))
def test_against_loops_over_the_samples(seed, mu):
    """Without damping nothing of the linearised residual is left."""
    R, W = problem(seed)
    slope = randn(D, N, seed=seed + 2).sigmoid()
    r, w, s = R.numpy(), W.numpy(), slope.numpy()
    jacobians = [w.T * s[d] for d in range(D)]
    damping = mu * np.mean([np.trace(j @ j.T) for j in jacobians]) / J * np.eye(J)
    found = gauss_newton_targets(R, W, slope, mu).numpy()
    for dz, j, residual in zip(found, jacobians, r, strict=True):
        expected = j.T @ np.linalg.solve(j @ j.T + damping, residual)
        np.testing.assert_allclose(dz, expected, rtol=1e-8, atol=1e-10)


def test_one_sweep_by_hand():
    W1 = start(4, N)[0]
    X, y = blobs()
    X = X / 4
    zeroth, first = refine(X, y, W1, sweeps=1, alpha=1.5, mu=0.1, ridge=1e-3)
    B = F.one_hot(y).double().numpy()

    def ridge_fit(A, B):
        G = A.T @ A
        lam = 1e-3 * np.trace(G) / len(G)
        return np.linalg.solve(G + lam * np.eye(len(G)), A.T @ B)

    x, H = X.numpy(), (X @ W1).tanh()
    A = np.hstack([H.numpy(), np.ones((60, 1))])
    W2 = ridge_fit(A, B)
    np.testing.assert_allclose(zeroth.weights[1], W2, atol=1e-9)
    R, W = torch.from_numpy(B - A @ W2), torch.from_numpy(W2[:-1])
    dZ = gauss_newton_targets(R, W, 1 - H.square(), 0.1)
    expected = W1.numpy() + 1.5 * ridge_fit(x, dZ.numpy())
    np.testing.assert_allclose(first.weights[0], expected, atol=1e-9)


def test_it_keeps_the_best_and_counts_right():
    X, y = blobs()
    for seed in range(5):
        W1 = start(4, N, seed=seed)[0]
        found = list(refine(X, y, W1, sweeps=15))
        assert [end.walk for end in found] == list(range(16))
        counts = [end.error for end in found]
        each = [*(end.weights for end in found), found[-1].best]
        outputs = [refined_scores(X, weights) for weights in each]
        missed = [int((S.argmax(1) != y).sum()) for S in outputs]
        assert missed == [*counts, min(counts)] and min(counts) < counts[0]
    values = list(refine(X, X[:, :2].sin(), W1, sweeps=5))
    least = min(end.error for end in values)
    S = refined_scores(X, values[-1].best)
    best = float((S - X[:, :2].sin()).square().mean().sqrt())
    assert best == pytest.approx(least) and least < values[0].error


def test_an_error_that_is_not_finite_is_named():
    X, Y, W1 = randn(20, 4), 1e200 * randn(20, 2, seed=1), randn(4, 5, seed=2)
    with pytest.raises(DivergedError, match="sweep 0: the error is not finite"):
        list(refine(X, Y, W1))
