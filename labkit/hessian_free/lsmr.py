r"""LSMR wholly in torch: damped, preconditioned, warm-started, on an operator.

Emirahmetoglu and Stewart, sections 4.7 and 5, Algorithm 6; the method is that of Fong
and Saunders (SIAM J. Sci. Comput. 33, 2011). Solved is

.. math:: \min_d |A d - b|^2 + \lambda^2 |d|^2 , \qquad d = c \circ y

with a diagonal right preconditioner c, from a start d_0. Algorithm 6 as printed puts
the damping on y, measures it from the start, and takes y for d on the way in and out:
three other problems. Here LSMR runs undamped on the operator

    K y = ( A(c o y), lambda c o y ),   right-hand side ( b, 0 ),   start d_0 / c,

with iterates kept as d = c o y. The first two departures are switches, the
``damping_norm`` and what to ``damp_towards``:

==========================  ====================================================
norm, towards               normal equations, with C = diag(c)
==========================  ====================================================
"identity", "zero"          (A'A + lam^2 I) d = A'b                 (the paper's (18))
"identity", "start"         (A'A + lam^2 I) (d - d0) = A'(b - A d0)
"scaled", "zero"            (A'A + lam^2 C^-2) d = A'b
"scaled", "start"           (A'A + lam^2 C^-2) (d - d0) = A'(b - A d0)
==========================  ====================================================

``scipy.sparse.linalg.lsmr(damp=, x0=)`` is the second. Further departures: rho_0 = 1
(printed 0, which divides 0 by 0), the progress test compares with the value of this
check (printed f_val, undefined there), and the best iterate is returned, not the last.

Latin letters are vectors (tuples of tensors), greek ones scalars. Vectors and norms
stay on the device. Each iteration reads alpha and beta to the host once, together; the
stop test needs them there, and the plane rotations are then a few dozen float64
operations, cheaper than launching them on an accelerator. Only the merit checks, whose
number grows with log k, synchronise besides.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.hessian_free.merit import MINITER, PATIENCE, Merit
from labkit.hessian_free.rotations import Norms, Rotations, hypot, rotate
from labkit.hessian_free.system import System, build_system
from labkit.hessian_free.tuples import add_product_, combine_, copied, dot, norm, scale_
from labkit.ranges import COUNT, NOT_NEGATIVE, check, integer, one_of

STOPS = {"atol": NOT_NEGATIVE, "ftol": NOT_NEGATIVE, "maxiter": COUNT}
STOPS |= {"miniter": integer(0), "patience": integer(0)}
STOPS["as_published"] = one_of((False, True))


@dataclass(frozen=True, eq=False)
class LSMRStep:
    """One iteration. ``x`` is the live iterate: copy what should outlast the next."""

    k: int
    x: tuple[Tensor, ...] = field(repr=False)
    norms: Norms
    exhausted: bool | np.ndarray  # residual or gradient is down to rounding


@torch.no_grad()
def lsmr_steps(system: System) -> Iterator[LSMRStep]:
    r"""The iterates d_0, d_1, ... of LSMR on a :class:`System`, one by one, no stop.

    (1) $\beta_{k+1} u_{k+1} = K v_k - \alpha_k u_k$,
    $\alpha_{k+1} v_{k+1} = K^T u_{k+1} - \beta_{k+1} v_k$
    (7) $\bar h = h - \frac{\bar\theta \rho}{\rho_o \bar\rho_o} \bar h$
    (8) $d = d + \frac{\zeta}{\rho \bar\rho}\, c \circ \bar h$
    (9) $h = v - \frac{\theta}{\rho} h$

    :func:`rotate` has (2) to (6).

    Cost of an iteration: one A, one A', and 20 to 35 reads or writes of a vector of
    parameters (damping and scale want the most). Six such vectors are held, one more
    with damping. What is raised: see :func:`lsmr`.
    """
    batch = system.batch
    d, u, v = system.start()
    work = tuple(map(torch.empty_like, d))
    beta_ = norm(u, batch)
    scale_(u, 1 / _nonzero(beta_))
    scale_(v, 1 / _nonzero(beta_))
    alpha_ = norm(v, batch)
    scale_(v, 1 / _nonzero(alpha_))
    alpha, beta = _read(alpha_, beta_)
    _check_finite(alpha, beta, 0, None)
    state = Rotations(alpha, alpha * beta, alpha**2, beta)
    norms = Norms(beta, alpha * beta, alpha)
    eps = torch.finfo(d[0].dtype).eps
    floor = eps * beta
    yield LSMRStep(0, d, norms, alpha * beta == 0)
    h, hbar = copied(v), tuple(map(torch.zeros_like, v))
    k = 0
    while True:
        k += 1
        u_1 = copied(u) if k == 1 else None
        system.forward_(u, -_send(alpha, d), v, work)  # (1)
        beta_ = norm(u, batch)  # (1)
        scale_(u, 1 / _nonzero(beta_))  # (1)
        system.transpose_(v, -beta_, u, work)  # (1)
        alpha_ = norm(v, batch)  # (1)
        scale_(v, 1 / _nonzero(alpha_))  # (1)
        if k == 1:
            overlap = beta_ * dot(u, u_1, batch)
            alpha_1 = alpha
            alpha, beta, inner = _read(alpha_, beta_, overlap)
            _check_finite(alpha, beta, k, norms)
            _check_adjoint(inner, alpha_1, beta, eps)
        else:
            alpha, beta = _read(alpha_, beta_)
            _check_finite(alpha, beta, k, norms)
        state, norms, (a_hbar, a_d, a_h) = rotate(state, alpha, beta)
        combine_(hbar, _send(a_hbar, d), h)  # (7)
        add_product_(d, _send(a_d, d), system.scale, hbar)  # (8)
        combine_(h, _send(a_h, d), v)  # (9)
        exhausted = norms.rnorm <= floor
        exhausted |= norms.arnorm <= eps * norms.anorm * norms.rnorm
        yield LSMRStep(k, d, norms, exhausted)


@dataclass(frozen=True)
class LSMRStats:
    """How a run went; for a batch, arrays of the batch shape instead of numbers."""

    iterations: int
    best: int  # iteration whose iterate was returned
    rnorm: tuple  # |(b - A d_k, -lam d_k)| for k = 0, 1, ...
    arnorm: tuple  # |c o (A'(b - A d_k) - lam^2 d_k)|
    anorm: float  # Frobenius norm of the bidiagonal matrix
    merit: tuple[tuple[int, float], ...]  # (k, merit) at 0 and at the checks


class LSMRResult(NamedTuple):
    """What :func:`lsmr` returns.

    ``status``, an array for a batch, is "atol" (the gradient test), "ftol" (the merit
    flattened), "patience" (it did not come back), "exact" (rounding left) or "maxiter".
    """

    x: Tensor | tuple[Tensor, ...]
    status: str | np.ndarray
    stats: LSMRStats


@torch.no_grad()
def lsmr(
    A: Tensor | Callable,
    At: Callable | None,
    b: Tensor | tuple[Tensor, ...],
    *,
    x0=None,
    damping: float = 0.0,
    scale=None,
    damping_norm: str = "identity",
    damp_towards: str = "zero",
    atol: float = 1e-6,
    ftol: float = 1e-5,
    maxiter: int | None = None,
    merit: Callable | None = None,
    miniter: int = MINITER,
    patience: int = PATIENCE,
    as_published: bool = False,
) -> LSMRResult:
    r"""Least squares by LSMR: min |A x - b|^2 + damping^2 |x|^2, from x0.

    Prefer it where A is an operator on an accelerator or the answer is wanted only
    roughly; for a dense matrix that fits, a factorisation is faster.

    Parameters
    ----------
    A : tensor or callable
        $A$, (m, n), (..., m, n) for a batch with b (..., m), or a function x -> A x.
    At : callable or None
        u -> A'u; None where A is a tensor. Neither function may change its argument;
        both take and return what x0 and b are, a tensor or a tuple.
    b : tensor or tuple of tensors, $b$, right-hand side
    x0 : like A'b, optional, $d_0$, the start; zero if not given; not changed
    damping : float >= 0, $\lambda$, enters squared
    scale : like A'b, optional
        $c$, entries > 0: a right preconditioner. It changes the speed, not the problem,
        unless ``damping_norm="scaled"``.
    damping_norm : {"identity", "scaled"}, penalise |x|, or |x / c|
    damp_towards : {"zero", "start"}, measure the penalty from 0, or from x0
    atol : float, stop when |K'r| <= atol |K| |r|, by the recurrences
    ftol, miniter, patience : see :class:`~labkit.hessian_free.merit.Merit`
    maxiter : int, optional, at most; the unknowns of one system if not given
    merit : callable, optional
        x -> number (float or 0-d tensor), watched at iterations 5, 7, 9, 12, 15, 19,
        24, 30, ..., each interval a quarter longer, and at ``maxiter``. The iterate of
        least merit is returned. It must leave x unchanged.
    as_published : bool, in spite of ``merit`` return the last, as Algorithm 6 does

    Raises
    ------
    ValueError, TypeError
        For arguments out of range, or where At is not the adjoint of A (noticed in the
        first iteration, at the price of one inner product).
    FloatingPointError
        Where a product, or the merit of the start, is NaN or infinite.

    Notes
    -----
    In float32 the vectors lose orthogonality: convergence takes more iterations, the
    true gradient norm stalls near 1e-6 |K| |r|, and that in ``stats`` goes on falling;
    below machine precision the run ends as "exact", which then means "stalled".

    Examples
    --------
    >>> A = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    >>> x, status, stats = lsmr(A, None, A.new_tensor([1.0, 2.0, 3.0]))
    >>> x, stats.iterations
    (tensor([1.0000, 1.0000], dtype=torch.float64), 2)
    """
    form = {"damping": damping, "damping_norm": damping_norm}
    form |= {"damp_towards": damp_towards, "x0": x0, "scale": scale}
    system = build_system(A, At, b, **form)
    maxiter = system.unknowns() if maxiter is None else maxiter
    stops = {"atol": atol, "ftol": ftol, "maxiter": maxiter, "miniter": miniter}
    check(stops | {"patience": patience, "as_published": as_published}, STOPS)
    if merit is not None and system.batch:
        raise ValueError("merit judges one system, but A is a batch of them")
    if system.batch:
        return _run_batch(system, atol, maxiter)
    watch = None
    if merit is not None:
        judge = lambda x: merit(system.outside(x))  # noqa: E731
        watch = Merit(judge, ftol, maxiter, miniter, patience)
    x, status, stats = _run(lsmr_steps(system), watch, atol, maxiter)
    if watch and watch.x_best is not None and not as_published:
        x, stats = watch.x_best, replace(stats, best=watch.best)
    return LSMRResult(system.outside(x), status, stats)


def _run(steps, watch, atol, maxiter):
    """Advance one system until it has a reason to stop."""
    rnorm, arnorm = [], []
    for step in steps:
        r, ar, anorm = step.norms
        rnorm.append(r)
        arnorm.append(ar)
        status = None
        if step.exhausted:
            status = "exact"
        elif step.k and ar <= atol * anorm * r:
            status = "atol"
        elif watch and step.k:
            status = watch.check(step.k, step.x)
        elif watch:
            watch.start(step.x)
        if status is None and step.k == maxiter:
            status = "maxiter"
        if status:
            break
    curve = tuple(watch.curve) if watch else ()
    stats = LSMRStats(step.k, step.k, tuple(rnorm), tuple(arnorm), anorm, curve)
    return step.x, status, stats


def _run_batch(system, atol, maxiter):
    """Advance a batch until the last system has a reason; the others stay converged."""
    rnorm, arnorm = [], []
    for step in lsmr_steps(system):
        r, ar, anorm = step.norms
        rnorm.append(r)
        arnorm.append(ar)
        if step.k == 0:
            status, ends = np.full(r.shape, "", "<U7"), np.zeros(r.shape, int)
        small = (ar <= atol * anorm * r) & (step.k > 0)
        rest = np.where(small, "atol", "maxiter" if step.k == maxiter else "")
        running = status == ""
        ends[running] = step.k
        status = np.where(running, np.where(step.exhausted, "exact", rest), status)
        if (status != "").all():
            break
    stats = LSMRStats(ends, ends, tuple(rnorm), tuple(arnorm), anorm, ())
    return LSMRResult(system.outside(step.x), status, stats)


def _nonzero(norm: Tensor) -> Tensor:
    """A divisor: a norm of 0 belongs to a vector of zeros, which may stay so."""
    return torch.where(norm == 0, 1, norm)


def _read(*scalars: Tensor):
    """One read of several device scalars, as float64: floats, or arrays for a batch."""
    values = torch.stack(scalars)
    if values.ndim == 1:
        return values.tolist()
    return tuple(values.double().cpu().numpy())


def _send(a, like) -> float | Tensor:
    """A coefficient for the vectors: a float, or for a batch a tensor beside them."""
    if isinstance(a, np.ndarray):
        return torch.as_tensor(a, dtype=like[0].dtype, device=like[0].device)
    return float(a)


def _check_finite(alpha, beta, k, norms):
    if not (np.all(np.isfinite(alpha)) and np.all(np.isfinite(beta))):
        last = "" if norms is None else f"; the last finite norms were {norms}"
        where = "at the start" if k == 0 else f"at iteration {k}"
        raise FloatingPointError(
            f"a product with A or A' is not finite {where} "
            f"(beta = {beta}, alpha = {alpha}){last}"
        )


def _check_adjoint(overlap, alpha, beta, eps):
    """<K v_1, u_1> = alpha_1 |v_1|^2 holds exactly for an adjoint pair."""
    size = hypot(alpha, beta)
    if np.any(abs(overlap) > math.sqrt(eps) * size):
        raise ValueError(
            f"At is not the adjoint of A: <A v, u> = {alpha + overlap} but "
            f"<v, At u> = {alpha} for unit vectors u and v; check transposes and "
            "scale factors"
        )
