"""The net and its initial weights."""

import numpy as np
import pytest
import torch

from labkit.hessian_free import Autoencoder, squared_error
from tests.draws import seeded

from .conftest import rand, small_net


def test_forward_is_the_textbook_with_the_bias_in_the_last_row():
    net, X = small_net(), rand(6, 5)
    S = X.numpy()
    for W in net.parameters():
        augmented = np.concatenate([S, np.ones((6, 1))], 1)
        S = 1 / (1 + np.exp(-augmented @ W.detach().numpy()))
    assert np.allclose(net(X).detach().numpy(), S, rtol=0, atol=1e-14)
    want = np.mean(np.sum((S - X.numpy()) ** 2, 1))  # 2 f, not f, no mean over pixels
    assert abs(float(squared_error(net, X)) - want) < 1e-14


def test_the_code_is_the_middle_layer():
    net, X = small_net(), rand(6, 5)
    W = list(net.parameters())
    S = torch.sigmoid(torch.sigmoid(X @ W[0][:-1] + W[0][-1]) @ W[1][:-1] + W[1][-1])
    assert S.shape == (6, 3)
    assert torch.allclose(net.encode(X), S, rtol=0, atol=1e-14)


def test_sparse_weights():
    generator = seeded()
    net = Autoencoder((400, 300, 6, 300, 400), generator=generator)
    values = []
    for W in net.parameters():
        m = len(W) - 1
        assert ((W[:-1] != 0).sum(0) == min(10, m)).all()
        assert (W[-1] == 0).all()
        values.append(W[W != 0])
    # distinct inputs for distinct units: no row is chosen by all
    assert (next(net.parameters())[:-1] != 0).sum(1).max() < 30
    values = torch.cat(values).detach()
    assert abs(float(values.std()) / 1.5 - 1) < 4 / (2 * len(values)) ** 0.5
    assert abs(float(values.mean())) < 4 * 1.5 / len(values) ** 0.5
    more = Autoencoder((400, 30, 400), incoming=20, std=0.5, generator=generator)
    assert ((next(more.parameters()) != 0).sum(0) == 20).all()


def test_weights_come_from_the_generator_alone():
    state = torch.get_rng_state()
    one, two = (Autoencoder((9, 4, 9), generator=seeded(3)) for _ in range(2))
    assert all(map(torch.equal, one.parameters(), two.parameters()))
    assert torch.equal(state, torch.get_rng_state())


REFUSED = [
    ((8, 4, 3, 8), {}, r"that mirror, such as mirrored.* got \(8, 4, 3, 8\)"),
    ((8, 0, 8), {}, r"integers >= 1 that .* got \(8, 0, 8\)"),
    ((8, 4, 8), {"incoming": 0}, "incoming must be an integer >= 1, got 0"),
    (
        (8, 4, 8),
        {"activations": ("logistic", "swish")},
        "activations must be 2 names",
    ),
]


@pytest.mark.parametrize(("widths", "options", "match"), REFUSED)
def test_refuses(widths, options, match):
    with pytest.raises(ValueError, match=match):
        Autoencoder(widths, **options)
