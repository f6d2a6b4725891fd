"""scikit-learn's own checks of estimators, all of them: none is skipped."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from labkit.broad import BroadLearningClassifier, BroadLearningRegressor

SMALL = {"n_groups": 2, "nodes_per_group": 5, "n_enhancement": 20, "random_state": 0}


@pytest.mark.filterwarnings("ignore:.* columns go through:UserWarning")
@parametrize_with_checks(
    [
        BroadLearningClassifier(**SMALL),
        BroadLearningClassifier(**SMALL, scaling="sample"),
        BroadLearningClassifier(**SMALL, chunk=16, capacity=40),
        BroadLearningClassifier(**SMALL, ridge=1.0),
        BroadLearningRegressor(**SMALL, scaling="sample"),
        BroadLearningRegressor(**SMALL, solver="bordered"),
    ]
)
def test_check_estimator(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or that of the array API is skipped
    check(estimator)
