"""The samples that a network is trained on: their shapes, weights and misses."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.bpls.walk import Weights


class Samples(NamedTuple):
    """Rows of inputs with what is wanted of them."""

    X: Tensor  # (D, M) inputs
    Y: Tensor  # (D, J) values, or (D,) int64 labels
    B: Tensor  # (D, J) targets of the output layer, before its activation
    weight: Tensor | None = None  # (D,) of the samples

    def chosen(self, rows: Tensor | None) -> "Samples":
        """Take these rows, or all of them for None; a sparse tensor has no slices."""
        if rows is None:
            return self
        parts = (None if v is None else v.index_select(0, rows) for v in self)
        return Samples(*parts)

    @property
    def labelled(self) -> bool:
        """Whether Y holds labels."""
        return self.Y.dtype == torch.int64

    @property
    def share(self) -> Tensor | None:
        """Weights over their mean, as a column (D, 1); None where there are none."""
        return relative(self.weight)

    def mass(self) -> float | int:
        """How many samples there are, or what all of them weigh."""
        return len(self.X) if self.weight is None else self.weight.sum().item()


class Judged(NamedTuple):
    """An error of a network, as a `WalkEnd` has it."""

    misses: float | None  # how many, or what they weigh; None for values
    accuracy: float | None
    rmse: float | None  # None for labels


def checked_weight(weight: Tensor | None, X: Tensor) -> Tensor | None:
    """Return the weights in X's dtype; they must be >= 0, one a row, and not all 0.

    Raises ValueError for others.
    """
    if weight is None:
        return None
    fits = weight.shape == (len(X),) and bool((weight >= 0).all())
    if not fits or not 0 < weight.sum() < math.inf:
        raise ValueError(
            f"weight must be {len(X)} numbers >= 0, as X has rows, and not all 0; got "
            f"{weight}"
        )
    return weight.to(X.dtype)


def relative(weight: Tensor | None) -> Tensor | None:
    """Divide weights by their mean: a column (D, 1), or None for None."""
    return None if weight is None else (weight / weight.mean())[:, None]


def counted(true: Tensor, weight: Tensor | None) -> Tensor:
    """How many entries are true, or what they weigh."""
    if weight is None:
        return torch.count_nonzero(true)
    return (weight * true).sum()


def judged(error: float, mass: float, labelled: bool) -> Judged:
    """Write an error, misses or an RMSE, as fields of a `WalkEnd`.

    ``mass`` is the number of samples, or what they weigh.
    """
    if not labelled:
        return Judged(None, None, error)
    error = type(mass)(error)
    return Judged(error, 1 - error / mass, None)


def check_shapes(X: Tensor, Y: Tensor, weights: Weights) -> None:
    """Raise ValueError unless the weights fit X (D, M), Y and each other."""
    if len(weights) < 2:
        raise ValueError(
            f"a walk needs a hidden layer, so at least two weights; got {len(weights)}"
        )
    widths = [X.shape[-1], *(W.shape[-1] for W in weights)]
    for layer, (W, width) in enumerate(zip(weights, widths, strict=False), start=1):
        if W.shape[-2] != width:
            raise ValueError(
                f"W_{layer} has {W.shape[-2]} rows, but the layer below has {width}"
            )
    labelled = Y.dtype == torch.int64
    if Y.ndim < (1 if labelled else 2) or Y.shape[-1 if labelled else -2] != len(X):
        raise ValueError(
            f"Y must be {len(X)} labels (int64) or rows of values, as X has rows; got "
            f"shape {tuple(Y.shape)}, {Y.dtype}"
        )
    if labelled:
        least, most = torch.stack(Y.aminmax()).tolist()
        if least < 0 or most >= widths[-1]:
            raise ValueError(
                f"labels must lie in 0..{widths[-1] - 1}, got {least}..{most}"
            )
    elif Y.shape[-1] != widths[-1]:
        raise ValueError(f"Y has {Y.shape[-1]} columns for {widths[-1]} outputs")
