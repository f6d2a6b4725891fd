"""scikit-learn's own checks of estimators: none is skipped.

Rows in another order are compared at a relative 1e-7, which no float32 holds; here they
are compared at 1e-5.
"""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from labkit.broad import BroadLearningClassifier, BroadLearningRegressor

SMALL = {"n_groups": 2, "nodes_per_group": 5, "n_enhancement": 20, "random_state": 0}
BEYOND_FLOAT32 = {
    "check_regressor_multioutput": "asks for predictions in float64",
    # one rounding of float32, which depends on the processor's kernels
    "check_methods_sample_order_invariance": "compares at a relative 1e-7",
}


def expected(estimator):
    return BEYOND_FLOAT32 if estimator.dtype == "float32" else {}


@pytest.mark.filterwarnings("ignore:.* columns go through:UserWarning")
@parametrize_with_checks(
    [
        BroadLearningClassifier(**SMALL, ridge=[1e-3, 1.0]),
        BroadLearningClassifier(**SMALL, scaling="sample"),
        BroadLearningRegressor(**SMALL, solver="bordered"),
        BroadLearningRegressor(**SMALL, dtype="float32", ridge=0.1),
        BroadLearningClassifier(**SMALL, solver="chol-2", scaling="none"),
    ],
    expected_failed_checks=expected,
)
def test_check_estimator(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or that of the array API is skipped
    check(estimator)


def test_the_order_of_rows_changes_no_more_than_float32_rounds():
    generator = np.random.default_rng(0)
    X, y, order = (
        generator.normal(size=(60, 10)),
        generator.integers(0, 3, 60),
        generator.permutation(60),
    )
    model = BroadLearningClassifier(**SMALL, dtype="float32", ridge=1.0).fit(X, y)
    found, wanted = model.decision_function(X[order]), model.decision_function(X)[order]
    assert abs(found - wanted).max() < 1e-5 * abs(wanted).max()
