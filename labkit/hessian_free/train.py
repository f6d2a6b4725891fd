r"""Training as a generator: Algorithm 1 with its growing batch, and Martens' loop.

Both yield one :class:`Record` per outer step. Errors are 2 f, squared error summed over
outputs and averaged over examples, the unit of the paper's Table 2 (it does not say so;
that unit makes it agree with the literature that it compares with).
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from labkit.hessian_free.batch_size import (
    check_theta,
    gradient_variance,
    grow,
    next_batch_size,
)
from labkit.hessian_free.linearise import check_data, squared_error
from labkit.hessian_free.martens import MartensHF
from labkit.hessian_free.optimizer import HessianFree, HFStep


@dataclass(frozen=True)
class Setting:
    """What the paper used on one data set (Table 1 and section 6)."""

    encoder: tuple[int, ...]
    incoming: int  # m0
    n1: int
    nmax: int
    theta: float
    damp: float  # lambda_1
    drop: float
    gamma: float  # gamma_1
    maxiter: int  # maxiter_1
    atol: float
    ftol: float
    table2: dict  # method -> (train, test) error, means of five seeds


PAPER = {
    "curves": Setting(
        encoder=(784, 400, 200, 100, 50, 25, 6),
        incoming=20,
        n1=250,
        nmax=2500,
        theta=0.5,
        damp=5.0,
        drop=99 / 100,
        gamma=0.7,
        maxiter=200,
        atol=1e-8,
        ftol=1e-7,
        table2={"martens": (0.051, 0.098), "shf": (0.160, 0.214)},
    ),
    "mnist": Setting(
        encoder=(784, 1000, 500, 250, 30),
        incoming=10,
        n1=300,
        nmax=6000,
        theta=0.2,
        damp=12.0,
        drop=49 / 50,
        gamma=0.7,
        maxiter=150,
        atol=1e-8,
        ftol=1e-5,
        table2={"martens": (0.910, 1.436), "shf": (0.959, 1.435)},
    ),
    "usps": Setting(
        encoder=(256, 400, 200, 100, 50, 25),
        incoming=10,
        n1=200,
        nmax=2000,
        theta=0.2,
        damp=7.5,
        drop=99 / 100,
        gamma=0.65,
        maxiter=150,
        atol=1e-6,
        ftol=2e-5,
        table2={"martens": (1.007, 1.961), "shf": (0.999, 1.947)},
    ),
}


class DivergedError(RuntimeError):
    """Training stopped because the validation error was no longer finite."""


@dataclass(frozen=True, eq=False)
class Record:
    """One outer step. Errors are squared error per image."""

    step: int  # from 1
    seconds: float  # the method's own, so far; test errors are not counted
    rows: int  # drawn for gradients, so far
    passes: float  # gradient-equivalent passes over the training data, so far
    batch_error: float  # before the step, on its rows
    batch_error_after: float
    validation_error: float
    test_error: float  # nan without test data
    improved: bool  # validation error is the lowest so far
    n: int  # rows of this step's batch
    n_next: int
    n_hat: int | None  # estimate of this step (3); None where the batch is fixed
    n_average: int | None  # of the last five, from step six on
    grew: str  # why n_next > n: "variance", "stalled" or ""
    noise: float  # V / n (N - n) / (N - 1), expected |grad f_S - grad f_N|^2
    noise_bound: float  # theta^2 |grad f_S|^2
    maxiter: int  # Krylov iterations allowed in this step
    damp: float  # lambda of this step
    rho: float
    step_length: float
    iterations: int  # Krylov
    best: int  # the iterate that was taken
    status: str  # why the Krylov method stopped
    merit: tuple[tuple[int, float], ...]  # (k, validation error of w + d_k)
    detail: HFStep = field(repr=False)


def train(
    model: nn.Module,
    optimizer: HessianFree,
    inputs: Tensor,
    *,
    validation: Tensor | tuple[Tensor, Tensor],
    test: Tensor | tuple[Tensor, Tensor] | None = None,
    targets: Tensor | None = None,
    batch_size: int,
    max_batch_size: int,
    theta: float = 0.5,
    steps: int | None = None,
    input_noise: float = 0.0,
    turned: Callable[[], Mapping] | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[Record]:
    r"""Stochastic Hessian-free training (Algorithm 1); one :class:`Record` a step.

    Each step draws a fresh batch without replacement, takes one step of ``optimizer``
    on it with the validation loss as merit, estimates from the gradient's noise at the
    new weights, on the same batch, how many rows the next step needs, and lets batch
    and Krylov budget grow. Validation data steer all of this: only test errors speak
    of unseen data.

    Parameters
    ----------
    model, optimizer : optimizer must be of this model. Its ``maxiter`` is changed.
    inputs : (N, ...) training rows.  targets : theirs; None: the inputs themselves.
    validation, test : inputs, or (inputs, targets).
    batch_size, max_batch_size : n_1 >= 2 and nmax <= N.
    theta : in (0, 1); see :func:`next_batch_size`.
    steps : stop after so many; None for no end.
    input_noise : standard deviation of normal noise on a batch's inputs; the targets
        stay clean. Not in the paper.
    turned : function of no arguments, asked before every step for ``theta``,
        ``max_batch_size`` and ``input_noise`` that take the place of those given. A
        largest batch below the present one stops its growth; batches never shrink.
    generator : of the batches (on the CPU or the inputs' device) and of the noise.

    Raises
    ------
    ValueError
        At the first ``next``, for arguments out of range; later for what ``turned``
        gives.
    DivergedError
        When the validation error is not finite; records up to there were yielded.
    """
    validation, test = _pair(validation), _pair(test)
    _check(model, optimizer, HessianFree, inputs, targets, validation, test)
    N = len(inputs)
    given = {"theta": theta, "max_batch_size": max_batch_size}
    given |= {"input_noise": input_noise}
    _check_settings(N, **given)
    if not 2 <= batch_size <= max_batch_size:
        raise ValueError(
            f"batch_size must be in [2, max_batch_size = {max_batch_size}], "
            f"got {batch_size}"
        )
    group = optimizer.param_groups[0]
    n, best = batch_size, math.inf
    estimates, losses = [], []
    rows, passes, clock, step = 0, 0.0, Clock(inputs.device), 0
    while steps is None or step < steps:
        step += 1
        if turned is not None:
            given = given | turned()
            _check_settings(N, **given)
        theta, largest = given["theta"], given["max_batch_size"]
        with clock:
            X, T = draw(inputs, targets, n, given["input_noise"], generator)
            done = optimizer.step(X, T, validation=validation)
            f_val = 0.5 * float(squared_error(model, *validation))
            V, g2 = gradient_variance(done.point)
            finite = math.isfinite(V) and math.isfinite(g2)
            n_hat = next_batch_size(V, g2, N, theta) if finite else N
            estimates.append(n_hat)
            losses.append(f_val)
            maxiter = group["maxiter"]
            growth = grow(n, maxiter, estimates, losses, largest)
            group["maxiter"] = growth.maxiter
        rows += n
        checks = len(done.merit) * len(validation[0]) / 3
        passes += (n * (1 + 4 * done.iterations / 3) + checks) / N
        yield Record(
            step=step,
            seconds=clock.seconds,
            rows=rows,
            passes=passes,
            **_errors(model, done, _finite(2 * f_val, step, best), test, best),
            n=n,
            n_next=growth.n,
            n_hat=n_hat,
            n_average=growth.average,
            grew=growth.reason,
            noise=V / n * (N - n) / max(N - 1, 1),
            noise_bound=theta**2 * g2,
            maxiter=maxiter,
            **_krylov(done),
        )
        best = min(best, 2 * f_val)
        n = growth.n


def train_martens(
    model: nn.Module,
    optimizer: MartensHF,
    inputs: Tensor,
    *,
    validation: Tensor | tuple[Tensor, Tensor],
    test: Tensor | tuple[Tensor, Tensor] | None = None,
    targets: Tensor | None = None,
    chunks: int,
    gradient: str = "full",
    steps: int | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[Record]:
    """Martens' loop; one :class:`Record` a step. Validation data only observe.

    Parameters
    ----------
    chunks : equal parts of the shuffled rows that the curvature is taken on in turn;
        8 for MNIST, 4 for CURVES in his runs.
    gradient : "full" takes gradient, backtracking and line search on all rows, "batch"
        on the chunk.
    generator : of the one shuffle.

    Other parameters, and what is raised: see :func:`train`.
    """
    validation, test = _pair(validation), _pair(test)
    _check(model, optimizer, MartensHF, inputs, targets, validation, test)
    N = len(inputs)
    if isinstance(chunks, bool) or not isinstance(chunks, int) or not 1 <= chunks <= N:
        raise ValueError(f"chunks must be an integer in [1, {N}], got {chunks!r}")
    if gradient not in ("full", "batch"):
        raise ValueError(f'gradient must be "full" or "batch", got {gradient!r}')
    parts = _permutation(inputs, generator)[: N // chunks * chunks].chunk(chunks)
    rows, passes, best, step = 0, 0.0, math.inf, 0
    clock = Clock(inputs.device)
    while steps is None or step < steps:
        part = parts[step % chunks]
        step += 1
        with clock:
            chunk = inputs[part], None if targets is None else targets[part]
            if gradient == "full":
                done = optimizer.step(inputs, targets, chunk=chunk)
            else:
                done = optimizer.step(*chunk)
            error = float(squared_error(model, *validation))
        n = len(part)
        used = N if gradient == "full" else n
        rows += used
        trials = len(done.merit) / 3
        passes += (used * (1 + trials) + n * 4 * done.iterations / 3) / N
        yield Record(
            step=step,
            seconds=clock.seconds,
            rows=rows,
            passes=passes,
            **_errors(model, done, _finite(error, step, best), test, best),
            n=n,
            n_next=n,
            n_hat=None,
            n_average=None,
            grew="",
            noise=math.nan,
            noise_bound=math.nan,
            maxiter=optimizer.param_groups[0]["maxiter"],
            **_krylov(done),
        )
        best = min(best, error)


def draw(inputs, targets, n, noise=0.0, generator=None):
    """N rows at random without replacement, with their targets; fresh every time.

    With noise the targets are the clean rows, so that the noise carries no label.
    """
    chosen = _permutation(inputs, generator)[:n]
    X = inputs[chosen]
    T = X if targets is None else targets[chosen]
    if noise:
        device = "cpu" if generator is None else generator.device
        noisy = torch.randn(X.shape, generator=generator, device=device, dtype=X.dtype)
        X = X + noise * noisy.to(X.device)
    return X, T


class Clock:
    """Seconds spent inside ``with`` blocks, the device's queue drained."""

    def __init__(self, device):
        self.device, self.seconds = device, 0.0

    def __enter__(self):
        """Start."""
        self._wait()
        self._start = time.perf_counter()

    def __exit__(self, *_):
        """Stop and add."""
        self._wait()
        self.seconds += time.perf_counter() - self._start

    def _wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _permutation(inputs, generator):
    device = inputs.device if generator is None else generator.device
    order = torch.randperm(len(inputs), generator=generator, device=device)
    return order.to(inputs.device)


def _pair(data):
    return (data, None) if isinstance(data, Tensor) else data


def _finite(error, step, best):
    if not math.isfinite(error):
        raise DivergedError(
            f"the validation error is {error} at step {step}; "
            f"the lowest before was {best:g}"
        )
    return error


def _errors(model, done, validation_error, test, best):
    unseen = math.nan if test is None else float(squared_error(model, *test))
    return {
        "batch_error": 2 * done.loss,
        "batch_error_after": 2 * done.loss_after,
        "validation_error": validation_error,
        "test_error": unseen,
        "improved": validation_error < best,
    }


def _krylov(done):
    names = ("damp", "rho", "step_length", "iterations", "best", "status")
    merit = tuple((k, 2 * f) for k, f in done.merit)
    return {name: getattr(done, name) for name in names} | {
        "merit": merit,
        # Without its linearisation, which holds the batch's activations.
        "detail": replace(done, point=None),
    }


def _check_settings(N, theta, max_batch_size, input_noise):
    """Refuse what no step can work with."""
    check_theta(theta)
    if max_batch_size > N:
        raise ValueError(f"max_batch_size must be <= {N} rows, got {max_batch_size}")
    if not (input_noise >= 0 and math.isfinite(input_noise)):
        raise ValueError(f"input_noise must be finite and >= 0, got {input_noise}")


def _check(model, optimizer, kind, inputs, targets, validation, test):
    if not isinstance(optimizer, kind):
        name = type(optimizer).__name__
        raise TypeError(f"optimizer must be a {kind.__name__}, got a {name}")
    if optimizer.model is not model:
        raise ValueError("optimizer was made for another model")
    check_data(model, inputs, targets, "inputs")
    check_data(model, *validation, "validation")
    if test is not None:
        check_data(model, *test, "test")
