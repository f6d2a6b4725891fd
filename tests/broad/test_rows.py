"""Samples that come later, weigh more, are sparse, or are dropped; the ridge's path."""

import pickle
import re
import tracemalloc
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeCV

from labkit.broad import BroadLearningClassifier, BroadLearningRegressor
from labkit.broad.parameters import RIDGES
from labkit.broad.rows import leave_one_out

from .conftest import problem, ridge_by_numpy

X, y = (part[:300] for part in load_digits(return_X_y=True))
Y = 2.0 * (y[:, None] == np.arange(10)) - 1
IMAGES = {"scaling": "sample", "shrink": 0.8, "random_state": 0}  # as the paper has it
CUTS = [0, 120, 127, 128, 300]
PIECES = [slice(i, j) for i, j in pairwise(CUTS)]


def classifier(**options):
    return BroadLearningClassifier(2, 5, 40, **{"ridge": 1e-2, **IMAGES, **options})


def off(model, ridge=1e-2):
    """Largest error of the weights, against QR on all rows of the same columns."""
    W = ridge_by_numpy(model.expand(X), Y, ridge)
    return abs(model.coef_ - W).max() / abs(W).max()


# Later samples


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0])
def test_pieces_are_as_all_samples_at_once(ridge):
    model = classifier(ridge=ridge, chunk=50)
    for rows in PIECES:
        model.partial_fit(X[rows], y[rows], classes=range(10))
    assert off(model, ridge) < 1e-10
    assert [r.samples for r in model.history_] == CUTS[1:]
    assert model.n_samples_seen_ == 300
    assert off(model.drop_last(20), ridge) < 1e-10
    once = classifier(ridge=ridge).fit(X, y)
    if ridge == 1e-6:  # where sums of squares lose digits
        assert off(once, ridge) > 100 * off(model, ridge)


@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "chol-2"}, {"solver": "bordered"}, {"chunk": 50}, {"capacity": 99}],
)
def test_samples_and_columns_come_in_turn(options):
    model = classifier(**options).fit(X[:120], y[:120]).add_nodes(15)
    for rows in PIECES[1:]:
        model.partial_fit(X[rows], y[rows])
    assert off(model) < 1e-10
    assert off(model.add_feature_nodes(3, 4, 5)) < 1e-10
    assert off(pickle.loads(pickle.dumps(model)).drop_last(9)) < 1e-10
    stages = list(model.staged_score(X, y))
    assert stages[-1] == model.score(X, y)
    assert stages[0] == model.drop_last(27).score(X, y)


def test_stages_are_those_of_all_samples():
    model = classifier().fit(X[:120], y[:120]).add_nodes(15)
    stages = list(model.partial_fit(X[120:], y[120:]).staged_score(X, y))
    assert stages == [model.drop_last(15).score(X, y), stages[1]]


def test_labels_that_come_later():
    model = classifier()
    with pytest.raises(ValueError, match="first call of partial_fit needs all classes"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"y must hold \[0 1 2\] only, .* got \[3 4 5"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="two classes or more, got 1 class: 3"):
        model.partial_fit(X[y == 3], y[y == 3], classes=[3])
    model.partial_fit(X[:12], y[:12], classes=range(10))
    before = model.coef_
    for labels, options in ((y + 1, {}), (y, {"classes": range(11)})):
        with pytest.raises(ValueError, match=r"y must hold .* got \[10\]"):
            model.partial_fit(X, labels, **options)
    assert np.array_equal(model.coef_, before) and model.n_samples_seen_ == 12
    two = np.array(["odd", "even"])[y % 2]
    model = classifier().partial_fit(X[:99], two[:99], ["odd", "even"])
    assert model.partial_fit(X[99:], two[99:]).score(X, two) > 0.9


def test_a_first_piece_that_is_too_small_to_draw_nodes_from_is_warned_of():
    with pytest.warns(
        UserWarning, match="10 feature nodes, and from 3 samples"
    ) as seen:
        classifier().partial_fit(X[:3], y[:3], classes=range(10))
    assert seen[0].filename == __file__


def test_numbers_that_come_later():
    T = np.stack([X[:, 20], X[:, 21] ** 2], 1)
    for targets in (T[:, 0], T):
        model = BroadLearningRegressor(2, 5, 40, ridge=1e-2, **IMAGES)
        for rows in PIECES:
            model.partial_fit(X[rows], targets[rows])
        W = ridge_by_numpy(model.expand(X), targets.reshape(300, -1), 1e-2)
        assert np.allclose(model.coef_, W, rtol=0, atol=1e-10 * abs(W).max())
        assert model.predict(X).shape == targets.shape
    with pytest.raises(ValueError, match="y must have 2 outputs as before, got 1"):
        model.partial_fit(X, T[:, 0])


def begun(**options):
    return classifier(**options).partial_fit(X[:99], y[:99], classes=range(10))


def fitted(**options):
    return classifier(**options).fit(X, y)


def more(model):
    return model.partial_fit(X, y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: begun().add_nodes(3), "add_nodes needs all samples, and a model beg"),
        (lambda: begun().add_feature_nodes(3), "add_feature_nodes needs all samples"),
        (lambda: begun(ridge=[1, 2]), r"needs one ridge, .* ridge=\[1, 2\]"),
        (lambda: more(begun().compact()), "partial_fit needs what compact.. has drop"),
        (lambda: begun().compact().add_nodes(3), "add_nodes needs what compact"),
        (lambda: begun().compact().add_feature_nodes(3), "needs what compact"),
        (lambda: begun().compact().drop_last(3), "drop_last needs what compact"),
        (lambda: fitted().compact().factor_error(), "needs what compact"),
        (lambda: begun().partial_fit(X[:, 1:], y), "X has 63 features, but .* 64"),
    ],
)
def test_what_cannot_be_exact_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (lambda: begun(), "factor_error", "bordered keeps no inverse Cholesky factor"),
        (lambda: fitted(solver="orig"), "factor", "orig keeps no inverse Cholesky"),
        (lambda: fitted(solver="orig"), "drop_last", "orig keeps no state for fewer"),
        (lambda: classifier(solver="orig"), "partial_fit", "chol-2, .* got 'orig'"),
        (lambda: fitted(solver="r-inv"), "partial_fit", "bordered on .* got 'r-inv'"),
        (lambda: classifier(class_weight="balanced"), "partial_fit", "takes a dict"),
    ],
)
def test_what_a_solver_cannot_do_is_no_method(make, name, message):
    model = make()
    assert not hasattr(model, name)
    with pytest.raises(AttributeError) as caught:
        getattr(model, name)
    assert re.search(message, str(caught.value.__cause__))
    assert hasattr(fitted(), name)


# Weights of samples


@pytest.mark.parametrize("options", [{}, {"chunk": 50}, {"scaling": "none"}])
@pytest.mark.parametrize("scaling", ["sample", "feature"])
@pytest.mark.filterwarnings("ignore:.* columns go through:UserWarning")
def test_weights_are_so_many_repeated_rows(scaling, options):
    weight = np.random.default_rng(0).integers(0, 4, 300)
    again = np.repeat(np.arange(300), weight)
    options = {"scaling": scaling, "ridge": 0.1, **options}

    def walked(X, y, w):
        half = len(y) // 2 if w is None else 150
        w = [None, None] if w is None else [w[:half], w[half:]]
        model = classifier(**options).fit(X[:half], y[:half], w[0]).add_nodes(9)
        return model.partial_fit(X[half:], y[half:], sample_weight=w[1]).add_nodes(6)

    weight[:150] = 2  # so that halves are halves
    weight[150:] = np.random.default_rng(0).permutation(np.arange(150) % 5)
    again = np.repeat(np.arange(300), weight)
    model, same = walked(X, y, weight), walked(X[again], y[again], None)
    assert np.allclose(model.coef_, same.coef_, rtol=0, atol=1e-8)
    assert model.n_samples_seen_ == (weight > 0).sum()
    target, numbers = X[:, 20], BroadLearningRegressor(2, 5, 40, **IMAGES)
    numbers.set_params(**options).fit(X, target, weight)
    found = numbers.predict(X)
    again = numbers.fit(X[again], target[again]).predict(X)
    assert np.allclose(found, again, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.where(y == 3, -1.0, 1), r"sample_weight must be >= 0 .* in -1\.\.1"),
        (np.zeros(300), "somewhere > 0|at least one non-zero"),
        (np.full(300, np.nan), "sample_weight contains NaN"),
        (np.ones(299), r"sample_weight.shape == \(299,\), expected \(300,\)"),
    ],
)
def test_weights_that_cannot_be_used(weight, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(X, y, weight)


# Sparse inputs


@pytest.mark.parametrize("scaling", ["sample", "feature", "none"])
@pytest.mark.filterwarnings("ignore:.* columns go through:UserWarning")
def test_sparse_rows_are_those_rows(scaling):
    dense, S = classifier(scaling=scaling), sparse.csc_matrix(X)
    same = classifier(scaling=scaling).fit(S, y).add_feature_nodes(3, 4)
    dense.fit(X, y).add_feature_nodes(3, 4)
    for model, late in ((dense, X), (same, S), (same, X), (dense, S)):
        model.partial_fit(late, y)
    assert np.array_equal(same.coef_, dense.coef_)
    assert np.array_equal(same.add_feature_nodes(3).predict(S), same.predict(X))


def test_a_sparse_table_is_never_dense():
    S = sparse.random(6000, 400, density=0.01, format="csr", random_state=0)
    target = np.asarray(S.sum(1)).ravel()
    model = BroadLearningRegressor(
        1, 5, 20, ridge=1.0, scaling="none", chunk=64, random_state=0
    )
    tracemalloc.start()
    with pytest.warns(UserWarning, match="400 columns go through"):
        model.fit(S, target).add_feature_nodes(5).predict(S)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6000 * 400 * 8 / 4


# Smaller pickles


def test_a_compact_model_is_its_nodes_and_weights():
    model = classifier().fit(X, y).add_nodes(60).drop_last(50)
    whole, wanted = len(pickle.dumps(model)), model.decision_function(X)
    found = pickle.loads(pickle.dumps(model.compact()))
    assert np.array_equal(found.decision_function(X), wanted)
    numbers = found.coef_.size * 3  # of two stages, and what coef_ is
    numbers += sum(g.weight.numel() + 10 for g in found.nodes_.groups)
    small = len(pickle.dumps(model))
    print(f"{whole / 1e6:.2f} MB, compact {small / 1e6:.2f} MB")
    assert small < 8 * numbers + 20_000 < whole / 5
    assert found.fit(X, y).add_nodes(3).nodes_.columns == 53


# A path of ridges


@pytest.mark.parametrize(("l", "k"), [(40, 7), (12, 12), (9, 30)])
def test_leave_one_out_is_what_it_says(l, k):  # noqa: E741
    A, _, T = problem(l, k)
    ridges = [1e-3, 0.3, 20.0]
    parts = A.split(5), T.split(5)
    found, norm = leave_one_out(lambda: zip(*parts, strict=True), (l, k), ridges)
    assert float(norm) == pytest.approx(np.linalg.norm(A, 2) ** 2)
    for ridge, error in zip(ridges, found.tolist(), strict=True):
        wanted = 0.0
        for i in range(l):
            others = [j for j in range(l) if j != i]
            W = ridge_by_numpy(A[others], T[others], ridge)
            wanted += ((A[i].numpy() @ W - T[i].numpy()) ** 2).sum()
        assert error == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("options", [{}, {"chunk": 64}, {"solver": "bordered"}])
@pytest.mark.parametrize("rows", [30, 300])
def test_the_ridge_is_that_of_scikit_learns_ridge_cv(rows, options, monkeypatch):
    calls, eigh = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda S: calls.append(S) or eigh(S))
    path = np.logspace(-4, 3, 8)
    model = classifier(ridge=path, **options).fit(X[:rows], y[:rows])
    alone = classifier(ridge=model.ridge_, **options).fit(X[:rows], y[:rows])
    assert np.array_equal(model.coef_, alone.coef_) and len(calls) == 1
    found = RidgeCV(alphas=path, fit_intercept=False, store_cv_results=True)
    found.fit(model.expand(X[:rows]), Y[:rows])
    assert found.alpha_ == model.ridge_ == path[model.loo_errors_.argmin()]
    errors = found.cv_results_.mean((0, 1))
    assert np.allclose(model.loo_errors_, errors, rtol=1e-5)
    assert alone.ridge_ == model.ridge_ and alone.loo_errors_ is None
    grown = model.add_nodes(9).coef_
    assert np.array_equal(grown, alone.add_nodes(9).coef_)


@pytest.mark.parametrize("rows", [30, 300])
@pytest.mark.parametrize("chunk", [None, 64])
@pytest.mark.parametrize("of_class", [None, "balanced", {0: 0.3, 1: 2.5}])
def test_the_path_of_weighted_rows_is_that_of_repeated_ones(rows, chunk, of_class):
    weight = np.random.default_rng(0).integers(1, 4, rows)
    again, path = np.repeat(np.arange(rows), weight), [1e-3, 1e-1, 10.0]
    fits = [(X[:rows], y[:rows], weight), (X[again], y[again])]
    how = {"ridge": path, "chunk": chunk, "class_weight": of_class}
    one, other = (classifier(**how).fit(*each) for each in fits)
    assert (
        np.allclose(one.loo_errors_, other.loo_errors_) and one.ridge_ == other.ridge_
    )


def test_a_share_of_a_row_is_left_out_as_ridge_cv_does():
    weight = np.random.default_rng(0).uniform(0.1, 1, 300)
    path = [1e-3, 1e-1, 10.0]
    model = classifier(ridge=path).fit(X, y, weight)
    found = RidgeCV(path, fit_intercept=False).fit(model.expand(X), Y, weight)
    assert found.alpha_ == model.ridge_
    root = torch.from_numpy(weight[:, None] ** 0.5)
    A, T = (root * torch.from_numpy(each) for each in (model.expand(X), Y))
    errors, _ = leave_one_out(lambda: [(A, T)], A.shape, path)
    assert np.allclose(model.loo_errors_, errors / weight.sum() / 10)


def test_without_a_ridge_one_that_is_safe_is_chosen():
    model = classifier(ridge=None).fit(X, y)
    assert model.ridge_ == RIDGES[model.loo_errors_.argmin()]
    assert begun(ridge=None).ridge_ == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a ridge that float32 cannot resolve
        coarse = classifier(ridge=None, dtype="float32").fit(X, y)
    assert coarse.ridge_ > model.ridge_


@pytest.mark.parametrize(
    ("ridge", "message"),
    [
        ([], "ridge must be a number or a list of some, got none"),
        ([1.0, 0.0], r"ridge must be > 0 and finite, got 0\.0"),
        ("auto", "ridge must be > 0 and finite, got 'auto'"),
    ],
)
def test_paths_that_cannot_be_used(ridge, message):
    with pytest.raises(ValueError, match=message):
        classifier(ridge=ridge).fit(X, y)
