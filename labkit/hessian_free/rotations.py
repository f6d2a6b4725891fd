r"""The scalars of LSMR: two QR factorisations of the bidiagonal matrix, and its norms.

Emirahmetoglu and Stewart, Algorithm 6; Fong and Saunders (SIAM J. Sci. Comput. 33,
2011). Everything here is float64 on the host: floats for one system, NumPy arrays of
the batch shape for a batch.
"""

import math
from typing import NamedTuple

import numpy as np


class Rotations(NamedTuple):
    """Scalars of the two QR factorisations, float64: () or the batch shape."""

    alphabar: float
    zetabar: float
    anorm2: float  # sum of squares of the bidiagonal matrix, but for its last beta
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
    largest: float = 1.0  # rhobar so far, the start's among them
    least: float = math.inf


class Norms(NamedTuple):
    """Estimates from the recurrences, () or the batch shape, after one iteration."""

    rnorm: float  # |(b - A d, -lam d)|, the residual of K
    arnorm: float  # |K'(residual)| = |c o (A'(b - A d) - lam^2 d)|
    anorm: float  # Frobenius norm of the bidiagonal matrix: a lower bound of |K|_F
    acond: float = 1.0  # SciPy's estimate of the condition of K


def rotate(s: Rotations, alpha, beta):
    r"""Advance both factorisations by one column (Algorithm 6).

    (2) $\rho = \sqrt{\bar\alpha^2 + \beta^2}$, $\cos = \bar\alpha / \rho$,
    $\sin = \beta / \rho$    (3) $\theta = \sin\,\alpha$, $\bar\alpha' = \cos\,\alpha$
    (4) $\bar\theta = \bar s \rho$, $\bar\rho = \sqrt{(\bar c \rho)^2 + \theta^2}$
    (5) $\bar c' = \bar c \rho / \bar\rho$, $\bar s' = \theta / \bar\rho$
    (6) $\zeta = \bar c' \bar\zeta$, $\bar\zeta' = -\bar s' \bar\zeta$

    ``s`` is the state after the iteration before, alpha and beta have index k + 1.
    Returned are the state, norms, and the coefficients (of hbar, of d, of h) of the
    vector updates.
    """
    rho = hypot(s.alphabar, beta)  # (2)
    cos, sin = _over(s.alphabar, rho), _over(beta, rho)  # (2)
    theta, alphabar = sin * alpha, cos * alpha  # (3)
    thetabar, rhobar = s.sbar * rho, hypot(s.cbar * rho, theta)  # (4)
    cbar, sbar = _over(s.cbar * rho, rhobar), _over(theta, rhobar)  # (5)
    zeta, zetabar = cbar * s.zetabar, -sbar * s.zetabar  # (6)
    # A third factorisation that gives the residual's norm from scalars alone.
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
    """a / b, and 0 where b is 0: the recurrence has ended there."""
    if isinstance(b, float):
        return a / b if b else otherwise
    return np.where(b == 0, otherwise, a / np.where(b == 0, 1.0, b))


def larger(a, b):
    """Of floats or of arrays, as the second is."""
    return max(a, b) if isinstance(b, float) else np.maximum(a, b)


def smaller(a, b):
    """Of floats or of arrays, as the second is."""
    return min(a, b) if isinstance(b, float) else np.minimum(a, b)


def hypot(a, b):
    """sqrt(a^2 + b^2), of floats or of arrays."""
    return math.hypot(a, b) if isinstance(b, float) else np.hypot(a, b)
