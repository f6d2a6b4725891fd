"""The ranges of the estimators' parameters, which are checked when a model is begun."""

import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np

from labkit.broad.nodes import SCALINGS, Recipe
from labkit.broad.rows import TAKE_ROWS
from labkit.broad.solvers import SOLVERS
from labkit.broad.state import MOST
from labkit.check import (
    POSITIVE,
    Range,
    check_device,
    check_options,
    integer,
    one_of,
    optional,
)

if TYPE_CHECKING:
    from labkit.broad.growth import BroadLearning

# The paper's settings for MNIST; the estimators' own defaults suit tables.
PAPER = {
    "n_groups": 6,
    "nodes_per_group": 10,
    "n_enhancement": 3000,
    "ridge": 1e-6,
    "scaling": "sample",
    "shrink": 0.8,
}
RANGES = {
    "n_groups": optional(integer(1, MOST)),
    "nodes_per_group": integer(1, MOST),
    "n_enhancement": integer(0, MOST),
    "solver": one_of(SOLVERS),
    "scaling": one_of(SCALINGS),
    "shrink": optional(POSITIVE),
    "orthonormal": Range("True or False", lambda v: isinstance(v, (bool, np.bool_))),
    "sparse_penalty": POSITIVE,
    "sparse_iter": integer(1, 10**6),
    "dtype": one_of(("float64", "float32")),
    "capacity": optional(integer(1, MOST)),
    "chunk": optional(integer(1, 2**31 - 1)),
    "fallback": optional(one_of(("chol-2",))),
}
ADDED = {
    "n_enhancement": integer(1, MOST),
    "n_features": integer(1, MOST),
    "n_own": integer(0, MOST),
    "n_extra": integer(0, MOST),
}
NARROW = 100  # columns; for wider tables the defaults depend on their number
WIDEST = 1000  # feature nodes that a default takes at most
LISTS = (list, tuple, np.ndarray)  # of ridges
RIDGES = tuple(10.0**e for e in range(-6, 4))  # where none is given


def check_parameters(
    model: "BroadLearning", d: int, weight: np.ndarray | None, keep: bool
) -> None:
    """Raise a ValueError if a model cannot be fitted with its parameters.

    Parameters
    ----------
    model : estimator
    d : int, columns of X
    weight : (l,) array of sample weights, or None
    keep : bool, whether the model keeps its samples
    """
    check_options({name: getattr(model, name) for name in RANGES}, RANGES)
    check_device(model.device)
    many = _several(model.ridge)
    for ridge in model.ridge if many else () if model.ridge is None else [model.ridge]:
        check_options({"ridge": ridge}, {"ridge": POSITIVE})
        if ridge > float(np.finfo(model.dtype).max):
            raise ValueError(f"ridge {ridge:g} leaves {model.dtype}; use float64")
    if many and not len(model.ridge):
        raise ValueError("ridge must be a number or a list of some, got none")
    if model.scaling == "sample" and d < 2:
        raise ValueError(
            f"scaling='sample' standardises every row and needs 2 features or "
            f"more, got n_features={d}; use scaling='feature'"
        )
    solver, fallback = model.solver, model.fallback
    if fallback is not None and solver != "chol-1":
        raise ValueError(f"fallback={fallback!r} needs solver='chol-1', got {solver!r}")
    for name in ("mesh", "chunk"):  # both need a solver of sums over samples alone
        plain = not keep or (solver, fallback) == ("chol-1", None)
        if getattr(model, name) is not None and not plain:
            raise ValueError(
                f"{name} needs solver='chol-1' without fallback, got "
                f"solver={solver!r}, fallback={fallback!r}"
            )
    if model.mesh is not None and (many or weight is not None):
        raise ValueError("a mesh takes one ridge, and no sample_weight")
    if not keep and (many or solver not in TAKE_ROWS or model.mesh is not None):
        raise ValueError(
            f"a model begun by partial_fit needs one ridge, a solver out of "
            f"{', '.join(TAKE_ROWS)} and no mesh; got ridge={model.ridge!r}, "
            f"solver={solver!r}, mesh={model.mesh!r}"
        )


def ridge_of(model: "BroadLearning", keep: bool) -> float | list[float]:
    """Return the ridge to use, or the list of ridges to choose from."""
    if model.ridge is None:
        return list(RIDGES) if keep and model.mesh is None else 1.0
    many = _several(model.ridge)
    return [float(ridge) for ridge in model.ridge] if many else float(model.ridge)


def groups_of(model: "BroadLearning", d: int) -> int:
    """Return the number of feature groups for d columns: ``n_groups`` if it is given.

    The default is ten. A table of more than a hundred columns gets two feature nodes
    for each column, but at most a thousand. Rows that are standardised one by one are
    taken for images, whose pixels are correlated, so that ten groups are enough.
    """
    if model.n_groups is not None:
        return int(model.n_groups)
    if d <= NARROW or model.scaling == "sample":
        return 10
    return max(
        10, min(-(-2 * d // model.nodes_per_group), WIDEST // model.nodes_per_group)
    )


def recipe_of(model: "BroadLearning", d: int) -> Recipe:
    """Return the settings for drawing nodes for d columns."""
    shrink = model.shrink
    if shrink is None:
        wide = d > NARROW and model.scaling != "sample"
        shrink = model._wide_shrink if wide else 3.0
    return Recipe(
        float(shrink),
        bool(model.orthonormal),
        float(model.sparse_penalty),
        int(model.sparse_iter),
    )


def takes_rows(model: "BroadLearning") -> bool:
    """Return True, or raise an AttributeError if ``partial_fit`` cannot be exact."""
    solver = getattr(model, "solver_", model.solver)
    if solver not in TAKE_ROWS or model.mesh is not None:
        raise AttributeError(
            f"partial_fit needs solver {', '.join(TAKE_ROWS)} on one worker, got "
            f"{solver!r}, mesh={model.mesh!r}"
        )
    if str(getattr(model, "class_weight", None)) == "balanced":
        raise AttributeError(
            "class_weight='balanced' needs all samples; partial_fit takes a dict"
        )
    return True


def drops(model: "BroadLearning") -> bool:
    """Return True, or raise an AttributeError if the solver has no ``drop_last``."""
    if getattr(model, "solver_", model.solver) == "orig":
        raise AttributeError(
            "orig keeps no state for fewer columns; drop_last needs another solver"
        )
    return True


def keeps_factor(model: "BroadLearning") -> bool:
    """Return True, or raise an AttributeError if no factor F is kept."""
    solver = getattr(model, "solver_", model.solver)
    if solver not in ("chol-1", "chol-2", "exg-e") or model.mesh is not None:
        keeper = solver if model.mesh is None else "a worker"
        raise AttributeError(f"{keeper} keeps no inverse Cholesky factor")
    return True


def warn_of_bottleneck(model: "BroadLearning", n: int, d: int, keep: bool) -> None:
    """Warn if n samples are too few, or d columns too many, for the nodes."""
    nodes = groups_of(model, d) * model.nodes_per_group
    if not keep and n < nodes:
        warn_caller(
            f"the first call of partial_fit draws all {nodes} feature nodes, and from "
            f"{n} samples alone; begin with more"
        )
    if model.scaling != "sample" and d > nodes:
        warn_caller(
            f"{d} columns go through n_groups * nodes_per_group = {nodes} feature "
            f"nodes; take as many"
        )


def _several(ridge: object) -> bool:
    """Return whether ``ridge`` is a list of ridges rather than one."""
    return isinstance(ridge, LISTS) and getattr(ridge, "ndim", 1) > 0


def warn_caller(message: str) -> None:
    """Issue a warning that names the caller's line outside this package."""
    room, level = __name__.rpartition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(room):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level + 1)
