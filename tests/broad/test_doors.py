"""What broad refuses, and its words."""

import numpy as np
import pytest
import torch
from scipy import sparse

from labkit.broad import (
    SOLVERS,
    BroadLearningClassifier,
    BroadLearningRegressor,
    SharedColumns,
)

g = np.random.default_rng(0)
X, T = g.normal(size=(20, 4)), g.normal(size=20)
Y = np.arange(20) % 3
A, H, Q = (torch.from_numpy(g.normal(size=(20, n))) for n in (4, 2, 3))
CLASSES = torch.arange(20) % 3


def regressor(**options):
    return BroadLearningRegressor(2, 3, 5, random_state=0, **{"ridge": 0.1} | options)


def classifier(**options):
    return BroadLearningClassifier(2, 3, 5, random_state=0, **{"ridge": 0.1} | options)


FITTED = regressor().fit(X, T)
STATE = {name: solver.start(A, Q, 0.1) for name, solver in SOLVERS.items()}
META = torch.ones(20, 4, device="meta")
NONE = np.array([None, *T[1:]], object)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: regressor().fit(X, NONE), r"y must be finite, got None at \(0,\)"),
        (lambda: regressor().partial_fit(X, NONE), "y must be finite, got None at"),
        (lambda: regressor().fit(X, Y.astype(str)), "y must hold numbers, got the dt"),
        (lambda: FITTED.predict(META), "X is on the device meta"),
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
        (lambda: SOLVERS["chol-1"].start(A, META, 0.1), "Y must have the dtype"),
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
