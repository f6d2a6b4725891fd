"""The experiments and figures of the notebook on broad learning."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "drawn": ("FactorKnobs", "FactorView", "cost_figure"),
        "functions": ("FUNCTIONS", "FunctionKnobs"),
        "growth": ("GROWTH", "GrowthKnobs"),
        "verdicts": (
            *("accuracies", "accuracy_table", "cost_claims", "cost_table"),
            *("edge_claims", "growth_claims"),
        ),
        "training": (
            *("EXACT", "GREVILLE", "factor_steps", "growth_rows", "paper_update"),
            *("shared_columns", "start_of"),
        ),
    },
)
