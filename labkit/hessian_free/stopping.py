"""When LSMR stops: its own tests and SciPy's, for one system or for several."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from labkit.hessian_free.merit import Merit
from labkit.ranges import COUNT, NOT_NEGATIVE, integer, one_of, optional

STOPS = {"atol": NOT_NEGATIVE, "ftol": NOT_NEGATIVE, "maxiter": COUNT}
STOPS |= {"miniter": integer(0), "patience": integer(0)}
STOPS["as_published"] = one_of((False, True))
SCIPYS = {"btol": optional(NOT_NEGATIVE), "conlim": optional(NOT_NEGATIVE)}


@dataclass(frozen=True)
class LSMRStats:
    """How a run went; for k systems, arrays (k,) instead of numbers."""

    iterations: int
    best: int  # iteration whose iterate was returned
    rnorm: tuple  # |(b - A d_k, -lam d_k)| for k = 0, 1, ...
    arnorm: tuple  # |c o (A'(b - A d_k) - lam^2 d_k)|
    anorm: float  # Frobenius norm of the bidiagonal matrix
    acond: float  # SciPy's estimate of the condition of K
    merit: tuple[tuple[int, float], ...]  # (k, merit) at 0 and at the checks


@dataclass(frozen=True, eq=False)
class Rules:
    """The tests on one step's norms, in the order in which they count."""

    atol: float
    maxiter: int
    btol: float | None = None
    conlim: float | None = None
    size: Callable | None = None  # |x|, read; of None |b|
    tell: Callable = lambda step: None

    def holds(self, step) -> list:
        """(status, whether it holds) of all tests; numbers, or arrays (k,)."""
        k, (r, ar, anorm, acond) = step.k, step.norms
        found = [("exact", step.exhausted)]
        if k and self.btol is not None:
            bound = self.btol * self.size(None) + self.atol * anorm * self.size(step.x)
            found.append(("btol", r <= bound))
        if k:
            found.append(("atol", ar <= self.atol * anorm * r))
        if k and self.conlim:
            found.append(("conlim", acond >= self.conlim))
        return found


def run(steps, rules: Rules, watch: Merit | None, as_published: bool):
    """Advance one system until it has a reason to stop; the iterate to return."""
    norms, judged = [], None
    for step in steps:
        k, x = step.k, step.x
        norms.append(step.norms)
        rules.tell(step)
        status = next((name for name, holds in rules.holds(step) if holds), None)
        if watch and not status:
            watch.note(k, x)
        if status is None and k == rules.maxiter:
            status = "maxiter"
        if watch and (status or step.last):
            judged = watch.judge()
        if judged:
            k, x, status = judged
        if status:
            break
    rnorm, arnorm, anorm, acond = zip(*norms[: k + 1], strict=True)
    curve = tuple(watch.curve) if watch else ()
    stats = LSMRStats(k, k, rnorm, arnorm, anorm[-1], acond[-1], curve)
    if watch and watch.best and not as_published:
        return watch.x_best, status, replace(stats, best=watch.best)
    return x, status, stats


def run_columns(steps, rules: Rules):
    """Advance all systems until the last has a reason; the others stay converged."""
    norms = []
    for step in steps:
        norms.append(step.norms)
        rules.tell(step)
        r, _, anorm, acond = step.norms
        if step.k == 0:
            status, ends = np.full(r.shape, "", "<U7"), np.zeros(r.shape, int)
        names, held = zip(*rules.holds(step), strict=True)
        last = "maxiter" if step.k == rules.maxiter else ""
        running = status == ""
        ends[running] = step.k
        found = np.select([np.broadcast_to(h, r.shape) for h in held], names, last)
        status = np.where(running, found, status)
        if (status != "").all():
            break
    rnorm, arnorm, *_ = zip(*norms, strict=True)
    return step.x, status, LSMRStats(ends, ends, rnorm, arnorm, anorm, acond, ())
