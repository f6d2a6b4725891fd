"""The stopping rules of LSMR: on the gradient, and on a merit function."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from labkit.hessian_free.options import LSMROptions
from labkit.hessian_free.vectors import Blocks, copied


@dataclass(frozen=True)
class LSMRStats:
    """Statistics of a run."""

    iterations: int
    best: int  # iteration whose iterate was returned
    rnorm: tuple[float, ...]  # |(b - A d_k, -lam d_k)| for k = 0, 1, ...
    arnorm: tuple[float, ...]  # |c o (A'(b - A d_k) - lam^2 d_k)|
    anorm: float  # Frobenius norm of the bidiagonal matrix
    merit: tuple[tuple[int, float], ...]  # (k, merit) at 0 and at the checks


def schedule(maxiter: int) -> tuple[int, ...]:
    """Return the iterations at which a merit is evaluated, at ever longer intervals.

    Examples
    --------
    >>> schedule(30)
    (5, 7, 9, 12, 15, 19, 24, 30)
    """
    checks = [min(5, maxiter)]
    while checks[-1] < maxiter:
        checks.append(min(-(-5 * checks[-1] // 4), maxiter))
    return tuple(checks)


class Merit:
    """The stop rules on a merit function, applied at the :func:`schedule` (section 5).

    LSMR stops at check k > miniter if the merit is at its minimum and, since the check
    before, has fallen by less than ``ftol`` per iteration, relatively ("ftol"); or when
    it is above its minimum and that is over ``patience`` iterations old ("patience").
    """

    def __init__(
        self, function: Callable | None, options: LSMROptions, maxiter: int
    ) -> None:
        self.function, self.options = function, options
        self.checks = {0, *schedule(maxiter)} if function else ()
        self.least, self.best, self.x_best = math.inf, 0, None
        self.curve = []

    def judge(self, k: int, x: Blocks) -> str | None:
        """Evaluate the merit of an iterate if a check is due; return why LSMR stops."""
        if k not in self.checks:
            return None
        f = float(self.function(x))
        self.curve.append((k, f))
        if not k:  # the start cannot be the best iterate
            if not math.isfinite(f):
                raise FloatingPointError(f"the merit is {f} at the start")
            return None
        if f < self.least:
            self.least, self.best, self.x_best = f, k, copied(x)
        if k <= self.options.miniter:
            return None
        if f == self.least:
            previous_k, previous = self.curve[-2]
            # The test has no division, because a merit may be 0.
            flat = previous - f < (k - previous_k) * self.options.ftol * abs(f)
            return "ftol" if flat else None
        return "patience" if k > self.best + self.options.patience else None
