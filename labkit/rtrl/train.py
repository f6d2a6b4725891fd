r"""Online training as a generator (Benzing et al. 2019, Algorithm 1).

Each step resets where a sequence restarts, reads a symbol, predicts, takes the gradient
of its loss through its G', and updates the weights and the readout.

On several workers the gradient of a batch is a mean over its sequences, and a learner
keeps one estimator per sequence. So the workers exchange gradients, never states or
estimators.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from labkit.check import COUNT, POSITIVE, check_kind, check_options, optional
from labkit.errors import DivergedError
from labkit.precision import outside_modes
from labkit.rtrl.learner import Learner
from labkit.rtrl.readout import Readout, hand_out, loss_of, weights_of

LOOK = 100  # steps between two looks at the loss on an accelerator
OPTIONS = {"steps": optional(COUNT), "clip": POSITIVE}


@dataclass(frozen=True)
class Record:
    """One training step; on an accelerator, reading a number waits for it once."""

    step: int  # from 1
    mean: Tensor = field(repr=False)  # (), what ``loss`` reads
    curriculum: int | Tensor = field(repr=False)  # what ``level`` reads
    updated: bool  # whether the weights changed at this step
    gradients: Mapping[str, Tensor] = field(repr=False)  # (m, K n) by name

    @cached_property
    def loss(self) -> float:
        """Return the nats per symbol before the update, as a mean over the batch."""
        return float(self.mean)

    @property
    def bits(self) -> float:
        """Return the bits per symbol before the update, as a mean over the batch."""
        return self.loss / math.log(2)

    @cached_property
    def level(self) -> int:
        """Return the level of the curriculum, 0 where there is none."""
        return int(self.curriculum)


def train(
    learner: Learner,
    readout: nn.Module,
    task: Iterable,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    steps: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    clip: float = 1.0,
    watch: Mapping[str, Learner] | None = None,
    workers: Any = None,
    record: Callable | None = None,
) -> Iterator[Record]:
    r"""Train online, and yield one :class:`Record` per time step.

    Parameters
    ----------
    learner : Learner, estimates the gradient of the cell's weights
    readout : Readout or nn.Module, (b, n) to outputs; its gradient is exact
    task : iterable of Symbols, or of (x, target) or (x, target, restart)
        If it has ``observe``, it is given the bits of each step, on an accelerator as a
        tensor there, and may return the level of its curriculum there.
    loss : callable, optional, mean over the batch from outputs and targets
        Cross-entropy if not given. Targets that would broadcast are a ValueError.
    steps : int, optional
        Stop after so many, >= 1; no end if not given. What a learner still collects
        then goes into the update of the call that goes on with it.
    optimizer : torch.optim.Optimizer, optional
        Over the cell's and readout's weights, whose ``grad`` it reads; one that needs
        no closure. None freezes them: the setting in which gradients are compared.
    clip : float, the norm > 0 that the cell's gradient is clipped to
        As in the published runs; the readout's is not clipped.
    watch : mapping of name to Learner, optional
        Learners of the same cell that see the same symbols and change nothing; their
        gradients are in the record under their names, and ``learner``'s own under
        ``"learner"``.
    workers : labkit.scale.Workers, optional
        Those that train together, each with a learner, its generator, and as many
        sequences of its own as it likes.
    record : callable, optional
        ``labkit.scale.graphed``, which replays steps as CUDA graphs, one for each
        setting of the optimiser's options. ValueError on other devices, with ``watch``
        or ``workers``, and for learners whose step the host decides, as :class:`TBPTT`.

    Raises
    ------
    ValueError
        If an option is out of its range, the readout or the watched learners do not
        fit, or two workers would draw the same noise; at the first ``next``.
    DivergedError
        When the loss is not finite, with the step and the last finite loss seen.

    Notes
    -----
    On an accelerator nothing waits for the device but whoever reads a record: the loss
    is looked at every hundredth step, for all of the hundred, and what is not finite in
    a gradient counts as 0 until then, so that the weights stay finite.

    On several workers each step is that of one process with all b sequences: gradients
    and loss are means over the sequences of all, so every worker has the same loss in
    its records, the same curriculum, and the same weights to the last bit; it begins
    with those of rank 0. ``gradients`` are of the worker's own sequences. A step is one
    ``workers.sum`` of $m K n + (n + 1) V + 2$ numbers (the cell's gradient, the
    readout's, the loss and the number of sequences; with :class:`TBPTT` only the last
    two between its updates). States and estimators stay where they are.
    """
    check_options({"steps": steps, "clip": clip}, OPTIONS)
    watch = dict(watch or {})
    _check(learner, readout, optimizer, watch)
    device = learner.state.device
    if record is not None and (watch or workers is not None):
        raise ValueError(
            "record= makes one recording of a step, which nobody looks into and no "
            "other worker takes part in: leave out watch, and use one process"
        )
    if workers is not None:
        _join(workers, learner, [learner.cell.weight, *readout.parameters()])
    loss_at = loss_of(readout, loss)

    def gradients_at(x, target):
        """Return the loss, the gradients to apply if any, and those looked at."""
        value, dL_dh, dL_dW = loss_at(learner.step(x), target)
        with outside_modes():
            delta = learner._padded(dL_dh)  # not checked: the loss is, once it is known
            seen = {}
            for name, other in watch.items():
                other.step(x)
                seen[name] = other._gradient(delta)
            if watch:
                seen["learner"] = learner._gradient(delta)
            update = [] if optimizer is None else _collect(learner, delta, dL_dW)
            if workers is not None:
                value, *update = _mean_over(
                    workers, [value, *update], learner.batch_size
                )
        return value, update, seen

    def whole(x, target):
        value, update, _ = gradients_at(x, target)
        if update:
            _apply(learner, readout, optimizer, update, clip)
        return (value,)

    if record is not None:
        replay = record(whole, device=device, optimizer=optimizer, learner=learner)
    on_cpu, last, since = device.type == "cpu", math.nan, 0
    observe, level = getattr(task, "observe", None), 0
    for step, (x, target, *restart) in enumerate(task, start=1):
        if restart:
            for reader in (learner, *watch.values()):
                reader.reset(restart[0])
        if record is not None:
            (value,) = replay(x, target)
            update, seen, updated = [], {}, optimizer is not None
        else:
            value, update, seen = gradients_at(x, target)
            updated = bool(update)
        # nan and inf stay so
        since = value if on_cpu else torch.add(value, since, alpha=0)
        if on_cpu or step % LOOK == 0:
            last = _finite(float(since), step, last)
        if update:
            _apply(learner, readout, optimizer, update, clip)
        if observe:
            level = observe((last if on_cpu else value.double()) / math.log(2))
            level = getattr(task, "level", 0) if level is None else level
        row = Record(
            step=step, mean=value, curriculum=level, updated=updated, gradients=seen
        )
        yield row
        if "loss" in vars(row):  # it was read
            last = _finite(row.loss, step, last)
        if step == steps:
            return


def _check(
    learner: object,
    readout: object,
    optimizer: object,
    watch: Mapping[str, Learner],
) -> None:
    """Raise an error for what :func:`train` does not take, or what does not fit."""
    check_kind("learner", learner, Learner, "a learner of labkit.rtrl")
    check_kind("readout", readout, nn.Module, "a torch.nn.Module")
    kinds = torch.optim.Optimizer, type(None)
    check_kind("optimizer", optimizer, kinds, "a torch.optim.Optimizer or None")
    n = learner.cell.hidden_size
    if isinstance(readout, Readout) and len(readout.weight) != n + 1:
        raise ValueError(
            f"the readout must read {n} units, got one of {len(readout.weight) - 1}"
        )
    if "learner" in watch:
        raise ValueError("the name 'learner' is taken by the trained learner")
    learners = {learner, *watch.values()}
    if len({(each.cell, each.batch_size) for each in learners}) > 1:
        raise ValueError(
            "every watched learner must share the trained learner's cell and batch_size"
        )
    if len(learners) <= len(watch):
        raise ValueError("every watched learner must be one of its own")
    if any(each is learner.cell.weight for each in readout.parameters()):
        raise ValueError(
            "the readout must not hold the cell; hand over the output layer alone"
        )


def _join(workers: Any, learner: Learner, weights: list[Tensor]) -> None:
    """Give all workers the first one's weights, and check that their noise differs.

    It raises ValueError on all workers if two generators of learners that draw are in
    the same state: the same signs make the same noise in sequences that differ, and the
    mean over the workers would keep it.
    """
    state = learner.generator.get_state().to(learner.state.device, torch.int64)
    states = state.new_zeros(workers.size, len(state))
    states[workers.rank] = state
    (states,) = workers.sum([states])
    if learner.draws and len(states.unique(dim=0)) < workers.size:
        raise ValueError(
            "two workers would draw the same noise: give each rank's learner a "
            "generator with a seed of its own, such as "
            "torch.Generator().manual_seed(seed + rank)"
        )
    with torch.no_grad():
        for weight in weights:
            weight.copy_(workers.first(weight))


def _mean_over(workers: Any, means: Sequence[Tensor], sequences: int) -> list[Tensor]:
    """Return the means over the sequences of all workers, of those of each one's."""
    sums = [sequences * mean for mean in means]
    *sums, total = workers.sum([*sums, means[0].new_full((), sequences)])
    return [each / total for each in sums]


def _finite(loss: float, step: int, last: float) -> float:
    if math.isfinite(loss):
        return loss
    raise DivergedError(
        f"the loss is {loss} at step {step}; the last finite one was {last}"
    )


def _collect(learner: Learner, delta: Tensor, dL_dW: Tensor) -> list[Tensor]:
    """Return the gradients of cell and readout if they are to be applied, else []."""
    waiting = [*learner.waiting, dL_dW]
    gradient = learner._backward(delta)
    learner.waiting = waiting if gradient is None else []
    return [] if gradient is None else [gradient, torch.stack(waiting).mean(0)]


def _apply(
    learner: Learner,
    readout: nn.Module,
    optimizer: torch.optim.Optimizer,
    update: list[Tensor],
    clip: float,
) -> None:
    """Clip the cell's gradient and let the optimiser step."""
    gradient, of_readout = update
    size = torch.linalg.vector_norm(gradient)
    gradient = gradient * (clip / size.clamp_min(clip))
    if gradient.device.type != "cpu":  # on an accelerator the loss is not known yet
        gradient = gradient.nan_to_num(0, 0, 0)
        of_readout = of_readout.nan_to_num(0, 0, 0)
    elif not size < math.inf:  # clipped, it would be 0, and the cell stand still
        raise DivergedError(f"the norm of the cell's gradient is {float(size)}")
    readout.zero_grad()  # what is frozen now may have the gradient of an earlier step
    hand_out(gradient.flatten(), [learner.cell.weight])
    hand_out(of_readout, weights_of(readout))
    optimizer.step()
    torch.clear_autocast_cache()  # of the weights before
