r"""Conjugate gradients on the curvature system, as Martens (2010) stops them.

The baseline of Emirahmetoglu and Stewart: for a positive definite B, minimise

.. math:: q(x) = \tfrac12 \langle x, B x \rangle - \langle b, x \rangle

over the Krylov space. On B = A'A + lambda I and b = A'b' that space is the one of
:func:`labkit.hessian_free.lsmr` with damping sqrt(lambda); at equal k, CG has the lower
q there and LSMR the smaller gradient B x - b. Each iteration reads three inner products
to the host, at once, for the stop test.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.hessian_free.tuples import add, add_, copied, dot, scale_, scaled
from labkit.ranges import COUNT, NOT_NEGATIVE, check

STOPS = {"maxiter": COUNT, "tolerance": NOT_NEGATIVE}


@dataclass(frozen=True, eq=False)
class CGStep:
    """One iteration. ``x`` is the live iterate: copy what should outlast the next."""

    k: int
    x: tuple[Tensor, ...] = field(repr=False)
    q: float  # model value at x
    rnorm: float  # |B x - b| in the norm of the inverse preconditioner
    curvature: float  # <p, B p> of the direction that led here; nan at k = 0


def cg_steps(B: Callable, b: tuple[Tensor, ...], x0=None, M=None) -> Iterator[CGStep]:
    r"""The iterates of preconditioned CG, one by one, no stop.

    With $r = B x - b$, $y = r / M$, $p = -y$ at the start, per iteration

    (1) $\alpha = \langle r, y \rangle / \langle p, B p \rangle$
    (2) $x = x + \alpha p$    (3) $r = r + \alpha B p$    (4) $y = r / M$
    (5) $\beta = \langle r, y \rangle / \langle r_o, y_o \rangle$, $p = \beta p - y$
    (6) $q = \tfrac12 \langle r - b, x \rangle$

    B, b and x0 are those of :func:`cg`, on tuples, M its preconditioner. A direction
    without positive curvature is not followed: alpha = 0 there, and the caller sees
    ``curvature`` <= 0.
    """
    if x0 is None:
        x, r = scaled(b, 0.0), scaled(b, -1.0)
    else:
        x = copied(x0)
        r = add(B(x), -1.0, b)
    y = _divided(r, M)
    p = scaled(y, -1.0)
    ry = dot(r, y)
    q = 0.5 * (dot(r, x) - dot(b, x))
    q0, rr = torch.stack((q, ry)).tolist()
    _check_finite(q0, rr, 0.0, 0)
    yield CGStep(0, x, q0, math.sqrt(max(rr, 0.0)), math.nan)
    k = 0
    while True:
        k += 1
        Bp = B(p)
        pBp = dot(p, Bp)
        alpha = torch.where(pBp > 0, ry / pBp, 0.0)  # (1)
        add_(x, alpha, p)  # (2)
        add_(r, alpha, Bp)  # (3)
        y = _divided(r, M)  # (4)
        ry, ry_o = dot(r, y), ry
        scale_(p, torch.where(ry_o > 0, ry / ry_o, 0.0))  # (5)
        add_(p, -1.0, y)  # (5)
        q = 0.5 * (dot(r, x) - dot(b, x))  # (6)
        values = torch.stack((q, ry, pBp)).tolist()
        _check_finite(*values, k)
        yield CGStep(k, x, values[0], math.sqrt(max(values[1], 0.0)), values[2])


class CGResult(NamedTuple):
    """What :func:`cg` returns.

    ``status`` is "progress" (Martens' test), "exact", "curvature" (<p, B p> <= 0) or
    "maxiter"; ``kept`` holds (k, iterate), the last always; ``q`` and ``rnorm`` are per
    iteration, from 0.
    """

    x: Tensor | tuple[Tensor, ...]
    status: str
    iterations: int
    q: tuple[float, ...]
    rnorm: tuple[float, ...]
    kept: tuple


def cg(
    B: Callable,
    b: Tensor | tuple[Tensor, ...],
    *,
    x0=None,
    preconditioner=None,
    maxiter: int = 250,
    tolerance: float = 5e-4,
    keep: bool = False,
) -> CGResult:
    r"""Solve B x = b roughly by conjugate gradients, stopped as in Martens (2010).

    Stop at k when, over the last gap = max(10, ceil(k / 10)) iterations, the model
    gained less than ``tolerance`` per iteration, relatively: k > gap, q_k < 0 and
    (q_k - q_{k - gap}) / q_k < tolerance gap.

    Parameters
    ----------
    B : callable, x -> B x, symmetric positive definite
    b : tensor or tuple of tensors
    x0 : like b, optional, start; zero if not given
    preconditioner : like b, optional, $M$ > 0, approximates the diagonal of B
    maxiter : int >= 1, iterations at most
    tolerance : float >= 0; 0 runs to ``maxiter`` or to rounding
    keep : bool, also keep the iterates at k = ceil(5 * 1.3^t), to backtrack over

    Raises
    ------
    ValueError, FloatingPointError
        For arguments out of range; where a product is NaN or infinite.

    Examples
    --------
    >>> d = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    >>> cg(lambda x: d * x, torch.ones_like(d)).x
    tensor([1.0000, 0.5000, 0.2500], dtype=torch.float64)
    """
    check({"maxiter": maxiter, "tolerance": tolerance}, STOPS)
    bare = isinstance(b, Tensor)
    if bare:
        b, x0, preconditioner = _wrap(b), _wrap(x0), _wrap(preconditioner)
        function = B

        def B(x):
            return (function(x[0]),)

    q, rnorm, kept, t = [], [], [], 0
    for step in cg_steps(B, tuple(b), x0, preconditioner):
        k = step.k
        q.append(step.q)
        rnorm.append(step.rnorm)
        status = _reason(step, q, rnorm, tolerance, maxiter)
        if keep and k and (k == math.ceil(5 * 1.3**t) or status):
            kept.append((k, copied(step.x)))
            t += 1
        if status:
            break
    x = step.x[0] if bare else step.x
    return CGResult(x, status, k, tuple(q), tuple(rnorm), tuple(kept))


def _reason(step, q, rnorm, tolerance, maxiter):
    """Why to stop after this iteration, or None."""
    k = step.k
    eps = torch.finfo(step.x[0].dtype).eps
    if k and step.curvature <= 0 and rnorm[k - 1] > 0:
        return "curvature"
    if step.rnorm <= eps * rnorm[0]:
        return "exact"
    gap = max(10, -(-k // 10))
    if k > gap and q[k] < 0 and (q[k] - q[k - gap]) / q[k] < tolerance * gap:
        return "progress"
    return "maxiter" if k == maxiter else None


def _divided(r, M):
    return copied(r) if M is None else tuple(torch._foreach_div(r, M))


def _wrap(x):
    return None if x is None else (x,)


def _check_finite(q, ry, pBp, k):
    if not all(map(math.isfinite, (q, ry, pBp))):
        raise FloatingPointError(
            f"a product with B is not finite at iteration {k} "
            f"(q = {q}, <r, y> = {ry}, <p, B p> = {pBp})"
        )
