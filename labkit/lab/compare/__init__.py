"""Notebook 06: the rules that are compared, the live race, and what is measured."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "live": (
            *("RACE", "RACE_ON_DATA", "DataKnobs", "RaceKnobs", "middle_values"),
            *("race_of", "spirals"),
        ),
        "measured": ("RACE_NOISY", "RACE_TUNED", "ends", "own_race", "tuned_race"),
        "rules": ("AUTOENCODERS", "CLASSIFIERS", "autoencoder", "optimizer_rule"),
        "sequences": (
            *("SEQUENCES", "as_online", "as_squares", "in_rows", "last_gradient"),
            *("lstm", "online_layout"),
        ),
    },
)
