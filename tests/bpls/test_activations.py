"""Inverses, slopes and the clamp."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.testing import assert_close

from labkit.bpls import ACTIVATIONS, activation
from labkit.bpls.activations import check_inverse, clamp_targets, invertible
from tests.draws import randn

NAMES = [a.name for a in ACTIVATIONS.values() if a.inverse is not None]
# of the clamped targets, width 0.01
RANGES = {"sigmoid": (0.01, 0.99), "tanh": (-0.99, 0.99), "elu": (-0.99, np.inf)}
RANGES |= {"softplus": (0.01, np.inf), "softmax": (0.01, 1.0)}
RANGES |= {"identity": (-np.inf, np.inf), "softminus": (-np.inf, -0.01)}


@pytest.mark.parametrize("name", NAMES)
def test_the_inverse_undoes_the_activation(name):
    a, Z = activation(name), 3 * randn(40, 6)
    back = a.inverse(a.value(Z))
    if a.name == "softmax":  # up to a constant per sample
        back, Z = back - back.mean(1, keepdim=True), Z - Z.mean(1, keepdim=True)
    assert_close(back, Z, rtol=1e-9, atol=1e-9)


def test_softmax_is_over_the_neurons_of_a_sample():
    H = activation("softmax").value(randn(2, 5, 4))
    assert_close(H.sum(-1), torch.ones(2, 5, dtype=torch.float64))


@pytest.mark.parametrize("name", [a.name for a in ACTIVATIONS.values() if a.slope])
def test_the_slope_is_the_derivative(name):
    a = activation(name)
    Z = randn(40, 3).requires_grad_()
    H = a.value(Z)
    (expected,) = torch.autograd.grad(H.sum(), Z)
    assert_close(a.slope(Z.detach(), H.detach()), expected)


BAD = [("sigmoid", 1.0), ("sigmoid", -0.1), ("tanh", 1.0), ("softplus", 0.0)]
BAD += [("elu", -1.0), ("softmax", 0.0), ("softminus", 0.0)]


def send_back(C, a):
    check_inverse(a.inverse(C), C, a)
    return a.inverse(C)


@given(st.floats(-50, 50), st.sampled_from(NAMES))
def test_clamped_targets_can_always_be_sent_back(target, name):
    a = activation(name)
    C = clamp_targets(torch.tensor([[target]], dtype=torch.float64), a, 1e-2)
    low, high = RANGES[name]
    assert low <= float(C) <= high
    assert float(C) == pytest.approx(min(max(target, low), high))
    assert torch.isfinite(send_back(C, a)).all()


def test_softplus_inverts_large_values_without_overflow():
    p = torch.tensor([1e3, 1e-3], dtype=torch.float64)
    expected = torch.tensor([1e3, float(np.log(np.expm1(1e-3)))], dtype=torch.float64)
    assert_close(activation("softplus").inverse(p), expected)


def test_softminus_is_z_less_softplus_and_keeps_its_digits_at_both_ends():
    a, Z = activation("softminus"), torch.linspace(-700, 30, 300, dtype=torch.float64)
    assert_close(a.value(Z), Z - activation("softplus").value(Z))
    p = torch.tensor([-1e3, -1e-9], dtype=torch.float64)
    expected = torch.tensor([-1e3, np.log(1e9)], dtype=torch.float64)
    assert_close(a.inverse(p), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("name", "bad"), BAD)
def test_without_a_clamp_a_target_out_of_range_is_refused(name, bad):
    inside = -0.5 if name == "softminus" else 0.5
    a, T = activation(name), torch.tensor([[inside, bad]])
    message = rf"1 of 2 targets.*'{name}'.*{bad:.4g}.*clamp"
    with pytest.raises(ValueError, match=message):
        send_back(clamp_targets(T, a, None), a)


def test_a_clamp_too_narrow_for_the_dtype_is_refused_and_not_widened():
    a, T = activation("sigmoid"), torch.tensor([[2.0]])
    with pytest.raises(ValueError, match="1 of 1 targets"):
        send_back(clamp_targets(T, a, 1e-12), a)  # 1 - 1e-12 is 1 in float32
    wide = send_back(clamp_targets(T.double(), a, 1e-12), a)
    assert float(wide) == pytest.approx(np.log(1e12), rel=1e-4)


def test_what_is_refused_is_named():
    with pytest.raises(ValueError, match=r"'relu' has no inverse.*use one of identity"):
        invertible(activation("relu"))
    with pytest.raises(ValueError, match="unknown activation 'gelu'; there are: ident"):
        activation("gelu")
