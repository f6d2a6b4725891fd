"""What is needed beyond one process: several workers, and recorded CUDA graphs."""

from labkit.scale.graphs import graphed
from labkit.scale.workers import Workers, workers

__all__ = ["Workers", "graphed", "workers"]
