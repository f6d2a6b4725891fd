"""The ranges of the estimators' parameters, and defaults that depend on the data."""

import sys
import warnings
from typing import Any

import numpy as np

from labkit.broad.nodes import SCALINGS, Recipe
from labkit.broad.solvers import SOLVERS
from labkit.broad.state import MOST
from labkit.check import (
    POSITIVE,
    YES_OR_NO,
    check_device,
    check_options,
    integer,
    one_of,
    optional,
)

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
    "orthonormal": YES_OR_NO,
    "sparse_penalty": POSITIVE,
    "sparse_iter": integer(1, MOST),
    "dtype": one_of(("float64", "float32")),
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
RIDGES = tuple(10.0**e for e in range(-6, 4))  # where none is given


def check_parameters(model: Any, d: int) -> None:
    """Raise a ValueError if a model cannot be fitted to d columns."""
    check_options({name: getattr(model, name) for name in RANGES}, RANGES)
    check_device(model.device)
    ridges = ridges_of(model)
    for ridge in ridges:
        check_options({"ridge": ridge}, {"ridge": POSITIVE})
        if float(ridge) > float(np.finfo(model.dtype).max):
            raise ValueError(f"ridge {ridge:g} leaves {model.dtype}; use float64")
    if not len(ridges):
        raise ValueError("ridge must be a number or a list of some, got none")
    if model.scaling == "sample" and d < 2:
        raise ValueError(
            f"scaling='sample' standardises every row and needs 2 features or "
            f"more, got n_features={d}; use scaling='feature'"
        )
    if model.fallback is not None and model.solver != "chol-1":
        raise ValueError(
            f"fallback={model.fallback!r} needs solver='chol-1', got {model.solver!r}"
        )


def ridges_of(model: Any) -> list:
    """Return the ridges to choose from, or the one that is given."""
    if model.ridge is None:
        return list(RIDGES)
    return list(model.ridge) if np.ndim(model.ridge) else [model.ridge]


def groups_of(model: Any, d: int) -> int:
    """Return the number of feature groups for d columns: ``n_groups`` if it is given.

    The default is ten, and never fewer. A table of more than a hundred columns gets two
    feature nodes for each column, but at most a thousand. Rows that are standardised
    one by one are taken for images, whose pixels are correlated, so that ten groups are
    enough.
    """
    if model.n_groups is not None:
        return int(model.n_groups)
    if d <= NARROW or model.scaling == "sample":
        return 10
    return max(
        10, min(-(-2 * d // model.nodes_per_group), WIDEST // model.nodes_per_group)
    )


def recipe_of(model: Any, d: int) -> Recipe:
    """Return the settings for drawing nodes for d columns."""
    shrink = model.shrink
    if shrink is None:
        wide = d > NARROW and model.scaling != "sample"
        shrink = model._wide_shrink if wide else 3.0
    return Recipe(
        shrink=float(shrink),
        orthonormal=bool(model.orthonormal),
        sparse_penalty=float(model.sparse_penalty),
        sparse_iter=int(model.sparse_iter),
    )


def keeps_factor(model: Any) -> bool:
    """Return True, or raise an AttributeError if no factor F is kept."""
    solver = getattr(model, "solver_", model.solver)
    if solver not in ("chol-1", "chol-2", "exg-e"):
        raise AttributeError(f"{solver} keeps no inverse Cholesky factor")
    return True


def warn_of_bottleneck(model: Any, d: int) -> None:
    """Warn if d columns are too many for the feature nodes."""
    nodes = groups_of(model, d) * model.nodes_per_group
    if model.scaling != "sample" and d > nodes:
        warn_caller(
            f"{d} columns go through n_groups * nodes_per_group = {nodes} feature "
            f"nodes; take as many"
        )


def warn_caller(message: str) -> None:
    """Issue a warning that names the caller's line outside this package."""
    package, level = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level + 1)
