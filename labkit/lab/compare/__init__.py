"""Notebook 06: the rules that are compared, all classifiers live, and verdicts."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "live": (
            "RACE",
            "RACE_ON_DATA",
            "DataKnobs",
            "RaceKnobs",
            "race_of",
            "spirals",
        ),
        "missions": ("Missions",),
        "rules": ("AUTOENCODERS", "CLASSIFIERS", "autoencoder", "optimizer_rule"),
        "sequences": (
            *("SEQUENCES", "as_online", "as_squares", "in_rows", "last_gradient"),
            *("lstm", "online_layout"),
        ),
        "verdicts": (
            *(
                "Judged",
                "beside",
                "ends_table",
                "error_figure",
                "findings",
                "idle_table",
            ),
            *("pays_table", "rank_table", "summary", "tuning_table"),
        ),
        "noise": (
            *("noise_figure", "noise_levels", "noise_row", "noise_table"),
            *("sweep_figure", "sweep_table"),
        ),
    },
)
