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
are scalars. The bidiagonalisation stays on the device, as do its alpha and beta, with
the vectors v, until the stopping rule is applied, every ``check_every`` iterations.
Then the host reads them at once and does the plane rotations (:func:`rotate`), a few
dozen operations in float64 that are cheaper there than launched as kernels; their
coefficients update the iterates. What was computed past the end is dropped, so that
``check_every`` changes no result. :mod:`labkit.hessian_free.stopping` has the rules.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.check import COUNT, FUNCTION, check_options, optional
from labkit.hessian_free.stopping import (
    MINITER,
    PATIENCE,
    SCIPYS,
    STOPS,
    LSMRStats,
    Merit,
    Rules,
    codes,
    run,
    run_columns,
)
from labkit.hessian_free.system import System, build_system
from labkit.hessian_free.vectors import (
    Vector,
    as_tuple,
    default_check_every,
    flat_norm,
    keep_freed,
    positive,
)

FUNCTIONS = dict.fromkeys(("merit", "callback"), optional(FUNCTION))
Scalar = float | np.ndarray  # for one system, or (k,) for k systems


class Rotations(NamedTuple):
    """The scalars of the two QR factorisations: floats, or arrays (k,)."""

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
    largest: float = 1.0  # rhobar so far, including the start's
    least: float = math.inf


class Norms(NamedTuple):
    """The norms estimated by the recurrences; arrays (k,) for k systems."""

    rnorm: float  # |(b - A d, -lam d)|, the residual of K
    arnorm: float  # |K'(residual)| = |c o (A'(b - A d) - lam^2 d)|
    anorm: float  # Frobenius norm of the bidiagonal matrix: a lower bound of |K|_F
    acond: float = 1.0  # SciPy's estimate of the condition of K


def rotate(s: Rotations, alpha: Scalar, beta: Scalar) -> tuple[Rotations, Norms, tuple]:
    r"""Advance both QR factorisations by one column (Algorithm 6), in float64.

    (2) $\rho = \sqrt{\bar\alpha^2 + \beta^2}$, $\cos = \bar\alpha / \rho$,
    $\sin = \beta / \rho$    (3) $\theta = \sin\,\alpha$, $\bar\alpha' = \cos\,\alpha$
    (4) $\bar\theta = \bar s \rho$, $\bar\rho = \sqrt{(\bar c \rho)^2 + \theta^2}$
    (5) $\bar c' = \bar c \rho / \bar\rho$, $\bar s' = \theta / \bar\rho$
    (6) $\zeta = \bar c' \bar\zeta$, $\bar\zeta' = -\bar s' \bar\zeta$

    ``s`` is the state after the previous iteration; alpha and beta, floats or arrays
    (k,), have index k + 1. The state, the norms, and the coefficients of the vector
    updates (of hbar, of d, of h) are returned.
    """
    rho = hypot(s.alphabar, beta)  # (2)
    cos, sin = _over(s.alphabar, rho), _over(beta, rho)  # (2)
    theta, alphabar = sin * alpha, cos * alpha  # (3)
    thetabar, rhobar = s.sbar * rho, hypot(s.cbar * rho, theta)  # (4)
    cbar, sbar = _over(s.cbar * rho, rhobar), _over(theta, rhobar)  # (5)
    zeta, zetabar = cbar * s.zetabar, -sbar * s.zetabar  # (6)
    # A third factorisation gives the norm of the residual from scalars alone.
    betahat, betadd = cos * s.betadd, -sin * s.betadd
    rhotilde = hypot(s.rhod, thetabar)
    ctilde, stilde = _over(s.rhod, rhotilde), _over(thetabar, rhotilde)
    thetatilde, rhod = stilde * rhobar, ctilde * rhobar
    betad = -stilde * s.betad + ctilde * betahat
    tautilde = _over(s.zeta - s.thetatilde * s.tautilde, rhotilde)
    taud = _over(zeta - thetatilde * tautilde, rhod)
    rnorm = hypot(betad - taud, betadd)
    high, low = s.largest, s.least
    diagonal = s.cbar * rho
    acond = _over(larger(high, diagonal), smaller(low, diagonal), math.inf)
    norms = Norms(rnorm, abs(zetabar), (s.anorm2 + beta**2) ** 0.5, acond)
    anorm2 = s.anorm2 + beta**2 + alpha**2
    along_hbar, along_h = -_over(thetabar * rho, s.rho * s.rhobar), -_over(theta, rho)
    state = Rotations(
        *(alphabar, zetabar, anorm2, betadd, rho, rhobar, cbar, sbar, zeta, betad),
        *(rhod, tautilde, thetatilde, larger(high, rhobar), smaller(low, rhobar)),
    )
    return state, norms, (along_hbar, _over(zeta, rho * rhobar), along_h)


def _over(a, b, otherwise=0.0):
    """Return a / b, or ``otherwise`` where b is 0 and the recurrence has ended."""
    if isinstance(b, float):
        return a / b if b else otherwise
    return np.where(b == 0, otherwise, a / np.where(b == 0, 1.0, b))


def larger(a: Scalar, b: Scalar) -> Scalar:
    """Return the larger of two floats, or of two arrays if the second is one."""
    return max(a, b) if isinstance(b, float) else np.maximum(a, b)


def smaller(a: Scalar, b: Scalar) -> Scalar:
    """Return the smaller of two floats, or of two arrays if the second is one."""
    return min(a, b) if isinstance(b, float) else np.minimum(a, b)


def hypot(a: Scalar, b: Scalar) -> Scalar:
    """Return sqrt(a^2 + b^2) of two floats, or of arrays if the second is one."""
    return math.hypot(a, b) if isinstance(b, float) else np.hypot(a, b)


@dataclass(frozen=True, eq=False)
class LSMRStep:
    """One iteration of LSMR, whose ``x`` is overwritten by the next."""

    k: int
    x: tuple[Tensor, ...] = field(repr=False)
    norms: Norms
    exhausted: bool | np.ndarray  # residual or gradient is at rounding error
    last: bool  # the host waits for the device before the next one


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
    beta = positive(flat_norm(u))  # (1)
    v = system.transpose(u, beta).addcmul_(v, beta, value=-1)  # (1)
    alpha = flat_norm(v)  # (1)
    v /= positive(alpha)  # (1)
    return u, v, alpha, beta


@torch.no_grad()
def lsmr_steps(
    system: System, *, check_every: int = 1, maxiter: int | None = None
) -> Iterator[LSMRStep]:
    r"""Yield the iterates d_0, d_1, ... of LSMR on a :class:`System`, without stopping.

    (7) $\bar h = h - \frac{\bar\theta \rho}{\rho_o \bar\rho_o} \bar h$
    (8) $d = d + \frac{\zeta}{\rho \bar\rho}\, c \circ \bar h$
    (9) $h = v - \frac{\theta}{\rho} h$

    :func:`bidiagonalise` has (1), :func:`rotate` has (2) to (6). The host waits for the
    device once in ``check_every`` iterations; after ``maxiter``, if it is given, the
    generator ends.

    An iteration costs one A, one A', at most 18 kernels, and 20 to 35 reads or writes
    of a vector of parameters (the most with damping and scale). Five such vectors are
    held, one more with damping, and one for each of ``check_every``. The errors are
    those of :func:`lsmr`.
    """
    d, u, v = system.start()
    keep_freed(u)
    beta = positive(flat_norm(u))
    v = v / beta
    alpha = flat_norm(v)
    v /= positive(alpha)
    c, x, eps = system.scale, system.space.blocks(d), torch.finfo(d.dtype).eps
    least = torch.ones_like(alpha) if c is None else c.amin(-1, keepdim=True)
    scalars, u_1, norms, k = [least, alpha, beta], u / beta, None, 0
    h, hbar = v.clone(), torch.zeros_like(v)
    while maxiter is None or k < maxiter:
        directions = []
        for _ in range(min(check_every, (maxiter or math.inf) - k)):
            u, v, alpha, beta = bidiagonalise(system, u, v, alpha, beta)
            directions.append(v)
            scalars += [alpha, beta]
            if u_1 is not None:
                scalars.append((u * u_1).sum(-1, keepdim=True))
                u_1 = None
        values = iter(_read(scalars))
        scalars = []
        if not k:
            _check_positive(next(values))
            alpha_1, beta_1 = next(values), next(values)
            _check_finite(alpha_1, beta_1, 0, None)
            state = Rotations(alpha_1, alpha_1 * beta_1, alpha_1**2, beta_1)
            norms, floor = Norms(beta_1, alpha_1 * beta_1, alpha_1), eps * beta_1
            yield LSMRStep(0, x, norms, alpha_1 * beta_1 == 0, last=False)
        for j, v_k in enumerate(directions, 1):
            k += 1
            alpha_k, beta_k = next(values), next(values)
            _check_finite(alpha_k, beta_k, k, norms)
            if k == 1:
                _check_adjoint(next(values), alpha_1, beta_k, eps)
            state, norms, (a_hbar, a_d, a_h) = rotate(state, alpha_k, beta_k)
            _combine_(hbar, a_hbar, h)  # (7)
            _add_product_(d, a_d, c, hbar)  # (8)
            _combine_(h, a_h, v_k)  # (9)
            exhausted = norms.rnorm <= floor
            exhausted |= norms.arnorm <= eps * norms.anorm * norms.rnorm
            yield LSMRStep(k, x, norms, exhausted, last=j == len(directions))


class LSMRResult(NamedTuple):
    """The result of :func:`lsmr`.

    ``x`` is of b's kind: tensors or NumPy arrays. ``status``, an array for k systems,
    names the test that stopped the run: "atol" (the gradient), "btol", "conlim", "ftol"
    (the merit flattened), "patience" (the merit did not fall again), "exact" (only
    rounding is left) or "maxiter".
    """

    x: Vector
    status: str | np.ndarray
    stats: LSMRStats

    @property
    def istop(self) -> int | np.ndarray:
        """SciPy's code of the status, an array for k systems.

        0: the start is the answer; 1: "btol", 2: "atol", 3: "conlim"; "exact" is 4 if
        the residual is rounding, and 5 if its gradient is; 7: "maxiter". SciPy has none
        for the tests on a merit: 8 is "ftol" and 9 "patience".
        """
        return codes(self.status, self.stats, as_tuple(self.x)[0])


@torch.no_grad()
def lsmr(
    A: object,
    b: Vector,
    *third: object,
    At: Callable | None = None,
    x0: Vector | None = None,
    damping: float = 0.0,
    scale: Vector | None = None,
    damping_norm: str = "identity",
    damp_towards: str = "zero",
    atol: float = 1e-6,
    btol: float | None = None,
    conlim: float | None = None,
    ftol: float = 1e-5,
    maxiter: int | None = None,
    merit: Callable | None = None,
    miniter: int = MINITER,
    patience: int = PATIENCE,
    as_published: bool = False,
    callback: Callable | None = None,
    check_every: int | None = None,
) -> LSMRResult:
    r"""Minimise |A x - b|^2 + damping^2 |x|^2 by LSMR, from x0.

    It suits an A that is an operator on an accelerator, or an answer that need not be
    accurate; for a dense matrix that fits in memory, a factorisation is faster.

    Parameters
    ----------
    A : matrix or callable
        $A$, (m, n): a tensor, dense or sparse, a NumPy array, a SciPy sparse matrix or
        ``LinearOperator``; or a function x -> A x. Of a tensor in CSR form the adjoint
        is made once, in as much memory again.
    b : tensor, NumPy array, or tuple of these, $b$, right-hand side, of A's kind
        If A is a matrix (m,), or (m, k) for k systems, each solved by itself. A and b
        have one precision of 32 or 64 bits; they are real, complex or integer.
    At : callable, optional
        u -> A'u, the adjoint, if A is a function. Neither function may change its
        argument; both take and return what x0 and b are, tensors or arrays, one or a
        tuple.
    x0 : like A'b, optional, $d_0$, the start; zero if not given; not changed
    damping : float >= 0, $\lambda$, enters squared
    scale : like A'b but real, optional
        $c$, entries > 0: a right preconditioner. It changes the speed, not the problem,
        unless ``damping_norm="scaled"``.
    damping_norm : {"identity", "scaled"}, penalise |x|, or |x / c|
    damp_towards : {"zero", "start"}, measure the penalty from 0, or from x0
    atol : float, stop when |K'r| <= atol |K| |r|, by the recurrences
    btol : float, optional
        Stop when |r| <= btol |b| + atol |K| |x / c|, SciPy's test of systems that have
        a solution (1e-6 there); off if not given, for it reads |x| in each iteration.
    conlim : float, optional
        Stop when the estimate of K's condition is as large, as SciPy does at 1e8; off
        if not given, or 0.
    ftol, miniter, patience : see :class:`~labkit.hessian_free.stopping.Merit`
    maxiter : int, optional, at most; the unknowns of one system if not given
    merit : callable, optional
        x -> number (float or 0-d tensor), taken at iterations 5, 7, 9, 12, 15, 19, 24,
        30, ..., each interval a quarter longer, and at ``maxiter``. The iterate of
        least merit is returned. It must leave x unchanged.
    callback : callable, optional
        Given the :class:`LSMRStep` of each iteration k = 1, 2, ..., its ``x`` of b's
        kind: copy what is to be kept. With a merit and ``check_every`` > 1 also of some
        iterations past the end.
    as_published : bool, in spite of ``merit`` return the last, as Algorithm 6 does
    check_every : int >= 1, optional
        Iterations between two checks of the stopping rule. At each the host waits for
        the device, and once more where there was a merit. If not given, 1 on a CPU and
        10 elsewhere. The result is the same; on average half of them are computed in
        vain.

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
    >>> x, status, stats = lsmr(A, A.new_tensor([1.0, 2.0, 3.0]))
    >>> x, stats.iterations
    (tensor([1.0000, 1.0000], dtype=torch.float64), 2)
    """
    if third:
        raise TypeError(
            "lsmr takes A and b by position and all else by name: "
            "lsmr(A, b, At=At, damping=0.1), with At only where A is a function"
        )
    system = build_system(
        A,
        b,
        At=At,
        x0=x0,
        scale=scale,
        damping=damping,
        damping_norm=damping_norm,
        damp_towards=damp_towards,
    )
    maxiter = system.unknowns() if maxiter is None else maxiter
    if check_every is None:
        check_every = default_check_every(system.b)
    options = {
        "atol": atol,
        "btol": btol,
        "conlim": conlim,
        "ftol": ftol,
        "maxiter": maxiter,
        "miniter": miniter,
        "patience": patience,
        "as_published": as_published,
        "check_every": check_every,
        "merit": merit,
        "callback": callback,
    }
    check_options(options, STOPS | SCIPYS | FUNCTIONS | {"check_every": COUNT})
    steps = lsmr_steps(system, check_every=check_every, maxiter=maxiter)
    outside = system.space.outside
    back = _callback(callback, outside)
    rules = Rules(atol, maxiter, btol, conlim, system.size, back)
    if system.space.columns:
        if merit is not None:
            raise ValueError("merit judges one system, but b has columns of several")
        x, status, stats = run_columns(steps, rules)
        return LSMRResult(outside(x), status, stats)
    judged = None
    if merit is not None:
        function = lambda x: merit(outside(x))  # noqa: E731
        judged = Merit(function, ftol, maxiter, miniter, patience)
    x, status, stats = run(steps, rules, judged, as_published)
    return LSMRResult(outside(x), status, stats)


def _callback(callback, outside):
    """Return a function of a step that calls ``callback`` after each iteration."""
    if callback is None:
        return lambda step: None
    return lambda step: step.k and callback(replace(step, x=outside(step.x)))


def _read(scalars):
    """Read the device's scalars at once, as floats or arrays (k,) for k systems."""
    values = torch.cat(scalars, -1)
    return values.tolist() if values.ndim == 1 else values.double().cpu().numpy().T


def _combine_(x, a, y) -> None:
    """Set x to y + a x in place; a is a float, or an array (k,) for k systems."""
    if isinstance(a, float):
        torch.add(y, x, alpha=a, out=x)
    else:
        torch.addcmul(y, x, _column(a, x), out=x)


def _add_product_(x, a, c, y) -> None:
    """Add a (c o y) to x in place, or a y if c is None."""
    if isinstance(a, float):
        x.add_(y, alpha=a) if c is None else x.addcmul_(c, y, value=a)
    else:
        x.addcmul_(y if c is None else c * y, _column(a, x))


def _column(a, like) -> Tensor:
    return torch.as_tensor(a, dtype=like.dtype, device=like.device)[:, None]


def _check_positive(least):
    least = float(np.min(least))
    if math.isnan(least):
        raise FloatingPointError("scale has entries that are not finite")
    if not least > 0:
        raise ValueError(f"scale must have entries > 0 only, got {least}")


def _check_finite(alpha, beta, k, norms):
    finite = math.isfinite if isinstance(alpha, float) else np.isfinite
    if not (np.all(finite(alpha)) and np.all(finite(beta))):
        last = "" if norms is None else f"; the last finite norms were {norms}"
        where = "at the start" if k == 0 else f"at iteration {k}"
        raise FloatingPointError(
            f"a product with A or A' is not finite {where} "
            f"(beta = {beta}, alpha = {alpha}){last}"
        )


def _check_adjoint(overlap, alpha, beta, eps):
    """Raise a ValueError unless <K v_1, u_1> = alpha_1 |v_1|^2 holds."""
    size = hypot(alpha, beta)
    if np.any(abs(overlap) > math.sqrt(eps) * size):
        raise ValueError(
            f"At is not the adjoint of A: <A v, u> = {alpha + overlap} but "
            f"<v, At u> = {alpha} for unit vectors u and v; check transposes and "
            "scale factors"
        )
