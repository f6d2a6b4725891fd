r"""LSMR in torch, with damping, a preconditioner and a warm start, on an operator.

Emirahmetoglu and Stewart, sections 4.7 and 5, Algorithm 6; the method is that of Fong
and Saunders (SIAM J. Sci. Comput. 33, 2011). It solves

.. math:: \min_d |A d - b|^2 + \lambda^2 |d|^2 , \qquad d = c \circ y

with a diagonal right preconditioner c, from a start d_0. Algorithm 6 as printed damps
y, measures the damping from the start, and confuses y with d at the start and at the
end, so that it solves other problems. Here LSMR runs undamped on the operator

    K y = ( A(c o y), lambda c o y ),   right-hand side ( b, 0 ),   start d_0 / c,

with iterates kept as d = c o y. The first two departures are options,
``damping_norm`` and ``damp_towards``:

==========================  ====================================================
norm, towards               normal equations, with C = diag(c)
==========================  ====================================================
"identity", "zero"          (A'A + lam^2 I) d = A'b                 (the paper's (18))
"identity", "start"         (A'A + lam^2 I) (d - d0) = A'(b - A d0)
"scaled", "zero"            (A'A + lam^2 C^-2) d = A'b
"scaled", "start"           (A'A + lam^2 C^-2) (d - d0) = A'(b - A d0)
==========================  ====================================================

``scipy.sparse.linalg.lsmr(damp=, x0=)`` solves the second. Other departures: rho_0 = 1
(printed 0, which divides 0 by 0), the progress test compares with the value of this
check (printed f_val, undefined there), and the best iterate is returned, not the last.

Latin letters are vectors, flat inside (:mod:`labkit.hessian_free.vectors`); Greek ones
are scalars. The bidiagonalisation stays on the device. The host reads its alpha and
beta at each iteration and does the plane rotations (:func:`rotate`), a few dozen
operations in float64 that are cheaper there than launched as kernels; their
coefficients update the iterates. :mod:`labkit.hessian_free.stopping` has the rules.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.check import FUNCTION, check_options, optional
from labkit.hessian_free.stopping import LSMRStats, Merit
from labkit.hessian_free.system import System, build_system
from labkit.hessian_free.vectors import (
    Blocks,
    Vector,
    flat_norm,
    keep_freed,
    positive,
)


class Rotations(NamedTuple):
    """The scalars of the two QR factorisations after an iteration."""

    alphabar: float
    zetabar: float
    anorm2: float  # sum of squares of the bidiagonal matrix without its last beta
    betadd: float
    rho: float = 1.0
    rhobar: float = 1.0
    cbar: float = 1.0
    sbar: float = 0.0
    zeta: float = 0.0
    betad: float = 0.0
    rhod: float = 1.0
    tautilde: float = 0.0
    thetatilde: float = 0.0


class Norms(NamedTuple):
    """The norms estimated by the recurrences."""

    rnorm: float  # |(b - A d, -lam d)|, the residual of K
    arnorm: float  # |K'(residual)| = |c o (A'(b - A d) - lam^2 d)|
    anorm: float  # Frobenius norm of the bidiagonal matrix: a lower bound of |K|_F


def rotate(s: Rotations, alpha: float, beta: float) -> tuple[Rotations, Norms, tuple]:
    r"""Advance both QR factorisations by one column (Algorithm 6), in float64.

    (2) $\rho = \sqrt{\bar\alpha^2 + \beta^2}$, $\cos = \bar\alpha / \rho$,
    $\sin = \beta / \rho$    (3) $\theta = \sin\,\alpha$, $\bar\alpha' = \cos\,\alpha$
    (4) $\bar\theta = \bar s \rho$, $\bar\rho = \sqrt{(\bar c \rho)^2 + \theta^2}$
    (5) $\bar c' = \bar c \rho / \bar\rho$, $\bar s' = \theta / \bar\rho$
    (6) $\zeta = \bar c' \bar\zeta$, $\bar\zeta' = -\bar s' \bar\zeta$

    ``s`` is the state after the previous iteration; alpha and beta have index k + 1.
    The state, the norms, and the coefficients of the vector updates (of hbar, of d, of
    h) are returned.
    """
    rho = math.hypot(s.alphabar, beta)  # (2)
    cos, sin = s.alphabar / rho, beta / rho  # (2)
    theta, alphabar = sin * alpha, cos * alpha  # (3)
    thetabar, rhobar = s.sbar * rho, math.hypot(s.cbar * rho, theta)  # (4)
    cbar, sbar = s.cbar * rho / rhobar, theta / rhobar  # (5)
    zeta, zetabar = cbar * s.zetabar, -sbar * s.zetabar  # (6)
    # A third factorisation gives the norm of the residual from scalars alone.
    betahat, betadd = cos * s.betadd, -sin * s.betadd
    rhotilde = math.hypot(s.rhod, thetabar)
    ctilde, stilde = s.rhod / rhotilde, thetabar / rhotilde
    thetatilde, rhod = stilde * rhobar, ctilde * rhobar
    betad = -stilde * s.betad + ctilde * betahat
    tautilde = (s.zeta - s.thetatilde * s.tautilde) / rhotilde
    taud = (zeta - thetatilde * tautilde) / rhod
    state = Rotations(
        alphabar=alphabar,
        zetabar=zetabar,
        anorm2=s.anorm2 + beta**2 + alpha**2,
        betadd=betadd,
        rho=rho,
        rhobar=rhobar,
        cbar=cbar,
        sbar=sbar,
        zeta=zeta,
        betad=betad,
        rhod=rhod,
        tautilde=tautilde,
        thetatilde=thetatilde,
    )
    norms = Norms(
        rnorm=math.hypot(betad - taud, betadd),
        arnorm=abs(zetabar),
        anorm=math.sqrt(s.anorm2 + beta**2),
    )
    along_hbar, along_h = -thetabar * rho / (s.rho * s.rhobar), -theta / rho
    return state, norms, (along_hbar, zeta / (rho * rhobar), along_h)


@dataclass(frozen=True, eq=False)
class LSMRStep:
    """One iteration of LSMR, whose ``x`` is overwritten by the next."""

    k: int
    x: Blocks = field(repr=False)
    norms: Norms
    exhausted: bool  # residual or gradient is at rounding error


def bidiagonalise(
    system: System, u: Tensor, v: Tensor, alpha: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Take a step of Golub and Kahan on a :class:`System`, entirely on the device.

    (1) $\beta_{k+1} u_{k+1} = K v_k - \alpha_k u_k$,
    $\alpha_{k+1} v_{k+1} = K^T u_{k+1} - \beta_{k+1} v_k$

    u : flat, $\beta_k u_k$, never divided, which saves two passes over its damped part;
    v : flat, of norm 1; alpha, beta : (1,). The next four are returned. The cost is one
    A, one A' and at most 15 kernels.
    """
    u = system.forward(v).addcmul_(u, alpha / beta, value=-1)  # (1)
    beta = positive(system.norm(u))  # (1)
    v = system.transpose(u, beta).addcmul_(v, beta, value=-1)  # (1)
    alpha = flat_norm(v)  # (1)
    return u, v.div_(positive(alpha)), alpha, beta  # (1)


@torch.no_grad()
def lsmr_steps(system: System, negligible: float = 0.0) -> Iterator[LSMRStep]:
    r"""Yield the iterates d_0, d_1, ... of LSMR on a :class:`System`.

    (7) $\bar h = h - \frac{\bar\theta \rho}{\rho_o \bar\rho_o} \bar h$
    (8) $d = d + \frac{\zeta}{\rho \bar\rho}\, c \circ \bar h$
    (9) $h = v - \frac{\theta}{\rho} h$

    :func:`bidiagonalise` has (1), :func:`rotate` has (2) to (6). The host waits for the
    device at each iteration, and twice at the first. The generator ends where only
    rounding is left.

    An iteration costs one A, one A', at most 18 kernels, and 20 to 35 reads or writes
    of a vector of parameters (the most with damping and scale). Five such vectors are
    held, and one more with damping. The errors are those of :func:`lsmr`, but a norm of
    the start up to ``negligible`` may underflow.
    """
    d, u, v = system.start()
    keep_freed(u)
    beta = positive(system.norm(u))
    v = v / beta
    alpha = flat_norm(v)
    v = v / positive(alpha)
    h, hbar, x, c = v.clone(), torch.zeros_like(v), system.space.blocks(d), system.scale
    first, eps = u / beta, torch.finfo(d.dtype).eps
    alpha_1, beta_1 = torch.cat((alpha, beta)).tolist()
    _check_norms(system, u, v, alpha_1, beta_1, negligible, 0)
    state = Rotations(alpha_1, alpha_1 * beta_1, alpha_1**2, beta_1)
    norms = Norms(beta_1, alpha_1 * beta_1, alpha_1)
    exhausted = norms.arnorm == 0
    yield LSMRStep(0, x, norms, exhausted)
    for k in count(1):
        if exhausted:
            return
        u, v, alpha, beta = bidiagonalise(system, u, v, alpha, beta)
        alpha_k, beta_k = torch.cat((alpha, beta)).tolist()
        rounding = eps * math.hypot(norms.anorm, alpha_k, beta_k)
        _check_norms(system, u, v, alpha_k, beta_k, rounding, k)
        if k == 1:
            overlap = float(system.dot(u, first))  # 0, as <K v_1, u_1> = alpha_1
            if abs(overlap) > math.sqrt(eps) * math.hypot(alpha_1, beta_k):
                raise ValueError(
                    f"At is not the adjoint of A: <A v, u> = {alpha_1 + overlap} but "
                    f"<v, At u> = {alpha_1} for unit vectors u and v; check transposes "
                    "and scale factors"
                )
        state, norms, (a_hbar, a_d, a_h) = rotate(state, alpha_k, beta_k)
        torch.add(h, hbar, alpha=a_hbar, out=hbar)  # (7)
        if c is None:
            d.add_(hbar, alpha=a_d)  # (8)
        else:
            d.addcmul_(c, hbar, value=a_d)  # (8)
        torch.add(v, h, alpha=a_h, out=h)  # (9)
        exhausted = (
            norms.rnorm <= eps * beta_1
            or norms.arnorm <= eps * norms.anorm * norms.rnorm
        )
        yield LSMRStep(k, x, norms, exhausted)


class LSMRResult(NamedTuple):
    """The result of :func:`lsmr`.

    ``x`` is a tensor or a tuple, as x0 is. ``status`` names the test that stopped the
    run: "atol" (the gradient), "ftol" (the merit flattened), "patience" (the merit did
    not fall again), "exact" (only rounding is left) or "maxiter".
    """

    x: Vector
    status: str
    stats: LSMRStats


def lsmr(
    A: Tensor | Callable,
    b: Vector,
    *,
    At: Callable | None = None,
    x0: Vector | None = None,
    scale: Vector | None = None,
    merit: Callable | None = None,
    **options: object,
) -> LSMRResult:
    r"""Minimise |A x - b|^2 + damping^2 |x|^2 by LSMR, from x0.

    It suits an A that is an operator on an accelerator, or an answer that need not be
    accurate; for a dense matrix that fits in memory, a factorisation is faster. For
    NumPy arrays, sparse or complex matrices, and SciPy's other stopping rules there is
    ``scipy.sparse.linalg.lsmr``.

    Parameters
    ----------
    A : (m, n) tensor or callable
        $A$, a matrix, or a function x -> A x.
    b : tensor or tuple of tensors, $b$, right-hand side
        (m,) if A is a matrix. All tensors have one dtype, float32 or float64.
    At : callable, optional
        u -> A'u, the adjoint, if A is a function. Neither function may change its
        argument; both take and return what x0 and b are.
    x0 : like A'b, optional, $d_0$, the start; zero if not given; not changed
    damping : float >= 0, $\lambda$, enters squared
    scale : like A'b, optional
        $c$, entries > 0: a right preconditioner. It changes the speed, not the problem,
        unless ``damping_norm="scaled"``.
    damping_norm : {"identity", "scaled"}, penalise |x|, or |x / c|
    damp_towards : {"zero", "start"}, measure the penalty from 0, or from x0
    atol : float, stop when |K'r| <= atol |K| |r|, by the recurrences
    ftol, miniter, patience : see :class:`~labkit.hessian_free.stopping.Merit`
    maxiter : int, optional, at most; the number of unknowns if not given
    merit : callable, optional
        x -> number (float or 0-d tensor), taken at iterations 5, 7, 9, 12, 15, 19, 24,
        30, ..., each interval a quarter longer, and at ``maxiter``. The iterate of
        least merit is returned. It must leave x unchanged.
    as_published : bool, in spite of ``merit`` return the last, as Algorithm 6 does

    Raises
    ------
    ValueError, TypeError
        For arguments out of range, or where At is not the adjoint of A (noticed in the
        first iteration, at the price of one inner product).
    FloatingPointError
        Where a product, the square of its norm, or the merit of the start, is NaN or
        infinite, or where squares underflow so that a norm would be wrong.

    Notes
    -----
    In float32 the vectors lose orthogonality: convergence takes more iterations, the
    true gradient norm stalls near 1e-6 |K| |r|, and that in ``stats`` goes on falling;
    below machine precision the run ends as "exact", which then means "stalled".

    Examples
    --------
    >>> A = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    >>> x, status, stats = lsmr(A, A.new_tensor([1.0, 2.0, 3.0]))
    >>> x, stats.iterations
    (tensor([1.0000, 1.0000], dtype=torch.float64), 2)
    """
    check_options({"merit": merit}, {"merit": optional(FUNCTION)})
    with torch.no_grad():
        system = build_system(A, b, At=At, x0=x0, scale=scale, **options)
    if system.scale is not None and not (system.scale > 0).all():
        raise ValueError(f"scale must have entries > 0 only, got {system.scale.min()}")
    return solve(system, merit)


@torch.no_grad()
def solve(
    system: System, merit: Callable | None = None, negligible: float = 0.0
) -> LSMRResult:
    """Run LSMR on a :class:`System` until a rule stops it; see :func:`lsmr`."""
    options, outside = system.options, system.space.outside
    maxiter, norms = options.maxiter or len(system.d), []
    function = merit and (lambda x: merit(outside(x)))
    rules = Merit(function, options, maxiter)
    for step in lsmr_steps(system, negligible):
        best, x = step.k, step.x
        norms.append(step.norms)
        r, ar, anorm = step.norms
        if step.exhausted:
            status = "exact"
        elif step.k and ar <= options.atol * anorm * r:
            status = "atol"
        else:
            status = rules.judge(step.k, x)
            if not status and step.k == maxiter:
                status = "maxiter"
        if status:
            break
    if rules.best and not options.as_published:
        best, x = rules.best, rules.x_best
    rnorm, arnorm, _ = zip(*norms, strict=True)
    stats = LSMRStats(step.k, best, rnorm, arnorm, anorm, tuple(rules.curve))
    return LSMRResult(outside(x), status, stats)


def _check_norms(system, u, v, alpha, beta, least, k):
    """Raise an error for a norm that is not finite or, above ``least``, is wrong.

    The vectors, divided by their norms, must have the norm 1, or 0.
    """
    if not math.isfinite(alpha + beta):
        raise FloatingPointError(
            f"a product with A or A', or its square, is not finite at iteration {k} "
            f"in {v.dtype} (beta = {beta}, alpha = {alpha})"
        )
    kind = torch.finfo(v.dtype)
    if min(alpha, beta) > math.sqrt(kind.tiny) / kind.eps:
        return
    u, alpha = u / beta, max(alpha, kind.tiny)
    if not k:  # as the product that v was made of may have underflowed, too
        v = system.transpose(u, u.new_ones(1)) / alpha
    sizes = torch.cat((system.norm(u), flat_norm(v))).tolist()
    for norm, size in zip((beta, alpha), sizes, strict=True):
        if norm * size > least and abs(size - 1) > math.sqrt(kind.eps) / 4:
            raise FloatingPointError(
                f"squares underflow in {v.dtype}: at iteration {k} a norm of "
                f"{norm * size:.3g} comes out as {norm:.3g}; scale A and b up, or take "
                "float64"
            )
