"""Broad learning that grows: solvers for added nodes, and inverse factorisations.

Zhu, *Two Ridge Solutions for the Incremental Broad Learning System on Added Nodes*
(arXiv 1911.04872).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labkit.broad.factor import (
    NotPositiveDefinite,
    extend_inverse_cholesky,
    inverse_cholesky,
)
from labkit.broad.ldl import (
    division_free_inverse_ldl,
    extend_division_free_inverse_ldl,
    extend_inverse_ldl,
    inverse_ldl,
)
from labkit.broad.nodes import Update
from labkit.broad.parameters import PAPER
from labkit.broad.solvers import SOLVERS, Solver
from labkit.broad.sweep import block_inverse_ldl
from labkit.broad.train import SharedColumns, SolverRecord, side_by_side

if TYPE_CHECKING:
    from labkit.broad.base import Growth
    from labkit.broad.estimators import BroadLearningClassifier, BroadLearningRegressor

__all__ = [
    "PAPER",
    "SOLVERS",
    "BroadLearningClassifier",
    "BroadLearningRegressor",
    "Growth",
    "NotPositiveDefinite",
    "SharedColumns",
    "Solver",
    "SolverRecord",
    "Update",
    "block_inverse_ldl",
    "division_free_inverse_ldl",
    "extend_division_free_inverse_ldl",
    "extend_inverse_cholesky",
    "extend_inverse_ldl",
    "inverse_cholesky",
    "inverse_ldl",
    "side_by_side",
]


def __getattr__(name: str) -> Any:
    """Import the estimators when they are first asked for: they need scikit-learn."""
    homes = {"BroadLearningClassifier": "estimators", "Growth": "base"}
    homes["BroadLearningRegressor"] = "estimators"
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
