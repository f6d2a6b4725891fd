r"""Online training as a generator (Benzing et al. 2019, Algorithm 1).

Per step: reset where a sequence restarts, read a symbol, predict, take the gradient of
this step's loss through G' of this step, update weights and readout.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.collectives import mean_over
from labkit.errors import DivergedError
from labkit.ranges import COUNT, POSITIVE, check, optional
from labkit.rtrl.distributed import join
from labkit.rtrl.learner import Learner

LOOK = 100  # steps between two looks at the loss on an accelerator
OPTIONS = {"steps": optional(COUNT), "clip": POSITIVE}


@dataclass(frozen=True)
class Record:
    """One training step. On an accelerator the first look at a number waits for it."""

    step: int  # from 1
    symbols: int  # read so far by each sequence
    mean: Tensor = field(repr=False)  # (), what ``loss`` reads
    curriculum: int | Tensor = field(repr=False)  # what ``level`` reads
    updated: bool  # whether the weights changed at this step
    gradients: Mapping[str, Tensor] = field(repr=False)  # (m, K n) by name

    @cached_property
    def loss(self) -> float:
        """Nats per symbol, mean over the batch, before the update."""
        return float(self.mean)

    @property
    def bits(self) -> float:
        """Bits per symbol."""
        return self.loss / math.log(2)

    @cached_property
    def level(self) -> int:
        """Curriculum, 0 where there is none."""
        return int(self.curriculum)


class Readout(nn.Module):
    """Softmax layer on [h, 1], from n = ``hidden_size`` to V = ``classes``.

    Its gradient is written out: no autograd. The weights begin as N(0, 0.01^2).
    """

    def __init__(
        self, hidden_size, classes, *, generator=None, dtype=None, device=None
    ):
        super().__init__()
        weight = torch.empty(hidden_size + 1, classes, dtype=dtype, device=device)
        self.weight = nn.Parameter(weight.normal_(0, 0.01, generator=generator))

    def forward(self, h: Tensor) -> Tensor:
        """(b, n) -> logits (b, V)."""
        return h @ self.weight[:-1] + self.weight[-1]

    @torch.no_grad()
    def loss(self, h: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean cross-entropy and its derivatives, for h (b, n) and target (b,) int64.

        Returns
        -------
        loss, dL_dh, dL_dW : () [nats], (b, n) and (n + 1, V) tensors, cost 6 b n V
        """
        log_p = self(h).log_softmax(-1)
        error = log_p.exp()
        error[torch.arange(len(h), device=h.device), target] -= 1  # p - onehot
        error /= len(h)
        loss = nn.functional.nll_loss(log_p, target)
        dL_dW = torch.cat([h.T @ error, error.sum(0, keepdim=True)])
        return loss, error @ self.weight[:-1].T, dL_dW


def train(
    learner: Learner,
    readout: Readout,
    task,
    *,
    steps: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    clip: float = 1.0,
    watch: Mapping[str, Learner] | None = None,
    group: dist.ProcessGroup | None = None,
) -> Iterator[Record]:
    r"""Train online; yields one :class:`Record` per time step.

    Parameters
    ----------
    learner : Learner, estimates the gradient of the cell's weights
    readout : Readout, output layer; its gradient is exact
    task : iterator of Symbols, with ``observe`` and ``level``, as a ``CopyTask``
        ``observe`` is given a tensor on an accelerator, and may return the level there.
    steps : int, optional
        Stop after so many, >= 1; no end if not given. What a learner still collects
        then goes into the update of the call that goes on with it.
    optimizer : torch.optim.Optimizer, optional
        Over the cell's and readout's weights. None freezes them: the setting in which
        gradients are compared.
    clip : float, the norm > 0 that the cell's gradient is clipped to
        As in the published runs; the readout's is not clipped.
    watch : mapping of name to Learner, optional
        Learners of the same cell that see the same symbols and change nothing; their
        gradients are in the record under their names, and ``learner``'s own under
        ``"learner"``.
    group : torch.distributed.ProcessGroup, optional
        The workers that train together, such as ``torch.distributed.group.WORLD``, each
        with a learner, its generator, and as many sequences of its own as it likes.

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
    check({"steps": steps, "clip": clip}, OPTIONS)
    watch = dict(watch or {})
    learners = [learner, *watch.values()]
    if len(readout.weight) != learner.cell.hidden_size + 1:
        raise ValueError(
            f"the readout must read {learner.cell.hidden_size} units, "
            f"got one of {len(readout.weight) - 1}"
        )
    if any(other.cell is not learner.cell for other in watch.values()):
        raise ValueError("every watched learner must share the trained learner's cell")
    if "learner" in watch:
        raise ValueError("the name 'learner' is taken by the trained learner")
    if group is not None:
        join(learner, [learner.cell.weight, readout.weight], group)
    on_host, last, since = learner.state.device.type == "cpu", math.nan, 0
    for step, (x, target, restart) in enumerate(task, start=1):
        for each in learners:
            each.reset(restart)
        h = learner.step(x)
        loss, dL_dh, dL_dW = readout.loss(h, target)
        gradients = {}
        for name, other in watch.items():
            other.step(x)
            gradients[name] = other.gradient(dL_dh)
        if watch:
            gradients["learner"] = learner.gradient(dL_dh)
        update = []
        if optimizer is not None:
            learner.waiting.append(dL_dW)
            update = _collect(learner, dL_dh)
        if group is not None:
            weight = learner.batch_size
            loss, *update = mean_over([loss, *update], group, weight=weight)
        since = loss if on_host else loss + 0 * since  # what is not finite stays so
        if on_host or step % LOOK == 0:
            last = _finite(float(since), step, last)
        if update:
            _apply(learner, readout, optimizer, *update, clip)
        level = _told(task, (last if on_host else loss.double()) / math.log(2))
        record = Record(step, step, loss, level, bool(update), gradients)
        yield record
        if "loss" in vars(record):  # it was read
            last = _finite(record.loss, step, last)
        if step == steps:
            return


def _told(task, bits: float | Tensor) -> int | Tensor:
    """The task's level, once it has heard of the bits."""
    level = task.observe(bits)
    return task.level if level is None else level


def _finite(loss: float, step: int, last: float) -> float:
    if math.isfinite(loss):
        return loss
    raise DivergedError(
        f"the loss is {loss} at step {step}; the last finite one was {last}"
    )


def _collect(learner, dL_dh) -> list[Tensor]:
    """The cell's gradient and the readout's if there is one to apply, else nothing."""
    gradient = learner.backward(dL_dh)
    if gradient is None:
        return []
    readout = torch.stack(learner.waiting).mean(0)
    learner.waiting.clear()
    return [gradient, readout]


def _apply(learner, readout, optimizer, gradient, readout_gradient, clip):
    """Clip the cell's gradient and let the optimiser step."""
    size = torch.linalg.vector_norm(gradient)
    gradient = gradient * (clip / size.clamp_min(clip))
    if gradient.device.type != "cpu":  # there the loss was not looked at
        gradient, readout_gradient = (
            each.nan_to_num(0, 0, 0) for each in (gradient, readout_gradient)
        )
    learner.cell.weight.grad, readout.weight.grad = gradient, readout_gradient
    optimizer.step()
