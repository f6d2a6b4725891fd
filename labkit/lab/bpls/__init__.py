"""Provide notebook 02's live experiments, their training, and the paper's rivals."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "baselines": ("OPTIMIZERS", "DescentStep", "descend"),
        "curve": ("CURVE", "CurveKnobs"),
        "layers": ("LAYERS", "LayerKnobs"),
        "toy": ("TOY", "ToyKnobs"),
        "training": (
            *("INVERTIBLE", "NAMES", "ONE_OUTPUT", "interpretation_of"),
            *("start_weights", "toy_rows", "toy_runs", "walk_rows"),
        ),
        "walk": ("WALK", "WalkKnobs"),
    },
)
