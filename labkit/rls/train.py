"""Training as a generator: the paper's three experiments differ in the network only."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labkit.clock import Clock
from labkit.collectives import mean_over
from labkit.errors import DivergedError
from labkit.ranges import COUNT, check
from labkit.rls.distributed import check_equal_shares, unwrap
from labkit.rls.health import NumericalError
from labkit.rls.hybrid import Hybrid
from labkit.rls.networks import accuracy
from labkit.rls.optimizer import RLS
from labkit.rls.update import loss_one_hot

SIZES = {"epochs": COUNT, "batch_size": COUNT}


@dataclass
class Settings:
    """What :func:`train` reads again before each step, so that it may change."""

    batch_size: int = 128  # minibatch M


@dataclass(frozen=True)
class Record:
    """One training step, one minibatch."""

    step: int  # from 1
    epoch: int  # from 1
    loss: float  # of the minibatch, before the step
    gradient_norm: float  # joint, before clipping
    clipped: bool
    seconds: float  # of the step: forward, backward, clip, update
    epoch_loss: float | None = None  # mean over the epoch, at its last step
    test_accuracy: float | None = None  # in [0, 1], at the last step of an epoch
    watched: Any = None  # what ``watch`` gave


def train(
    model: nn.Module,
    optimizer,
    inputs: Tensor,
    labels: Tensor,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = loss_one_hot,
    epochs: int = 1,
    batch_size: int | Settings = 128,
    generator: torch.Generator | None = None,
    drop_last: bool = False,
    max_grad_norm: float | None = None,
    test: tuple[Tensor, Tensor] | None = None,
    watch: Callable[[], Any] | None = None,
    ceiling: float = 100.0,
) -> Iterator[Record]:
    """Train a classifier; yields one :class:`Record` per minibatch.

    Between two records the caller may change the optimiser's ``param_groups``, the
    labels in place, or the batch size in a :class:`Settings`. ValueError if sizes do
    not fit, workers have different numbers of inputs, or RLS and Hybrid are given a
    second clip; DivergedError, after the records up to there, with the last loss.

    Parameters
    ----------
    model : nn.Module, (M, ...) inputs -> (M, classes). If it is a
        ``DistributedDataParallel``, every worker calls this with rows of its own,
        equally many; the whole minibatch is M rows of each, and the losses and norms in
        the records of all workers are those of the whole.
    optimizer : RLS, Hybrid or any torch optimiser over the model's parameters.
    inputs, labels : (samples, ...) and (samples,) int64, on the model's device.
    loss : callable
        Mean over the minibatch from outputs and labels, such as :func:`loss_one_hot` or
        ``nn.functional.cross_entropy``.
    batch_size : int or Settings, minibatch M; in ``Settings`` it may change.
    generator : torch.Generator, of the order of samples, on the CPU.
    drop_last : bool, leave out the last minibatch of an epoch if it is short.
    max_grad_norm : float, joint clip for optimisers that do not clip themselves.
    test : (inputs, labels), for ``test_accuracy``.
    watch : callable, called between ``backward`` and ``step`` to look at the optimiser;
        what it returns is in the record. Its time is not in ``seconds``.
    ceiling : float
        The run has diverged when a loss exceeds this many times the first one (or 1, if
        that is larger).
    """
    settings = batch_size if isinstance(batch_size, Settings) else Settings(batch_size)
    _check(optimizer, inputs, labels, epochs, settings, drop_last, max_grad_norm)
    bare, group = unwrap(model)
    if group is not None:
        check_equal_shares(inputs, group)
    limit, last, step = math.inf, math.nan, 0
    clock = Clock(inputs.device)
    for epoch in range(1, epochs + 1):
        losses = []
        for rows, closes in _batches(len(inputs), settings, generator, drop_last):
            step += 1
            rows, before = rows.to(inputs.device), clock.seconds
            with clock:
                model.train()
                optimizer.zero_grad()
                value = loss(model(inputs[rows]), labels[rows])
                value.backward()
                value = value.detach()
                if group is not None:
                    (value,) = mean_over([value], group)
            seen = watch() if watch else None
            try:
                with clock:
                    norm, clipped = _update(model, optimizer, max_grad_norm)
            except NumericalError as error:
                told = f"step {step}: {error}; the last loss was {last:.6g}"
                raise DivergedError(told) from error
            value = float(value)
            if step == 1:
                limit = ceiling * max(value, 1.0)
            if not value <= limit:
                told = f"the loss is {value:.6g} at step {step}, the limit {limit:.6g}"
                raise DivergedError(f"{told}; the last one was {last:.6g}")
            last = value
            losses.append(value)
            mean = sum(losses) / len(losses) if closes else None
            right = accuracy(bare, *test) if closes and test else None
            seconds = clock.seconds - before
            yield Record(step, epoch, value, norm, clipped, seconds, mean, right, seen)


def _update(model, optimizer, max_grad_norm) -> tuple[float, bool]:
    """Clip and step; returns the gradient's norm and whether it was clipped."""
    clips = isinstance(optimizer, RLS | Hybrid)
    limit = optimizer.max_grad_norm if clips else max_grad_norm
    limit = math.inf if limit is None else limit
    norm = None if clips else nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    if clips:
        optimizer.check()
        norm = optimizer.gradient_norm
    return float(norm), float(norm) > limit


def _batches(samples, settings, generator, drop_last) -> Iterator[tuple[Tensor, bool]]:
    """One epoch: the rows of each minibatch, and whether it is the last one."""
    left = torch.randperm(samples, generator=generator)
    while len(left):
        check(vars(settings), SIZES)
        M = settings.batch_size
        rows, left = left[:M], left[M:]
        if drop_last and len(left) < M:
            left = left[:0]
        yield rows, not len(left)


def _check(optimizer, inputs, labels, epochs, settings, drop_last, max_grad_norm):
    check({"epochs": epochs} | vars(settings), SIZES)
    if len(inputs) != len(labels) or not len(inputs):
        raise ValueError(
            f"there must be as many labels as inputs, and some; got {len(inputs)} "
            f"inputs and {len(labels)} labels"
        )
    if drop_last and len(inputs) < settings.batch_size:
        raise ValueError(
            f"drop_last leaves nothing of {len(inputs)} inputs: batch_size="
            f"{settings.batch_size}"
        )
    if max_grad_norm is not None and isinstance(optimizer, RLS | Hybrid):
        raise ValueError(
            f"{type(optimizer).__name__} clips by itself: give max_grad_norm="
            f"{max_grad_norm} to RLS, not to train"
        )
