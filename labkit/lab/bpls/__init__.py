"""Provide notebook 02's opening, live experiments, training and measurements."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "baselines": ("OPTIMIZERS", "DescentStep", "descend"),
        "by_hand": ("layer_picture", "small_layer"),
        "measured": ("LATER_WALKS", "READINGS"),
        "pair": ("PAIR", "PairKnobs", "answers", "worked"),
        "training": (
            *("INVERTIBLE", "NAMES", "interpretation_of", "start_weights"),
            *("toy_runs", "walk_rows"),
        ),
        "walk": ("WALK", "WalkKnobs"),
    },
)
