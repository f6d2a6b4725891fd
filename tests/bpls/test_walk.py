"""What a walk computes: ordinary least squares, fixed points, one step by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.testing import assert_close

from labkit import bpls
from labkit.bpls import INTERPRETATIONS, activation, output_targets
from labkit.bpls.walk import hidden_values, layer_step, scores, solve_output, walked
from tests.draws import randn

from .conftest import assert_all_close, finite, ols, start

LINEAR, SIGMOID = activation("identity"), activation("sigmoid")
EXACT = {"ridge": 0, "method": "svd"}


@pytest.mark.parametrize("second_solve", [False, True])
@pytest.mark.parametrize("sizes", [(12, 5, 2), (12, 8, 5, 2), (12, 5, 5, 3, 3)])
def test_a_linear_net_becomes_ordinary_least_squares(sizes, second_solve):
    X, Y = randn(40, 12), randn(40, sizes[-1], seed=1)
    a = [LINEAR] * (len(sizes) - 2)
    for seed in range(5):
        before = start(*sizes, seed=seed)
        weights = walked(X, Y, before, a, second_solve=second_solve, **EXACT)
        assert_close(scores(X, weights, a), ols(X, Y), rtol=0, atol=1e-8)


def shift_by_a_walk(name, clamp, **options):
    """Of W_1, where the targets can be met exactly, as they then are."""
    a, X, before = activation(name), randn(40, 6), start(6, 4, 2)
    Y = a.value(X @ before[0]) @ randn(4, 2, seed=1)
    after = walked(X, Y, before, [a], clamp=clamp, **options, **EXACT)
    assert_close(scores(X, after, [a]), Y, rtol=0, atol=max(clamp, 1e-8))
    return after[0] - before[0]


@pytest.mark.parametrize("interpretation", [*INTERPRETATIONS, 0])
@pytest.mark.parametrize("name", ["identity", "sigmoid", "tanh", "softplus", "elu"])
def test_realisable_targets_leave_the_hidden_layer_alone(name, interpretation):
    shift = shift_by_a_walk(name, 1e-6, interpretation=interpretation)
    assert_close(shift, 0 * shift, rtol=0, atol=1e-6)


def test_realisable_targets_leave_a_softmax_layer_alone_up_to_a_shift():
    shift = shift_by_a_walk("softmax", 1e-9)
    assert_close(shift, shift[:, :1].expand(-1, 4), rtol=0, atol=1e-8)


def test_a_constant_added_to_all_targets_changes_no_decision_of_a_softmax_layer():
    a = activation("softmax")
    X, y = randn(60, 6), torch.arange(60) % 3
    B = output_targets(y, classes=3, dtype=X.dtype)
    both = (walked(X, B + shift, start(6, 5, 3), [a], **EXACT) for shift in (0.0, 7.5))
    S, T = (scores(X, weights, [a]) for weights in both)
    assert_close(T, S + 7.5, rtol=0, atol=1e-7)
    assert torch.equal(S.argmax(1), T.argmax(1))


def test_a_walk_goes_from_the_output_to_the_input_and_changes_nothing():
    X, Y, before = randn(30, 6), randn(30, 2, seed=1), start(6, 5, 4, 2)
    a = [SIGMOID] * 2
    steps = list(bpls.walk(hidden_values(X, before, a), Y, a))
    found = [(step.layer, *step.W.shape) for step in steps]
    assert found == [(3, 4, 2), (2, 5, 4), (1, 6, 5)]
    assert steps[-1].T is None and steps[-1].B is None
    assert all(map(torch.equal, before, start(6, 5, 4, 2)))


def test_a_clamp_beyond_the_middle_is_refused_by_the_step_itself():
    H, B = torch.sigmoid(randn(30, 6)), randn(30, 2, seed=1)
    for clamp in (0, 0.7):
        with pytest.raises(ValueError, match=rf"in \(0, 0.5\), got {clamp}"):
            layer_step(2, H, B, SIGMOID, clamp=clamp)
    with pytest.raises(ValueError, match=r"index of an output, .* in 0..1, got -1"):
        layer_step(2, H, B, SIGMOID, interpretation=-1)


def test_the_clamp_is_where_it_says():
    X, Y = randn(30, 6), 3 * randn(30, 2, seed=1)
    a = activation("sigmoid")
    H = a.value(X @ start(6, 5, 2)[0])
    step = layer_step(2, H, Y, a, clamp=0.2)
    moved = (step.T < 0.2) | (step.T > 0.8)
    assert 0 < int(moved.sum()) < moved.numel()
    assert torch.equal(step.C != step.T, moved)
    assert_close(a.value(step.B), step.T.clamp(0.2, 0.8))


@given(st.integers(0, 100), st.sampled_from([*INTERPRETATIONS, 1]), st.booleans())
def test_networks_in_a_batch_walk_alone(seed, interpretation, second_solve):
    a = [SIGMOID] * 2
    X, Y = randn(9, 3, seed=seed), randn(4, 9, 2, seed=seed + 1)
    before = start(3, 5, 4, 2, seed=seed, runs=(4,))
    options = {"interpretation": interpretation, "second_solve": second_solve}
    together = walked(X, Y, before, a, ridge=1e-3, **options)
    for i in range(4):
        weights = [W[i] for W in before]
        alone = walked(X, Y[i], weights, a, ridge=1e-3, **options)
        assert_all_close([W[i] for W in together], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["identity", "sigmoid", "softmax"])
@pytest.mark.parametrize("samples", [1, 3])
def test_fewer_samples_than_inputs_and_constant_pixels(name, samples):
    X = randn(samples, 8)
    X[:, 0], X[:, 5] = 0, X[:, 4]
    a = [activation(name)]
    B = output_targets(torch.arange(samples) % 2, classes=2, dtype=X.dtype)
    for solver in ({"ridge": 0}, {}):
        weights = walked(X, B, start(8, 4, 2), a, second_solve=True, **solver)
        assert finite(weights)
        assert float(weights[0][0].abs().max()) < 1e-12  # nothing through a zero pixel
        assert_close(weights[0][4], weights[0][5])


def test_zero_weights_stay_finite():
    X, Y = randn(20, 4), randn(20, 2, seed=1)
    before = tuple(0 * W for W in start(4, 3, 2))
    for name in ("identity", "sigmoid", "tanh", "softmax"):
        a = [activation(name)]
        for interpretation in (*INTERPRETATIONS, 0):
            assert finite(walked(X, Y, before, a, interpretation=interpretation))
    assert finite(walked(X, 0 * Y, start(4, 3, 2), [LINEAR]))  # a zero output layer


def test_solving_the_output_again_cannot_fit_worse():
    X, Y = randn(30, 4), randn(30, 2, seed=1)
    a = [SIGMOID]
    weights = walked(X, Y, start(4, 6, 2), a, ridge=0)
    again = solve_output(X, Y, weights, a, ridge=0)
    assert torch.equal(again[0], weights[0])
    before, after = ((scores(X, W, a) - Y).norm() for W in (weights, again))
    assert float(after) < float(before)
    expected = ols(a[0].value(X @ weights[0]), Y)
    assert_close(scores(X, again, a), expected, rtol=0, atol=1e-8)


def test_weights_are_uniform_and_the_same_in_every_dtype():
    (W,) = start(300, 200)
    assert -1 <= float(W.min()) < -0.999 and 0.999 < float(W.max()) <= 1
    # mean 0 with standard error 0.0024, variance 1/3 with standard error 0.0012
    assert abs(float(W.mean())) < 0.01 and abs(float(W.var()) - 1 / 3) < 0.005
    (V,) = start(300, 200, dtype=torch.float32)
    assert torch.equal(V, W.float())
    assert_close(start(300, 200, scale=0.3)[0], 0.3 * W)


def test_output_targets_of_labels_and_values():
    B = output_targets(torch.tensor([1, 0]), classes=3, dtype=torch.float64)
    low = np.log(1e-6)
    expected = torch.tensor([[low, 0, low], [0, low, low]], dtype=torch.float64)
    assert_close(B, expected)
    Y = torch.tensor([[0.2, 1.3]], dtype=torch.float64)
    B = output_targets(Y, "sigmoid", 0.01)
    assert_close(torch.sigmoid(B), Y.clamp(0.01, 0.99))
    with pytest.raises(ValueError, match=r"1 of 2 targets.*'sigmoid'.*1\.3"):
        output_targets(Y, "sigmoid", None)
