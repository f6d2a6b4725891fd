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

SIZES = ("epochs", "batch_size")


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
    labels in place, or the batch size in a :class:`Settings`.

    Parameters
    ----------
    model : nn.Module
        (M, ...) inputs -> (M, classes). If it is a ``DistributedDataParallel``, every
        worker calls this with rows of its own, equally many; the whole minibatch is M
        rows of each, and the losses and norms in the records of all workers are the
        same, those of the whole.
    optimizer : RLS, Hybrid or any torch optimiser
        Over the model's parameters.
    inputs, labels : tensor
        (samples, ...) and (samples,) int64, on the model's device.
    loss : callable
        Mean over the minibatch from outputs and labels, such as :func:`loss_one_hot`
        or ``nn.functional.cross_entropy``.
    batch_size : int or Settings
        Minibatch M; that of ``Settings`` may change within an epoch.
    generator : torch.Generator
        Of the order of samples, on the CPU.
    drop_last : bool
        Leave out the last minibatch of an epoch if it is short.
    max_grad_norm : float
        Joint clip for optimisers that do not clip themselves.
    test : (inputs, labels)
        For ``test_accuracy``.
    watch : callable
        Called between ``backward`` and ``step`` to look at the optimiser; what it
        returns is in the record. Its time is not in ``seconds``.
    ceiling : float
        The run has diverged when a loss exceeds this many times the first one (or 1,
        if that is larger).

    Raises
    ------
    ValueError
        If sizes do not fit, workers have different numbers of inputs, or RLS and Hybrid
        are given a second clip.
    DivergedError
        With the step and the last loss before it. Records up to there have been
        yielded.
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
                value = _backward(model, optimizer, loss, inputs[rows], labels[rows])
                if group is not None:
                    (value,) = mean_over([value], group)
            watched = watch() if watch else None
            try:
                with clock:
                    norm, clipped = _update(model, optimizer, max_grad_norm)
            except NumericalError as error:
                raise DivergedError(
                    f"step {step}: {error}; the last loss was {last:.6g}"
                ) from error
            value = float(value)
            if step == 1:
                limit = ceiling * max(value, 1.0)
            if not value <= limit:
                raise DivergedError(
                    f"the loss is {value:.6g} at step {step}, the limit {limit:.6g}; "
                    f"the last one was {last:.6g}"
                )
            last = value
            losses.append(value)
            closing = {}
            if closes:
                closing["epoch_loss"] = sum(losses) / len(losses)
                if test is not None:
                    closing["test_accuracy"] = accuracy(bare, *test)
            seconds = clock.seconds - before
            yield Record(
                step, epoch, value, norm, clipped, seconds, **closing, watched=watched
            )


def _backward(model, optimizer, loss, x, y) -> Tensor:
    """Gradients of one minibatch; returns its loss, ()."""
    model.train()
    optimizer.zero_grad()
    value = loss(model(x), y)
    value.backward()
    return value.detach()


def _update(model, optimizer, max_grad_norm) -> tuple[float, bool]:
    """Clip and step; returns the gradient's norm and whether it was clipped."""
    if isinstance(optimizer, RLS | Hybrid):
        optimizer.step()
        optimizer.check()
        norm, limit = optimizer.gradient_norm, optimizer.max_grad_norm
    else:
        limit = max_grad_norm
        clip = math.inf if limit is None else limit
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    norm = float(norm)
    return norm, norm > (math.inf if limit is None else limit)


def _batches(samples, settings, generator, drop_last) -> Iterator[tuple[Tensor, bool]]:
    """One epoch: the rows of each minibatch, and whether it is the last one."""
    left = torch.randperm(samples, generator=generator)
    while len(left):
        check(vars(settings), {"batch_size": COUNT})
        M = settings.batch_size
        rows, left = left[:M], left[M:]
        if drop_last and len(left) < M:
            left = left[:0]
        yield rows, not len(left)


def _check(optimizer, inputs, labels, epochs, settings, drop_last, max_grad_norm):
    check({"epochs": epochs} | vars(settings), dict.fromkeys(SIZES, COUNT))
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
