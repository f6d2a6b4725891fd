"""When to stop a Krylov method by a merit function, and which iterate to keep."""

import math

import torch
from torch import Tensor

from labkit.hessian_free.tuples import copied

MINITER = 50  # no stop by merit before
PATIENCE = 100  # iterations that the merit may stay above its minimum


class Merit:
    """The stop rules on a merit function, looked at in growing intervals (section 5).

    Stop at check k > miniter when the merit is at its minimum and gained less than
    ``ftol`` per iteration, relatively, since the check before ("ftol"); or when it is
    above its minimum, which is more than ``patience`` iterations old ("patience").

    Merits are noted on the device and judged later, with one read of all.
    """

    def __init__(self, function, ftol, maxiter, miniter, patience):
        self.function, self.ftol, self.maxiter = function, ftol, maxiter
        self.miniter, self.patience = miniter, patience
        self.next, self.k_last, self.last = min(5, maxiter), 0, math.nan
        self.least, self.best, self.x_best = math.inf, 0, None
        self.noted, self.curve = [], []

    def note(self, k, x):
        """Take the merit of an iterate, if one is due, and keep a copy of it."""
        if k in (0, self.next):
            self.noted.append((k, copied(x) if k else None, self.function(x)))
        if k == self.next:
            self.next = min(-(-5 * k // 4), self.maxiter)

    def judge(self):
        """(k, iterate, reason) of the first stop among what was noted, or None."""
        noted, self.noted = self.noted, []
        found = (self._judge(k, x, f) for k, x, f in _read(noted))
        return next(filter(None, found), None)

    def _judge(self, k, x, f):
        self.curve.append((k, f))
        if not k:  # the start is no candidate for the best iterate
            if not math.isfinite(f):
                raise FloatingPointError(f"the merit is {f} at the start")
            self.last = f
            return None
        if f < self.least:
            self.least, self.best, self.x_best = f, k, x
        reason = None
        if k > self.miniter and f == self.least:
            # Written without a division: a merit of 0 is a legitimate value.
            if self.last - f < (k - self.k_last) * self.ftol * abs(f):
                reason = "ftol"
        elif k > self.miniter and k > self.best + self.patience:
            reason = "patience"
        self.k_last, self.last = k, f
        return (k, x, reason) if reason else None


def _read(noted):
    """The same with floats."""
    values = [f for *_, f in noted]
    if values and all(isinstance(f, Tensor) for f in values):
        values = torch.stack(values).tolist()
    return [(k, x, float(f)) for (k, x, _), f in zip(noted, values, strict=True)]
