"""Provide notebook 02's live experiments, their training, and the paper's rivals."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "baselines": ("OPTIMIZERS", "DescentStep", "descend"),
        "by_hand": ("layer_picture", "small_layer"),
        "curve": ("CURVE", "CurveKnobs"),
        "example": ("answers", "worked"),
        "layers": ("LAYERS", "LayerKnobs"),
        "monte_carlo": (
            *("DESCENTS", "tail_figure", "tail_table", "toy_errors", "toy_figure"),
            "toy_table",
        ),
        "toy": ("TOY", "ToyKnobs"),
        "training": (
            *("INVERTIBLE", "NAMES", "ONE_OUTPUT", "interpretation_of"),
            *("start_weights", "toy_rows", "toy_runs", "walk_rows"),
        ),
        "verdicts": (
            *("adam_claim", "few_walks_claim", "line_18_claim", "outcome"),
            "outcome_figure",
            *("race_table", "reading_claim", "settings_figure", "speed_claims"),
            "stopped",
            *("table_1_claims", "tail_claims", "toy_claims", "walks_figure"),
        ),
        "walk": ("WALK", "WalkKnobs"),
    },
)
