"""Random nodes: what is stored reproduces A; the autoencoder solves its problem."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from labkit.broad.nodes import (
    BIAS,
    Nodes,
    Preparation,
    Recipe,
    Update,
    draw,
    orthonormal,
    rows_to_unit_range,
    sparse_autoencoder,
    uniform,
)
from tests.draws import close, seeded


def mixed_growth(X, scaling="sample", recipe=None, seed=0):
    """Groups of both kinds in mixed order, and the training features."""
    recipe, generator = recipe or Recipe(), seeded(seed)
    prepare = Preparation.fit(scaling, X)
    prepared = prepare(X)
    nodes, Z = Nodes(prepare), X.new_zeros(len(X), 0)
    for update in [Update(4), Update(4, extra=30), Update(3, 5, 2)]:
        nodes, Z = draw(nodes, prepared, Z, update, recipe, generator)
    return nodes, Z


def data(rows=40, columns=6, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, columns)))


@pytest.mark.parametrize("scaling", ["sample", "feature", "none"])
def test_apply_on_the_training_inputs_reproduces_a(scaling):
    X = data()
    nodes, Z = mixed_growth(X, scaling)
    A = nodes.expand(Z)
    assert A.shape == (40, nodes.columns) == (40, 48) and nodes.features == 11
    assert close(nodes.apply(X), A, 1e-12)
    part = nodes.between(41, 48).expand(Z)
    assert close(part, A[:, 41:], 1e-12)
    assert torch.equal(A[:, :8], Z[:, :8])
    assert torch.equal(A[:, 38:41], Z[:, 8:])


def test_the_nodes_are_what_the_formulas_say():
    """A naive float64 version of (9) to (12) from the stored weights."""
    X = data()
    nodes, _ = mixed_growth(X)
    x = X.numpy()
    x = (x - x.mean(1, keepdims=True)) / x.std(1, ddof=1, keepdims=True)
    x = np.hstack([x, np.full((40, 1), BIAS)])
    columns, Z = [], np.zeros((40, 0))
    for group in nodes.groups:
        W = group.weight.numpy()
        if hasattr(group, "columns"):
            T = x @ W
            new = (T - T.min(0)) / (T.max(0) - T.min(0))
            Z = np.hstack([Z, new])
        else:
            seen = Z[:, slice(*group.reads)]
            new = np.tanh(np.hstack([seen, np.full((40, 1), BIAS)]) @ W)
        columns.append(new)
    assert close(nodes.apply(X), np.hstack(columns), 1e-12)


def test_training_features_fill_the_unit_range_and_shrink_bounds_the_enhancement():
    X = data()
    nodes, Z = mixed_growth(X, recipe=Recipe(shrink=0.6))
    assert (Z.amin(0) == 0).all() and ((Z.amax(0) - 1).abs() < 1e-12).all()
    A = nodes.expand(Z)
    for block in (A[:, 8:38], A[:, 41:46], A[:, 46:]):
        assert float(block.amax()) == pytest.approx(np.tanh(0.6))


@pytest.mark.parametrize("k", [1, 7, 8, 20, 39, 41, 48])
def test_the_first_nodes_are_the_leading_columns(k):
    X = data()
    nodes, Z = mixed_growth(X)
    short = nodes.between(0, k)
    assert short.columns == k
    assert close(short.apply(X), nodes.expand(Z)[:, :k], 1e-12)


def test_rows_are_standardised_one_by_one():
    X = 5 + 3 * data(4)
    X[1] = 0.2  # a constant row, whose mean is rounded
    x = Preparation.fit("sample", X)(X)
    assert (x[:, :-1].mean(1).abs() < 1e-12).all()
    assert ((x[[0, 2, 3], :-1].std(1) - 1).abs() < 1e-12).all()
    assert (x[1, :-1].abs() < 1e-12).all() and (x[:, -1] == BIAS).all()


def test_columns_are_standardised_by_the_training_data():
    X, new = data(1000), data(5, seed=1)
    X[:, 2] = 0.1  # a constant column, whose mean is rounded
    prepare = Preparation.fit("feature", X)
    std = X.numpy().std(0) + np.eye(6)[2]
    expected = (new.numpy() - X.numpy().mean(0)) / std
    assert close(prepare(new)[:, :-1], expected, 1e-12)


def test_sparse_autoencoder_reaches_the_optimum_of_the_lasso():
    M, X = data(50, 5), data(50, 4, seed=1)
    mu = 5.0
    o = sparse_autoencoder(M.T @ M, M.T @ X, mu, steps=5000)
    slope = (M.T @ (M @ o - X)).numpy()
    active = o.numpy() != 0
    assert active.any() and not active.all()
    assert np.allclose(slope[active], -mu * np.sign(o.numpy()[active]), atol=1e-8)
    assert (abs(slope[~active]) <= mu + 1e-8).all()


def test_fifty_steps_of_admm_equal_a_naive_version():
    M, X, mu, rho = data(50, 5), data(50, 4, seed=1), 0.3, 1.0
    m, x = M.numpy(), X.numpy()
    o = u = np.zeros((5, 4))
    for _ in range(50):
        w = np.linalg.solve(m.T @ m + rho * np.eye(5), m.T @ x + rho * (o - u))
        o = np.sign(w + u) * np.maximum(abs(w + u) - mu / rho, 0)
        u = u + w - o
    found = sparse_autoencoder(M.T @ M, M.T @ X, mu, 50, rho)
    assert close(found, o, 1e-12)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 99))
def test_orthonormal_columns_or_rows(m, n, seed):
    W = uniform(m, n, seeded(seed))
    Q = orthonormal(W)
    assert Q.shape == (m, n)
    small = Q.T @ Q if n <= m else Q @ Q.T
    assert close(small, torch.eye(min(m, n)).double())


def test_rows_to_unit_range():
    M = torch.tensor([[1.0, 3, 2], [4, 4, 4]])
    assert rows_to_unit_range(M).tolist() == [[-1, 1, 0], [4, 4, 4]]


def test_nodes_come_from_the_generator_only():
    X = data()
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    one, two, other = (mixed_growth(X, seed=s)[0].apply(X) for s in (1, 1, 2))
    assert torch.equal(one, two) and not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("counts", [(-1, 0, 3), (0, 0, 0), (0, 3, 3)])
def test_an_update_refuses_bad_counts(counts):
    with pytest.raises(ValueError, match=r">= 0, got -1|needs features or extra"):
        Update(*counts)
