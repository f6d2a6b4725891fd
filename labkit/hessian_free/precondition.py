r"""Diagonal right preconditioners for the curvature A'A of a loss.

Emirahmetoglu and Stewart, section 4.4 and Algorithm 3, after Chapelle and Erhan (2011).
"""

import torch
from torch import Tensor

from labkit.ranges import check, one_of

KINDS = ("random_signs", "fisher", "jacobi", "none")


def diagonal_estimate(point, signs: Tensor) -> tuple[Tensor, ...]:
    r"""An unbiased estimate of diag(A'A) from one backward pass.

    With independent signs u_ij, the expectation of $(J_i^T u_i)_p^2$ is
    $\sum_j (\partial r_{ij} / \partial w_p)^2$; squared before summed over examples,
    so that no cross terms between examples arise,

    (1) $g = \tfrac1n \sum_i (J_i^T u_i)^2, \qquad E[g] = \mathrm{diag}(A^T A)$.

    Algorithm 3 divides by n once, since its signals lack the 1 / sqrt(n) of A.
    """
    return point.sum_squares(signs / point.n**0.5)  # (1)


def diagonal_preconditioner(
    point, kind: str = "random_signs", *, damping: float = 0.0, generator=None
) -> tuple[Tensor, ...] | None:
    r"""c of d = c o y, entries > 0; None for none.

    (2) $c = 1 / (1 + \sqrt g)$ for "random_signs": Algorithm 3 with g of (1)
    (3) $c = (\bar{g^2} + \lambda^2)^{-3/8}$ for "fisher", $\bar{g^2}$ the mean squared
    gradient of the examples: Martens' $M^{-1/2}$, $M = (\bar{g^2} + \lambda^2)^{3/4}$
    (4) $c = 1 / \sqrt{g + \lambda^2}$ for "jacobi": the diagonal made equal

    The text of section 4.4 has 1 / (1 + g), without the root that a column norm needs;
    Algorithm 3 is built. (4) can hurt: it is here to be seen.

    Parameters
    ----------
    point : what :func:`labkit.hessian_free.linearise` returns
    kind : {"random_signs", "fisher", "jacobi", "none"}
    damping : float, $\lambda$ of the system, for "fisher" and "jacobi"
    generator : torch.Generator, optional, of the signs, on the device of the weights

    Raises
    ------
    ValueError
        For an unknown kind, or where (3) or (4) would divide by zero.
    """
    check({"preconditioner": kind}, {"preconditioner": one_of(KINDS)})
    if kind == "none":
        return None
    if kind in ("fisher", "jacobi") and not damping > 0:
        raise ValueError(f'"{kind}" needs damping > 0, got {damping}')
    if kind == "fisher":
        g2 = point.sum_squares(point.residual)  # R has the 1 / sqrt(n)
        return tuple((t + damping**2).pow_(-0.375) for t in g2)  # (3)
    R = point.residual
    drawn = {"generator": generator, "dtype": R.dtype, "device": R.device}
    signs = torch.randint(0, 2, R.shape, **drawn).mul_(2).sub_(1)
    g = diagonal_estimate(point, signs)
    if kind == "jacobi":
        return tuple((t + damping**2).rsqrt_() for t in g)  # (4)
    return tuple(t.sqrt_().add_(1).reciprocal_() for t in g)  # (2)
