"""The RLS lab: everything that its notebook calls.

Wires `labkit.rls` to its knobs, instruments and panels; holds no mathematics.
"""

from labkit.labs.rls.claims import claims_table
from labkit.labs.rls.live import TrainingKnobs, inspect, train_rows, training_lab
from labkit.labs.rls.methods import (
    METHODS,
    Problem,
    make_problem,
    make_training,
    noisy_labels,
)
from labkit.labs.rls.race import (
    Race,
    race,
    race_plot,
    race_table,
    run_epochs,
    sweep,
)

__all__ = [
    "METHODS",
    "Problem",
    "Race",
    "TrainingKnobs",
    "claims_table",
    "inspect",
    "make_problem",
    "make_training",
    "noisy_labels",
    "race",
    "race_plot",
    "race_table",
    "run_epochs",
    "sweep",
    "train_rows",
    "training_lab",
]
