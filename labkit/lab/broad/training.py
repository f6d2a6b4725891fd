"""Training without a panel: growth, a factorisation step by step, a fitted curve."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.broad import (
    SOLVERS,
    BroadLearningRegressor,
    NotPositiveDefinite,
    SharedColumns,
    Update,
    side_by_side,
)
from labkit.broad.factor import column_growth, panel_sweep
from labkit.broad.state import squared_norm
from labkit.lab.problem import Problem, with_noise

EXACT = tuple(name for name in SOLVERS if SOLVERS[name].exact)
GREVILLE = tuple(name for name in SOLVERS if not SOLVERS[name].exact)
START, LARGEST = 110, 80  # nodes at the start, and in an update at most
LAW = 0.04  # |F^T R F - I| over eps |A|^2 / ridge, measured on such models; float64
POINTS, JOINS, FIRST = 60, 20, 8  # of the curve: points, updates, first columns
X = np.linspace(-1, 1, 161)[:, None]  # where the functions and the fits are drawn


def start_of(
    groups: int = 1, nodes_per_group: int = 10, enhancement: int = 100
) -> list[Update]:
    """Return the nodes of a start: feature groups, then enhancement nodes."""
    return [*groups * [Update(nodes_per_group)], Update(extra=enhancement)]


def paper_update(enhancement: int, features: int = 0) -> Update:
    """Return an update in the proportions of the paper's.

    In the paper, 750 of 2,000 enhancement nodes see only the new features, if any.
    """
    own = enhancement * 3 // 8 if features else 0
    return Update(features, own, enhancement - own)


def shared_columns(
    problem: Problem,
    room: int,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> SharedColumns:
    """Return shared columns with this ``room`` for the rows of a problem."""
    parts = [(p.inputs.to(dtype), p.targets) for p in (problem.fit, problem.test)]
    return SharedColumns(*parts, room, seed=seed)


def growth_rows(settings: Any, problem: Problem, updates: int = 12) -> Iterator[dict]:
    """Yield one row for the start and for every update; ``step`` counts columns.

    The knobs of an update are read when its columns are made, the other knobs once. A
    solver that has lost a pivot is left out from then on, and ``note`` gives the error.
    """
    problem = with_noise(
        problem,
        input_noise=settings.input_noise,
        label_noise=settings.label_noise,
        seed=settings.seed,
    )
    dtype, room = getattr(torch, settings.precision), START + updates * LARGEST
    columns = shared_columns(problem, room, seed=settings.seed, dtype=dtype)

    def widths() -> Iterator[int]:
        yield columns.add(*start_of())
        for _ in range(updates):
            enhancement = settings.budget - settings.features
            yield columns.add(paper_update(enhancement, settings.features))

    kinds, notes = {settings.exact: "exact", settings.greville: "greville"}, []
    A = columns.A
    growth = side_by_side(
        A,
        widths(),
        columns.Y,
        settings.ridge,
        kinds,
        score=columns.score,
        factor_error=True,
    )
    for records in growth:
        k, eps = records[0].columns, torch.finfo(A.dtype).eps
        law = LAW * eps * float(squared_norm(A[:, :k])) / settings.ridge
        row = {"step": k, "ridge": settings.ridge, "law": law}
        for record in records:
            kind = kinds[record.solver]
            if record.lost is not None:
                notes.append(f"{record.solver} ended at {k} columns: {record.lost}")
                continue
            row[f"accuracy {kind}"] = record.score
            row[f"residual {kind}"] = record.residual
            row[f"pivot {kind}"] = record.smallest_pivot
            if kind == "exact" and record.factor_error is not None:
                row["factor error"] = record.factor_error
        yield row | ({"note": "; ".join(notes)} if notes else {})


def factor_steps(R: Tensor, knobs: Any) -> Iterator[tuple[int, Tensor]]:
    """Factorise a copy of R (k, k); yield the finished columns of F, and the memory."""
    memory = R.clone()
    sweep = panel_sweep(memory, knobs.panel)
    yield 0, memory.triu()
    for finished in sweep if knobs.method == "sweep" else column_growth(memory):
        yield finished, memory.triu()


# A curve that is fitted by functions


class Functions(NamedTuple):
    """The columns on a grid, the points, and the two fits by the same columns."""

    points: np.ndarray  # (n, 2)
    columns: np.ndarray  # (161, k)
    old: int  # columns before this update
    places: int  # for all columns up to the last update, at the present rate
    fits: dict[str, np.ndarray]  # by solver, (161,)
    factor: np.ndarray | None  # (k, k) F of the ridge solver, if it keeps it


def curve(x: np.ndarray) -> np.ndarray:
    """Return the true function, of which the points are noisy values."""
    return np.sin(5 * x) + 0.5 * np.cos(9 * x)


def model(solver: str, knobs: Any) -> BroadLearningRegressor:
    """Return a model with this solver; all such models draw the same nodes."""
    return BroadLearningRegressor(
        1,
        3,
        FIRST - 3,
        ridge=knobs.ridge,
        solver=solver,
        scaling="feature",
        shrink=4.0,
        orthonormal=False,
        random_state=knobs.seed,
    )


def function_rows(knobs: Any) -> Iterator[dict]:
    """Yield one row for the start and one for every update."""
    draw = np.random.default_rng(knobs.seed)
    x = draw.uniform(-1, 1, (POINTS, 1))
    y = curve(x[:, 0]) + knobs.noise * draw.standard_normal(POINTS)
    models = {name: model(name, knobs) for name in (knobs.exact, knobs.greville)}
    old, lost = 0, {}
    for step in range(1, JOINS + 2):
        fits, row = {}, {"step": step}
        for kind, (name, each) in zip(
            ("ridge", "greville"), models.items(), strict=True
        ):
            try:
                if name not in lost:
                    each.add_nodes(knobs.added) if old else each.fit(x, y)
            except NotPositiveDefinite as error:
                lost[name] = str(error)
            if not (name in lost and not old):
                fits[name] = each.predict(X)
                row[f"error {kind}"] = rms(fits[name] - curve(X[:, 0]))
        if not fits:
            yield row | {"note": "; ".join(lost.values())}
            return
        columns = models[next(iter(fits))].expand(X)
        if len(fits) == 2:
            row["apart"] = rms(np.subtract(*fits.values()))
        row |= {"columns": columns.shape[1]} | ({"note": str(lost)} if lost else {})
        picture = Functions(
            points=np.stack([x[:, 0], y], 1),
            columns=columns,
            old=old,
            places=columns.shape[1] + (JOINS + 1 - step) * knobs.added,
            fits=fits,
            factor=factor_of(models[knobs.exact]),
        )
        yield row | {"pictures": picture}
        old = columns.shape[1]


def factor_of(model: BroadLearningRegressor) -> np.ndarray | None:
    """Return the inverse Cholesky factor, or None if the solver has none."""
    return model.factor().numpy().copy() if hasattr(model, "factor") else None


def rms(values: np.ndarray) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values))))
