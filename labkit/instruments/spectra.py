"""Measure the effective number of directions of a spectrum."""

import torch
from torch import Tensor

from labkit.check import check_tensor


@torch.no_grad()
def effective_rank(singular_values: Tensor) -> Tensor:
    r"""Compute the effective rank, the exponential of the spectrum's entropy.

    $p_i = \sigma_i / \sum_j \sigma_j, \qquad
    \operatorname{erank} = \exp\bigl(-\sum_i p_i \log p_i\bigr)$

    Parameters
    ----------
    singular_values : (..., k) tensor
        Singular values, >= 0, in any order and unit; leading dimensions are a batch.

    Returns
    -------
    rank : (...) tensor
        In directions: r equal values and zeros give r.  A spectrum of zeros gives 0.

    Notes
    -----
    ValueError if there is no last dimension or a value is negative.  O(k) per spectrum.
    Source: Roy and Vetterli, "The effective rank: a measure of effective
    dimensionality", EUSIPCO 2007, definition 1.

    Examples
    --------
    >>> effective_rank(torch.tensor([[2.0, 2.0, 0.0], [5.0, 0.0, 0.0]]))
    tensor([2., 1.])
    """
    check_tensor("singular_values", singular_values)
    if singular_values.ndim == 0:
        raise ValueError("singular_values must have shape (..., k), got a 0-d tensor")
    if (singular_values < 0).any():
        raise ValueError(
            f"singular values must be >= 0, got {singular_values.min().item()}"
        )
    if singular_values.shape[-1] == 0:
        return singular_values.sum(-1)  # no direction at all: 0
    # Dividing by the largest first avoids overflow in the sum of huge values.
    scaled = singular_values / singular_values.amax(dim=-1, keepdim=True)
    p = scaled / scaled.sum(-1, keepdim=True)
    rank = torch.special.entr(p).sum(-1).exp()
    return torch.where((singular_values == 0).all(-1), torch.zeros_like(rank), rank)
