"""Training as a generator: the paper's three experiments differ in the network only."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from labkit.collectives import mean_over
from labkit.rls.distributed import check_equal_shares, unwrap
from labkit.rls.health import NumericalError
from labkit.rls.hybrid import Hybrid
from labkit.rls.networks import accuracy
from labkit.rls.optimizer import RLS
from labkit.rls.update import loss_mse


class DivergedError(RuntimeError):
    """Training stopped because the loss or a gradient ran away."""


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
    watched: Mapping[str, float] = field(default_factory=dict)  # what ``watch`` gave


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """(57) against one-hot targets: (M, N) outputs, (M,) labels."""
    targets = nn.functional.one_hot(labels, outputs.shape[-1]).to(outputs.dtype)
    return loss_mse(outputs, targets)


def train(
    model: nn.Module,
    optimizer,
    inputs: Tensor,
    labels: Tensor,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = squared_error,
    epochs: int = 1,
    batch_size: int | Callable[[], int] = 128,
    generator: torch.Generator | None = None,
    drop_last: bool = False,
    max_grad_norm: float | None = None,
    test: tuple[Tensor, Tensor] | None = None,
    watch: Callable[[], Mapping[str, float]] | None = None,
    ceiling: float = 100.0,
) -> Iterator[Record]:
    """Train a classifier; yields one :class:`Record` per minibatch.

    Parameters
    ----------
    model : (M, ...) inputs -> (M, classes). If it is a ``DistributedDataParallel``,
        every worker calls this with rows of its own, equally many; the whole minibatch
        is M rows of each, and the losses and norms in the records of all workers are
        the same, those of the whole.
    optimizer : RLS, Hybrid or any torch optimiser over the model's parameters.
    inputs, labels : (samples, ...), (samples,) int64, on the model's device.
    loss : mean over the minibatch from outputs and labels, such as
        :func:`squared_error` or ``nn.functional.cross_entropy``.
    batch_size : minibatch M; a function is asked before each step, so that M may change
        within an epoch.
    generator : of the order of samples, on the CPU.
    drop_last : leave out the last minibatch of an epoch if it is short.
    max_grad_norm : joint clip for optimisers that do not clip themselves.
    test : inputs and labels for ``test_accuracy``.
    watch : called between ``backward`` and ``step`` to look at the optimiser; what it
        returns is in the record. Its time is not in ``seconds``.
    ceiling : the run has diverged when a loss exceeds this many times the first one
        (or 1, if that is larger).

    Raises
    ------
    ValueError
        If sizes do not fit, workers have different numbers of inputs, or RLS and Hybrid
        are given a second clip.
    DivergedError
        With the step and the last loss before it. Records up to there have been
        yielded.
    """
    size = batch_size if callable(batch_size) else lambda: batch_size
    _check(optimizer, inputs, labels, epochs, size(), drop_last, max_grad_norm)
    bare, group = unwrap(model)
    if group is not None:
        check_equal_shares(inputs, group)
    limit, last, step = math.inf, math.nan, 0
    for epoch in range(1, epochs + 1):
        losses = []
        for rows, last_of_epoch in _batches(len(inputs), size, generator, drop_last):
            step += 1
            rows = rows.to(inputs.device)
            start = time.perf_counter()
            value = _backward(model, optimizer, loss, inputs[rows], labels[rows])
            if group is not None:
                (value,) = mean_over([value], group)
            looked = time.perf_counter()
            watched = watch() if watch else {}
            looked = time.perf_counter() - looked
            try:
                norm, clipped = _update(model, optimizer, max_grad_norm)
            except NumericalError as error:
                raise DivergedError(
                    f"step {step}: {error}; the last loss was {last:.6g}"
                ) from error
            value = float(value)
            seconds = time.perf_counter() - start - looked
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
            if last_of_epoch:
                closing["epoch_loss"] = sum(losses) / len(losses)
                if test is not None:
                    closing["test_accuracy"] = accuracy(bare, *test)
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


def _batches(samples, size, generator, drop_last) -> Iterator[tuple[Tensor, bool]]:
    """One epoch: the rows of each minibatch, and whether it is the last one."""
    left = torch.randperm(samples, generator=generator)
    while len(left):
        M = size()
        rows, left = left[:M], left[M:]
        if drop_last and len(left) < M:
            left = left[:0]
        yield rows, not len(left)


def _check(optimizer, inputs, labels, epochs, batch_size, drop_last, max_grad_norm):
    if len(inputs) != len(labels) or not len(inputs):
        raise ValueError(
            f"there must be as many labels as inputs, and some; got {len(inputs)} "
            f"inputs and {len(labels)} labels"
        )
    if epochs < 1 or batch_size < 1:
        raise ValueError(
            f"epochs and batch_size must be at least 1, got {epochs} and {batch_size}"
        )
    if drop_last and len(inputs) < batch_size:
        raise ValueError(
            f"drop_last leaves nothing of {len(inputs)} inputs: batch_size={batch_size}"
        )
    if max_grad_norm is not None and isinstance(optimizer, RLS | Hybrid):
        raise ValueError(
            f"{type(optimizer).__name__} clips by itself: give max_grad_norm="
            f"{max_grad_norm} to RLS, not to train"
        )
