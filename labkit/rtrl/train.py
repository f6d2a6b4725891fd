r"""Online training as a generator (Benzing et al. 2019, Algorithm 1).

On several workers the gradient of a batch is a mean over its sequences, and a learner
keeps one estimator per sequence. So the workers exchange gradients, never states or
estimators.

Each step resets where a sequence restarts, reads a symbol, predicts, takes the gradient
of its loss through its G', and updates the weights and the readout.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.check import COUNT, POSITIVE, check_kind, check_options, described, optional
from labkit.collectives import mean_over
from labkit.errors import DivergedError
from labkit.rtrl.learner import Learner
from labkit.rtrl.readout import Readout, hand_out, listened_to, loss_of, weights_of

LOOK = 100  # steps between two looks at the loss on an accelerator
OPTIONS = {"steps": optional(COUNT), "clip": POSITIVE}


@dataclass(frozen=True)
class Record:
    """One training step; on an accelerator, reading a number waits for it once."""

    step: int  # from 1
    symbols: int  # read so far by each sequence
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
    group: "dist.ProcessGroup | None" = None,
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
        Over the cell's and readout's weights. None freezes them: the setting in which
        gradients are compared. An optimiser that reads what goes through the layers of
        the readout, such as ``labkit.rls.RLS``, gets one backward pass through them at
        each step; then the readout must be such layers, and ``group`` is refused.
    clip : float, the norm > 0 that the cell's gradient is clipped to
        As in the published runs; the readout's is not clipped.
    watch : mapping of name to Learner, optional
        Learners of the same cell that see the same symbols and change nothing; their
        gradients are in the record under their names, and ``learner``'s own under
        ``"learner"``.
    group : torch.distributed.ProcessGroup, optional
        The workers that train together, such as ``torch.distributed.group.WORLD``, each
        with a learner, its generator, and as many sequences of its own as it likes.
    record : callable, optional
        ``labkit.scale.graphed``, which replays steps as CUDA graphs, one for each
        setting of the optimiser's options. ValueError on other devices, with ``watch``
        or ``group``, and for learners whose step the host decides, as :class:`TBPTT`.

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
    all-reduce of $m K n + (n + 1) V + 2$ numbers (the cell's gradient, the readout's,
    the loss and the number of sequences; with :class:`TBPTT` only the last two between
    its updates). States and estimators stay where they are. Tested with gloo; NCCL is
    not.
    """
    check_options({"steps": steps, "clip": clip}, OPTIONS)
    _check_kinds(learner, readout, task, loss, optimizer, watch)
    watch = dict(watch or {})
    _check_fit(learner, readout, watch)
    device, of_readout = learner.state.device, weights_of(readout)
    check_kind("record", record, (Callable, type(None)), "a function or None")
    if record and (watch or group is not None):
        raise ValueError(
            "record= makes one recording of a step, which nobody looks into and no "
            "other worker takes part in: leave out watch, and use one process"
        )
    listened = optimizer is not None and listened_to(readout)
    if listened and group is not None:
        raise ValueError(
            "a layer of the readout has a hook that reads its passes, as RLS puts "
            "there; with a group the readout's gradient comes from no pass"
        )
    if group is not None:
        if not callable(getattr(group, "size", None)):
            told = described(group)
            raise TypeError(f"group must be a process group or None, got {told}")
        join(learner, [learner.cell.weight, *readout.parameters()], group)
    loss_at = loss_of(readout, loss, share=1 / learner.window if listened else 0.0)
    weights = [learner.cell.weight] if listened else [learner.cell.weight, *of_readout]

    def gradients_at(x, target, restart=None):
        for each in (learner, *watch.values()):
            if restart is not None:
                each.reset(restart)
        value, dL_dh, dL_dW = loss_at(learner.step(x), target)
        delta = learner._padded(dL_dh)  # not checked: the loss is, once it is known
        gradients = {}
        for name, other in watch.items():
            other.step(x)
            gradients[name] = other._gradient(delta)
        if watch:
            gradients["learner"] = learner._gradient(delta)
        results = [value]
        if optimizer is not None:
            results += _collect(learner, delta, dL_dW)
        if group is not None:
            results = mean_over(results, group, weight=learner.batch_size)
        return *results, gradients

    def update_weights(gradient, mean_dL_dW):
        _apply(weights, optimizer, gradient, mean_dL_dW, clip)
        if listened:  # the next pass would add to them
            for each in of_readout:
                each.grad = None

    def whole(*given):
        value, *update, _ = gradients_at(*given)
        if update:
            update_weights(*update)
        return (value,)

    if listened:
        optimizer.zero_grad()
    if record:
        recorded = record(whole, device=device, optimizer=optimizer, learner=learner)
    on_cpu, last, since = device.type == "cpu", math.nan, 0
    for step, given in enumerate(task, start=1):
        given = _checked_symbols(given)
        if record:
            (value,) = recorded(*(each.to(device, non_blocking=True) for each in given))
            update, gradients = optimizer is not None, {}
        else:
            value, *update, gradients = gradients_at(*given)
        since = value if on_cpu else value + 0 * since  # nan and inf stay so
        if on_cpu or step % LOOK == 0:
            last = _finite(float(since), step, last)
        if update and not record:
            update_weights(*update)
        level = _level(task, (last if on_cpu else value.double()) / math.log(2))
        row = Record(step, step, value, level, bool(update), gradients)
        yield row
        if "loss" in vars(row):  # it was read
            last = _finite(row.loss, step, last)
        if step == steps:
            return


def join(learner: Learner, weights: list[Tensor], group: "dist.ProcessGroup") -> None:
    """Give all workers the first one's weights, and check that their noise differs.

    ``weights``, to be trained, are copied from the group's first rank to the others. It
    raises ValueError on all workers if two generators of learners that draw are in the
    same state: the same signs make the same noise in sequences that differ, and the
    mean over the workers would keep it.
    """
    state = learner.generator.get_state().numpy().tobytes()
    mine = hashlib.sha256(state).hexdigest() if learner.draws else None
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group)
    known = [each for each in everyone if each is not None]
    if len(set(known)) < len(known):
        raise ValueError(
            "two workers would draw the same noise: give each rank's learner a "
            "generator with a seed of its own, such as "
            "torch.Generator().manual_seed(seed + rank)"
        )
    with torch.no_grad():
        for weight in weights:
            dist.broadcast(weight, dist.get_global_rank(group, 0), group)


def _check_kinds(
    learner: object,
    readout: object,
    task: object,
    loss: object,
    optimizer: object,
    watch: object,
) -> None:
    """Raise TypeError for an argument of a kind that :func:`train` does not take."""
    watched = watch.values() if isinstance(watch, Mapping) else ()
    wanted = [
        ("learner", learner, isinstance(learner, Learner), "a learner of labkit.rtrl"),
        ("readout", readout, isinstance(readout, nn.Module), "a torch.nn.Module"),
        ("task", task, isinstance(task, Iterable), "iterable"),
        ("loss", loss, loss is None or callable(loss), "None or callable"),
        (
            "optimizer",
            optimizer,
            optimizer is None or isinstance(optimizer, torch.optim.Optimizer),
            "None or a torch.optim.Optimizer",
        ),
        (
            "watch",
            watch,
            watch is None or isinstance(watch, Mapping),
            "None or a mapping of learners",
        ),
        *(
            ("watch", each, isinstance(each, Learner), "learners of labkit.rtrl")
            for each in watched
        ),
    ]
    for name, value, right, words in wanted:
        if not right:
            raise TypeError(f"{name} must be {words}, got {described(value)}")


def _checked_symbols(given: object) -> Sequence:
    """Return x, target and perhaps restart of one step, or raise TypeError."""
    if not isinstance(given, list | tuple) or len(given) not in (2, 3):
        raise TypeError(
            "the task must yield (x, target) or (x, target, restart), "
            f"got {described(given)}"
        )
    return given


def _check_fit(learner: Learner, readout: nn.Module, watch: Mapping[str, Learner]):
    n = learner.cell.hidden_size
    if isinstance(readout, Readout) and len(readout.weight) != n + 1:
        raise ValueError(
            f"the readout must read {n} units, got one of {len(readout.weight) - 1}"
        )
    if any(other.cell is not learner.cell for other in watch.values()):
        raise ValueError("every watched learner must share the trained learner's cell")
    if "learner" in watch:
        raise ValueError("the name 'learner' is taken by the trained learner")


def _level(task: Iterable, bits: float | Tensor) -> int | Tensor:
    """Give the task the bits, and return its level, or 0 if it does not observe."""
    observe = getattr(task, "observe", None)
    level = observe(bits) if observe else 0
    return task.level if level is None else level


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
    if gradient is None:
        learner.waiting = waiting
        return []
    of_readout = torch.stack(waiting).mean(0)
    learner.waiting = []
    return [gradient, of_readout]


def _apply(
    weights: list[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    gradient: Tensor,
    of_readout: Tensor,
    clip: float,
):
    """Clip the cell's gradient and let the optimiser step."""
    size = torch.linalg.vector_norm(gradient)
    gradient = gradient * (clip / size.clamp_min(clip))
    if gradient.device.type != "cpu":  # on an accelerator the loss is not known yet
        gradient, of_readout = (
            each.nan_to_num(0, 0, 0) for each in (gradient, of_readout)
        )
    weights[0].grad = gradient
    hand_out(of_readout, weights[1:])
    optimizer.step()
