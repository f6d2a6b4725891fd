"""A and A' against torch.func, finite differences and explicit loops (float64)."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn
from torch.func import functional_call, vjp

from labkit.hessian_free import Autoencoder, linearise, mirrored
from labkit.hessian_free.linearise import weights_of
from labkit.theorems.hessian_free import (
    adjoint,
    derivative,
    joined,
    per_example_gradients,
)

from .conftest import rand, randn, relative, small_net

MIXED = ("tanh", "relu", "linear", "logistic")
both = pytest.mark.parametrize("activations", [None, MIXED], ids=["logistic", "mixed"])


def random_like(weights, seed=0):
    return tuple(randn(*w.shape, seed=seed + i) for i, w in enumerate(weights))


def a_point(activations=None, seed=0, n=7):
    net = small_net(activations=activations, seed=seed)
    X, T = rand(n, 5, seed=seed), rand(n, 5, seed=seed + 1)
    return net, X, T, linearise(net, X, T)


@both
def test_maps_are_those_of_torch_func(activations):
    net, X, T, point = a_point(activations)
    w = weights_of(net)
    d, U = random_like(w), randn(7, 5, seed=9)
    names = [name for name, _ in net.named_parameters()]

    def R(*weights):  # of the module's own forward pass
        named = dict(zip(names, weights, strict=True))
        return (functional_call(net, named, (X,)) - T) / math.sqrt(len(X))

    assert relative(point.residual, R(*w)) < 1e-12
    assert derivative(net, X, T, d).holds
    AtU = vjp(R, *w)[1](U)
    assert relative(joined(point.transpose_map(U)), joined(AtU)) < 1e-12


encoders = st.lists(st.integers(1, 6), min_size=2, max_size=4)


@given(encoders, st.integers(1, 5), st.integers(0, 10**6))
def test_maps_are_adjoint(encoder, n, seed):
    widths = mirrored(encoder)
    net = small_net(widths, seed=seed)
    point = linearise(net, rand(n, widths[0], seed=seed))
    d, U = random_like(point.weights, seed), randn(n, widths[0], seed=seed + 50)
    finding = adjoint(point, d, U)
    assert finding.holds, finding


@both
def test_gradient_and_sums_of_squares_equal_an_explicit_loop(activations):
    net, X, T, point = a_point(activations, seed=4)
    U = randn(7, 5, seed=8)
    want = per_example_gradients(net, X, T, U).square().sum(0)
    assert relative(joined(point.sum_squares(U)), want) < 1e-12
    (mean, squares), G = point.gradient_moments(), per_example_gradients(net, X, T)
    assert relative(joined(mean), G.mean(0)) < 1e-12
    assert math.isclose(squares, G.square().sum(), rel_tol=1e-12)


@pytest.mark.parametrize("frozen", [0, 1])
def test_an_autoencoder_with_a_frozen_layer(frozen):
    net, X = small_net(), rand(6, 5)
    net.weights[frozen].requires_grad_(False)
    point = linearise(net, X)
    assert math.isclose(point.loss(), linearise(small_net(), X).loss())
    assert adjoint(point, random_like(weights_of(net)), randn(6, 5)).holds


class Shifted(Autoencoder):
    def forward(self, X):
        return super().forward(X) + 1


def test_a_subclass_with_its_own_forward():
    net, X = Shifted((5, 3, 5)).double(), rand(6, 5)
    assert math.isclose(linearise(net, X).loss(), (net(X) - X).square().sum() / 12)


def test_any_module_any_shape():
    """A convolution, frozen parameters, targets of another shape than the inputs."""
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)
    net = nn.Sequential(*layers).double()
    net[0].bias.requires_grad_(False)
    X, T = rand(6, 1, 4, 4), rand(6, 3)
    point = linearise(net, X, T)
    w = weights_of(net)
    assert len(w) == 3
    d, U = random_like(w), randn(6, 3)
    assert adjoint(point, d, U).holds
    loss = 0.5 * (net(X) - T).square().sum() / 6
    grads = torch.autograd.grad(loss, [p for p in net.parameters() if p.requires_grad])
    assert relative(joined(point.gradient_moments()[0]), joined(grads)) < 1e-12
