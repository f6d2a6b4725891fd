"""Provide runs of RLS by name, the live experiment, and the picture of a step."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "training": (
            *("BASELINES", "CONSTANTS", "KINDS", "LAYERS", "METHODS", "TrainingSetup"),
            *("after_each_epoch", "make_training", "network"),
            "trainable",
        ),
        "live": ("TRAINING", "Knobs", "training_rows", "watcher"),
        "measured": ("ANATOMY", "SPECTRUM"),
        "by_hand": ("second_step", "step_picture"),
        "ellipse": ("ELLIPSE", "EllipseKnobs", "ellipse_rows"),
    },
)
