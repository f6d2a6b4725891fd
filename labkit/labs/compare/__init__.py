"""The comparison: every rule of the bench that can do the same job, tuned equally.

Wires the five papers' rules to one harness, its views and its verdicts; holds no
mathematics.
"""

from labkit.labs.compare.autoencoders import reconstruction
from labkit.labs.compare.claims import claims_table
from labkit.labs.compare.classifiers import classification
from labkit.labs.compare.figures import noise_figure, race_figure
from labkit.labs.compare.gradients import gradient_table
from labkit.labs.compare.harness import (
    Data,
    Job,
    Look,
    Rule,
    Setting,
    load_data,
    trials,
    with_noise,
)
from labkit.labs.compare.live import RaceKnobs, race_lab
from labkit.labs.compare.race import (
    Noise,
    Race,
    Tuned,
    noise_race,
    race,
    tune,
    tuning_table,
)
from labkit.labs.compare.recurrent import sequences
from labkit.labs.compare.report import (
    ends_table,
    findings,
    idle,
    noise_table,
    summary_table,
)
from labkit.labs.compare.verdicts import pays_table

__all__ = [
    "Data",
    "Job",
    "Look",
    "Noise",
    "Race",
    "RaceKnobs",
    "Rule",
    "Setting",
    "Tuned",
    "claims_table",
    "classification",
    "ends_table",
    "findings",
    "gradient_table",
    "idle",
    "load_data",
    "noise_figure",
    "noise_race",
    "noise_table",
    "pays_table",
    "race",
    "race_figure",
    "race_lab",
    "reconstruction",
    "sequences",
    "summary_table",
    "trials",
    "tune",
    "tuning_table",
    "with_noise",
]
