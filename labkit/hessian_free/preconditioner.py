r"""Diagonal preconditioners of a Hessian-free step, from one backward pass.

Emirahmetoglu and Stewart, section 4.4 and Algorithm 3, after Chapelle and Erhan (2011).
"""

import torch
from torch import Tensor

from labkit.check import NOT_NEGATIVE, check_options, one_of
from labkit.hessian_free.options import KINDS
from labkit.hessian_free.vectors import Blocks

OPTIONS = {"preconditioner": one_of(KINDS), "damping": NOT_NEGATIVE}


def diagonal_estimate(point: object, signs: Tensor) -> Blocks:
    r"""Return an unbiased estimate of diag(A'A) from one backward pass.

    With independent signs u_ij, the expectation of $(J_i^T u_i)_p^2$ is
    $\sum_j (\partial r_{ij} / \partial w_p)^2$. The squares are taken before the sum
    over examples, so that no products between examples arise:

    (1) $g = \tfrac1n \sum_i (J_i^T u_i)^2, \qquad E[g] = \mathrm{diag}(A^T A)$.

    Algorithm 3 divides by n once, since its signals lack the 1 / sqrt(n) of A.
    """
    return point.sum_squares(signs / point.n**0.5)  # (1)


def diagonal_preconditioner(
    point: object,
    kind: str = "random_signs",
    *,
    damping: float = 0.0,
    generator: torch.Generator | None = None,
) -> Blocks | None:
    r"""Return the preconditioner c of d = c o y, with entries > 0; None for "none".

    (2) $c = 1 / (1 + \sqrt g)$ for "random_signs": Algorithm 3 with g of (1)
    (3) $c = (\bar{g^2} + \lambda^2)^{-3/8}$ for "fisher", $\bar{g^2}$ the mean squared
    gradient of the examples: Martens' $M^{-1/2}$, $M = (\bar{g^2} + \lambda^2)^{3/4}$
    (4) $c = 1 / \sqrt{g + \lambda^2}$ for "jacobi", which makes the diagonal equal

    The text of section 4.4 has 1 / (1 + g), without the root that a column norm needs;
    (2) is that of Algorithm 3. (4) can slow LSMR down; it is offered for comparison.

    Parameters
    ----------
    point : what :func:`labkit.hessian_free.linearise` returns
    kind : {"random_signs", "fisher", "jacobi", "none"}
    damping : float, $\lambda$ of the system, for "fisher" and "jacobi"
    generator : torch.Generator, optional, of the signs, on the device of the weights

    Raises
    ------
    ValueError
        For an unknown kind, or a damping of 0, at which (3) and (4) may divide by zero.
    """
    check_options({"preconditioner": kind, "damping": damping}, OPTIONS)
    if kind == "none":
        return None
    if kind in ("fisher", "jacobi") and not damping > 0:
        raise ValueError(f'"{kind}" needs damping > 0, got {damping}')
    R = point.residual
    if kind == "fisher":
        g2 = point.sum_squares(R)  # it has the 1 / sqrt(n)
        return tuple((t + damping**2).pow_(-0.375) for t in g2)  # (3)
    signs = torch.randint(
        0, 2, R.shape, generator=generator, dtype=R.dtype, device=R.device
    )
    g = diagonal_estimate(point, signs.mul_(2).sub_(1))
    if kind == "jacobi":
        return tuple((t + damping**2).rsqrt_() for t in g)  # (4)
    return tuple(t.sqrt_().add_(1).reciprocal_() for t in g)  # (2)
