"""Provide the bowls of batches, the live training, and what notebook 03 measures."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "training": (
            *("Images", "SIZES", "Training", "as_sequential", "load_images", "looks"),
            "setting_of",
        ),
        "live": (
            *("TRAINING", "TrainingKnobs", "knobs_of"),
            "training_rows",
        ),
        "krylov": (
            *("freeze", "gradient_norm", "krylov_rows", "model_value"),
            "side_by_side",
        ),
        "measured": ("BATCH", "KRYLOV"),
        "momentum": ("MOMENTUM", "MomentumKnobs", "momentum_rows"),
        "bowl": ("BOWL", "BowlKnobs", "bowl_rows"),
    },
)
