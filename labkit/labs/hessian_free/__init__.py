"""The Hessian-free lab: everything that its notebook calls.

Wires `labkit.hessian_free` to its knobs, instruments and panels; holds no mathematics.
"""

from labkit.labs.hessian_free.claims import claims_table
from labkit.labs.hessian_free.knobs import TrainingKnobs, knobs_of
from labkit.labs.hessian_free.krylov import (
    KrylovKnobs,
    Moment,
    exact,
    gradient_norm,
    iterates,
    iterations_table,
    krylov_lab,
    krylov_rows,
    model_value,
    moments,
    settings_table,
)
from labkit.labs.hessian_free.live import as_row, start, train_rows, training_lab
from labkit.labs.hessian_free.problems import SIZES, Problem, make_problem
from labkit.labs.hessian_free.race import (
    METHODS,
    Race,
    levels_table,
    race,
    race_plot,
    race_table,
)
from labkit.labs.hessian_free.scene import chunk_by_chunk, same_batch
from labkit.panels.curves import curves

__all__ = [
    "METHODS",
    "SIZES",
    "KrylovKnobs",
    "Moment",
    "Problem",
    "Race",
    "TrainingKnobs",
    "as_row",
    "chunk_by_chunk",
    "claims_table",
    "curves",
    "exact",
    "gradient_norm",
    "iterates",
    "iterations_table",
    "knobs_of",
    "krylov_lab",
    "krylov_rows",
    "levels_table",
    "make_problem",
    "model_value",
    "moments",
    "race",
    "race_plot",
    "race_table",
    "same_batch",
    "settings_table",
    "start",
    "train_rows",
    "training_lab",
]
