"""Golden numbers of broad learning: solvers, factorisations, estimators, records."""

from functools import partial

import numpy as np
import torch

from labkit.broad import (
    SOLVERS,
    BroadLearningClassifier,
    BroadLearningRegressor,
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

KEPT = "F", "L", "A_dagger", "AY", "z"


def drawn(*shape, seed=0):
    """Return standard normal numbers in float64."""
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def solver(name, ridge):
    """Return what a solver has after its start and after each of two updates."""
    columns, Y = drawn(40, 19), drawn(40, 3, seed=1)
    found, state = {}, None
    for k, grown in ((0, 10), (10, 15), (15, 19)):
        A, H = columns[:, :k], columns[:, k:grown]
        if state is None:
            state = SOLVERS[name].start(H, Y, ridge)
        else:
            state = SOLVERS[name].update(state, A, H, Y)
        found |= {f"W {grown}": state.W.clone(), f"pivot {grown}": state.pivot}
        for kind in KEPT:
            if hasattr(state, kind):
                found[f"{kind} {grown}"] = getattr(state, kind).clone()
    return found


def factorisations(k):
    """Return all inverse factorisations of a matrix, and their block forms."""
    A = drawn(k + 9, k)
    R = A.T @ A + 0.5 * torch.eye(k, dtype=A.dtype)
    old, P, S = R[: k // 2, : k // 2], R[: k // 2, k // 2 :], R[k // 2 :, k // 2 :]
    found = {"F": inverse_cholesky(R), "by columns": None, "panels of 3": None}
    found["by columns"] = inverse_cholesky(R, method="columns")
    found["panels of 3"] = inverse_cholesky(R, panel=3)
    found["F extended"] = extend_inverse_cholesky(inverse_cholesky(old), P, S)
    found["L"], found["d"] = inverse_ldl(R)
    L, d = inverse_ldl(old)
    found["L extended"], found["d extended"] = extend_inverse_ldl(L, d, P, S)
    names = ["U", "delta", "beta"]
    whole = division_free_inverse_ldl(R)
    U, delta, beta = division_free_inverse_ldl(old)
    grown = extend_division_free_inverse_ldl(U, delta, beta, P, S)
    found |= dict(zip(names, whole, strict=True))
    return found | {f"{n} extended": x for n, x in zip(names, grown, strict=True)}


def estimator(kind, changes=True, **options):
    """Return what an estimator is after a fit and after each change."""
    X = np.random.default_rng(0).normal(size=(80, 6))
    y = X[:, 0] * X[:, 1] + X[:, 2]
    if kind is BroadLearningClassifier:
        y = np.digitize(y, [-0.5, 0.5])
    model = kind(3, 4, 20, random_state=0, **options).fit(X[:60], y[:60])
    calls = [
        lambda: model.add_nodes(9),
        lambda: model.add_feature_nodes(4, n_own=3, n_extra=5),
        lambda: model.drop_last(7),
        lambda: model.add_nodes(6),
    ]
    if options.get("solver") == "orig":  # which cannot drop columns
        del calls[2]
    found = {"coef 0": model.coef_.copy(), "ridge": model.ridge_}
    if model.loo_errors_ is not None:
        found["loo"] = model.loo_errors_
    for i, call in enumerate(calls if changes else []):
        call()
        found[f"coef {i + 1}"] = model.coef_.copy()
    fields = ["columns", "features", "added", "operations", "smallest_pivot"]
    for field in fields:
        found[field] = np.array([getattr(row, field) for row in model.history_])
    found["solvers"] = np.array([list(SOLVERS).index(r.solver) for r in model.history_])
    found["fallback"] = np.array([row.fallback for row in model.history_])
    found["expanded"] = model.expand(X[60:])
    if kind is BroadLearningClassifier:
        found["outputs"] = model.decision_function(X[60:])
        found["shares"] = model.predict_proba(X[60:])
    else:
        found["outputs"] = model.predict(X[60:])
    found["staged"] = np.array(list(model.staged_score(X[60:], y[60:])))
    if hasattr(model, "factor"):
        found["factor"] = model.factor().clone()
    return found


def training():
    """Return the shared columns and the records of all solvers."""
    X = drawn(90, 6)
    y = (X[:, 0] > 0).long() + (X[:, 1] > 1)
    columns = SharedColumns((X[:60], y[:60]), (X[60:], y[60:]), 40, seed=3)
    columns.add(Update(5), Update(extra=8))
    columns.add(Update(3, 4, 6))
    columns.add(Update(extra=9))
    found = {"A": columns.A[:, :35], "B": columns.B[:, :35]}
    setting = columns.A, columns.widths, columns.Y, 0.3, SOLVERS
    for records in side_by_side(*setting, score=columns.score, factor_error=True):
        for record in records:
            name = f"{record.solver} {record.columns}"
            found[f"{name} W"] = record.W
            numbers = record.operations, record.smallest_pivot, record.score
            found[f"{name} numbers"] = np.array([record.step, *numbers])
    return found


RIDGES = 1e-6, 1e-2, 1.0, 100.0
CLASSIFIER, REGRESSOR = BroadLearningClassifier, BroadLearningRegressor
CASES = {
    **{
        f"{name} at {ridge:g}": partial(solver, name, ridge)
        for name in SOLVERS
        for ridge in RIDGES
    },
    **{f"factorisations of {k}": partial(factorisations, k) for k in (7, 100)},
    **{
        f"classifier by {name}": partial(estimator, CLASSIFIER, ridge=1.0, solver=name)
        for name in SOLVERS
    },
    "classifier": partial(estimator, CLASSIFIER, changes=False),
    "regressor": partial(estimator, REGRESSOR, changes=False),
    "ridges": partial(estimator, REGRESSOR, ridge=[1e-1, 1.0, 10.0]),
    "sample": partial(estimator, CLASSIFIER, scaling="sample", ridge=1.0),
    "none": partial(estimator, REGRESSOR, scaling="none", ridge=1.0, orthonormal=False),
    "fallback": partial(estimator, CLASSIFIER, ridge=0.5, fallback="chol-2"),
    "shrink": partial(
        estimator,
        CLASSIFIER,
        ridge=1.0,
        shrink=0.8,
        sparse_penalty=0.1,
        sparse_iter=9,
    ),
    "training": training,
}
