"""Samples that weigh, and samples that are sparse."""

import numpy as np
import pytest
import torch
from scipy import sparse

from labkit import bpls
from labkit.bpls import BPLSClassifier, BPLSRegressor, solve_layer

from .conftest import blobs, randn, start

INPUTS, LABELS = blobs(samples=90)
X, y = INPUTS.numpy(), LABELS.numpy()
COUNTS = np.random.default_rng(0).integers(0, 4, size=90)
WANTED = {BPLSClassifier: y, BPLSRegressor: np.stack([X[:, 0] ** 2, X[:, 1]], 1)}
FORMS = {
    "plain": {},
    "exact": {"ridge": 0},
    "deep": {"hidden_sizes": (8, 7), "activation": "tanh"},
    "bias": {"bias": True},
    "refined": {"refine": "gauss-newton", "activation": "tanh", "bias": True},
} | {
    f"{how}": {"interpretation": how}
    for how in ("per_neuron", "gauss_seidel", "mean", "cyclic", "label", "none", 1)
}
forms = pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)
nets = pytest.mark.parametrize("Net", [BPLSClassifier, BPLSRegressor])


def fitted(Net, options, X, y, *weight):
    return Net(**{"hidden_sizes": (6,)} | options, random_state=0).fit(X, y, *weight)


def numbers(net, times=1):
    """What the history tells but for how long and on how many rows."""
    for row in net.history_:
        left = {k: v for k, v in row.items() if k not in ("seconds", "samples")}
        if left["misses"] is None:
            left = {k: v for k, v in left.items() if v is not None}
        else:
            left["misses"] *= times
            left.pop("overshoot")  # of a few misses: their residual is rounding
        yield [float(v) for v in left.values() if v is not None]


def assert_same(net, other, times=1):
    for W, V in zip(net.weights_, other.weights_, strict=True):
        assert float((W - V).norm() / V.norm()) < 1e-10
    found, wanted = list(numbers(net)), list(numbers(other, times))
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9)


@forms
@nets
def test_weights_are_repeated_rows(Net, options):
    t = WANTED[Net]
    net = fitted(Net, options, X, t, COUNTS)
    assert_same(net, fitted(Net, options, X.repeat(COUNTS, 0), t.repeat(COUNTS, 0)))
    assert_same(fitted(Net, options, X, t, 4 * COUNTS), net, times=4)


ONE_WALK = {BPLSClassifier: {"max_walks": 0}, BPLSRegressor: {}}


@nets
@pytest.mark.parametrize("options", [{}, FORMS["refined"] | {"max_walks": 3}])
def test_the_same_rows_in_float32(Net, options):
    """As in float64, but for rounding, by as much as the solves' condition allows."""
    options = {"dtype": "float32"} | (options or ONE_WALK[Net])
    outputs = "decision_function" if Net is BPLSClassifier else "predict"
    order, t = np.random.default_rng(1).permutation(90), WANTED[Net]
    net = fitted(Net, options, X, t, COUNTS)
    wanted = getattr(net, outputs)(X)
    shuffled = fitted(Net, options, X[order], t[order], COUNTS[order])
    repeated = fitted(Net, options, X.repeat(COUNTS, 0), t.repeat(COUNTS, 0))
    for other in (shuffled, repeated):
        found = getattr(other, outputs)(X)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-3 * np.ptp(wanted))
    found = getattr(net, outputs)(X[order])
    np.testing.assert_allclose(found, wanted[order], rtol=1e-5, atol=1e-5)


@nets
@pytest.mark.parametrize(
    "options", [{}, {"ridge": 0}, {"bias": True}, FORMS["refined"]]
)
def test_sparse_rows_of_zeros_alone(Net, options):
    """Such as texts without a known word."""
    zeros, t = sparse.csr_array((20, 4)), WANTED[Net][:20]
    dense = np.zeros((20, 4))
    net, same = (fitted(Net, options, rows, t) for rows in (zeros, dense))
    np.testing.assert_allclose(net.predict(zeros), same.predict(dense))
    net = fitted(Net, options, X, WANTED[Net])
    np.testing.assert_allclose(net.predict(zeros), net.predict(dense))
    if "refine" not in options:
        given = {"classes": [0, 1, 2]} if Net is BPLSClassifier else {}
        nets = [Net((6,), random_state=0, **options) for _ in range(2)]
        for each, rows in zip(nets, (zeros, dense), strict=True):
            each.partial_fit(rows, t, **given).partial_fit(X, WANTED[Net])
            each.partial_fit(rows, t)
        assert np.isfinite(nets[0].predict(X).astype(float)).all()
        np.testing.assert_allclose(*(each.predict(X) for each in nets))


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_a_weighted_solve_is_where_its_gradient_is_zero(method):
    A, B, w = randn(30, 5), randn(30, 2, seed=1), randn(30, 1, seed=2).square()
    W, _ = solve_layer(A, B, ridge=0.1, method=method, root=w.sqrt())
    lam = 0.1 * (w * A.square()).sum() / 5
    torch.testing.assert_close(A.T @ (w * (B - A @ W)), lam * W)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.ones(90), r"sample_weight must be >= 0 .*-1\.\.-1"),
        (np.zeros(90), "must contain at least one non-zero number|somewhere > 0"),
        (np.full(90, np.nan), "contains NaN"),
        (np.ones(89), r"shape.*\(89,\)"),
        ((y == 1).astype(float), "one class only, 1"),
    ],
)
def test_weights_that_cannot_be_used(weight, message):
    with pytest.raises(ValueError, match=message):
        BPLSClassifier().fit(X, y, weight)


@pytest.mark.parametrize("bad", [torch.ones(89), -torch.ones(90), torch.zeros(90)])
def test_weights_that_the_generators_refuse(bad):
    for records in (
        bpls.train(INPUTS, LABELS, start(4, 5, 3), weight=bad),
        bpls.refine(INPUTS, LABELS, start(4, 5)[0], weight=bad),
    ):
        with pytest.raises(ValueError, match="weight must be 90 numbers >= 0"):
            next(records)
    settings = bpls.Settings(stop=False)
    records = bpls.train(
        INPUTS, LABELS, start(4, 5, 3), "tanh", settings, weight=LABELS + 1.0
    )
    next(records)
    settings.data = INPUTS[:50], LABELS[:50]
    with pytest.raises(ValueError, match="weight must be 50 numbers"):
        list(records)


@forms
@nets
@pytest.mark.parametrize("weight", [None, COUNTS], ids=["", "weights"])
def test_sparse_rows_are_dense_ones(Net, options, weight, monkeypatch):
    few = X * (np.random.default_rng(1).random(X.shape) < 0.5)
    dense = fitted(Net, options, few, WANTED[Net], weight)
    forms = sparse.csr_matrix(few), sparse.coo_array(few)
    if options != FORMS["exact"]:  # whose singular vectors need so small an X whole
        monkeypatch.setattr(torch.Tensor, "to_dense", None)
        monkeypatch.setattr(sparse.csr_array, "toarray", None)
    for form in forms:
        net = fitted(Net, options, form, WANTED[Net], weight)
        assert_same(net, dense)
        np.testing.assert_allclose(net.predict(form), dense.predict(few), atol=1e-8)


def test_many_columns_in_pieces():
    dense = randn(400, 600) * (randn(400, 600, seed=1) > 1.5)
    form = dense.to_sparse()
    B = randn(400, 3)
    for options in ({}, {"method": "eigh"}, {"method": "svd", "ridge": 1e-3}):
        found, wanted = (
            solve_layer(form, B, **options),
            solve_layer(dense, B, **options),
        )
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)
