"""Growing estimators: equal to ridge on the same columns, streaming, bad input."""

import pickle
import tracemalloc
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
from labkit.broad.nodes import Nodes

EXACT = [name for name, solver in SOLVERS.items() if solver.exact]


WHOLE = load_digits(return_X_y=True)
X, y = (part[:400] for part in WHOLE)


IMAGES = {"scaling": "sample", "shrink": 0.8, "random_state": 0}  # as the paper has it


def classifier(**options):
    return BroadLearningClassifier(2, 5, 40, **{"ridge": 1e-2, **IMAGES, **options})


def grown(model):
    model.fit(X, y).add_nodes(15)
    return model.add_feature_nodes(4, n_own=8, n_extra=10)


def assert_ridge(model, A):
    """The model's weights are scikit-learn's on the same columns: cond R is 1e7."""
    Y = 2.0 * (y[:, None] == np.arange(10)) - 1
    ridge = Ridge(alpha=1e-2, fit_intercept=False, solver="cholesky").fit(A, Y)
    assert np.allclose(model.coef_, ridge.coef_.T, rtol=0, atol=1e-6)
    assert np.array_equal(model.predict(X), ridge.predict(A).argmax(1))


@pytest.mark.parametrize("capacity", [None, 100])
@pytest.mark.parametrize("name", EXACT)
def test_growing_equals_fitting_ridge_on_all_columns(name, capacity):
    model = grown(classifier(solver=name, capacity=capacity))
    A = model.expand(X)
    assert A.shape == (400, 87)
    assert_ridge(model, A)
    sizes = [(r.columns, r.features, r.added) for r in model.history_]
    assert sizes == [(50, 10, 50), (65, 10, 15), (87, 14, 22)]


@pytest.mark.parametrize("name", ["orig", "exg-e"])
def test_the_predecessors_drift(name):
    wrong = grown(classifier(solver=name, ridge=1.0))
    right = grown(classifier(ridge=1.0))
    assert np.array_equal(wrong.expand(X), right.expand(X))
    assert abs(wrong.coef_ - right.coef_).max() > 1e-3


def test_history_tells_what_was_done():
    model = grown(classifier())
    for record in model.history_:
        assert min(record.seconds, record.operations, record.smallest_pivot) > 0
        assert record.factor_error is None
        assert (record.solver, record.fallback) == ("chol-1", False)
    A = model.expand(X)
    error = model.factor_error()
    F = model._columns.state.F.numpy()
    R = A.T @ A + 1e-2 * np.eye(87)
    assert error == pytest.approx(float(abs(F.T @ R @ F - np.eye(87)).max()), abs=1e-9)
    assert model.history_[-1].factor_error == error < 1e-7
    assert error < np.finfo(float).eps * np.linalg.norm(A, 2) ** 2 / 1e-2


@pytest.mark.parametrize("chunk", [None, 64])
def test_no_solver_pays_for_the_making_of_its_nodes(chunk, monkeypatch):
    """On a clock that goes on by 1 whenever columns are made, and else stands still."""
    made, expand = [], Nodes.expand

    def counted(self, Z, out=None):
        made.append(self.columns)
        return expand(self, Z, out)

    monkeypatch.setattr(Nodes, "expand", counted)
    monkeypatch.setattr("labkit.clock.time.perf_counter", lambda: len(made))
    model = grown(classifier(chunk=chunk))
    assert [record.seconds for record in model.history_] == [0, 0, 0]
    assert sum(record.node_seconds for record in model.history_) == len(made) > 2


def test_staged_score_is_the_score_of_every_size():
    model = classifier().fit(X[:300], y[:300])
    scores = [model.score(X[300:], y[300:])]
    scores.append(model.add_nodes(15).score(X[300:], y[300:]))
    scores.append(model.add_feature_nodes(4, 8, 10).score(X[300:], y[300:]))
    assert list(model.staged_score(X[300:], y[300:])) == pytest.approx(scores)
    column = list(model.staged_score(X[300:], y[300:, None]))  # would be broadcast
    assert column == pytest.approx(scores)


@pytest.mark.parametrize("capacity", [None, 100])
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("n", [22, 30, 12])
def test_dropping_the_last_nodes(name, n, capacity):
    model = grown(classifier(solver=name, capacity=capacity))
    A = model.expand(X)[:, : 87 - n]
    model.drop_last(n)
    assert np.allclose(model.expand(X), A, rtol=0, atol=1e-12)
    assert_ridge(model, A)
    assert model.history_[-1].added == -n
    assert len(list(model.staged_score(X, y))) == {22: 2, 30: 2, 12: 3}[n]
    assert_ridge(model, model.add_nodes(n).expand(X))


def test_streaming_equals_storing():
    stored, streamed = (grown(classifier(chunk=c)) for c in (None, 64))
    assert np.allclose(stored.coef_, streamed.coef_, rtol=0, atol=1e-7)
    assert streamed.factor_error() == pytest.approx(stored.factor_error(), abs=1e-7)
    streamed.drop_last(22)
    assert streamed.nodes_.columns == 65


def test_streaming_memory_holds_no_samples_by_nodes(monkeypatch):
    """No tensor of samples x nodes is ever made: the largest has samples x inputs."""
    sizes = []

    def noted(make):
        def made(*args, **options):
            out = make(*args, **options)
            sizes.append(out.numel())
            return out

        return made

    monkeypatch.setattr(torch.Tensor, "new_empty", noted(torch.Tensor.new_empty))
    monkeypatch.setattr(torch, "addmm", noted(torch.addmm))
    X = np.random.default_rng(0).normal(size=(3000, 5))
    y = X[:, 0] * X[:, 1]
    options = {"ridge": 1e-3, "scaling": "feature", "random_state": 0}
    tracemalloc.start()
    model = BroadLearningRegressor(1, 3, 200, chunk=100, **options).fit(X, y)
    model.add_nodes(100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(sizes) <= 100 * 303
    assert peak < 3000 * 200 * 8  # NumPy's own, the products of `gram`
    stored = BroadLearningRegressor(1, 3, 200, **options).fit(X, y)
    assert max(sizes) >= 3000 * 203  # which the same look does see
    streamed = model.drop_last(100).predict(X)
    assert np.allclose(stored.predict(X), streamed, rtol=0, atol=1e-7)


def test_capacity_is_one_piece_of_memory():
    model, places = classifier(capacity=87).fit(X, y), set()
    for n in (15, 15, 7):
        kept = model._columns
        places.add((kept.room.data_ptr(), kept.state.buffer.data_ptr()))
        model.add_nodes(n)
    assert len(places) == 1


def test_a_grown_model_survives_pickling():
    model = pickle.loads(pickle.dumps(classifier(capacity=100).fit(X, y)))
    model.add_nodes(15).add_feature_nodes(4, 8, 10)
    assert np.allclose(grown(classifier()).coef_, model.coef_, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "odd",
    [
        lambda X: X[:, ::-1].copy()[:, ::-1],
        lambda X: X.astype(">f8"),
        lambda X: X.astype("longdouble"),
        lambda X: torch.tensor(X, requires_grad=True),
    ],
    ids=["negative strides", "big-endian", "long double", "with a graph"],
)
def test_whatever_holds_numbers_is_taken(odd):
    found, wanted = classifier().fit(odd(X), y), classifier().fit(X, y)
    assert np.array_equal(found.predict(odd(X)), wanted.predict(X))


def test_two_classes_by_name():
    chosen = y < 2
    names = np.array(["zero", "one"])[y[chosen]]
    model = classifier().fit(X[chosen], names)
    assert model.coef_.shape == (50, 1)
    assert model.decision_function(X[chosen]).shape == (chosen.sum(),)
    assert model.score(X[chosen], names) == 1


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
    Y = X[:, 20:23] ** 2
    model = BroadLearningRegressor(2, 5, 40, ridge=1e-6, **IMAGES).fit(X, Y)
    assert model.predict(X).shape == (400, 3)
    first, second = model.score(X, Y), model.add_nodes(30).score(X, Y)
    assert list(model.staged_score(X, Y)) == pytest.approx([first, second])


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
    with pytest.raises(NotPositiveDefinite, match="smallest safe ridge") as caught:
        demonstration("chol-1")
    error = caught.value
    assert error.index >= 105 and not error.pivot > 0
    assert 1e-11 < error.safe_ridge < 1e-9
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


@pytest.mark.parametrize("options", [{}, {"capacity": 800}, {"chunk": 200}])
def test_after_a_lost_pivot_the_model_is_as_it_was(options):
    (X, _), model = WHOLE, alike(**options)
    with pytest.raises(NotPositiveDefinite, match="smallest safe ridge"):
        for _ in range(9):
            before, k = model.decision_function(X), model.nodes_.columns
            model.add_nodes(77)
    assert model.nodes_.columns == k == model.history_[-1].columns
    assert np.array_equal(model.decision_function(X), before)


def test_float32_warns_below_the_safe_ridge_and_only_there():
    for chunk in (None, 100):
        model = classifier(dtype="float32", ridge=1e-3, chunk=chunk)
        with pytest.warns(UserWarning, match=r"ridge 0\.001 is below .* float32"):
            with suppress(NotPositiveDefinite):
                model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = classifier(dtype="float32", ridge=10.0).fit(X, y)
        classifier(ridge=1e-9).fit(X, y)
    assert model.coef_.dtype == np.float32


# Bad input, each with its message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": 0}, "ridge must be > 0 and finite, got 0"),
        ({"ridge": -1.0}, r"ridge must be > 0 and finite, got -1\.0"),
        ({"solver": "chol-3"}, "solver must be one of d-rdg, orig, .* got 'chol-3'"),
        (
            {"n_groups": 0},
            r"n_groups must be None or an integer in 1\.\.1000000, got 0",
        ),
        (
            {"nodes_per_group": -2},
            r"nodes_per_group must be an integer in 1\.\..*, got -2",
        ),
        ({"n_enhancement": -1}, r"n_enhancement must be an integer in 0\.\..*, got -1"),
        (
            {"n_enhancement": 2.5},
            r"n_enhancement must be an integer in 0\.\..*, got 2\.5",
        ),
        ({"shrink": 0}, "shrink must be None or > 0 and finite, got 0"),
        ({"dtype": "float16"}, "dtype must be one of .* got 'float16'"),
        ({"scaling": "rows"}, "scaling must be one of .* got 'rows'"),
        ({"capacity": 49}, "50 columns exceed the capacity of 49"),
        ({"chunk": 0}, r"chunk must be None or an integer in 1\.\..*, got 0"),
        ({"chunk": 9, "solver": "chol-2"}, "chunk needs solver='chol-1'"),
        ({"fallback": "r-inv"}, "fallback must be None or one of chol-2, got 'r-inv'"),
        ({"fallback": "chol-2", "solver": "orig"}, "needs solver='chol-1', got 'orig'"),
    ],
)
def test_fit_refuses_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        classifier().set_params(**options).fit(X, y)


@pytest.mark.parametrize("scaling", ["sample", "feature", "none"])
def test_values_whose_squares_leave_their_type(scaling):
    model = classifier(scaling=scaling)
    with pytest.raises(ValueError, match=r"X holds values up to .* leave float64"):
        model.fit(1e200 * X, y)
    with pytest.raises(ValueError, match=r"X holds values up to .* leave float64"):
        model.fit(X, y).predict(1e200 * X)
    model = BroadLearningRegressor(2, 5, 40, **IMAGES, dtype="float32")
    with pytest.raises(ValueError, match=r"y holds values up to .* leave float32"):
        model.fit(X, 1e20 * X[:, 20])
    with pytest.raises(ValueError, match=r"ridge 1e\+300 leaves float32"):
        model.set_params(ridge=1e300).fit(X, y)


def test_a_table_wider_than_its_feature_nodes_is_warned_of():
    table = classifier(scaling="feature")
    with pytest.warns(UserWarning, match=r"64 columns .* = 10 feature nodes") as seen:
        table.fit(X, y)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.fit(X[:, 20:30], y)
        classifier().fit(X, y)  # images, whose pixels go together


def test_fit_refuses_bad_data():
    with pytest.raises(ValueError, match="two classes or more, got 1 class: 3"):
        classifier().fit(X, np.full(400, 3))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        classifier().fit(np.where(X == X.max(), np.nan, X), y)
    with pytest.raises(ValueError, match="needs 2 features or more, got n_features=1"):
        classifier().fit(X[:, :1], y)
    with pytest.raises(ValueError, match=r"X has 63 features, but .* expecting 64"):
        classifier().fit(X, y).predict(X[:, 1:])


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.add_nodes(3),
        lambda m: m.add_feature_nodes(3),
        lambda m: m.drop_last(3),
        lambda m: m.factor_error(),
        lambda m: m.predict(np.ones((2, 64))),
        lambda m: next(m.staged_score(np.ones((2, 64)), [0, 1])),
    ],
)
def test_nothing_before_fit(call):
    with pytest.raises(NotFittedError):
        call(classifier())


def test_a_failed_first_fit_is_none():
    model = BroadLearningClassifier(1, 5, 700, ridge=1e-14, **IMAGES)
    with pytest.raises(NotPositiveDefinite):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_parameters_set_after_a_fit_wait_for_the_next():
    model = classifier().fit(X, y)
    model.set_params(chunk=64, dtype="float32", solver="orig", capacity=500)
    plain = classifier().fit(X, y).add_nodes(15)
    assert np.array_equal(model.add_nodes(15).coef_, plain.coef_)
    assert model.predict(X).shape == y.shape


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m.add_nodes(0),
            r"n_enhancement must be an integer in 1\.\..*, got 0",
        ),
        (
            lambda m: m.add_nodes(-3),
            r"n_enhancement must be an integer in 1\.\..*, got -3",
        ),
        (lambda m: m.add_nodes(51), "101 columns exceed the capacity of 100"),
        (
            lambda m: m.add_feature_nodes(0),
            r"n_features must be an integer in 1\.\..*, got 0",
        ),
        (
            lambda m: m.add_feature_nodes(1, -1),
            r"n_own must be an integer in 0\.\..*, got -1",
        ),
        (lambda m: m.add_feature_nodes(1, 0, 50), "101 columns exceed the capacity"),
        (lambda m: m.drop_last(50), "n must be < 50 columns, got 50"),
        (lambda m: m.drop_last(0), "n must be an integer >= 1, got 0"),
    ],
)
def test_growth_refuses_bad_counts(call, message):
    model = classifier(capacity=100).fit(X, y)
    with pytest.raises(ValueError, match=message):
        call(model)
    assert model.nodes_.columns == 50


# The defaults of wide tables


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
        model.fit(X[:60, :1] + np.random.default_rng(0).normal(size=(60, columns)), Y)
        enhancement = model.nodes_.groups[-1]
        return model.nodes_.features, enhancement

    Y = y[:60]
    for columns, features in ((20, 100), (100, 100), (150, 300)):
        found, _ = nodes(BroadLearningClassifier(n_enhancement=9), columns)
        assert found == features
    images = BroadLearningClassifier(n_enhancement=9, scaling="sample")
    assert nodes(images, 150)[0] == 100
    same = BroadLearningRegressor(10, 10, 9, shrink=3.0, random_state=0)
    _, wanted = nodes(same, 100)
    _, by_default = nodes(BroadLearningRegressor(n_enhancement=9, random_state=0), 100)
    assert torch.equal(wanted.weight, by_default.weight)


def test_weights_of_classes_are_weights_of_their_samples():
    weight = np.where(y == 3, 5.0, 1.0)
    by_class = classifier(class_weight={3: 5}).fit(X, y)
    assert np.array_equal(by_class.coef_, classifier().fit(X, y, weight).coef_)
    more = classifier(class_weight={3: 5}).fit(X, y).partial_fit(X, y)
    same = classifier().fit(X, y, weight).partial_fit(X, y, sample_weight=weight)
    assert np.array_equal(more.coef_, same.coef_)
    counts = np.bincount(y)
    balanced = classifier(class_weight="balanced").fit(X, y)
    weight = (len(y) / (10 * counts))[y]
    assert np.allclose(balanced.coef_, classifier().fit(X, y, weight).coef_)
