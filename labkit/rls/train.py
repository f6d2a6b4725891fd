"""Train a classifier by a generator that yields one record per minibatch."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from labkit.check import COUNT, check_kind, check_options, check_tensor
from labkit.clock import Clock
from labkit.errors import DivergedError
from labkit.rls.block_step import NumericalError
from labkit.rls.checks import OPTIONS
from labkit.rls.hybrid import Hybrid
from labkit.rls.optimizer import RLS
from labkit.rls.update import loss_one_hot

SIZES = {"epochs": COUNT, "batch_size": COUNT}
CEILING = 100.0  # times the first loss, or 1 if that is larger: a run has diverged


@dataclass
class Settings:
    """Settings that :func:`train` reads before each step, so that they may change."""

    batch_size: int = 128  # minibatch M


class Number:
    """A field of a record that reads the device when it is first read."""

    def __set_name__(self, owner, name):
        self.name = f"_{name}"

    def __get__(self, record, owner):
        if record is None:
            raise AttributeError(self.name)  # the field has no default
        value = vars(record)[self.name]
        if callable(value):
            value = vars(record)[self.name] = value()
        return value

    def __set__(self, record, value):
        vars(record)[self.name] = value


@dataclass(frozen=True)
class Record:
    """One training step on one minibatch; reading a number waits for the device."""

    step: int  # from 1
    epoch: int  # from 1
    loss: float = Number()  # of the minibatch, before the step
    gradient_norm: float = Number()  # joint, before clipping
    limit: float  # that the norm is clipped to; inf for none
    seconds: float  # of the step: forward, backward, clip, update
    epoch_loss: float | None = Number()  # mean over an epoch's minibatches, at its end
    test_accuracy: float | None = Number()  # in [0, 1], at the last step of an epoch
    watched: Any = None  # what ``watch`` gave

    @property
    def clipped(self) -> bool:
        """Return whether the norm was above its limit."""
        return self.gradient_norm > self.limit


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
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
    record: Callable | None = None,
) -> Iterator[Record]:
    """Train a classifier and yield one :class:`Record` per minibatch.

    Between two records the caller may change the optimiser's ``param_groups``, the
    labels in place, or the batch size in a :class:`Settings`. ValueError if sizes do
    not fit, workers have different numbers of inputs, or RLS or Hybrid is given a
    second clip. DivergedError, with the last loss, after the records up to the
    divergence: a loss above 100 times the first one (or 1, if that is larger). The CPU
    sees that, and a failure of RLS, at its step; elsewhere no step waits for the
    device, and the end of the epoch sees it.

    Parameters
    ----------
    model : nn.Module, (M, ...) inputs -> (M, classes).
    optimizer : RLS, Hybrid or any torch optimiser of the model that needs no closure.
        If RLS has ``workers``, every worker calls this with rows of its own, equally
        many; the whole minibatch is M rows of each, and the losses and norms in the
        records of all workers are those of the whole.
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
    record : callable, optional
        ``labkit.scale.graphed``, which replays steps as CUDA graphs, one for each size
        of minibatch and setting of the options. ValueError on other devices, with
        ``watch``, on several workers.
    """
    settings = batch_size if isinstance(batch_size, Settings) else Settings(batch_size)
    check_options({"epochs": epochs} | vars(settings), SIZES)
    _check(optimizer, inputs, labels, settings, drop_last, max_grad_norm)
    own = optimizer.rls if isinstance(optimizer, Hybrid) else optimizer
    by_rls = isinstance(own, RLS)
    workers = own.workers if by_rls else None
    if workers is not None:
        _check_equal_shares(inputs, workers)
    if record and (watch or workers is not None):
        raise ValueError(
            "record= makes one recording of a step, which nobody looks into and no "
            "other worker takes part in: leave out watch, and use one process"
        )

    def clip():
        limit = own.max_grad_norm if by_rls else max_grad_norm
        return math.inf if limit is None else limit

    def backward(x, y):
        optimizer.zero_grad()
        outputs = model(x)
        if step == 1 and loss is loss_one_hot:
            check_classes(labels, outputs)
        value = loss(outputs, y)
        value.backward()
        value = value.detach()
        return value if workers is None else workers.sum([value])[0] / workers.size

    def finish():
        """Clip, step, and return the norm; RLS clips within its step."""
        if not by_rls:
            norm = nn.utils.clip_grad_norm_(model.parameters(), clip())
        optimizer.step()
        torch.clear_autocast_cache()  # of the weights before
        return own.gradient_norm if by_rls else norm

    def whole(x, y):
        return backward(x, y), finish()

    run = record(whole, device=inputs.device, optimizer=optimizer) if record else whole
    limit, last, step = math.inf, math.nan, 0
    clock, at_hand = Clock(inputs.device), inputs.device.type == "cpu"
    for epoch in range(1, epochs + 1):
        losses = []
        order = _order(len(inputs), generator, inputs.device)
        for rows, closes in _batches(order, settings, drop_last):
            step, before, seen = step + 1, clock.seconds, None
            model.train()
            try:
                with clock:
                    x, y = inputs[rows], labels[rows]
                    value, norm = (backward(x, y), None) if watch else run(x, y)
                if watch:
                    seen = watch()
                    with clock:
                        norm = finish()
                if closes and by_rls:
                    own.check()
            except NumericalError as error:
                words = f"step {step}: {error}; the last loss was {last:.6g}"
                raise DivergedError(words) from error
            losses.append(value)
            looked = losses[-1:] if at_hand else losses if closes else []
            for i, each in enumerate(_read(looked), step + 1 - len(looked)):
                if i == 1:
                    limit = CEILING * max(each, 1.0)
                if not each <= limit:
                    words = f"the loss is {each:.6g} at step {i}, the limit {limit:.6g}"
                    raise DivergedError(f"{words}; the last one was {last:.6g}")
                last = each
            mean = right = None
            if closes:
                mean = partial(_mean, losses)
                right = test and accuracy_later(model, *test)
            yield Record(
                step,
                epoch,
                loss=value.item,
                gradient_norm=norm.item,
                limit=clip(),
                seconds=clock.seconds - before,
                epoch_loss=mean,
                test_accuracy=right,
                watched=seen,
            )


@torch.no_grad()
def accuracy_later(
    model: nn.Module, inputs: Tensor, labels: Tensor, batch_size: int = 1000
) -> Callable[[], float]:
    """Return a function that reads the share of correct predictions of the model now.

    The share is in [0, 1]; the mode of the model stays.
    """
    training = model.training
    model.eval()
    pairs = zip(inputs.split(batch_size), labels.split(batch_size), strict=True)
    right = 0
    for x, y in pairs:
        outputs = model(x)
        check_classes(y, outputs)
        right += (outputs.argmax(-1) == y).sum()
    model.train(training)
    return lambda: float(right) / labels.numel()


def _read(values: list[Tensor]) -> list[float]:
    """Read numbers from a device, with one wait."""
    return torch.stack(values).tolist() if values else []


def _mean(values: list[Tensor]) -> float:
    return sum(_read(values)) / len(values)


def _order(samples: int, generator, device) -> Tensor:
    """Return the rows of an epoch in random order, uploaded without a wait."""
    pinned = device.type == "cuda"
    order = torch.randperm(samples, generator=generator, pin_memory=pinned)
    return order.to(device, non_blocking=True)


def _batches(left, settings, drop_last) -> Iterator[tuple[Tensor, bool]]:
    """Yield the rows of each minibatch, and whether it is the last of the epoch."""
    while len(left):
        check_options(vars(settings), SIZES)
        M = settings.batch_size
        rows, left = left[:M], left[M:]
        if drop_last and len(left) < M:
            left = left[:0]
        yield rows, not len(left)


def _check(optimizer, inputs, labels, settings, drop_last, max_grad_norm):
    check_kind("optimizer", optimizer, torch.optim.Optimizer, "an optimizer")
    for name, value in {"inputs": inputs, "labels": labels}.items():
        check_kind(name, value, Tensor, "a tensor")
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
    check_options({"max_grad_norm": max_grad_norm}, OPTIONS)
    if max_grad_norm is not None and isinstance(optimizer, RLS | Hybrid):
        raise ValueError(
            f"{type(optimizer).__name__} clips by itself: give max_grad_norm="
            f"{max_grad_norm} to RLS, not to train"
        )


def check_classes(labels: Tensor, outputs: Tensor) -> None:
    """Raise an error unless labels are classes of a model's outputs (M, ..., N)."""
    shape = len(labels), *outputs.shape[1:-1]
    check_tensor("labels", labels, shape=shape, dtype=torch.int64)
    classes = outputs.shape[-1]
    if labels.device.type == "cpu" and not 0 <= labels.min() <= labels.max() < classes:
        least, most = labels.min().item(), labels.max().item()
        raise ValueError(
            f"labels must be in 0..{classes - 1}, got values in {least}..{most}"
        )


def _check_equal_shares(inputs: Tensor, workers: Any) -> None:
    """Raise ValueError on all workers if they have different numbers of rows."""
    extremes = inputs.new_tensor([len(inputs), -len(inputs)], dtype=torch.int64)
    most, least = workers.largest([extremes])[0].abs().tolist()
    if most != least:
        raise ValueError(
            "each worker must have as many inputs as the others, or the last ones wait "
            f"for ever; there are from {least} to {most}, here {len(inputs)}"
        )
