"""Compute weights in closed form by back-propagated least squares, layer by layer.

Tomic, Matos-Carvalho, Beko, *A Closed-form Solution for Weight Optimization in
Fully-connected Feed-forward Neural Networks*, arXiv 2401.06699, 2024.
"""

from typing import TYPE_CHECKING, Any

from labkit.bpls.activations import ACTIVATIONS, Activation, activation
from labkit.bpls.solve import solve_layer
from labkit.bpls.targets import INTERPRETATIONS, hidden_targets
from labkit.bpls.toy import Toy, noisy_outputs, rmse, toy_errors, toy_problem, toy_walk
from labkit.bpls.train import Record, WalkEnd, train
from labkit.bpls.walk import (
    Settings,
    hidden_values,
    layer_step,
    output_targets,
    random_weights,
    scores,
    walk,
    walked,
)

if TYPE_CHECKING:
    from labkit.bpls.estimators import BPLSClassifier, BPLSRegressor

__all__ = [
    "ACTIVATIONS",
    "INTERPRETATIONS",
    "Activation",
    "BPLSClassifier",
    "BPLSRegressor",
    "Record",
    "Settings",
    "Toy",
    "WalkEnd",
    "activation",
    "hidden_targets",
    "hidden_values",
    "layer_step",
    "noisy_outputs",
    "output_targets",
    "random_weights",
    "rmse",
    "scores",
    "solve_layer",
    "toy_errors",
    "toy_problem",
    "toy_walk",
    "train",
    "walk",
    "walked",
]


def __getattr__(name: str) -> Any:
    """Import the estimators when they are first asked for: they need scikit-learn."""
    if name not in ("BPLSClassifier", "BPLSRegressor"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from labkit.bpls import estimators

    return getattr(estimators, name)
