"""Calls of broad's public functions, for odd inputs; see :mod:`tests.odd`."""

import pickle

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

g = np.random.default_rng(0)
X, T = g.normal(size=(20, 4)), g.normal(size=20)
Y = np.arange(20) % 3
A, H, Q = (torch.from_numpy(g.normal(size=(20, n))) for n in (4, 2, 3))
R = A.T @ A + torch.eye(4, dtype=torch.float64)
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

    return call, {"value": make().get_params()[name]}


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
S = R[:2, :2] + 9 * torch.eye(2, dtype=torch.float64)


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
        {"F": F, "P": R[:, :2], "S": S},
    ),
    "extend_inverse_ldl": (
        extend_inverse_ldl,
        dict(zip("Ld", inverse_ldl(R), strict=True)) | {"P": R[:, :2], "S": S},
    ),
    "extend_division_free_inverse_ldl": (
        extend_division_free_inverse_ldl,
        dict(
            zip(("U", "delta", "beta"), division_free_inverse_ldl(R), strict=True),
            P=R[:, :2],
            S=S,
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
