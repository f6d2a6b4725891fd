"""The scikit-learn estimators."""

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from labkit import bpls
from labkit.bpls import BPLSClassifier, BPLSRegressor
from labkit.errors import DivergedError

from .conftest import blobs, start

TENSORS = blobs()
X, y = (values.numpy() for values in TENSORS)
TWO = np.stack([np.sin(X[:, 0]), X[:, 1]], 1)
NETS = pytest.mark.parametrize("Net", [BPLSRegressor, BPLSClassifier])

NETWORKS = [
    BPLSRegressor((10, 8), "softplus"),
    BPLSRegressor((10,), "tanh", ridge=0, bias=True),
    BPLSClassifier((20,), bias=True),
    BPLSClassifier((20, 10), "softmax", interpretation="gauss_seidel"),
]


@parametrize_with_checks(NETWORKS)
def test_scikit_learns_own_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or that of the array API is skipped
    check(estimator)


def test_the_classifier_runs_the_generator_and_keeps_its_best():
    net = BPLSClassifier((6,), random_state=3, ridge=1e-3).fit(X, y)
    seed = np.random.RandomState(3).randint(np.iinfo(np.int32).max)
    records = bpls.train(*TENSORS, start(4, 6, 3, seed=int(seed)), ridge=1e-3)
    found = [record.end for record in records if record.end]
    assert all(map(torch.equal, net.weights_, found[-1].best))
    counts = [row["misses"] for row in net.history_]
    assert counts == [end.misses for end in found]
    assert round((1 - net.score(X, y)) * len(y)) == min(counts)
    S = bpls.scores(TENSORS[0], net.weights_, [bpls.activation("sigmoid")])
    assert_array_equal(net.decision_function(X), S)


def test_the_history_is_one_row_of_numbers_per_walk():
    net = BPLSClassifier((6,), random_state=0, max_walks=3).fit(X, y)
    wanted = "accuracy misses seconds rank condition overshoot clamped blend cosine"
    for walk, row in enumerate(net.history_):
        assert row["walk"] == walk and {*wanted.split(), "kept"} <= set(row)
        assert all(np.isscalar(value) or value is None for value in row.values())
    assert net.history_[0]["blend"] == 1 and net.history_[0]["samples"] == 60
    assert net.history_[1]["blend"] == net.history_[0]["misses"] / 60
    assert len(BPLSClassifier((6,), max_walks=0).fit(X, y).history_) == 1


def test_values_in_one_column_and_in_two():
    both = BPLSRegressor((40,), random_state=0, bias=True).fit(X, TWO)
    one = BPLSRegressor((40,), random_state=0, bias=True).fit(X, TWO[:, 0])
    assert both.predict(X).shape == (60, 2) and one.predict(X).shape == (60,)
    assert both.weights_[0].shape == (5, 40) and both.weights_[1].shape == (40, 2)
    assert both.score(X, TWO) > 0.9
    (row,) = one.history_
    residual = one.predict(X) - TWO[:, 0]
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean(residual**2)))
    assert row["misses"] is None


@pytest.mark.parametrize("classes", [2, 3])
def test_shares_of_the_classes(classes):
    rows = y < classes
    net = BPLSClassifier((8,), random_state=0)
    p = net.fit(X[rows], y[rows]).predict_proba(X[rows])
    assert p.shape == (rows.sum(), classes) and (p >= 0).all()
    assert_allclose(p.sum(1), 1)
    assert_array_equal(p.argmax(1), net.predict(X[rows]))
    scoring = "roc_auc_ovr" if classes > 2 else "roc_auc"
    for each in (net, CalibratedClassifierCV(net, cv=2)):
        found = cross_val_score(each, X[rows], y[rows], scoring=scoring, cv=2)
        assert found.min() > 0.8


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        ("f8", None, "float64"),
        ("f4", None, "float32"),
        ("i8", None, "float64"),
        (">f8", None, "float64"),
        ("f8", "float32", "float32"),
        ("f4", torch.float64, "float64"),
    ],
)
def test_the_type_follows_the_data_or_the_parameter(given, dtype, expected):
    net = BPLSClassifier((6,), dtype=dtype, random_state=0).fit(X.astype(given), y)
    assert str(net.weights_[0].dtype) == f"torch.{expected}"
    assert net.decision_function(X.astype(given)).dtype == expected


def test_the_two_types_agree_on_the_digits():
    X, y = load_digits(return_X_y=True)
    for name in ("identity", "sigmoid"):
        net = BPLSClassifier((30,), name, random_state=0)
        single, double = (
            net.set_params(dtype=dtype).fit(X / 16, y).score(X / 16, y)
            for dtype in ("float32", "float64")
        )
        assert abs(single - double) < 0.003


def fits(hidden, clamp=1e-2):
    """Accuracy on 1,200 of the digits: of the first walk, and of the weights kept."""
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))[:1200]
    X, y, found = X[rows] / 16, y[rows], []
    for seed in range(10):
        net = BPLSClassifier(
            (30,), hidden, clamp=clamp, ridge=0, bias=True, random_state=seed
        ).fit(X, y)
        found.append((net.history_[0]["accuracy"], net.score(X, y)))
    return np.array(found).T


def test_a_linear_hidden_layer_on_the_digits():
    first, last = fits("identity")
    assert set(np.round(100 * first, 2)) == {95.08}  # whatever the seed
    assert 100 * last.mean() == pytest.approx(95.7, abs=0.6)  # sd 0.6 over seeds


def test_the_clamp_decides_a_softmax_layer_on_the_digits():
    wide, narrow = fits("softmax")[1], fits("softmax", 1e-6)[1]
    assert 100 * wide.mean() == pytest.approx(94.1, abs=1.0)  # sd 0.9 over seeds
    assert 100 * narrow.mean() == pytest.approx(62.4, abs=7)  # sd 6.4 over seeds


@NETS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clamp": None}, "targets have no inverse under 'sigmoid'.*clamp them"),
        ({"hidden_sizes": ()}, r"sequence of at least one width >= 1, got \(\)"),
        ({"hidden_sizes": (5, 0)}, r"at least one width >= 1, got \(5, 0\)"),
        ({"hidden_sizes": 5}, "hidden_sizes must be a sequence of .*widths? .*got 5"),
        ({"dtype": "float16"}, "dtype must be None or one of float32, float64"),
        ({"activation": None}, "unknown activation None; there are: identity"),
        ({"device": "cup"}, "device must name a device of this torch, got 'cup'"),
    ],
)
def test_parameters_that_cannot_be_used(Net, options, message):
    wanted = y if Net is BPLSClassifier else 5 * TWO
    with pytest.raises(ValueError, match=message):
        Net(random_state=0, **options).fit(X, wanted)


def test_a_single_class():
    with pytest.raises(ValueError, match=r"one class only, 7; .* at least two"):
        BPLSClassifier().fit(X, np.full(60, 7))


@pytest.mark.parametrize(("dtype", "large"), [("float32", 3e19), ("float64", 1e200)])
def test_values_whose_squares_leave_their_type(dtype, large):
    net = BPLSClassifier((6,), dtype=dtype, random_state=0)
    with pytest.raises(ValueError, match=f"X holds values up to .*leave {dtype}"):
        net.fit(large * X, y)
    with pytest.raises(ValueError, match=f"X holds values up to .*leave {dtype}"):
        net.fit(X, y).predict(large * X)
    with pytest.raises(DivergedError, match="not finite"):
        BPLSRegressor((6,), dtype=dtype).fit(X, large * X[:, 0])


def test_a_second_fit_that_fails_leaves_the_first_one_whole():
    net = BPLSClassifier((6,), random_state=0).fit(X, y)
    before, predicted = (
        vars(net) | {"clamp": None, "activation": "tanh"},
        net.predict(X),
    )
    net.set_params(clamp=None, activation="tanh")
    with pytest.raises(ValueError, match="clamp them"):
        net.fit(X, np.array(["a", "b", "c"])[y])
    assert vars(net) == before
    # by what it was made with
    assert_array_equal(net.predict(X), predicted)


@pytest.mark.parametrize("Y", [TWO[:, 0], TWO], ids=["one output", "two"])
@pytest.mark.parametrize("activation", ["tanh", "identity", "softplus"])
def test_a_constant_that_is_added_to_the_targets_is_added_to_predictions(activation, Y):
    found = []
    for constant in (0.0, 1000.0):
        net = BPLSRegressor((10,), activation, random_state=0).fit(X, Y + constant)
        found.append(net.predict(X) - constant)
    assert_allclose(found[1], found[0], rtol=0, atol=1e-8)


@NETS
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_of_scales_a_thousand_apart_are_warned_of(Net, dtype):
    columns = (X / X.std(0)).astype(dtype)
    with pytest.warns(UserWarning, match="from 1 to 1.1e.03; scale the colu") as caught:
        Net().fit(columns * np.array([1, 1100, 1, 1], dtype), y)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Net().fit(columns * np.array([1, 900, 1, 0], dtype) + dtype(0.1), y)
