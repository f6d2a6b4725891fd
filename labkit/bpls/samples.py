"""Hold the samples that a network is trained on, with their weights and misses."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.check import check_tensor, described


class Samples(NamedTuple):
    """Rows of inputs with their targets."""

    X: Tensor  # (D, M) inputs
    Y: Tensor  # (D, J) values, or (D,) int64 labels
    B: Tensor  # (D, J) targets of the output layer, before its activation
    weight: Tensor | None = None  # (D,) of the samples

    def chosen(self, rows: Tensor | None) -> "Samples":
        """Return the samples in these rows, or all of them for None."""
        if rows is None:
            return self
        parts = (None if v is None else v.index_select(0, rows) for v in self)
        return Samples(*parts)

    @property
    def labelled(self) -> bool:
        """Return whether Y holds labels."""
        return self.Y.dtype == torch.int64

    @property
    def share(self) -> Tensor | None:
        """Return weights over their mean as a column (D, 1), or None if none."""
        return relative(self.weight)

    def mass(self) -> float | int:
        """Return the number of samples, or their total weight."""
        return len(self.X) if self.weight is None else self.weight.sum().item()


class Judged(NamedTuple):
    """An error of a network in the fields of a `WalkEnd`."""

    misses: float | None  # how many, or what they weigh; None for values
    accuracy: float | None
    rmse: float | None  # None for labels


def checked_weight(weight: Tensor | None, X: Tensor) -> Tensor | None:
    """Return the weights in X's dtype, after a check.

    TypeError or ValueError unless they are >= 0, one for each row, and not all 0.
    """
    if weight is None:
        return None
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight must be None or a tensor, got {described(weight)}")
    check_tensor("weight", weight, dtype=weight.dtype)
    if weight.device != X.device:
        raise ValueError(f"weight must be on {X.device}, as X is, got {weight.device}")
    fits = weight.shape == (len(X),) and not weight.is_complex()
    if not fits or not (weight >= 0).all() or not 0 < weight.sum() < math.inf:
        raise ValueError(
            f"weight must be {len(X)} numbers >= 0, as X has rows, and not all 0; got "
            f"{weight}"
        )
    return weight.to(X.dtype)


def relative(weight: Tensor | None) -> Tensor | None:
    """Divide weights by their mean; return a column (D, 1), or None for None."""
    return None if weight is None else (weight / weight.mean())[:, None]


def counted(true: Tensor, weight: Tensor | None) -> Tensor:
    """Count the entries that are true, or add up their weights."""
    if weight is None:
        return torch.count_nonzero(true)
    return (weight * true).sum()


def judged(error: float, mass: float, labelled: bool) -> Judged:
    """Return an error, misses or an RMSE, in the fields of a `WalkEnd`.

    ``mass`` is the number of samples, or their total weight.
    """
    if not labelled:
        return Judged(None, None, error)
    error = type(mass)(error)
    return Judged(error, 1 - error / mass, None)
