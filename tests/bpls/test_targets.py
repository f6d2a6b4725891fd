"""The interpretations of (5), against the paper's letters and its consequences."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.testing import assert_close

from labkit.bpls import INTERPRETATIONS, hidden_targets
from labkit.bpls.targets import overshoot
from labkit.theorems import bpls as theorems
from tests.draws import randn

D, N, J = 7, 5, 3
ALL = (*INTERPRETATIONS, 0, J - 1)


def problem(seed=0, *, N=N, J=J):
    shapes = ((D, N), (N, J), (D, J))
    return [randn(*shape, seed=3 * seed + i) for i, shape in enumerate(shapes)]


H, W, B = problem()


def letter_by_letter(j):
    """(5) as printed, with j a function of (sample, neuron), in plain loops."""
    T = torch.empty_like(H)
    for d, i in np.ndindex(D, N):
        k = j(d, i)
        others = sum(float(W[t, k] * H[d, t]) for t in range(N) if t != i)
        T[d, i] = (float(B[d, k]) - others) / float(W[i, k])
    return T


PRINTED = [(k, lambda d, i, k=k: k) for k in range(J)]
PRINTED += [("cyclic", lambda d, i: i % J), ("label", lambda d, i: int(B[d].argmax()))]


@pytest.mark.parametrize(("interpretation", "j"), PRINTED)
def test_printed_with_the_output_that_is_meant(interpretation, j):
    found = hidden_targets(H, W, B, interpretation)
    assert_close(found, letter_by_letter(j))


def test_mean_over_the_printed():
    expected = sum(letter_by_letter(lambda d, i, j=j: j) for j in range(J)) / J
    assert_close(hidden_targets(H, W, B, "mean"), expected)


def test_per_neuron_is_the_best_that_one_neuron_can_do():
    T = hidden_targets(H, W, B, "per_neuron")
    for i in range(N):
        others = B - H @ W + H[:, i, None] * W[i]
        best = torch.linalg.lstsq(W[i, :, None], others.T, driver="gelsd").solution[0]
        assert_close(T[:, i], best)


@pytest.mark.parametrize(
    "theorem", theorems.THEOREMS.values(), ids=lambda t: t.__name__
)
def test_theorem(theorem):
    assert (found := theorem()).holds, found


def test_gauss_seidel_is_per_neuron_with_a_fresh_residual():
    T = hidden_targets(H, W, B, "gauss_seidel")
    now = H.clone()
    for i in range(N):
        now[:, i] = hidden_targets(now, W, B, "per_neuron")[:, i]
    assert_close(T, now)


@given(st.integers(0, 500), st.integers(1, 8), st.integers(1, 8))
def test_min_norm_is_the_smallest_change_that_fits_best(seed, N, J):
    H, W, B = problem(seed, N=N, J=J)
    T = hidden_targets(H, W, B)
    change = torch.linalg.lstsq(W.T, (B - H @ W).T, driver="gelsd", rcond=1e-8).solution
    assert_close(T - H, change.T, rtol=1e-5, atol=1e-6)


def test_how_often_each_interpretation_repairs_the_residual():
    h, w, b = problem(J=1)
    expected = dict.fromkeys((*INTERPRETATIONS, 0), N)
    expected |= {"min_norm": 1, "gauss_seidel": 1, "none": 0}
    for name, times in expected.items():
        T = hidden_targets(h, w, b, name)
        assert float(overshoot(T - h, w, b - h @ w)) == pytest.approx(times, abs=1e-9)
    T = hidden_targets(H, W, B)
    assert float(overshoot(T - H, W, B - H @ W)) == pytest.approx(1)
    T = hidden_targets(H, W, B, 2)
    moved = (T - H) @ W
    assert_close(moved[:, 2], N * (B - H @ W)[:, 2])


def test_without_a_residual_there_is_no_correction_and_no_ratio():
    for interpretation in ALL:
        T = hidden_targets(H, W, H @ W, interpretation)
        assert_close(T, H, rtol=0, atol=1e-12)
        assert math.isnan(float(overshoot(T - H, W, 0 * (H @ W))))


@pytest.mark.parametrize("interpretation", ALL)
def test_zero_weights_correct_nothing_and_stay_finite(interpretation):
    H, W, B = problem()
    assert_close(hidden_targets(H, 0 * W, B, interpretation), H)
    W[2] = 0  # a neuron that no output hears
    T = hidden_targets(H, W, B, interpretation)
    assert torch.isfinite(T).all()
    assert_close(T[:, 2], H[:, 2])


def test_a_doubled_output_is_corrected_once():
    H, W, B = problem()
    W[:, 2], B[:, 2] = W[:, 1], B[:, 1]
    T = hidden_targets(H, W, B)
    assert_close(T, hidden_targets(H, W[:, :2], B[:, :2]))
