"""The experiments and functions of notebook 05; :mod:`labkit.rtrl` has the paper."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "training": (
            *("Look", "Network", "estimates", "looks", "make_learner"),
            *("new_network", "read_text", "train_network"),
        ),
        "clouds": ("CLOUDS", "CloudKnobs"),
        "noise": ("NOISE", "NoiseKnobs"),
        "measured": ("ALL_METHODS",),
        "water": ("WATER", "WaterKnobs"),
    },
)
