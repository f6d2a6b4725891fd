"""Measure how well the mean of a layer's inputs represents them."""

import torch
from torch import Tensor

from labkit.check import check_tensor
from labkit.instruments.gradients import as_rows, unit
from labkit.precision import outside_modes, wide


@torch.no_grad()
@outside_modes()
def best_ratio(inputs: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute the factor k with which the mean best replaces the second moment.

    $k^* = \arg\min_k \lVert k\,\bar x \bar x^\top - \tfrac1M X^\top X \rVert_F
    = \bar x^\top (X^\top X / M)\,\bar x / \lVert \bar x \rVert^4$, never below 1. Costs
    O(M min(M, n) + M n); no n x n matrix is made if M < n.

    Parameters
    ----------
    inputs : (M, n) tensor, X, one row per example, in any unit

    Returns
    -------
    ratio : () tensor, $k^*$; ``nan`` if the mean is zero
    residual : () tensor, what $k^*$ leaves, relative to the second moment, in [0, 1]

    Raises
    ------
    ValueError : if `inputs` is not a matrix with rows

    Examples
    --------
    >>> best_ratio(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    (tensor(1.), tensor(0.))
    """
    check_tensor("inputs", inputs)
    if inputs.ndim != 2 or not len(inputs):
        raise ValueError(f"inputs must be (M, n), M > 0; got {tuple(inputs.shape)}")
    M, n = inputs.shape
    inputs = inputs.to(wide(inputs)) / inputs.abs().max()  # the results have no unit
    mean = inputs.mean(0)
    squared = mean.square().sum()
    ratio = (inputs @ mean).square().mean() / squared.square()
    gram = inputs @ inputs.T if M < n else inputs.T @ inputs
    size = gram.square().sum() / M**2
    # |k m m' - S|^2 = |S|^2 - k^2 |m|^4 at the best k
    left = size - (ratio * squared).square()
    return ratio, (left.clamp_min(0) / size).sqrt()


@torch.no_grad()
def angle(a: Tensor, b: Tensor) -> Tensor:
    """Compute the angle between two vectors in degrees, 0 to 180.

    It is ``nan`` if either is zero. All entries of a tensor are one vector; ValueError
    if the shapes differ, or there are no entries. Kahan's formula is used, which keeps
    its digits for small angles, where the arc cosine loses them.

    >>> angle(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]))
    tensor(90.)
    """
    check_tensor("a", a)
    check_tensor("b", b, like=a, shape=a.shape)
    a, b = map(unit, as_rows("b", b, a))
    across, along = torch.linalg.vector_norm(a - b), torch.linalg.vector_norm(a + b)
    return torch.rad2deg(2 * torch.atan2(across, along))
