"""Growing estimators: equal to ridge on the same columns; the ridge; bad input."""

import pickle
import re
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    make_moons,
    make_regression,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labkit.broad import (
    PAPER,
    SOLVERS,
    BroadLearningClassifier,
    BroadLearningRegressor,
    NotPositiveDefinite,
)
from labkit.broad.leave_one_out import leave_one_out
from labkit.broad.nodes import Nodes
from labkit.broad.parameters import RIDGES
from tests.broad.conftest import problem, ridge_by_numpy
from tests.draws import close

EXACT = [name for name, solver in SOLVERS.items() if solver.exact]
WHOLE = load_digits(return_X_y=True)
X, y = (part[:400] for part in WHOLE)
Y = 2.0 * (y[:, None] == np.arange(10)) - 1
IMAGES = {"scaling": "sample", "shrink": 0.8, "random_state": 0}  # as the paper has it


def classifier(**options):
    return BroadLearningClassifier(2, 5, 40, **{"ridge": 1e-2, **IMAGES, **options})


def regressor(**options):
    return BroadLearningRegressor(2, 5, 40, **{"ridge": 1e-2, **IMAGES, **options})


def grown(model):
    model.fit(X, y).add_nodes(15)
    return model.add_feature_nodes(4, n_own=8, n_extra=10)


def assert_ridge(model, A):
    """The model's weights are scikit-learn's on the same columns: cond R is 1e7."""
    ridge = Ridge(alpha=1e-2, fit_intercept=False, solver="cholesky").fit(A, Y)
    assert close(model.weights_, ridge.coef_.T, 1e-6)
    assert np.array_equal(model.predict(X), ridge.predict(A).argmax(1))


@pytest.mark.parametrize("name", EXACT)
def test_growing_equals_fitting_ridge_on_all_columns(name):
    model = grown(classifier(solver=name))
    A = model.expand(X)
    assert A.shape == (400, 87)
    assert_ridge(model, A)
    sizes = [(r.columns, r.features, r.added) for r in model.history_]
    assert sizes == [(50, 10, 50), (65, 10, 15), (87, 14, 22)]


@pytest.mark.parametrize("n", [22, 30, 12])
@pytest.mark.parametrize("name", EXACT)
def test_dropping_the_last_nodes(name, n):
    model = grown(classifier(solver=name))
    A = model.expand(X)[:, : 87 - n]
    model.drop_last(n)
    assert close(model.expand(X), A, 1e-12)
    assert_ridge(model, A)
    assert model.history_[-1].added == -n
    assert len(list(model.staged_score(X, y))) == {22: 2, 30: 2, 12: 3}[n]
    assert_ridge(model, model.add_nodes(n).expand(X))


@pytest.mark.parametrize("name", ["orig", "exg-e"])
def test_the_predecessors_drift(name):
    wrong = grown(classifier(solver=name, ridge=1.0))
    right = grown(classifier(ridge=1.0))
    assert np.array_equal(wrong.expand(X), right.expand(X))
    assert abs(wrong.weights_ - right.weights_).max() > 1e-3


def test_history_tells_what_was_done():
    model = grown(classifier())
    for record in model.history_:
        assert min(record.seconds, record.operations, record.smallest_pivot) > 0
        assert (record.solver, record.fallback) == ("chol-1", False)
    F, A = model.factor().numpy(), model.expand(X)
    R = A.T @ A + 1e-2 * np.eye(87)
    assert abs(F.T @ R @ F - np.eye(87)).max() < 1e-7


def test_no_solver_pays_for_the_making_of_its_nodes(monkeypatch):
    """On a clock that goes on by 1 whenever columns are made, and else stands still."""
    made, expand = [], Nodes.expand

    def counted(self, Z, out=None):
        made.append(self.columns)
        return expand(self, Z, out)

    monkeypatch.setattr(Nodes, "expand", counted)
    monkeypatch.setattr("labkit.clock.time.perf_counter", lambda: len(made))
    model = grown(classifier())
    assert [record.seconds for record in model.history_] == [0, 0, 0]
    assert sum(record.node_seconds for record in model.history_) == len(made) > 2


def test_staged_score_is_the_score_of_every_size():
    model = classifier().fit(X[:300], y[:300])
    scores = [model.score(X[300:], y[300:])]
    scores.append(model.add_nodes(15).score(X[300:], y[300:]))
    scores.append(model.add_feature_nodes(4, 8, 10).score(X[300:], y[300:]))
    for labels in (y[300:], y[300:, None]):  # which would be broadcast
        found = list(model.staged_score(X[300:], labels))
        assert found == pytest.approx(scores)


def test_a_grown_model_survives_pickling():
    model = pickle.loads(pickle.dumps(classifier().fit(X, y)))
    model.weights_.fill(0)  # a copy
    model.add_nodes(15).add_feature_nodes(4, 8, 10)
    assert np.array_equal(grown(classifier()).weights_, model.weights_)


@pytest.mark.parametrize(
    "odd",
    [
        lambda X: X[:, ::-1].copy()[:, ::-1],
        lambda X: X.astype(">f8"),
        torch.from_numpy,
    ],
    ids=["negative strides", "big-endian", "tensor"],
)
def test_whatever_holds_numbers_is_taken(odd):
    found, wanted = classifier().fit(odd(X), y), classifier().fit(X, y)
    assert np.array_equal(found.predict(odd(X)), wanted.predict(X))


@pytest.mark.parametrize("classes", [2, 10])
def test_shares_of_the_classes(classes):
    chosen = y < classes
    model = classifier(ridge=10.0).fit(X[chosen], y[chosen])
    p = model.predict_proba(X[chosen])
    f = model.decision_function(X[chosen])
    f = np.stack([-f, f], 1) if classes == 2 else f
    assert p.shape == (chosen.sum(), classes) and abs(f).max() > 1
    assert np.allclose(p.sum(1), 1)
    assert np.array_equal(p.argsort(1), f.argsort(1))
    assert np.unique(p).size == p.size  # no two are the same, beyond 1 neither
    assert np.array_equal(p.argmax(1), model.predict(X[chosen]))
    for each in (model, CalibratedClassifierCV(model, cv=2)):
        scoring = "roc_auc_ovr" if classes > 2 else "roc_auc"
        found = cross_val_score(each, X[chosen], y[chosen], scoring=scoring, cv=2)
        assert found.min() > 0.9


def test_regression_of_several_outputs():
    targets = X[:, 20:23] ** 2
    model = regressor(ridge=1e-6).fit(X, targets)
    assert model.predict(X).shape == (400, 3)
    first, second = model.score(X, targets), model.add_nodes(30).score(X, targets)
    assert list(model.staged_score(X, targets)) == pytest.approx([first, second])


@pytest.mark.filterwarnings("ignore:64 columns go through:UserWarning")
@pytest.mark.parametrize(
    ("data", "Broad", "least"),
    [
        (make_moons(600, noise=0.25, random_state=0), BroadLearningClassifier, 0.88),
        (load_breast_cancer(return_X_y=True), BroadLearningClassifier, 0.94),
        (load_diabetes(return_X_y=True), BroadLearningRegressor, 0.33),
        (WHOLE, BroadLearningClassifier, 0.97),
    ],
    ids=["moons", "cancer", "diabetes", "digits"],
)
def test_the_defaults_learn_tables_and_images(data, Broad, least):
    X_fit, X_test, y_fit, y_test = train_test_split(*data, random_state=0)
    found, paper = (
        Broad(**options, random_state=0).fit(X_fit, y_fit).score(X_test, y_test)
        for options in ({}, {**PAPER, "n_enhancement": 1000})
    )
    assert found > least
    assert found > paper - 0.02  # tables: 0.1 and more above it


@pytest.mark.parametrize(
    ("samples", "columns", "informative"),
    [(400, 200, 20), (1000, 200, 20), (1000, 200, 200), (1000, 300, 50)],
)
def test_a_wide_table_is_fitted_as_well_as_by_ridge(samples, columns, informative):
    data = make_regression(
        samples, columns, n_informative=informative, noise=10.0, random_state=0
    )
    X_fit, X_test, y_fit, y_test = train_test_split(*data, random_state=0)
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-6, 6, 13)))
    least = ridge.fit(X_fit, y_fit).score(X_test, y_test) - 0.02
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said of a bottleneck
        model = BroadLearningRegressor(random_state=0).fit(X_fit, y_fit)
    assert model.score(X_test, y_test) > least > 0.9


def test_defaults_follow_the_columns_of_wide_tables_alone():
    def nodes(model, columns):
        noise = np.random.default_rng(0).normal(size=(60, columns))
        model.fit(X[:60, :1] + noise, y[:60])
        return model.nodes_.features, model.nodes_.groups[-1]

    for columns, features in ((20, 100), (100, 100), (150, 300)):
        assert nodes(BroadLearningClassifier(n_enhancement=9), columns)[0] == features
    images = BroadLearningClassifier(n_enhancement=9, scaling="sample")
    assert nodes(images, 150)[0] == 100
    same = BroadLearningRegressor(10, 10, 9, shrink=3.0, random_state=0)
    _, wanted = nodes(same, 100)
    _, by_default = nodes(BroadLearningRegressor(n_enhancement=9, random_state=0), 100)
    assert torch.equal(wanted.weight, by_default.weight)


# The ridge by leave-one-out


@pytest.mark.parametrize(("l", "k"), [(40, 7), (12, 12), (9, 30)])
def test_leave_one_out_is_what_it_says(l, k):  # noqa: E741
    A, _, T = problem(l, k)
    ridges = [1e-3, 0.3, 20.0]
    found, norm = leave_one_out(A, T, ridges)
    assert float(norm) == pytest.approx(np.linalg.norm(A, 2) ** 2)
    for ridge, error in zip(ridges, found.tolist(), strict=True):
        wanted = 0.0
        for i in range(l):
            others = [j for j in range(l) if j != i]
            W = ridge_by_numpy(A[others], T[others], ridge)
            wanted += ((A[i].numpy() @ W - T[i].numpy()) ** 2).sum()
        assert error == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("solver", ["chol-1", "bordered"])
@pytest.mark.parametrize("rows", [30, 300])
def test_the_ridge_is_that_of_scikit_learns_ridge_cv(rows, solver, monkeypatch):
    calls, eigh = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda S: calls.append(S) or eigh(S))
    path, given = np.logspace(-4, 3, 8), (X[:rows], y[:rows])
    model = classifier(ridge=path, solver=solver).fit(*given)
    alone = classifier(ridge=model.ridge_, solver=solver).fit(*given)
    assert np.array_equal(model.weights_, alone.weights_) and len(calls) == 1
    found = RidgeCV(alphas=path, fit_intercept=False, store_cv_results=True)
    found.fit(model.expand(X[:rows]), Y[:rows])
    assert found.alpha_ == model.ridge_ == path[model.loo_errors_.argmin()]
    errors = found.cv_results_.mean((0, 1))
    assert np.allclose(model.loo_errors_, errors, rtol=1e-5)
    assert alone.ridge_ == model.ridge_ and alone.loo_errors_ is None
    assert np.array_equal(model.add_nodes(9).weights_, alone.add_nodes(9).weights_)


def test_without_a_ridge_one_that_is_safe_is_chosen():
    model = classifier(ridge=None).fit(X, y)
    assert model.ridge_ == RIDGES[model.loo_errors_.argmin()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a ridge that float32 cannot resolve
        coarse = classifier(ridge=None, dtype="float32").fit(X, y)
    assert coarse.ridge_ > model.ridge_


# The digits demonstration: where Chol-1 breaks


def alike(ridge=1e-11, **options):
    """Fitted: nodes that hardly differ."""
    model = BroadLearningClassifier(1, 5, 100, ridge=ridge, **IMAGES, **options)
    return model.fit(*(part[:1200] for part in WHOLE))


def demonstration(solver, ridge=1e-11, **options):
    model = alike(ridge, solver=solver, **options)
    for _ in range(6):
        model.add_nodes(100)
    return model


def test_chol_1_breaks_at_ridge_1e_11_and_says_what_is_safe():
    """After it the model is as it was."""
    model = alike()
    with pytest.raises(NotPositiveDefinite, match="smallest safe ridge") as caught:
        for _ in range(6):
            before, k = model.decision_function(WHOLE[0]), model.nodes_.columns
            model.add_nodes(100)
    error = caught.value
    assert error.index >= 105 and not error.pivot > 0
    assert 1e-11 < error.safe_ridge < 1e-9
    assert model.nodes_.columns == k == model.history_[-1].columns
    assert np.array_equal(model.decision_function(WHOLE[0]), before)
    assert demonstration("chol-1", 10 * error.safe_ridge).history_[-1].columns == 705


@pytest.mark.parametrize("solver", ["chol-2", "bordered"])
def test_chol_2_and_bordered_finish_at_ridge_1e_11(solver):
    model = demonstration(solver)
    assert model.history_[-1].columns == 705
    assert model.score(*(part[1200:] for part in WHOLE)) > 0.75


def test_the_fallback_takes_over_and_is_recorded():
    model = demonstration("chol-1", fallback="chol-2")
    marks = [record.fallback for record in model.history_]
    assert marks.count(True) == 1
    solvers = [record.solver for record in model.history_]
    assert solvers == sorted(solvers) and solvers.index("chol-2") == marks.index(True)
    assert (model.solver_, model.get_params()["solver"]) == ("chol-2", "chol-1")


def test_float32_warns_below_the_safe_ridge_and_only_there():
    model = classifier(dtype="float32", ridge=1e-3)
    with pytest.warns(UserWarning, match=r"ridge 0\.001 is below .* float32"):
        with suppress(NotPositiveDefinite):
            model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = classifier(dtype="float32", ridge=10.0).fit(X, y)
        classifier(ridge=1e-9).fit(X, y)
    assert model.weights_.dtype == np.float32


def test_a_table_wider_than_its_feature_nodes_is_warned_of():
    table = classifier(scaling="feature")
    with pytest.warns(UserWarning, match=r"64 columns .* = 10 feature nodes") as seen:
        table.fit(X, y)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.fit(X[:, 20:30], y)
        classifier().fit(X, y)  # images, whose pixels go together


def test_parameters_set_after_a_fit_wait_for_the_next():
    model = classifier().fit(X, y)
    model.set_params(dtype="float32", solver="orig")
    plain = classifier().fit(X, y).add_nodes(15)
    assert np.array_equal(model.add_nodes(15).weights_, plain.weights_)
    assert model.predict(X).shape == y.shape


# What is refused, with its words

OPTIONS = [
    ({"ridge": 0}, "ridge must be > 0 and finite, got 0"),
    ({"ridge": [1.0, 0.0]}, r"ridge must be > 0 and finite, got 0\.0"),
    ({"ridge": "auto"}, "ridge must be > 0 and finite, got 'auto'"),
    ({"ridge": []}, "ridge must be a number or a list of some, got none"),
    ({"ridge": 1e300, "dtype": "float32"}, r"ridge 1e\+300 leaves float32"),
    ({"solver": "chol-3"}, "solver must be one of d-rdg, orig, .* got 'chol-3'"),
    ({"n_enhancement": -1}, r"n_enhancement must be an integer in 0\.\..*, got -1"),
    ({"fallback": "r-inv"}, "fallback must be None or one of chol-2, got 'r-inv'"),
    ({"fallback": "chol-2", "solver": "orig"}, "needs solver='chol-1', got 'orig'"),
    ({"device": "cup"}, "device must name .* got 'cup'"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_fit_refuses_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        classifier().set_params(**options).fit(X, y)


WRONG = [
    (lambda: classifier().fit(X, y).set_params(shrink=0).add_nodes(5), "shrink must"),
    (lambda: classifier().fit(X, np.full(400, 3)), "two classes or more, got 1 class"),
    (lambda: classifier().fit(X[:, :1], y), "needs 2 features or more, got n_features"),
    (lambda: classifier().fit(1e200 * X, y), "X holds values up to .* leave float64"),
    (lambda: classifier().fit(X, y).predict(1e200 * X), "X holds values .* float64"),
    (
        lambda: regressor(dtype="float32").fit(X, 1e20 * X[:, 20]),
        "y holds values up to .* leave float32",
    ),
    (lambda: classifier(solver="orig").fit(X, y).drop_last(3), "orig keeps no state"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_fit_and_predict_refuse_bad_data(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.add_nodes(0), r"n_enhancement must be an integer in 1\..*, got 0"),
        (lambda m: m.add_feature_nodes(0), "n_features must be an integer .*, got 0"),
        (lambda m: m.add_feature_nodes(1, -1), "n_own must be an integer .*, got -1"),
        (lambda m: m.drop_last(50), "n must be < 50 columns, got 50"),
    ],
)
def test_growth_refuses_bad_counts(call, message):
    model = classifier().fit(X, y)
    with pytest.raises(ValueError, match=message):
        call(model)
    assert model.nodes_.columns == 50
    with pytest.raises(NotFittedError):
        call(classifier())


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.predict(np.ones((2, 64))),
        lambda m: next(m.staged_score(np.ones((2, 64)), [0, 1])),
        lambda m: m.factor(),
    ],
)
def test_nothing_before_a_fit_nor_after_one_that_failed(call):
    failed = BroadLearningClassifier(1, 5, 700, ridge=1e-14, **IMAGES)
    with pytest.raises(NotPositiveDefinite):
        failed.fit(X, y)
    for model in (classifier(), failed):
        with pytest.raises(NotFittedError):
            call(model)


def test_a_solver_without_a_factor_has_no_such_method():
    model = classifier(solver="orig").fit(X, y)
    assert not hasattr(model, "factor") and hasattr(classifier().fit(X, y), "factor")
    with pytest.raises(AttributeError) as caught:
        model.factor()
    assert re.search("orig keeps no inverse Cholesky", str(caught.value.__cause__))


@pytest.mark.parametrize("selector", [RFE, SelectFromModel])
def test_weights_of_nodes_are_not_read_as_weights_of_columns(selector):
    with pytest.raises((AttributeError, ValueError), match="coef_"):
        selector(BroadLearningRegressor()).fit(X, X[:, 3]).get_support()


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_constant_that_is_added_to_the_targets_is_added_to_predictions(
    solver, outputs
):
    targets, found = X[:200, 10 : 10 + outputs].squeeze() / 8, []
    options = {"solver": solver, "ridge": 1.0, "random_state": 0}
    for constant in (0.0, 1000.0):
        model = BroadLearningRegressor(2, 10, 9, **options)
        model.fit(X[:200], targets + constant).add_nodes(5).add_feature_nodes(3)
        if solver != "orig":  # which keeps nothing for fewer columns
            model.drop_last(2)
        found.append(model.predict(X[200:]) - constant)
    assert close(found[1], found[0], 1e-8)
