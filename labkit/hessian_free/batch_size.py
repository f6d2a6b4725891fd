r"""The size of the next batch, from the noise of the gradient on this one.

Emirahmetoglu and Stewart, section 4.3, Algorithm 2 and the last lines of Algorithm 1;
the idea is that of Byrd, Chin, Nocedal and Wu (2012), here without assuming n << N.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.check import COUNT, INSIDE, NOT_NEGATIVE, check_options
from labkit.hessian_free.vectors import dot

RANGES = {
    "variance": NOT_NEGATIVE,
    "gradient_norm2": NOT_NEGATIVE,
    "population": COUNT,
    "theta": INSIDE,
}
WINDOW = 5  # estimates that are averaged, steps that a decrease is judged over
STALLED = 0.005  # relative decrease of the validation loss over the window


def batch_gradient_variance(point: object, *scalars: Tensor) -> tuple[float, ...]:
    r"""Return V and |grad f_S|^2 of a batch, from one backward pass and one read.

    ``point`` is what :func:`labkit.hessian_free.linearise` returns. Tensors
    ``scalars``, of shape (), are read along with the two and returned after them.

    (1) $V = \frac{n}{n-1} \left( \tfrac1n \sum_i |\nabla f_i|^2
    - |\nabla f_S|^2 \right)$

    is the sample variance of one example's gradient, summed over parameters; n >= 2.
    V / n times (N - n) / (N - 1) estimates E |grad f_S - grad f_N|^2.
    """
    n = point.n
    gradient, squares = point.gradient_moments()
    g2 = dot(gradient, gradient)
    V = n / (n - 1) * (squares / n - g2)  # (1)
    V, *others = torch.stack((V, g2, *scalars)).tolist()
    return max(V, 0.0), *others


def next_batch_size(
    variance: float, gradient_norm2: float, population: int, theta: float
) -> int:
    r"""Return the least n whose gradient is a descent direction on average.

    (2) $\frac{V}{n} \cdot \frac{N - n}{N - 1} \le \theta^2 |\nabla f_S|^2$ has the
    least solution
    (3) $\hat n = \left\lceil N V / (V + \theta^2 (N - 1) |\nabla f_S|^2) \right\rceil$

    The paper's (13) and (14) lack the square of the norm, so that n would depend on
    the unit of the loss; its (10), squared, has it. The arithmetic is exact.

    Parameters
    ----------
    variance : float >= 0, $V$ of :func:`batch_gradient_variance`
    gradient_norm2 : float >= 0, |grad f_S|^2; 0 asks for all rows
    population : int >= 1, $N$
    theta : float in (0, 1), $\theta$; the larger, the more noise is tolerated

    Examples
    --------
    >>> next_batch_size(variance=4.0, gradient_norm2=1.0, population=1000, theta=0.5)
    16
    """
    given = {"variance": variance, "gradient_norm2": gradient_norm2}
    check_options(given | {"population": population, "theta": theta}, RANGES)
    if gradient_norm2 == 0 or population == 1:
        return population
    V, g2, t = map(Fraction, map(float, (variance, gradient_norm2, theta)))
    n = math.ceil(population * V / (V + t**2 * (population - 1) * g2))  # (2), (3)
    return max(n, 1)


class NextBatch(NamedTuple):
    """The next step's batch size, and the reason why it grew."""

    n: int
    maxiter: int  # Krylov iterations at most
    average: int | None  # of the last five estimates; None before there are six
    reason: str  # "variance", "stalled" (validation loss), "" where n stays


def grow(
    n: int,
    maxiter: int,
    estimates: Sequence[int],
    losses: Sequence[float],
    max_batch_size: int,
) -> NextBatch:
    r"""Apply the last block of Algorithm 1: batch and iterations grow together.

    From the sixth step i on, with $\hat n_j$ and $f_j$ of the steps so far,

    (4) $\bar n = \lceil (\hat n_{i-4} + \dots + \hat n_i) / 5 \rceil$
    (5) $r = (f_{i-5} - f_i) / f_i$
    (6) $n' = \min(\bar n, n_{max}) \text{ if } \bar n > n, \;
    \min(\lceil 1.005 n \rceil, n_{max}) \text{ if } r < 0.005, \text{ else } n$
    (7) $\mathrm{maxiter}' = \lceil n' / n \cdot \mathrm{maxiter} \rceil$

    (5) has the index of the algorithm, not the text's i - 4. Ceilings are exact.

    Parameters
    ----------
    n, maxiter : int, of the step just taken
    estimates : sequence of int, $\hat n$ of the steps so far, this one's the last
    losses : sequence of float, $f$ on validation rows, likewise
    max_batch_size : int, $n_{max}$; a larger n stays as it is, for it never shrinks

    Examples
    --------
    >>> grow(100, 150, [90] * 6, [1.0] * 6, 2000)
    NextBatch(n=101, maxiter=152, average=90, reason='stalled')
    """
    if len(estimates) <= WINDOW:
        return NextBatch(n, maxiter, None, "")
    average = -(-sum(estimates[-WINDOW:]) // WINDOW)  # (4)
    r = (losses[-1 - WINDOW] - losses[-1]) / losses[-1] if losses[-1] else 0.0  # (5)
    if average > n:
        n_next, reason = min(average, max_batch_size), "variance"  # (6)
    elif r < STALLED:
        n_next, reason = min(-(-1005 * n // 1000), max_batch_size), "stalled"  # (6)
    else:
        n_next, reason = n, ""  # (6)
    n_next = max(n_next, n)
    maxiter = -(-n_next * maxiter // n)  # (7)
    return NextBatch(n_next, maxiter, average, reason if n_next > n else "")
