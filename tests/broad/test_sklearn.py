"""scikit-learn's own checks of estimators: none is skipped.

Weights and repeated rows, and rows in another order, are compared at a relative 1e-7,
which no float32 holds; here they are compared at 1e-4 and 1e-5. In float64 the small
ridges of the default list need a check of their own: the weights' relative rounding
error is about eps |A|^2 / ridge, which at 1e-6 reaches 1e-7 on some processors.
"""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from labkit.broad import BroadLearningClassifier, BroadLearningRegressor

SMALL = {"n_groups": 2, "nodes_per_group": 5, "n_enhancement": 20, "random_state": 0}


KINDS = "dense", "sparse"
BEYOND_FLOAT32 = {
    f"check_sample_weight_equivalence_on_{kind}_data": "compares at a relative 1e-7"
    for kind in KINDS
} | {
    "check_regressor_multioutput": "asks for predictions in float64",
    # one rounding of float32, which depends on the processor's kernels
    "check_methods_sample_order_invariance": "compares at a relative 1e-7",
}


def expected(estimator):
    return BEYOND_FLOAT32 if estimator.dtype == "float32" else {}


@pytest.mark.filterwarnings("ignore:.* columns go through:UserWarning")
@parametrize_with_checks(
    [
        BroadLearningClassifier(**SMALL, class_weight="balanced", ridge=[1e-3, 1.0]),
        BroadLearningClassifier(**SMALL, chunk=16, capacity=40),
        BroadLearningRegressor(**SMALL, solver="bordered"),
        BroadLearningRegressor(**SMALL, dtype="float32", ridge=0.1, chunk=16),
        BroadLearningClassifier(**SMALL, solver="chol-2", scaling="none"),
    ],
    expected_failed_checks=expected,
)
def test_check_estimator(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or that of the array API is skipped
    check(estimator)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.* columns go through:UserWarning")
@parametrize_with_checks(
    [
        BroadLearningClassifier(**SMALL, scaling="sample"),
        BroadLearningClassifier(**SMALL, ridge=1.0),
        BroadLearningRegressor(**SMALL, scaling="sample"),
        BroadLearningRegressor(**SMALL, solver="r-inv", ridge=[0.1, 10.0]),
        BroadLearningClassifier(**SMALL, dtype="float32", ridge=1.0),
    ],
    expected_failed_checks=expected,
)
def test_check_other_estimators(estimator, check, monkeypatch):
    test_check_estimator(estimator, check, monkeypatch)


@pytest.mark.filterwarnings("ignore:.* columns go through:UserWarning")
@pytest.mark.parametrize("ridge", [None, 1e-8, 1e-6, 1e-4, 1e-2])
def test_weights_are_repeated_rows_to_the_rounding_of_float64(ridge):
    g = np.random.default_rng(42)
    X, y = g.uniform(size=(15, 30)), g.integers(0, 3, 15)
    weight = g.integers(0, 5, 15)
    how = SMALL | {"class_weight": "balanced", "ridge": ridge}
    one = BroadLearningClassifier(**how).fit(X, y, weight)
    rows = g.permutation(np.repeat(np.arange(15), weight))
    two = BroadLearningClassifier(**how).fit(X[rows], y[rows])
    assert one.ridge_ == two.ridge_
    norm = np.linalg.norm(two.expand(X[rows]), 2)
    error = abs(one.coef_ - two.coef_).max() / abs(two.coef_).max()
    assert error <= np.finfo(float).eps * norm**2 / one.ridge_


@pytest.mark.filterwarnings("ignore:.* columns go through:UserWarning")
@pytest.mark.parametrize("Broad", [BroadLearningClassifier, BroadLearningRegressor])
def test_weights_are_repeated_rows_to_what_float32_holds(Broad):
    g = np.random.default_rng(0)
    X, y, weight = g.normal(size=(60, 10)), g.integers(0, 3, 60), g.integers(0, 4, 60)
    one, two = (Broad(**SMALL, dtype="float32", ridge=1.0) for _ in range(2))
    rows = np.repeat(np.arange(60), weight)
    found, wanted = one.fit(X, y, weight).coef_, two.fit(X[rows], y[rows]).coef_
    assert abs(found - wanted).max() < 1e-4 * abs(wanted).max()


def test_the_order_of_rows_changes_no_more_than_float32_rounds():
    g = np.random.default_rng(0)
    X, y, order = g.normal(size=(60, 10)), g.integers(0, 3, 60), g.permutation(60)
    model = BroadLearningClassifier(**SMALL, dtype="float32", ridge=1.0).fit(X, y)
    found, wanted = model.decision_function(X[order]), model.decision_function(X)[order]
    assert abs(found - wanted).max() < 1e-5 * abs(wanted).max()
