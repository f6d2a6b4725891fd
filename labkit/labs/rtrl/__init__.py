"""The RTRL lab: everything that its notebook calls, and the table it ends with.

Wires `labkit.rtrl` to its knobs, instruments and panels; holds no mathematics.
"""

import pandas as pd

from labkit.labs.rtrl.networks import (
    METHODS,
    UNRANKED,
    Network,
    make_learner,
    method_label,
    new_network,
    parse_method,
    read_text,
    train_network,
    trained_network,
)
from labkit.labs.rtrl.noise import NoiseKnobs, measure_noise, noise_lab, noise_table
from labkit.labs.rtrl.race import (
    copy_race,
    learn_text,
    race_plot,
    race_table,
    text_plot,
)

__all__ = [
    "METHODS",
    "UNRANKED",
    "Network",
    "NoiseKnobs",
    "copy_race",
    "learn_text",
    "make_learner",
    "measure_noise",
    "method_label",
    "new_network",
    "noise_lab",
    "noise_table",
    "paper_table",
    "parse_method",
    "race_plot",
    "race_table",
    "read_text",
    "text_plot",
    "train_network",
    "trained_network",
]


def paper_table(
    untrained: pd.DataFrame, trained: pd.DataFrame, race: pd.DataFrame, setting: str
) -> pd.DataFrame:
    """The paper's claims beside what this run measured; figures without comment."""

    def cos(table, name):
        return f"{table.cosine[name]:.4f}"

    def var(table, name):
        return f"{table.relative_variance[name]:.2g}"

    level = race["level at equal data"].astype(int)
    rows = [
        ("2-OK, untrained: cosine about 1 (fig. 6)", cos(untrained, "2-OK")),
        (
            "8-OK far above 8-KF-AVG, trained on text (fig. 3): cosines",
            f"{cos(trained, '8-OK')} and {cos(trained, '8-KF-AVG')}",
        ),
        (
            "the same: relative variances",
            f"{var(trained, '8-OK')} and {var(trained, '8-KF-AVG')}",
        ),
        (
            "1-OK better than KF-RTRL: relative variances, trained",
            f"{var(trained, '1-OK')} and {var(trained, 'KF')}",
        ),
        ("UORO's noise is large: cosine, trained", cos(trained, "UORO")),
        (
            "Copy: OK reaches longer strings than the others (fig. 1): levels",
            ", ".join(f"{name} {level[name]}" for name in level.index),
        ),
    ]
    return pd.DataFrame(
        [(claim, here, setting) for claim, here in rows],
        columns=["paper", "measured here", "setting"],
    )
