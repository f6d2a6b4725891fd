"""Measure the quality of a gradient estimate: direction, spread and error.

The R estimates come from the same point, each with new random numbers. No function here
changes its inputs, records a graph or draws a random number.
"""

import torch
from torch import Tensor

from labkit.check import check_tensor
from labkit.precision import wide


@torch.no_grad()
def gradient_cosine(estimate: Tensor, exact: Tensor) -> Tensor:
    r"""Compute the cosine of the angle between a gradient estimate and the exact one.

    $\cos = \langle \hat g, g \rangle / (\lVert \hat g \rVert \lVert g \rVert)$

    Both are scaled by their largest entry first, so the squares neither overflow nor
    underflow. ValueError if the shapes do not fit, or there are no entries;
    TypeError for what is no tensor of real numbers. O(R P) for P entries.

    Parameters
    ----------
    estimate : (...) or (R, ...) tensor, one of the shape of `exact`, or R of them
    exact : (...) tensor, the exact gradient; all its entries together are one vector

    Returns
    -------
    cosine : () or (R,) tensor
        Without unit, in [-1, 1]; ``nan`` where either vector is zero, since a zero
        vector has no direction. That of half precision is in float32.

    Examples
    --------
    >>> gradient_cosine(torch.tensor([3.0, 4.0]), torch.tensor([2.0, 0.0])).item()
    0.6000000238418579
    """
    estimate_flat, exact_flat = as_rows("estimate", estimate, exact)
    cosine = (unit(estimate_flat) * unit(exact_flat)).sum(-1).clamp(-1, 1)
    return cosine[0] if estimate.shape == exact.shape else cosine


@torch.no_grad()
def relative_variance(estimates: Tensor, exact: Tensor) -> Tensor:
    r"""Compute the mean squared error of gradient estimates, relative to the exact one.

    $\frac{1}{R} \sum_i \lVert \hat g_i - g \rVert^2 / \lVert g \rVert^2$

    For an unbiased estimator this is the relative variance (total variance over squared
    norm); for a biased one it includes the squared bias. ValueError if the shapes do
    not fit, or there are no entries or no estimates. O(R P) for P entries.

    Parameters
    ----------
    estimates : (R, ...) tensor, repeated estimates
    exact : (...) tensor, the exact gradient

    Returns
    -------
    ratio : () tensor, float32 for half precision
        Without unit, >= 0.  If `exact` is zero: ``inf``, or ``nan`` where all estimates
        are zero too.

    Examples
    --------
    >>> estimates = torch.tensor([[1.0, 1.0], [3.0, -1.0]])
    >>> relative_variance(estimates, torch.tensor([2.0, 0.0]))
    tensor(0.5000)
    """
    # One gradient is no sample; accepting it would hide a forgotten dimension.
    estimates_flat, exact_flat = as_rows("estimates", estimates, exact, "(R, ...)")
    error = (estimates_flat - exact_flat).square().sum(-1).mean()
    return error / exact_flat.square().sum()


@torch.no_grad()
def gradient_variance(estimates: Tensor) -> Tensor:
    r"""Compute the total sample variance of estimates, the trace of their covariance.

    $\frac{1}{R - 1} \sum_i \lVert \hat g_i - \bar g \rVert^2$. ValueError if there are
    fewer than two estimates. O(R P) for P entries.

    Parameters
    ----------
    estimates : (R, ...) tensor, repeated estimates, R >= 2

    Returns
    -------
    variance : () tensor, in the squared unit of the gradient
        That of half precision is in float32.

    Examples
    --------
    >>> gradient_variance(torch.tensor([[1.0, 0.0], [3.0, 1.0]]))
    tensor(2.5000)
    """
    check_tensor("estimates", estimates)
    shape = tuple(estimates.shape)
    if shape < (2,):
        raise ValueError(f"estimates must have shape (R, ...) with R >= 2, got {shape}")
    return estimates.to(wide(estimates)).var(dim=0, correction=1).sum()


def as_rows(
    name: str, estimate: Tensor, exact: Tensor, expected: str = "(...) or (R, ...)"
) -> tuple[Tensor, Tensor]:
    """Return (R, P) and (1, P), half precision as float32; one is R = 1 if expected."""
    check_tensor("exact", exact)
    check_tensor(name, estimate, like=exact)
    shape, one = tuple(estimate.shape), tuple(exact.shape)
    if expected == "(R, ...)" if shape == one else shape[1:] != one:
        raise ValueError(
            f"estimates of shape {shape} do not fit the exact gradient of shape {one}: "
            f"expected {expected} against (...)"
        )
    if not estimate.numel():
        raise ValueError(f"nothing to compare: shape {shape}")
    exact = exact.reshape(1, -1).to(wide(exact))
    return estimate.reshape(-1, exact.shape[1]).to(exact), exact


def unit(rows: Tensor) -> Tensor:
    """Scale rows (..., P) to length one; ``nan`` where they are zero.

    They are divided by the largest entry first, so the squares neither overflow nor
    underflow.
    """
    rows = rows / rows.abs().amax(dim=-1, keepdim=True)
    return rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
