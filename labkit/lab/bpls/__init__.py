"""Provide notebook 02's opening, live experiments, training and measurements."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "by_hand": ("layer_picture", "small_layer"),
        "measured": ("LATER_WALKS", "READINGS"),
        "pair": ("PAIR", "PairKnobs", "worked"),
        "training": ("INVERTIBLE", "NAMES", "start_weights", "walk_rows"),
        "walk": ("WALK", "WalkKnobs"),
    },
)
