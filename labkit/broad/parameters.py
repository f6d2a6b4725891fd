"""What the parameters of the estimators may be, checked when a model begins."""

import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np

from labkit.broad.nodes import SCALINGS
from labkit.broad.rows import TAKE_ROWS
from labkit.broad.solvers import SOLVERS
from labkit.ranges import COUNT, POSITIVE, check, integer, one_of, optional

if TYPE_CHECKING:
    from labkit.broad.growth import BroadLearning

# The paper's experiment on MNIST; the defaults suit tables, see the estimators.
PAPER = {
    "n_groups": 6,
    "nodes_per_group": 10,
    "n_enhancement": 3000,
    "ridge": 1e-6,
    "scaling": "sample",
    "shrink": 0.8,
}
RANGES = {
    "n_groups": COUNT,
    "nodes_per_group": COUNT,
    "n_enhancement": integer(0),
    "solver": one_of(SOLVERS),
    "scaling": one_of(SCALINGS),
    "shrink": POSITIVE,
    "sparse_penalty": POSITIVE,
    "sparse_iter": COUNT,
    "dtype": one_of(("float64", "float32")),
    "capacity": optional(COUNT),
    "chunk": optional(COUNT),
    "fallback": optional(one_of(("chol-2",))),
}
ADDED = {"n_features": COUNT, "n_own": integer(0), "n_extra": integer(0)}
LISTS = (list, tuple, np.ndarray)  # of ridges
RIDGES = tuple(10.0**e for e in range(-6, 4))  # where none is given


def check_parameters(
    model: "BroadLearning", d: int, weight: np.ndarray | None, keep: bool
) -> None:
    """Refuse parameters that cannot be fitted.

    Parameters
    ----------
    model : estimator
    d : int, columns of X
    weight : (l,) array of sample weights, or None
    keep : bool, whether the model keeps its samples
    """
    check({name: getattr(model, name) for name in RANGES}, RANGES)
    many = isinstance(model.ridge, LISTS)
    for ridge in model.ridge if many else () if model.ridge is None else [model.ridge]:
        check({"ridge": ridge}, {"ridge": POSITIVE})
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
    """Return the ridge to take, or the list of those to choose from."""
    if model.ridge is None:
        return list(RIDGES) if keep and model.mesh is None else 1.0
    many = isinstance(model.ridge, LISTS)
    return [float(ridge) for ridge in model.ridge] if many else float(model.ridge)


def warn_of_bottleneck(model: "BroadLearning", n: int, d: int, keep: bool) -> None:
    """Warn where n samples are too few, or d columns too many, for the nodes."""
    nodes = model.n_groups * model.nodes_per_group
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


def warn_caller(message: str) -> None:
    """Give a warning that names the line outside this room which led here."""
    room, level = __name__.rpartition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(room):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level + 1)
