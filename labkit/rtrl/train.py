r"""Online training as a generator (Benzing et al. 2019, Algorithm 1).

Per step: reset where a sequence restarts, read a symbol, predict, take the gradient of
this step's loss through G' of this step, update weights and readout.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from labkit.rtrl.learner import Learner


class DivergedError(RuntimeError):
    """Training stopped because the loss was no longer finite."""


@dataclass(frozen=True)
class Record:
    """One training step."""

    step: int  # from 1
    symbols: int  # read so far by each sequence
    loss: float  # nats per symbol, mean over the batch, before the update
    bits: float  # bits per symbol
    level: int  # curriculum, 0 where there is none
    updated: bool  # whether the weights changed at this step
    gradients: Mapping[str, Tensor] = field(repr=False)  # (m, K n) by name


class Readout(nn.Module):
    """Softmax layer on [h, 1] whose gradient is written out: no autograd.

    Parameters
    ----------
    hidden_size : n.  classes : V.
    generator : of the initial weights, N(0, 0.01^2).
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
        """Mean cross-entropy and its derivatives.

        Parameters
        ----------
        h : (b, n);  target : (b,) int64.

        Returns
        -------
        loss : () nats;  dL_dh : (b, n);  dL_dW : (n + 1, V). Cost 6 b n V.
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
) -> Iterator[Record]:
    r"""Train online; yields one :class:`Record` per time step.

    Parameters
    ----------
    learner : estimates the gradient of the cell's weights.
    readout : output layer; its gradient is exact.
    task : iterator of :class:`~labkit.rtrl.tasks.Symbols` with ``observe`` and
        ``level``.
    steps : stop after so many; None for no end.
    optimizer : over the cell's and the readout's weights. None freezes them: the
        setting in which gradients are compared.
    clip : the norm that the cell's gradient is clipped to, as in the published runs;
        the readout is not clipped.
    watch : learners of the same cell that see the same symbols and change nothing;
        their gradients appear in the record under their names. ``learner``'s own is
        there too, under ``"learner"``, whenever ``watch`` is given.

    Raises
    ------
    DivergedError
        When the loss is not finite, with the step and the last finite loss. Records up
        to there have been yielded.
    """
    watch = dict(watch or {})
    learners = [learner, *watch.values()]
    if any(other.cell is not learner.cell for other in watch.values()):
        raise ValueError("every watched learner must share the trained learner's cell")
    if "learner" in watch:
        raise ValueError("the name 'learner' is taken by the trained learner")
    pending: list[Tensor] = []
    last = math.nan
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
        nats = float(loss)
        if not math.isfinite(nats):
            raise DivergedError(
                f"the loss is {nats} at step {step}; the last finite one was {last}"
            )
        last = nats
        updated = False
        if optimizer is not None:
            pending.append(dL_dW)
            updated = _update(learner, readout, optimizer, dL_dh, pending, clip)
        bits = nats / math.log(2)
        task.observe(bits)
        yield Record(step, step, nats, bits, task.level, updated, gradients)
        if step == steps:
            return


def _update(learner, readout, optimizer, dL_dh, pending, clip) -> bool:
    """Apply the gradient if the learner has one to apply; empties ``pending`` then."""
    gradient = learner.backward(dL_dh)
    if gradient is None:
        return False
    size = torch.linalg.vector_norm(gradient)
    learner.cell.weight.grad = gradient * (clip / size.clamp_min(clip))
    readout.weight.grad = torch.stack(pending).mean(0)
    pending.clear()
    optimizer.step()
    return True
