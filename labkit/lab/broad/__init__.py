"""The experiments and figures of the notebook on broad learning."""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "columns": ("COLUMNS", "ColumnKnobs"),
        "functions": ("FUNCTIONS", "FunctionKnobs"),
        "growth": ("EXACT", "GROWTH", "GrowthKnobs", "growth_rows"),
        "measured": ("COSTS", "LEAVING", "NOISE"),
    },
)
