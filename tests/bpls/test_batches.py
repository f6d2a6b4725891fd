"""Rows that come in batches: what `partial_fit` computes, exactly."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from labkit.bpls import BPLSClassifier, BPLSRegressor
from labkit.bpls.activations import per_layer
from labkit.bpls.batches import added, batch_walk
from labkit.bpls.walk import Settings, hidden_values, output_targets, walk
from tests.bpls.conftest import assert_all_close, blobs, randn, start

TENSORS = blobs(samples=90)
X, y = (values.numpy() for values in TENSORS)
VALUES = np.stack([np.sin(X[:, 0]), X[:, 1]], 1)
ACTIVATIONS = ["identity", "sigmoid", "tanh", "softplus", "softminus", "elu", "softmax"]
hidden = pytest.mark.parametrize("hidden", ACTIVATIONS)
LABELS = {"classes": [0, 1, 2]}


def in_batches(net, X, wanted, size, **first):
    for i in range(0, len(X), size):
        net.partial_fit(X[i : i + size], wanted[i : i + size], **first)
        first = {}
    return net


@hidden
@pytest.mark.parametrize("sizes", [(8,), (8, 6)])
def test_the_first_call_is_a_fit_to_the_bit(hidden, sizes):
    options = {"hidden_sizes": sizes, "activation": hidden, "random_state": 0}
    fits = BPLSRegressor(**options).fit(X, VALUES)
    adds = BPLSRegressor(**options).partial_fit(X, VALUES)
    assert all(map(torch.equal, adds.weights_, fits.weights_))
    fits = BPLSClassifier(**options, max_walks=0).fit(X, y)
    adds = BPLSClassifier(**options).partial_fit(X, y, **LABELS)
    assert all(map(torch.equal, adds.weights_, fits.weights_))
    (row,) = adds.history_
    assert row["misses"] == fits.history_[0]["misses"] and row["blend"] == 1
    assert row["rank"] == fits.history_[0]["rank"]


@hidden
@pytest.mark.parametrize("size", [1, 7, 40, 89])
def test_the_output_layer_is_that_of_all_rows_whatever_the_batches(hidden, size):
    options = {"hidden_sizes": (8,), "activation": hidden, "random_state": 0}
    net = in_batches(BPLSRegressor(**options), X, VALUES, size)
    fits = BPLSRegressor(**options).fit(X, VALUES)
    torch.testing.assert_close(net.weights_[1], fits.weights_[1], rtol=1e-7, atol=1e-9)
    assert net.n_samples_seen_ == 90


def test_all_matrices_are_sums_over_the_batches_whatever_the_depth():
    inputs, B, network = randn(40, 4), randn(40, 2, seed=1), start(4, 6, 5, 2)
    a, sums = per_layer("tanh", 2), [None] * 3
    for rows in torch.arange(40).split(7):
        sums, weights, infos = batch_walk(
            sums, inputs[rows], B[rows], network, a, Settings(), ridge=1e-4
        )
    H = hidden_values(inputs, network, a)
    for each, values in zip(sums, H, strict=True):
        torch.testing.assert_close(each.first.G, values.T @ values)
    output = next(walk(H, B, a))
    torch.testing.assert_close(weights[-1], output.V)
    assert int(infos[-1].rank) == int(output.info.rank)


@hidden
def test_what_the_batches_cost_falls_as_one_over_the_rounds(hidden):
    """Given all rows k times more, the input layer is k + 1 times nearer to a fit."""
    options = {"hidden_sizes": (8,), "activation": hidden, "random_state": 0}
    fits = BPLSRegressor(**options).fit(X, VALUES)
    net = in_batches(BPLSRegressor(**options), X, VALUES, 30)
    before = net.weights_[0] - fits.weights_[0]
    assert float(before.norm()) > 1e-3
    for k in (1, 2, 3):
        net.partial_fit(X, VALUES)
        off = net.weights_[0] - fits.weights_[0]
        torch.testing.assert_close((k + 1) * off, before, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("Net", [BPLSRegressor, BPLSClassifier])
def test_after_a_fit_the_new_walk_is_blended_in_by_its_share_of_rows(Net):
    wanted = VALUES if Net is BPLSRegressor else y
    options = {"hidden_sizes": (8,), "random_state": 0}
    fits = Net(**options).fit(X[:50], wanted[:50])
    old = fits.weights_
    fits.partial_fit(X[50:70], wanted[50:70])
    fits.partial_fit(X[70:], wanted[70:])
    a, sums = per_layer("sigmoid", 1), [None, None]
    Y = torch.from_numpy(wanted)
    B = output_targets(Y, classes=3, dtype=torch.float64)
    for rows in (slice(50, 70), slice(70, 90)):
        data = torch.from_numpy(X[rows]), B[rows]
        how = {"ridge": 1e-4, "second_solve": Net is BPLSClassifier}
        sums, new, _ = batch_walk(sums, *data, old, a, Settings(), **how)
    f = 40 / 90
    mixed = [(1 - f) * W + f * V for W, V in zip(old, new, strict=True)]
    assert_all_close(fits.weights_, mixed)
    assert fits.history_[-1]["blend"] == f and fits.n_samples_seen_ == 90


@pytest.mark.parametrize("Net", [BPLSRegressor, BPLSClassifier])
@pytest.mark.parametrize("begin", ["fit", "partial_fit"])
def test_weights_are_repeated_rows_in_every_batch(Net, begin):
    wanted = VALUES if Net is BPLSRegressor else y
    counts = np.random.default_rng(0).integers(0, 4, size=90)
    first = LABELS if (Net, begin) == (BPLSClassifier, "partial_fit") else {}
    nets = [Net((6,), random_state=0) for _ in range(2)]
    for i in range(0, 90, 30):
        part = X[i : i + 30], wanted[i : i + 30], counts[i : i + 30]
        repeated = [values.repeat(part[2], 0) for values in part[:2]]
        for net, rows, weight in (
            (nets[0], part[:2], part[2]),
            (nets[1], repeated, None),
        ):
            method = net.partial_fit if i else getattr(net, begin)
            method(*rows, sample_weight=weight, **{} if i else first)
    assert_all_close(nets[0].weights_, nets[1].weights_, rtol=1e-9, atol=1e-9)
    assert nets[0].history_[-1]["misses"] == nets[1].history_[-1]["misses"]


def test_batches_of_digits_end_where_one_walk_over_all_does():
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))
    X, y, test = X[rows] / 16, y[rows], slice(1200, None)
    options = {"hidden_sizes": (50,), "bias": True, "random_state": 0}
    whole = BPLSClassifier(**options, max_walks=0).fit(X[:1200], y[:1200])
    wanted = whole.score(X[test], y[test])
    for size in (10, 50, 300):
        net = BPLSClassifier(**options)
        in_batches(net, X[:1200], y[:1200], size, classes=range(10))
        assert net.score(X[test], y[test]) == pytest.approx(wanted, abs=0.015)


def test_a_batch_may_lack_classes_but_hold_no_others():
    net = BPLSClassifier((6,), random_state=0)
    with pytest.raises(ValueError, match="first call of partial_fit needs all classes"):
        net.partial_fit(X, y)
    assert not hasattr(net, "weights_")
    net.partial_fit(X[y < 2], y[y < 2], classes=[2, 1, 0])
    assert net.predict_proba(X).shape == (90, 3)
    before = vars(net).copy()
    with pytest.raises(ValueError, match=r"y holds 7, .*among the classes \[0 1 2\]"):
        net.partial_fit(X, np.where(y == 2, 7, y))
    with pytest.raises(ValueError, match=r"classes must stay \[0 1 2\].*got \[0 1\]"):
        net.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="one class only, none"):
        BPLSClassifier().partial_fit(X, y, classes=[])
    assert vars(net) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "tanh"}, "activation must stay 'sigmoid'.*got 'tanh'"),
        ({"hidden_sizes": (7,)}, r"hidden_sizes must stay \(6,\).*got \(7,\)"),
        ({"bias": True}, "bias must stay False, .*got True"),
        ({"dtype": "float32"}, "dtype must stay float64, .*got float32"),
        ({"ridge": -1}, "ridge must be None or >= 0"),
    ],
)
def test_another_network_than_at_the_first_call_is_refused(change, message):
    net = BPLSRegressor((6,), random_state=0).partial_fit(X, VALUES)
    before = vars(net) | change
    with pytest.raises(ValueError, match=message):
        net.set_params(**change).partial_fit(X, VALUES)
    assert vars(net) == before
    with pytest.raises(ValueError, match="y must have 2 columns"):
        BPLSRegressor((6,)).partial_fit(X, VALUES).partial_fit(X, VALUES[:, 0])


@pytest.mark.parametrize(
    "change", [{"refine": "gauss-newton"}, {"class_weight": "balanced"}]
)
def test_what_needs_all_rows_has_no_partial_fit(change):
    net = BPLSClassifier(**change)
    assert not hasattr(net, "partial_fit")
    assert hasattr(net.set_params(refine=None, class_weight=None), "partial_fit")


def test_classes_weigh():
    heavy = {0: 3, 1: 1, 2: 0}
    net = BPLSClassifier((6,), random_state=0, class_weight=heavy).fit(X, y)
    assert net.classes_.tolist() == [0, 1, 2] and (net.predict(X) < 2).all()
    assert net.n_samples_seen_ == (y < 2).sum()
    balanced = BPLSClassifier((6,), random_state=0, class_weight="balanced").fit(X, y)
    share = len(y) / 3 / np.bincount(y)
    given = BPLSClassifier((6,), random_state=0).fit(X, y, share[y])
    assert_all_close(balanced.weights_, given.weights_)
    added = BPLSClassifier((6,), random_state=0, class_weight={0: 2.0})
    added.partial_fit(X, y, **LABELS)
    same = BPLSClassifier((6,), random_state=0)
    same.partial_fit(X, y, **LABELS, sample_weight=np.where(y == 0, 2.0, 1.0))
    assert_all_close(added.weights_, same.weights_)
    for bad, message in (({0: -1}, "class_weight must be >= 0 .*-1"), ("even", "even")):
        with pytest.raises(ValueError, match=message):
            BPLSClassifier(class_weight=bad).fit(X, y)


def test_sums_without_a_ridge_are_the_minimum_norm_solution():
    A, B = randn(9, 4), randn(9, 2, seed=1)
    A[:, 2] = A[:, 1]
    sums = added(added(None, A[:5], B[:5], None), A[5:], B[5:], None)
    W, info = sums.solve(0)
    expected = np.linalg.pinv(A.numpy(), rcond=1e-9) @ B.numpy()
    np.testing.assert_allclose(W.numpy(), expected, atol=1e-8)
    assert int(info.rank) == 3
