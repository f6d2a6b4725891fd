"""Notebook 06: the rules that are compared, and all classifiers live."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "live": ("RACE", "RaceKnobs", "race_of", "spirals"),
        "rules": ("AUTOENCODERS", "CLASSIFIERS", "autoencoder", "optimizer_rule"),
        "verdicts": (
            *("Judged", "ends_table", "error_figure", "findings", "idle_table"),
            *("noise_figure", "noise_table", "pays_table", "rank_table", "summary"),
            "tuning_table",
        ),
        "sequences": (
            *(
                "SEQUENCES",
                "as_online",
                "as_squares",
                "in_rows",
                "last_gradient",
                "lstm",
            ),
            "online_layout",
        ),
    },
)
