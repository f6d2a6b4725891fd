"""Notebook 06: the rules that are compared, and all classifiers live."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "live": ("RACE", "RaceKnobs", "race_of", "spirals"),
        "rules": ("AUTOENCODERS", "CLASSIFIERS", "SEQUENCES"),
    },
)
