"""Growing as generators: one record per update, to draw while it happens.

:func:`grow` drives an estimator; :func:`race` lets several solvers grow over the very
same columns, which is the only fair comparison: models grown apart have other nodes.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from labkit.broad.cost import start_operations, update_operations
from labkit.broad.factor import NotPositiveDefinite
from labkit.broad.factor import factor_error as error_of
from labkit.broad.ridge import with_ridge
from labkit.broad.solvers import solver_named
from labkit.broad.state import FactorState
from labkit.broad.triangular import gram


@dataclass(frozen=True)
class Update:
    """Nodes to add at once: a feature group and its own, and some that see all."""

    features: int = 0
    own: int = 0  # enhancement nodes of the new features only
    extra: int = 0  # enhancement nodes of all features

    def __post_init__(self):
        if min(self.features, self.own, self.extra) < 0:
            raise ValueError(f"counts must not be negative, got {self}")
        if self.features + self.extra == 0 or (self.own and not self.features):
            raise ValueError(f"an update needs features or extra nodes, got {self}")


@dataclass(frozen=True)
class GrowthRecord:
    """One size of a growing model."""

    step: int  # 0 is the fit
    columns: int
    features: int
    added: int
    seconds: float  # of the solver
    operations: float  # structured count
    smallest_pivot: float
    solver: str
    fallback: bool
    train_score: float
    score: float | None  # on the test data, where given
    factor_error: float | None  # |F^T R F - I|, where asked for


def grow(
    model, X, y, updates: Iterable[Update], *, test=None, factor_error: bool = False
) -> Iterator[GrowthRecord]:
    """Fit an estimator and add nodes; yields after the fit and after every update.

    Parameters
    ----------
    model : a BroadLearningClassifier or BroadLearningRegressor; is fitted.
    X, y : training data.
    updates : what to add, one after another.
    test : (X, y), or None.
    factor_error : measure it at every size: costs more than the update.

    Raises
    ------
    NotPositiveDefinite
        After the records up to there; the model stays as it was.
    """
    model.fit(X, y)
    yield _record(model, 0, X, y, test, factor_error)
    for step, update in enumerate(updates, start=1):
        if update.features:
            model.add_feature_nodes(update.features, update.own, update.extra)
        else:
            model.add_nodes(update.extra)
        yield _record(model, step, X, y, test, factor_error)


def _record(model, step, X, y, test, factor_error) -> GrowthRecord:
    error = model.factor_error() if factor_error else None
    last = model.history_[-1]
    return GrowthRecord(
        step=step,
        columns=last.columns,
        features=last.features,
        added=last.added,
        seconds=last.seconds,
        operations=last.operations,
        smallest_pivot=last.smallest_pivot,
        solver=last.solver,
        fallback=last.fallback,
        train_score=model.score(X, y),
        score=None if test is None else model.score(*test),
        factor_error=error,
    )


@dataclass(frozen=True)
class RaceRecord:
    """One solver at one size, on the columns that all solvers share."""

    step: int  # 0 is the start
    solver: str
    columns: int
    seconds: float
    operations: float  # structured count
    smallest_pivot: float | None  # None where it was lost
    residual: float | None  # |A^T (A W - Y) + ridge W| / |A^T Y|: 0 for exact ridge
    score: float | None
    lost: NotPositiveDefinite | None  # the solver has dropped out here
    W: Tensor | None = field(repr=False)  # (k, c)
    factor_error: float | None = None  # |F^T R F - I|, where asked for and F is kept


def race(
    A: Tensor,
    widths: Iterable[int],
    Y: Tensor,
    ridge: float,
    solvers: Iterable[str],
    *,
    score: Callable[[Tensor], float] | None = None,
    factor_error: bool = False,
) -> Iterator[RaceRecord]:
    """Grow several solvers side by side over the columns of A.

    Parameters
    ----------
    A : (l, k) all columns.  Y : (l, c).
    widths : columns at the start and after every update, ascending, at most k. An
        iterator is read update by update, and so are the columns of A, which may come
        with it; room is then set aside for all of A.
    ridge : lambda > 0.
    solvers : names of :data:`~labkit.broad.solvers.SOLVERS`; a solver that loses a
        pivot yields a record with ``lost`` and drops out.
    score : from W (k, c) to a number.
    factor_error : measure it at every size: costs more than the update.

    Yields
    ------
    RaceRecord
        For every width, for every solver that is still there.
    """
    capacity = A.shape[1]
    if not isinstance(widths, Iterator):
        widths = list(widths)
        if not widths or sorted(set(widths)) != widths or widths[-1] > capacity:
            raise ValueError(
                f"widths must ascend to at most {capacity} columns, got {widths}"
            )
        capacity = widths[-1]
    racing = {name: (solver_named(name), None) for name in solvers}
    k = 0
    for step, grown in enumerate(widths):
        if not racing:
            return
        if not k < grown <= A.shape[1]:
            raise ValueError(
                f"widths must ascend to at most {A.shape[1]} columns, "
                f"got {grown} after {k}"
            )
        AY = A[:, :grown].T @ Y
        for name, (solver, state) in list(racing.items()):
            size = len(A), k, grown - k, Y.shape[1]
            began = time.perf_counter()
            try:
                if step == 0:
                    state = solver.start(A[:, :grown], Y, ridge, capacity)
                    operations = start_operations(name, len(A), grown, Y.shape[1])
                else:
                    operations = update_operations(name, *size)
                    state = solver.update(state, A[:, :k], A[:, k:grown], Y)
            except NotPositiveDefinite as lost:
                del racing[name]
                seconds = time.perf_counter() - began
                yield RaceRecord(
                    step, name, grown, seconds, 0.0, None, None, None, lost, None
                )
                continue
            racing[name] = solver, state
            pivot = float(state.pivot)  # waits for the device
            seconds = time.perf_counter() - began
            gradient = A[:, :grown].T @ (A[:, :grown] @ state.W) - AY
            gradient += ridge * state.W
            residual = float(torch.linalg.norm(gradient) / torch.linalg.norm(AY))
            yield RaceRecord(
                step,
                name,
                grown,
                seconds,
                operations,
                pivot,
                residual,
                None if score is None else float(score(state.W)),
                None,
                state.W,
                _factor_error(state, A[:, :grown]) if factor_error else None,
            )
        k = grown


def _factor_error(state, A: Tensor) -> float | None:
    if not isinstance(state, FactorState):
        return None
    return float(error_of(state.F, with_ridge(gram(A), state.ridge)))
