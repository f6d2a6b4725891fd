"""The experiments of notebook 03: training, its live panel, the bowl of a batch."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "training": (
            *("Images", "SIZES", "Training", "as_sequential", "load_images", "looks"),
        ),
        "live": (
            *("CHECKS", "KrylovKnobs", "TRAINING", "TrainingKnobs", "knobs_of"),
            *("reconstructions", "training_rows"),
        ),
        "krylov": (
            *("Frozen", "KRYLOV", "freeze", "gradient_norm", "krylov_rows"),
            *("model_value", "needed", "normal_map", "normal_rhs", "side_by_side"),
            *("solution",),
        ),
        "bowl": ("BOWL", "BowlKnobs", "bowl_rows"),
    },
)
