"""A change of an estimator that is cut off at any line: it happened, or did not."""

import pickle

import numpy as np
import pytest

from labkit.broad import BroadLearningClassifier, BroadLearningRegressor
from tests.cuts import lines_of

SAMPLE = 5  # lines of a change that are cut at; all of them in `make test-long`

g = np.random.default_rng(0)
X, T = g.normal(size=(40, 5)), g.normal(size=40)
OTHER = g.normal(size=(30, 4))
Y = (T > 0).astype(int)


def seen(model):
    """All that can be seen of a model, but for its seconds."""
    state = {name for name in vars(model)}
    if not hasattr(model, "history_"):
        return sorted(state)
    d = model.n_features_in_
    history = [
        (r.columns, r.features, r.added, r.smallest_pivot, r.solver, r.samples)
        for r in model.history_
    ]
    return [
        sorted(state),
        d,
        history,
        model.n_samples_seen_,
        model.coef_.tolist(),
        model.predict(X[:, :d]).tolist(),
        list(model.staged_score(X[:, :d], Y)),
    ]


def regressor(**options):
    how = {"ridge": 0.1, "random_state": 0, **options}
    return BroadLearningRegressor(2, 3, 5, **how)


def classifier(**options):
    return BroadLearningClassifier(2, 3, 5, ridge=0.1, random_state=0, **options)


def fitted(make=regressor, **options):
    return make(**options).fit(X[:25], (T if make is regressor else Y)[:25])


def begun(**options):
    return regressor(**options).partial_fit(X[:25], T[:25])


def more(model):
    model.partial_fit(X[25:], T[25:])


CASES = {
    "fit": (regressor, lambda m: m.fit(X, T)),
    "fit of many ridges": (lambda: regressor(ridge=None), lambda m: m.fit(X, T)),
    "fit of classes": (classifier, lambda m: m.fit(X, Y)),
    "fit of other columns": (fitted, lambda m: m.fit(OTHER, T[:30])),
    "fit with a chunk": (lambda: fitted(chunk=7), lambda m: m.fit(X, T, T**2)),
    "partial_fit, first": (regressor, lambda m: m.partial_fit(X, T)),
    "partial_fit, begun": (begun, more),
    "partial_fit of classes": (
        lambda: fitted(classifier, class_weight={1: 2.0}),
        lambda m: m.partial_fit(X[25:], Y[25:]),
    ),
    **{
        f"partial_fit, {options}": (lambda options=options: fitted(**options), more)
        for options in (
            {},
            {"capacity": 30},
            {"solver": "bordered", "capacity": 30},
            {"chunk": 7},
        )
    },
    **{
        f"{name}, {options}": (lambda options=options: fitted(**options), call)
        for options in (
            {},
            {"capacity": 40},
            {"chunk": 7},
            {"solver": "r-inv", "capacity": 40},
            {"solver": "d-rdg"},
            {"solver": "bordered", "capacity": 40},
        )
        for name, call in {
            "add_nodes": lambda m: m.add_nodes(4),
            "add_feature_nodes": lambda m: m.add_feature_nodes(3, 2, 2),
            "drop_last": lambda m: m.drop_last(3),
        }.items()
    },
    "add_nodes, orig": (
        lambda: fitted(solver="orig", capacity=40).add_nodes(2),
        lambda m: m.add_nodes(4),
    ),
    "drop_last of many": (
        lambda: fitted(capacity=40).add_nodes(6).partial_fit(X[25:], T[25:]),
        lambda m: m.drop_last(8),
    ),
    "compact": (fitted, lambda m: m.compact()),
    "factor_error": (fitted, lambda m: m.factor_error()),
}


def check_cut(start, call, at, before, after):
    model = pickle.loads(start)
    lines_of(lambda: call(model), at)
    now = seen(model)
    assert now in (before, after), at
    if now == before:  # then a repeat gives what one call gives
        call(model)
        assert seen(model) == after, at


def cuts_of(name, count):
    make, call = CASES[name]
    start, whole = pickle.dumps(make()), make()
    total = lines_of(lambda: call(whole))
    before, after = seen(pickle.loads(start)), seen(whole)
    every = max(1, total // count) if count else 1
    points = sorted({*range(1, total + 1, every), *range(max(1, total - 9), total + 1)})
    for at in points:
        check_cut(start, call, at, before, after)
    return len(points)


@pytest.mark.parametrize("name", CASES)
def test_a_change_that_is_cut_off_happened_or_did_not(name):
    assert cuts_of(name, SAMPLE) >= SAMPLE


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_change_that_is_cut_off_at_every_line(name):
    print(name, cuts_of(name, None))
