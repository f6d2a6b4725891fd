"""When to stop a Krylov method by a merit function, and which iterate to keep."""

import math

from labkit.hessian_free.tuples import copied

MINITER = 50  # no stop by merit before
PATIENCE = 100  # iterations that the merit may stay above its minimum


class Merit:
    """The stop rules on a merit function, looked at in growing intervals (section 5).

    Stop at check k > miniter when the merit is at its minimum and gained less than
    ``ftol`` per iteration, relatively, since the check before ("ftol"); or when it is
    above its minimum, which is more than ``patience`` iterations old ("patience").
    """

    def __init__(self, function, ftol, maxiter, miniter, patience):
        self.function, self.ftol, self.maxiter = function, ftol, maxiter
        self.miniter, self.patience = miniter, patience
        self.next, self.k_last = min(5, maxiter), 0
        self.least, self.best, self.x_best = math.inf, 0, None
        self.curve = []

    def start(self, x):
        """Note the merit of the start; it is no candidate for the best iterate."""
        self.last = float(self.function(x))
        if not math.isfinite(self.last):
            raise FloatingPointError(f"the merit is {self.last} at the start")
        self.curve.append((0, self.last))

    def check(self, k, x):
        """The reason to stop at iteration k, or None."""
        if k != self.next:
            return None
        f = float(self.function(x))
        self.curve.append((k, f))
        if f < self.least:
            self.least, self.best, self.x_best = f, k, copied(x)
        reason = None
        if k > self.miniter and f == self.least:
            # Written without a division: a merit of 0 is a legitimate value.
            if self.last - f < (k - self.k_last) * self.ftol * abs(f):
                reason = "ftol"
        elif k > self.miniter and k > self.best + self.patience:
            reason = "patience"
        self.next = min(-(-5 * self.next // 4), self.maxiter)
        self.k_last, self.last = k, f
        return reason
