"""The stopping rules of LSMR: its own, SciPy's, and those on a merit function."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from labkit.check import COUNT, NOT_NEGATIVE, check_options, integer, one_of, optional
from labkit.hessian_free.vectors import Blocks, copied

MINITER = 50  # iterations before a merit may stop the run
PATIENCE = 100  # iterations that the merit may stay above its minimum
STOPS = {"atol": NOT_NEGATIVE, "ftol": NOT_NEGATIVE, "maxiter": COUNT}
STOPS |= {"miniter": integer(0), "patience": integer(0)}
STOPS["as_published"] = one_of((False, True))
SCIPYS = {"btol": optional(NOT_NEGATIVE), "conlim": optional(NOT_NEGATIVE)}

CODES = {"btol": 1, "atol": 2, "conlim": 3, "maxiter": 7, "ftol": 8, "patience": 9}


@dataclass(frozen=True)
class LSMRStats:
    """Statistics of a run, with arrays (k,) in place of numbers for k systems."""

    iterations: int
    best: int  # iteration whose iterate was returned
    rnorm: tuple  # |(b - A d_k, -lam d_k)| for k = 0, 1, ...
    arnorm: tuple  # |c o (A'(b - A d_k) - lam^2 d_k)|
    anorm: float  # Frobenius norm of the bidiagonal matrix
    acond: float  # SciPy's estimate of the condition of K
    merit: tuple[tuple[int, float], ...]  # (k, merit) at 0 and at the checks


@dataclass(frozen=True, eq=False)
class Rules:
    """The tests on the norms of one iteration, in order of precedence."""

    atol: float
    maxiter: int
    btol: float | None = None
    conlim: float | None = None
    size: Callable | None = None  # returns |x| on the host, or |b| for None
    callback: Callable = lambda step: None

    def verdicts(self, step: object) -> list:
        """Return pairs (status, whether its test holds), a bool or an array (k,)."""
        k, (r, ar, anorm, acond) = step.k, step.norms
        verdicts = []
        if k and self.btol is not None:
            bound = self.btol * self.size(None) + self.atol * anorm * self.size(step.x)
            verdicts.append(("btol", r <= bound))
        verdicts.append(("exact", step.exhausted))
        if k:
            verdicts.append(("atol", ar <= self.atol * anorm * r))
        if k and self.conlim:
            verdicts.append(("conlim", acond >= self.conlim))
        return verdicts


def run(
    steps: Iterable, rules: Rules, merit: "Merit | None", as_published: bool
) -> tuple[Blocks, str, LSMRStats]:
    """Iterate on one system until a test holds; return iterate, status, statistics."""
    norms, judged = [], None
    for step in steps:
        k, x = step.k, step.x
        norms.append(step.norms)
        rules.callback(step)
        status = next((name for name, holds in rules.verdicts(step) if holds), None)
        if merit and not status:
            merit.note(k, x)
        if status is None and k == rules.maxiter:
            status = "maxiter"
        if merit and (status or step.last):
            judged = merit.judge()
        if judged:
            k, x, status = judged
        if status:
            break
    rnorm, arnorm, anorm, acond = zip(*norms[: k + 1], strict=True)
    curve = tuple(merit.curve) if merit else ()
    stats = LSMRStats(k, k, rnorm, arnorm, anorm[-1], acond[-1], curve)
    if merit and merit.best and not as_published:
        return merit.x_best, status, replace(stats, best=merit.best)
    return x, status, stats


def run_columns(steps: Iterable, rules: Rules) -> tuple[Blocks, np.ndarray, LSMRStats]:
    """Iterate on all systems until the last one stops; the others stay converged."""
    norms = []
    for step in steps:
        norms.append(step.norms)
        rules.callback(step)
        r, _, anorm, acond = step.norms
        if step.k == 0:
            status, ends = np.full(r.shape, "", "<U7"), np.zeros(r.shape, int)
        names, held = zip(*rules.verdicts(step), strict=True)
        last = "maxiter" if step.k == rules.maxiter else ""
        running = status == ""
        ends[running] = step.k
        reason = np.select([np.broadcast_to(h, r.shape) for h in held], names, last)
        status = np.where(running, reason, status)
        if (status != "").all():
            break
    rnorm, arnorm, *_ = zip(*norms, strict=True)
    return step.x, status, LSMRStats(ends, ends, rnorm, arnorm, anorm, acond, ())


def codes(status: str | np.ndarray, stats: LSMRStats, x: Tensor) -> int | np.ndarray:
    """Return SciPy's stop codes; see :attr:`labkit.hessian_free.LSMRResult.istop`."""
    if isinstance(status, str):
        if status != "exact":
            return CODES[status]
        if not stats.iterations:
            return 0
        floor = torch.finfo(x.dtype).eps * stats.rnorm[0]
        return 4 if stats.rnorm[stats.iterations] <= floor else 5
    ends = zip(status, stats.iterations, strict=True)
    each = (
        codes(
            str(name),
            replace(stats, iterations=k, rnorm=[r[i] for r in stats.rnorm]),
            x,
        )
        for i, (name, k) in enumerate(ends)
    )
    return np.array(list(each))


def schedule(maxiter: int) -> tuple[int, ...]:
    """Return the iterations at which a merit is evaluated, at ever longer intervals.

    Examples
    --------
    >>> schedule(30)
    (5, 7, 9, 12, 15, 19, 24, 30)
    """
    check_options({"maxiter": maxiter}, {"maxiter": COUNT})
    checks = [min(5, maxiter)]
    while checks[-1] < maxiter:
        checks.append(min(-(-5 * checks[-1] // 4), maxiter))
    return tuple(checks)


class Merit:
    """The stop rules on a merit function, applied at the :func:`schedule` (section 5).

    LSMR stops at check k > miniter if the merit is at its minimum and, since the check
    before, has fallen by less than ``ftol`` per iteration, relatively ("ftol"); or when
    it is above its minimum and that is over ``patience`` iterations old ("patience").

    Merits stay on the device until they are judged, and are then read all at once.
    """

    def __init__(
        self,
        function: Callable,
        ftol: float,
        maxiter: int,
        miniter: int,
        patience: int,
    ):
        self.function, self.ftol = function, ftol
        self.miniter, self.patience = miniter, patience
        self.checks, self.k_last, self.last = {0, *schedule(maxiter)}, 0, math.nan
        self.least, self.best, self.x_best = math.inf, 0, None
        self.noted, self.curve = [], []

    def note(self, k: int, x: Blocks) -> None:
        """Evaluate the merit of an iterate if a check is due, and keep a copy of it."""
        if k in self.checks:
            self.noted.append((k, copied(x) if k else None, self.function(x)))

    def judge(self) -> tuple[int, Blocks, str] | None:
        """Return (k, iterate, reason) of the first iterate that stops, or None."""
        noted, self.noted = self.noted, []
        return next(filter(None, (self._judge(*each) for each in _read(noted))), None)

    def _judge(self, k, x, f):
        self.curve.append((k, f))
        if not k:  # the start cannot be the best iterate
            if not math.isfinite(f):
                raise FloatingPointError(f"the merit is {f} at the start")
            self.last = f
            return None
        if f < self.least:
            self.least, self.best, self.x_best = f, k, x
        reason = None
        if k > self.miniter and f == self.least:
            # The test has no division, because a merit may be 0.
            if self.last - f < (k - self.k_last) * self.ftol * abs(f):
                reason = "ftol"
        elif k > self.miniter and k > self.best + self.patience:
            reason = "patience"
        self.k_last, self.last = k, f
        return (k, x, reason) if reason else None


def _read(noted):
    """Return the noted triples with their merits as floats."""
    values = [f for *_, f in noted]
    if values and all(isinstance(f, Tensor) for f in values):
        values = torch.stack(values).tolist()
    return [(k, x, float(f)) for (k, x, _), f in zip(noted, values, strict=True)]
