"""Odd inputs to every public function: a right result, or what is wrong in words."""

import copy
import linecache
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import sparse

from labkit.broad import (
    SOLVERS,
    BroadLearningClassifier,
    BroadLearningRegressor,
    NotPositiveDefinite,
    SharedColumns,
    Update,
    division_free_inverse_ldl,
    extend_division_free_inverse_ldl,
    extend_inverse_cholesky,
    extend_inverse_ldl,
    inverse_cholesky,
    inverse_ldl,
    side_by_side,
)

g = np.random.default_rng(0)
X, T = g.normal(size=(20, 4)), g.normal(size=20)
Y = np.arange(20) % 3
A, H, Q = (torch.from_numpy(g.normal(size=(20, n))) for n in (4, 2, 3))
R = A.T @ A + torch.eye(4, dtype=torch.float64)


class Strange:
    """What is nothing of all that is asked for."""


ODD = {
    "None": None,
    "a word": "x",
    "minus": -1,
    "zero": 0,
    "half": 0.5,
    "nan": float("nan"),
    "infinite": float("inf"),
    "huge": 10**400,
    "large": 10**30,
    "true": True,
    "nothing in it": [],
    "an empty row": [[]],
    "strange": Strange(),
    "a kind": Strange,
    "a dict": {"a": 1},
    "bytes": b"x",
    "a pair": (1, "x"),
    "ragged": [[1.0], [1.0, 2.0]],
    "scalar array": np.array(1.0),
    "cube": np.ones((20, 4, 2)),
    "complex": np.ones((20, 4)) * 1j,
    "objects": np.full((20, 4), None),
    "objects, flat": np.array([None, *range(19)], object),
    "huge objects": np.array([10**400, *range(19)], object),
    "words": np.full((20, 4), "a"),
    "dates": np.full((20, 4), np.datetime64("2020-01-01")),
    "nans": np.full((20, 4), np.nan),
    "infinities": np.full(20, np.inf),
    "no rows": np.empty((0, 4)),
    "no columns": np.empty((20, 0)),
    "one row": np.ones((1, 4)),
    "huge numbers": np.full((20, 4), 1e200),
    "float16": np.ones((20, 4), np.float16),
    "booleans": np.ones((20, 4), bool),
    "masked": np.ma.masked_equal(np.ones((20, 4)), 1),
    "a frame": pd.DataFrame({"a": ["x"] * 20, "b": 1}),
    "a frame of NA": pd.DataFrame({"a": pd.array([None] * 20, "Int64")}),
    "sparse": sparse.csr_array((20, 4)),
    "sparse nans": sparse.csr_array(np.full((20, 4), np.nan)),
    "sparse, high": sparse.coo_array((20, 4)),
    "meta": torch.ones(20, 4, device="meta"),
    "meta of float64": torch.ones(4, 4, device="meta", dtype=torch.float64),
    "sparse tensor": torch.eye(20, 4).to_sparse(),
    "complex tensor": torch.ones(20, 4, dtype=torch.complex128).conj(),
    "bfloat16": torch.ones(20, 4, dtype=torch.bfloat16),
    "integers": torch.ones(20, 4, dtype=torch.int64),
    "float32": torch.ones(20, 4),
    "nan tensor": torch.full((20, 4), torch.nan, dtype=torch.float64),
    "no tensor": torch.ones(0, 4, dtype=torch.float64),
    "scalar tensor": torch.tensor(1.0, dtype=torch.float64),
    "flat tensor": torch.ones(20, dtype=torch.float64),
    "negative classes": -torch.ones(20, dtype=torch.int64),
    "square": -torch.eye(4, dtype=torch.float64),
}
SMALL = {"ridge": 0.1, "random_state": 0}


def regressor(**options):
    return BroadLearningRegressor(2, 3, 5, **(SMALL | options))


def classifier(**options):
    return BroadLearningClassifier(2, 3, 5, **(SMALL | options))


def begun(X, y, sample_weight):
    return regressor().partial_fit(X, y, sample_weight=sample_weight).coef_


def with_option(name, make=regressor):
    def call(value):
        return (
            make()
            .set_params(**{name: value})
            .fit(X, T if make is regressor else Y)
            .coef_
        )

    return call, {"value": SMALL.get(name)}


def update(state, A, H, Y):
    return SOLVERS["chol-1"].update(state, A, H, Y).W


def sides(A, widths, Y, ridge, solvers):
    return [r.W for rs in side_by_side(A, widths, Y, ridge, solvers) for r in rs]


def columns(fit_inputs, fit_classes, test_inputs, test_classes, room, seed):
    made = SharedColumns((fit_inputs, fit_classes), (test_inputs, test_classes), room)
    return made.A


def grown(update, W):
    made = SharedColumns((A, torch.arange(20) % 3), (A, torch.arange(20) % 3), 9)
    made.add(Update(3), update)
    return made.score(W)


FITTED, LABELLED = regressor().fit(X, T), classifier().fit(X, Y)
STATE = {name: solver.start(A, Q, 0.1) for name, solver in SOLVERS.items()}
F = inverse_cholesky(R)
CLASSES = torch.arange(20) % 3


def changed(call, start=FITTED):
    """Of a copy of a model, which must be as it was wherever it is not changed."""

    def change(**values):
        model = pickle.loads(pickle.dumps(start))
        before = model.coef_.copy(), model.n_samples_seen_, len(model.history_)
        try:
            return call(model, **values).coef_
        except Exception:
            after = model.coef_, model.n_samples_seen_, len(model.history_)
            assert np.array_equal(before[0], after[0]) and before[1:] == after[1:]
            raise

    return change


# Name: a call of keyword arguments, and such that are right.
DATA = {"X": X, "y": T, "sample_weight": None}
CALLS = {
    "regressor.fit": (changed(lambda m, **v: m.fit(**v)), DATA),
    "regressor.partial_fit": (changed(lambda m, **v: m.partial_fit(**v)), DATA),
    "regressor.partial_fit, first": (begun, DATA),
    "classifier.fit": (changed(lambda m, **v: m.fit(**v), LABELLED), DATA | {"y": Y}),
    "classifier.partial_fit": (
        changed(lambda m, **v: m.partial_fit(**v), LABELLED),
        DATA | {"y": Y, "classes": None},
    ),
    "add_nodes": (changed(lambda m, n: m.add_nodes(n)), {"n": 2}),
    "add_feature_nodes": (
        changed(lambda m, **v: m.add_feature_nodes(**v)),
        {"n_features": 2, "n_own": 1, "n_extra": 1},
    ),
    "drop_last": (changed(lambda m, n: m.drop_last(n)), {"n": 2}),
    "predict": (FITTED.predict, {"X": X}),
    "expand": (FITTED.expand, {"X": X}),
    "predict_proba": (LABELLED.predict_proba, {"X": X}),
    "staged_score": (lambda X, y: [*LABELLED.staged_score(X, y)], {"X": X, "y": Y}),
    "inverse_cholesky": (inverse_cholesky, {"R": R, "method": "panels", "panel": None}),
    "inverse_ldl": (inverse_ldl, {"R": R}),
    "division_free_inverse_ldl": (division_free_inverse_ldl, {"R": R}),
    "extend_inverse_cholesky": (
        extend_inverse_cholesky,
        {"F": F, "P": R[:, :2], "S": 9 * torch.eye(2, dtype=torch.float64)},
    ),
    "extend_inverse_ldl": (
        extend_inverse_ldl,
        dict(zip("Ld", inverse_ldl(R), strict=True))
        | {"P": R[:, :2], "S": 9 * torch.eye(2, dtype=torch.float64)},
    ),
    "extend_division_free_inverse_ldl": (
        extend_division_free_inverse_ldl,
        dict(
            zip(("U", "delta", "beta"), division_free_inverse_ldl(R), strict=True),
            P=R[:, :2],
            S=9 * torch.eye(2, dtype=torch.float64),
        ),
    ),
    "Update": (Update, {"features": 2, "own": 1, "extra": 1}),
    "SharedColumns": (
        columns,
        {
            "fit_inputs": A,
            "fit_classes": CLASSES,
            "test_inputs": A,
            "test_classes": CLASSES,
            "room": 9,
            "seed": 0,
        },
    ),
    "SharedColumns.add and score": (
        grown,
        {"update": Update(extra=2), "W": torch.ones(5, 3, dtype=torch.float64)},
    ),
    "side_by_side": (
        sides,
        {
            "A": A,
            "widths": [2, 4],
            "Y": Q,
            "ridge": 0.1,
            "solvers": ["chol-1", "orig"],
        },
    ),
    **{
        f"{name}.start": (
            SOLVERS[name].start,
            {"A": A, "Y": Q, "ridge": 0.1, "capacity": None},
        )
        for name in SOLVERS
    },
    **{
        f"{name}.update": (
            lambda name=name, **v: SOLVERS[name].update(**v).W,
            {"state": STATE[name], "A": A, "H": H, "Y": Q},
        )
        for name in SOLVERS
    },
    **{
        f"option {name}": with_option(name)
        for name in regressor().get_params()
        if name != "random_state"
    },
    "option class_weight": with_option("class_weight", classifier),
}
REFUSED = ValueError, TypeError, NotPositiveDefinite, OverflowError


def raw(error):
    """Whether an error is of Python or of torch, and not in words of what was given."""
    where = error.__traceback__
    while where.tb_next:
        where = where.tb_next
    code = where.tb_frame.f_code
    home = where.tb_frame.f_globals.get("__name__", "")
    line = linecache.getline(code.co_filename, where.tb_lineno)
    own = home.startswith(("labkit", "sklearn")) and "raise " in line
    return not (isinstance(error, REFUSED) and (own or _known(error)))


def _known(error):
    """What NumPy and SciPy say in words of an array that is handed to scikit-learn."""
    return bool(re.search("convert|setting an array|could not be promoted", str(error)))


def outcome(name, argument, value):
    """Nothing, or the raw error."""
    call, right = CALLS[name]
    try:
        call(**copy.copy(right) | {argument: value})
    except Exception as error:
        return error if raw(error) else None


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_an_odd_input_is_right_or_refused_in_words(name, data):
    argument = data.draw(st.sampled_from(sorted(CALLS[name][1])))
    odd = data.draw(st.sampled_from(sorted(ODD)))
    assert outcome(name, argument, ODD[odd]) is None


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_every_odd_input_is_right_or_refused_in_words(name):
    for argument in CALLS[name][1]:
        for odd, value in ODD.items():
            assert outcome(name, argument, value) is None, (argument, odd)


NONE = np.array([None, *T[1:]], object)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: regressor().fit(X, NONE), r"y must be finite, got None at \(0,\)"),
        (lambda: regressor().partial_fit(X, NONE), "y must be finite, got None at"),
        (lambda: regressor().fit(X, Y.astype(str)), "y must hold numbers, got the dt"),
        (lambda: FITTED.predict(ODD["meta"]), "X is on the device meta"),
        (lambda: regressor(device=3.5).fit(X, T), "device must be None, .* float 3.5"),
        (lambda: regressor(device="cup").fit(X, T), "device must name .* got 'cup'"),
        (lambda: regressor(device="meta").fit(X, T), "device must hold numbers"),
        (lambda: regressor(shrink=10**400).fit(X, T), "shrink must be .* got 1000"),
        (lambda: regressor(chunk=10**30).fit(X, T), "chunk must be .*, got 1000"),
        (lambda: regressor(sparse_iter=10**9).fit(X, T), "sparse_iter must be .* 1000"),
        (lambda: FITTED.add_nodes(10**30), "n_enhancement must be .* got 1000"),
        (lambda: classifier(class_weight="even").fit(X, Y), "class_weight .* 'even'"),
        (lambda: classifier(class_weight={7: 1}).fit(X, Y), r"class_weight has \[7\]"),
        (lambda: classifier(class_weight={1: 0}).fit(X, Y), "class_weight: 1 must be"),
        (lambda: classifier().partial_fit(X, Y, [0, "a"]), "y must hold|of one kind"),
        (lambda: SOLVERS["orig"].update(STATE["chol-1"], A, H, Q), "DaggerState, as"),
        (lambda: SOLVERS["chol-1"].start(A, ODD["meta"], 0.1), "Y must have the dtype"),
        (lambda: SharedColumns((A, CLASSES), None, 9), "test must be a pair"),
    ],
)
def test_what_is_wrong_is_said(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_large_scale_is_a_scale():
    assert np.isfinite(regressor(shrink=10**30).fit(X, T).coef_).all()


@pytest.mark.parametrize("chunk", [None, 7])
def test_an_all_zero_sparse_batch(chunk):
    """Texts without a known word are rows like others."""
    none = sparse.csr_array((20, 4))
    model = regressor(chunk=chunk).fit(none, T)
    dense = regressor(chunk=chunk).fit(none.toarray(), T)
    assert np.array_equal(model.predict(none), dense.predict(none.toarray()))
    model.partial_fit(none, T)
    assert np.array_equal(
        model.predict(none), dense.partial_fit(none.toarray(), T).predict(none)
    )
    assert classifier().fit(none, Y).predict(none).shape == (20,)
