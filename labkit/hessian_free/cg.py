r"""Conjugate gradients on the curvature system, with the stop rule of Martens (2010).

The baseline of Emirahmetoglu and Stewart: for a positive definite B, minimise

.. math:: q(x) = \tfrac12 \langle x, B x \rangle - \langle b, x \rangle

over the Krylov space. On B = A'A + lambda I and b = A'b' that space is the one of
:func:`labkit.hessian_free.lsmr` with damping sqrt(lambda); at equal k, CG has the lower
q there and LSMR the smaller gradient B x - b. The iteration stays on the device, flat
(:mod:`labkit.hessian_free.vectors`); the host reads what the stop test needs, once an
iteration.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.check import check_tensor
from labkit.hessian_free.options import CGOptions
from labkit.hessian_free.system import DTYPES
from labkit.hessian_free.vectors import (
    Blocks,
    Space,
    Vector,
    as_tuple,
    check_like,
    positive,
)


@dataclass(frozen=True, eq=False)
class CGStep:
    """One iteration of CG, whose ``x`` is not overwritten by the next."""

    k: int
    x: Blocks = field(repr=False)
    q: float  # model value at x
    rnorm: float  # |b - B x| in the norm of the inverse preconditioner
    curvature: float  # <p, B p> of the direction that led here; nan at k = 0


@torch.no_grad()
def cg_steps(
    B: Callable,
    b: Vector,
    x0: Vector | None = None,
    M: Vector | None = None,
) -> Iterator[CGStep]:
    r"""Yield the iterates of preconditioned CG, without stopping.

    With $r = b - B x$, $y = r / M$, $p = y$ at the start, per iteration

    (1) $\alpha = \langle r, y \rangle / \langle p, B p \rangle$
    (2) $x = x + \alpha p$    (3) $r = r - \alpha B p$    (4) $y = r / M$
    (5) $\beta = \langle r, y \rangle / \langle r_o, y_o \rangle$, $p = y + \beta p$
    (6) $q = -\tfrac12 \langle r + b, x \rangle$

    B, b and x0 are those of :func:`cg`, M its preconditioner. A direction without
    positive curvature is not followed: alpha = 0 there, and ``curvature`` <= 0 says so.
    The host waits for the device once an iteration.

    An iteration costs one B, at most 15 kernels and 21 reads or writes of a vector.
    """
    space = Space(b)
    b = space.flat(b)

    def product(v):
        return space.flat(B(space.outside(space.blocks(v))))

    if x0 is None:
        x, r = torch.zeros_like(b), b
    else:
        x = space.flat(x0)
        r = b - product(x)
    M = None if M is None else space.flat(M)
    y = r if M is None else r / M
    p, ry = y, torch.dot(r, y)
    q = torch.dot(r + b, x)
    pBp, tiny = torch.ones_like(q), torch.finfo(b.dtype).tiny
    for k in count():
        q_k, ry_k, pBp_k = torch.stack((q, ry, pBp)).tolist()
        if not math.isfinite(q_k + ry_k + pBp_k):
            raise FloatingPointError(
                f"a product with B is not finite at iteration {k} "
                f"(q = {q_k}, <r, y> = {ry_k}, <p, B p> = {pBp_k})"
            )
        small = 0 < pBp_k < tiny if k else ry_k < tiny and y.any()
        if k < 2 and small:
            raise FloatingPointError(
                f"squares underflow in {b.dtype}; scale B and b up, or take float64"
            )
        rnorm, curvature = math.sqrt(max(ry_k, 0.0)), pBp_k if k else math.nan
        yield CGStep(k, space.blocks(x), -0.5 * q_k, rnorm, curvature)  # (6)
        Bp = product(p)
        pBp = torch.dot(p, Bp)
        alpha = torch.where(pBp > 0, ry / pBp, 0.0)  # (1)
        x = torch.addcmul(x, p, alpha)  # (2)
        r = torch.addcmul(r, Bp, alpha, value=-1)  # (3)
        y = r if M is None else r / M  # (4)
        ry, ry_o = torch.dot(r, y), ry
        p = torch.addcmul(y, p, ry / positive(ry_o))  # (5)
        q = torch.dot(r + b, x)  # (6)


class CGResult(NamedTuple):
    """The result of :func:`cg`.

    ``status`` is "progress" (Martens' test), "exact", "curvature" (<p, B p> <= 0) or
    "maxiter"; ``kept`` holds pairs (k, iterate) for a search back, at k =
    ceil(5 * 1.3^t) and at the last k > 0; ``q`` and ``rnorm`` have a number for each
    iteration, from 0.
    """

    x: Vector
    status: str
    iterations: int
    q: tuple[float, ...]
    rnorm: tuple[float, ...]
    kept: tuple[tuple[int, Blocks], ...]


def cg(
    B: Tensor | Callable,
    b: Vector,
    *,
    x0: Vector | None = None,
    preconditioner: Vector | None = None,
    **options: object,
) -> CGResult:
    r"""Solve B x = b approximately by conjugate gradients, stopped as Martens (2010).

    CG stops at k when, over the last gap = max(10, ceil(k / 10)) iterations, the model
    gained less than ``tolerance`` per iteration, relatively: k > gap, q_k < 0 and
    (q_k - q_{k - gap}) / q_k < tolerance gap. For NumPy arrays and sparse matrices
    there is ``scipy.sparse.linalg.cg``.

    Parameters
    ----------
    B : (n, n) tensor, or callable x -> B x, symmetric positive definite
    b : tensor or tuple of tensors, (n,) if B is a matrix, of float32 or float64
    x0 : like b, optional, start; zero if not given
    preconditioner : like b, optional, $M$ > 0, approximates the diagonal of B
    maxiter : int >= 1, iterations at most
    tolerance : float >= 0; 0 runs to ``maxiter`` or to rounding

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        For arguments out of range; where a product is NaN or infinite, or the squares
        of the first two iterations underflow.

    Examples
    --------
    >>> d = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    >>> cg(lambda x: d * x, torch.ones_like(d)).x
    tensor([1.0000, 0.5000, 0.2500], dtype=torch.float64)
    """
    options = CGOptions(**options)
    for block in as_tuple(b):
        check_tensor("b", block, dtype=DTYPES)
    if isinstance(B, Tensor):
        check_tensor("B", B, shape=(len(b), len(b)), like=b)
        B = B.mv
    for name, x in (("x0", x0), ("preconditioner", preconditioner)):
        if x is not None:
            check_like(name, x, b)
    # The numbers of an accelerator are not read: a step there would wait for them.
    if x is not None and any(own.is_cpu and own.min() <= 0 for own in as_tuple(x)):
        raise ValueError("preconditioner must have entries > 0 only")
    q, rnorm, kept, t = [], [], [], 0
    eps, least = torch.finfo(as_tuple(b)[0].dtype).eps, options.tolerance
    for step in cg_steps(B, b, x0, preconditioner):
        k = step.k
        q.append(step.q)
        rnorm.append(step.rnorm)
        gap = max(10, -(-k // 10))
        status = None
        if step.curvature <= 0 and rnorm[k - 1] > 0:  # it is nan at k = 0
            status = "curvature"
        elif step.rnorm <= eps * rnorm[0]:
            status = "exact"
        elif k > gap and q[k] < 0 and (q[k] - q[k - gap]) / q[k] < least * gap:
            status = "progress"
        elif k == options.maxiter:
            status = "maxiter"
        if k and (k == math.ceil(5 * 1.3**t) or status):
            kept.append((k, step.x))
            t += 1
        if status:
            break
    return CGResult(
        Space(b).outside(step.x), status, k, tuple(q), tuple(rnorm), tuple(kept)
    )
