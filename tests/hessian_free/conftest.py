"""Systems and nets that the tests of this room share."""

import torch

from labkit.hessian_free import Autoencoder, linearise
from labkit.hessian_free.linearise import weights_of
from labkit.hessian_free.vectors import copied
from labkit.theorems.hessian_free import dense
from tests.draws import randn, seeded


def rand(*shape, seed=0, dtype=torch.float64):
    return torch.rand(*shape, generator=seeded(seed)).to(dtype)


def spectrum(m, n, values, seed=0):
    """A matrix with the given singular values."""
    k = len(values)
    U = torch.linalg.qr(randn(m, k, seed=seed))[0]
    V = torch.linalg.qr(randn(n, k, seed=seed + 1))[0]
    return U * torch.tensor(values, dtype=torch.float64) @ V.T


def split(x):
    """A vector of 12 as blocks of three shapes."""
    return x[:6].reshape(2, 3), x[6:10], x[10:].reshape(2, 1)


def small_net(widths=(5, 4, 3, 4, 5), activations=None, *, seed=0):
    """An autoencoder in float64 with dense weights and biases."""
    generator = seeded(seed)
    net = Autoencoder(
        widths, activations=activations, dtype=torch.float64, generator=generator
    )
    with torch.no_grad():
        for W in net.parameters():
            W.normal_(0, 0.8, generator=generator)
            W[-1].normal_(0, 0.3, generator=generator)
    return net


def gauss_newton(net, X, lam):
    """The exact damped step, and the gradient, from the dense Jacobian."""
    point = linearise(net, X, weights=copied(weights_of(net)))
    A = dense(point.forward_map, point.weights)
    g = A.T @ point.residual.reshape(-1)
    d = torch.linalg.solve(A.T @ A + lam**2 * torch.eye(len(g)).to(A), -g)
    return d, g, A


def relative(a, b):
    return float(torch.linalg.norm(a - b) / torch.linalg.norm(b))
