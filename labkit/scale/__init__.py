"""What is needed beyond one process: several workers, and recorded CUDA graphs."""

from typing import TYPE_CHECKING, Any

from labkit.scale.graphs import graphed
from labkit.scale.workers import Workers, workers

if TYPE_CHECKING:
    from labkit.scale.broad import BroadMeshClassifier, BroadMeshRegressor

__all__ = [
    "BroadMeshClassifier",
    "BroadMeshRegressor",
    "Workers",
    "graphed",
    "workers",
]


def __getattr__(name: str) -> Any:
    """Import the estimators when they are first asked for: they need scikit-learn."""
    if name not in ("BroadMeshClassifier", "BroadMeshRegressor"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from labkit.scale import broad

    return getattr(broad, name)
