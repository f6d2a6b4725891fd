"""Broad learning that grows: solvers for added nodes, and inverse factorisations.

Zhu, *Two Ridge Solutions for the Incremental Broad Learning System on Added Nodes*
(arXiv 1911.04872).
"""

from labkit.broad.estimators import BroadLearningClassifier, BroadLearningRegressor
from labkit.broad.factor import (
    NotPositiveDefinite,
    extend_inverse_cholesky,
    inverse_cholesky,
)
from labkit.broad.growth import Growth
from labkit.broad.ldl import (
    division_free_inverse_ldl,
    extend_division_free_inverse_ldl,
    extend_inverse_ldl,
    inverse_ldl,
)
from labkit.broad.nodes import Update
from labkit.broad.parameters import PAPER
from labkit.broad.solvers import SOLVERS, Solver
from labkit.broad.train import SharedColumns, SolverRecord, side_by_side

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
    "division_free_inverse_ldl",
    "extend_division_free_inverse_ldl",
    "extend_inverse_cholesky",
    "extend_inverse_ldl",
    "inverse_cholesky",
    "inverse_ldl",
    "side_by_side",
]
