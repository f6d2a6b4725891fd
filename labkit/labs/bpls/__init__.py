"""The BPLS lab: everything that its notebook calls.

Wires `labkit.bpls` to its knobs, instruments and panels; holds no mathematics.
"""

from labkit.labs.bpls.claims import claims_table
from labkit.labs.bpls.knobs import WalkKnobs
from labkit.labs.bpls.live import walk_lab, walk_rows
from labkit.labs.bpls.problems import (
    READING_NAMES,
    Problem,
    make_problem,
    percent,
    reading_of,
    with_noise,
)
from labkit.labs.bpls.race import (
    Descent,
    Race,
    Refined,
    Walks,
    best_rows,
    race,
    race_figure,
    race_table,
    runners,
)
from labkit.labs.bpls.readings import (
    clamp_table,
    collapse,
    collapse_figure,
    depth_table,
    kept_walk,
    layer_picture,
    reading_table,
    start_weights,
    stopped,
    walks,
)
from labkit.labs.bpls.toy import (
    ToyKnobs,
    regression_table,
    smooth_problems,
    tail_figure,
    tail_table,
    toy_errors_of,
    toy_figure,
    toy_lab,
    toy_rows,
    toy_table,
)

__all__ = [
    "READING_NAMES",
    "Descent",
    "Problem",
    "Race",
    "Refined",
    "ToyKnobs",
    "WalkKnobs",
    "Walks",
    "best_rows",
    "claims_table",
    "clamp_table",
    "collapse",
    "collapse_figure",
    "depth_table",
    "kept_walk",
    "layer_picture",
    "make_problem",
    "percent",
    "race",
    "race_figure",
    "race_table",
    "reading_of",
    "reading_table",
    "regression_table",
    "runners",
    "smooth_problems",
    "start_weights",
    "stopped",
    "tail_figure",
    "tail_table",
    "toy_errors_of",
    "toy_figure",
    "toy_lab",
    "toy_rows",
    "toy_table",
    "walk_lab",
    "walk_rows",
    "walks",
    "with_noise",
]
