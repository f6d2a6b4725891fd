r"""Training generators: Algorithm 1 with its growing batch, and Martens' loop.

Both yield one :class:`Record` for each step. Errors are 2 f, the squared error summed
over outputs and averaged over examples, which seems to be the unit of the paper's Table
2. With another loss than "squared" they are f, its mean over examples.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.check import (
    INSIDE,
    NOT_NEGATIVE,
    check_kind,
    check_making,
    check_options,
    integer,
    one_of,
    optional,
)
from labkit.clock import Clock
from labkit.errors import DivergedError
from labkit.hessian_free.batch_size import (
    batch_gradient_variance,
    grow,
    next_batch_size,
)
from labkit.hessian_free.checks import Rows, check_batch, check_reachable, pair_of
from labkit.hessian_free.linearise import loss_at
from labkit.hessian_free.martens import MartensHF
from labkit.hessian_free.optimizer import HessianFree
from labkit.hessian_free.step import HFStep


@dataclass
class Settings:
    r"""The settings of :func:`train`, read and checked anew before each step.

    Attributes
    ----------
    theta : float in (0, 1), $\theta$, see :func:`next_batch_size`
    max_batch_size : int, optional
        $n_{max}$, at least 2 and at most N; all rows if not given. One that is below
        the present batch stops its growth; batches never shrink.
    input_noise : float >= 0
        Standard deviation of normal noise on a batch's inputs; the targets stay clean.
        Not in the paper.
    """

    theta: float = 0.5
    max_batch_size: int | None = None
    input_noise: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """The record of one step; errors are squared errors per row, or mean losses."""

    step: int  # from 1
    seconds: float  # of the method's own work so far, without test errors
    rows: int  # drawn for gradients so far
    passes: float  # so far, over the training data, in units of a gradient's work
    batch_error: float  # before the step, on its rows
    batch_error_after: float
    validation_error: float
    test_error: float  # nan without test data
    improved: bool  # validation error is the lowest so far
    n: int  # rows of this step's batch
    n_next: int
    n_hat: int | None = None  # estimate of this step; None if n is fixed
    n_average: int | None = None  # of the last five estimates, from step six on
    grew: str = ""  # why n_next > n: "variance", "stalled" or ""
    noise: float = math.nan  # V / n (N - n) / (N - 1), expected |grad f_S - grad f_N|^2
    noise_bound: float = math.nan  # theta^2 |grad f_S|^2
    maxiter: int  # Krylov iterations allowed in this step
    damping: float  # lambda of this step
    rho: float
    step_length: float
    iterations: int  # of the Krylov method
    best: int  # index of the iterate that was used
    status: str  # why the Krylov method stopped
    merit: tuple[tuple[int, float], ...]  # (k, validation error of w + d_k)


def train(
    model: nn.Module,
    optimizer: HessianFree,
    inputs: Tensor,
    *,
    validation: Rows,
    test: Rows | None = None,
    targets: Tensor | None = None,
    batch_size: int,
    settings: Settings | None = None,
    steps: int | None = None,
    generator: torch.Generator | None = None,
    past: Sequence[Record] = (),
) -> Iterator[Record]:
    r"""Train by stochastic Hessian-free (Algorithm 1); yield a :class:`Record` a step.

    Each step draws a fresh batch without replacement and steps on it, with the
    validation loss as merit. At the new weights and on the same batch, the noise of the
    gradient determines how many rows the next batch needs; batch and iterations grow
    together. Validation rows control all of this: only test errors are on unseen data.

    Parameters
    ----------
    model : nn.Module
    optimizer : HessianFree, of this model; its ``maxiter`` is changed
    inputs : (N, ...) tensor, training rows
    validation, test : tensor or (inputs, targets)
    targets : tensor, optional, of the training rows; the inputs if not given
    batch_size : int, $n_1$ >= 2, of the first step, at most ``settings.max_batch_size``
    settings : Settings, optional, which may be changed between two records
    steps : int, optional, how many to take; without end if not given
    generator : torch.Generator, optional, on the CPU or the inputs' device
        It draws the batches and the noise.
    past : sequence of Record, optional
        Records of the same run before it was cut off. With model, optimiser and
        generator as they were then, it goes on as if it had not been, to the bit.

    Raises
    ------
    ValueError
        At the first ``next``, for arguments out of range; later for settings.
    DivergedError
        If the validation error is not finite; all records before it were yielded.
    """
    settings = settings or Settings()
    run = _Run(model, optimizer, HessianFree, generator, past)
    validation = run.checked(inputs, targets, validation, test)
    N, group = len(inputs), optimizer.param_groups[0]
    ranges = {
        "theta": INSIDE,
        "max_batch_size": optional(integer(2, N)),
        "input_noise": NOT_NEGATIVE,
    }
    check_options(vars(settings), ranges)
    allowed = integer(2, settings.max_batch_size or N)
    check_options({"batch_size": batch_size}, {"batch_size": allowed})
    n = past[-1].n_next if past else batch_size
    estimates = [record.n_hat for record in past]
    losses = [record.validation_error / run.unit for record in past]
    while steps is None or run.step < steps:
        check_options(vars(settings), ranges)
        theta, largest = settings.theta, settings.max_batch_size or N
        maxiter = group["maxiter"]
        with run.clock:
            X, T = draw(inputs, targets, n, settings.input_noise, generator)
            done = optimizer.step(X, T, validation=validation)
            f_val = loss_at(model, *validation, optimizer.loss)
            V, g2, f_val = batch_gradient_variance(done.point, f_val)
            n_hat = next_batch_size(V, g2, N, theta) if math.isfinite(V + g2) else N
            estimates.append(n_hat)
            losses.append(f_val)
            then = grow(n, maxiter, estimates, losses, largest)
            group["maxiter"] = then.maxiter
        checks = len(done.merit) * len(validation[0]) / 3
        yield run.record(
            done,
            f_val,
            rows=n,
            passes=(n * (1 + 4 * done.iterations / 3) + checks) / N,
            n=n,
            n_next=then.n,
            n_hat=n_hat,
            n_average=then.average,
            grew=then.reason,
            noise=V / n * (N - n) / (N - 1),
            noise_bound=theta**2 * g2,
            maxiter=maxiter,
        )
        n = then.n


def train_martens(
    model: nn.Module,
    optimizer: MartensHF,
    inputs: Tensor,
    *,
    validation: Rows,
    test: Rows | None = None,
    targets: Tensor | None = None,
    chunks: int,
    gradient: str = "full",
    steps: int | None = None,
    generator: torch.Generator | None = None,
    past: Sequence[Record] = (),
) -> Iterator[Record]:
    """Train by Martens' method; yield a :class:`Record` a step.

    The validation error is recorded but does not influence the training.

    Parameters
    ----------
    chunks : int
        The number of equal parts of the shuffled rows; the curvature is computed on
        one of them, in turn. In his runs 8 for MNIST and 4 for CURVES.
    gradient : {"full", "batch"}, whether all else is on all rows or on the chunk
    generator : torch.Generator, optional, of the one shuffle
    past : sequence of Record, optional
        As for :func:`train`; but the generator as it was at the start of the run.

    The other parameters, and what is raised, are those of :func:`train`.
    """
    run = _Run(model, optimizer, MartensHF, generator, past)
    validation = run.checked(inputs, targets, validation, test)
    N = len(inputs)
    ranges = {"chunks": integer(1, N), "gradient": one_of(("full", "batch"))}
    check_options({"chunks": chunks, "gradient": gradient}, ranges)
    parts = _permutation(inputs, generator)[: N // chunks * chunks].chunk(chunks)
    while steps is None or run.step < steps:
        part = parts[run.step % chunks]
        n = len(part)
        with run.clock:
            chunk = inputs[part], None if targets is None else targets[part]
            X, T = (inputs, targets) if gradient == "full" else chunk
            done = optimizer.step(X, T, chunk=chunk)
            f_val = float(loss_at(model, *validation, optimizer.loss))
        used, trials = len(X), len(done.merit) / 3
        yield run.record(
            done,
            f_val,
            rows=used,
            passes=(used * (1 + trials) + n * 4 * done.iterations / 3) / N,
            n=n,
            n_next=n,
            maxiter=optimizer.param_groups[0]["maxiter"],
        )


def draw(
    inputs: Tensor,
    targets: Tensor | None,
    n: int,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw n rows without replacement; return noisy inputs and targets.

    If there are no targets, the rows without the noise take their place.
    """
    chosen = _permutation(inputs, generator)[:n]
    X = inputs[chosen]
    T = X if targets is None else targets[chosen]
    if noise:
        device = X.device if generator is None else generator.device
        noisy = torch.randn(X.shape, generator=generator, device=device, dtype=X.dtype)
        X = X + noise * noisy.to(X.device, non_blocking=True)
    return X, T


class _Run:
    """The running totals of a training, from which each step's record is made."""

    def __init__(self, model, optimizer, kind, generator, past):
        check_kind("optimizer", optimizer, kind, f"a {kind.__name__}")
        if optimizer.model is not model:
            raise ValueError("optimizer was made for another model")
        if optimizer.workers is not None:
            raise ValueError(
                "this loop draws its batches in one process; with workers= call "
                "optimizer.step on each worker's rows yourself"
            )
        check_making(generator, None, None)
        self.model, self.loss = model, optimizer.loss
        self.clock = Clock(optimizer.param_groups[0]["params"][0].device)
        self.unit = 2 if self.loss == "squared" else 1  # of errors, in f
        self.step, self.rows, self.passes = len(past), 0, 0.0
        self.best = min((record.validation_error for record in past), default=math.inf)
        if past:
            self.rows, self.passes = past[-1].rows, past[-1].passes
            self.clock.seconds = past[-1].seconds

    def checked(self, inputs, targets, validation, test):
        """Check the rows of the run; return those of validation as a pair."""
        given = {"inputs": (inputs, targets), "validation": validation, "test": test}
        for name, rows in given.items():
            if rows is not None:
                X, T = given[name] = pair_of(rows, name)
                check_batch(self.model, self.loss, X, T, name)
                check_reachable(self.model, X if T is None else T, name)
        self.test = given["test"]
        return given["validation"]

    def record(self, done: HFStep, f_val, rows, passes, **batch) -> Record:
        """Add a step; ``batch`` has the record's fields that only the loop knows."""
        unit = self.unit
        validation_error = unit * f_val
        test_error = math.nan
        self.step += 1
        if not math.isfinite(validation_error):
            raise DivergedError(
                f"the validation error is {validation_error} at step {self.step}; "
                f"the lowest before was {self.best:g}"
            )
        improved = validation_error < self.best
        self.best = min(self.best, validation_error)
        self.rows, self.passes = self.rows + rows, self.passes + passes
        if self.test:
            test_error = unit * float(loss_at(self.model, *self.test, self.loss))
        return Record(
            step=self.step,
            seconds=self.clock.seconds,
            rows=self.rows,
            passes=self.passes,
            batch_error=unit * done.loss,
            batch_error_after=unit * done.loss_after,
            validation_error=validation_error,
            test_error=test_error,
            improved=improved,
            damping=done.damping,
            rho=done.rho,
            step_length=done.step_length,
            iterations=done.iterations,
            best=done.best,
            status=done.status,
            merit=tuple((step, unit * value) for step, value in done.merit),
            **batch,
        )


def _permutation(inputs, generator):
    device = inputs.device if generator is None else generator.device
    order = torch.randperm(len(inputs), generator=generator, device=device)
    return order.to(inputs.device, non_blocking=True)
