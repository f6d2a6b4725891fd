"""The broad learning lab: everything that its notebook calls.

Wires `labkit.broad` to its knobs and panels; holds no mathematics.
"""

from labkit.labs.broad.claims import claims_table, initial_table
from labkit.labs.broad.columns import (
    Columns,
    Problem,
    grow_columns,
    make_columns,
    make_problem,
    paper_updates,
)
from labkit.labs.broad.knobs import GrowthKnobs
from labkit.labs.broad.live import growth_lab, growth_rows
from labkit.labs.broad.race import (
    RIDGES,
    accuracy_table,
    cost_frame,
    cost_plot,
    cost_table,
    demonstration,
    error_table,
    initial_accuracies,
    noise_table,
    race_frame,
)
from labkit.labs.broad.sweep import SweepKnobs, SweepLab, sweep_rows

__all__ = [
    "RIDGES",
    "Columns",
    "GrowthKnobs",
    "Problem",
    "SweepKnobs",
    "SweepLab",
    "accuracy_table",
    "claims_table",
    "cost_frame",
    "cost_plot",
    "cost_table",
    "demonstration",
    "error_table",
    "grow_columns",
    "growth_lab",
    "growth_rows",
    "initial_accuracies",
    "initial_table",
    "make_columns",
    "make_problem",
    "noise_table",
    "paper_updates",
    "race_frame",
    "sweep_rows",
]
