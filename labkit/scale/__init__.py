"""What is needed beyond one process: several workers behind one argument."""

from labkit.scale.workers import Workers, workers

__all__ = ["Workers", "workers"]
