r"""What every online gradient learner shares (Benzing et al. 2019, Algorithm 1).

A learner carries the recurrent state s_t (b, S) and an estimate G'_t of the influence
d s_t / d theta, per sequence. ``step`` reads one input; ``gradient`` multiplies the
loss derivative of the same step into G'. The weights are read, never written.
"""

import torch
from torch import Tensor

from labkit.ranges import COUNT, check
from labkit.rtrl.cells import Cell
from labkit.rtrl.low_rank import random_signs
from labkit.rtrl.streams import go_on, on_device


class Learner:
    """Base of the learners: state, validation, reset, checkpoints.

    Parameters
    ----------
    cell : Cell, whose weights are read at every step, so an optimiser may change them
    batch_size : int, b >= 1 sequences, each with its own state and estimator
    generator : torch.Generator, optional, on the cell's device
        A fresh one by default, so that no learner shares a random stream with another.

    Attributes
    ----------
    state : (b, S) tensor, $s$, recurrent; may be set to start from a state of one's own
    waiting : list of tensors
        Gradients of the readout until the next update. So :func:`~labkit.rtrl.train`
        may stop and go on inside a window.
    """

    tensors: tuple[str, ...] = ()  # names of the estimator's tensors, batch first
    draws: bool = True  # whether a step draws signs

    def __init__(self, cell: Cell, *, batch_size: int, generator=None):
        if not isinstance(cell, Cell):
            raise TypeError(f"cell must be a labkit.rtrl cell, got {type(cell)}")
        check({"batch_size": batch_size}, {"batch_size": COUNT})
        if not isinstance(generator, torch.Generator | None):
            raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
        self.cell, self.batch_size = cell, batch_size
        self.generator = on_device(generator, cell.weight.device)
        self.state = cell.initial_state(batch_size)
        self.waiting = []

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """Read one input per sequence, move state and estimator on; returns h (b, n).

        ValueError, both untouched, if x has a wrong shape or dtype or is not finite
        (on the CPU: elsewhere this would wait for the device; ``train`` sees the loss).

        Parameters
        ----------
        x : (b, d_x) tensor, $x$, of the weights' dtype and device
        """
        self._check_input(x)
        self._advance(x)
        return self.cell.hidden(self.state)

    @torch.no_grad()
    def gradient(self, dL_dh: Tensor) -> Tensor:
        """dL_dh @ G' summed over the batch, (m, K n); dL_dh (b, n) is of this step."""
        return self._gradient(self._delta(dL_dh))

    @torch.no_grad()
    def per_sequence_gradient(self, dL_dh: Tensor) -> Tensor:
        """dL_dh @ G' of each sequence, (b, m, K n); for measuring noise."""
        return self._per_sequence(self._delta(dL_dh))

    def backward(self, dL_dh: Tensor) -> Tensor | None:
        """Gradient to apply now, (m, K n); None while :class:`TBPTT` collects one."""
        return self.gradient(dL_dh)

    def influence(self) -> Tensor:
        """G' as a dense (b, S, m K n) tensor, theta = W row by row; for checks."""
        raise NotImplementedError

    def reset(self, mask: Tensor | None = None) -> None:
        """Zero state and estimator of the sequences in ``mask`` (b,) bool, or of all.

        The others stay bit-identical. No mask makes the host wait; one on the CPU that
        is all False costs an accelerator nothing.
        """
        if mask is None:
            mask = torch.ones(self.batch_size, dtype=torch.bool)
        if mask.shape != (self.batch_size,) or mask.dtype != torch.bool:
            raise ValueError(
                f"mask must be bool of shape ({self.batch_size},), "
                f"got {mask.dtype} of shape {tuple(mask.shape)}"
            )
        if mask.device.type != "cpu":
            for each in self._begun_anew():
                each.masked_fill_(mask.view(-1, *[1] * (each.ndim - 1)), 0)
        elif len(rows := mask.nonzero().flatten()):
            rows = rows.to(self.state.device, non_blocking=True)
            for each in self._begun_anew():
                each.index_fill_(0, rows, 0)

    def state_dict(self) -> dict:
        """State, estimator and random stream; cloned, safe to keep while running."""
        names = ("state", *self.tensors)
        saved = {name: getattr(self, name).clone() for name in names}
        saved["waiting"] = [each.clone() for each in self.waiting]
        return saved | {"generator": self.generator.get_state()}

    def load_state_dict(self, saved: dict) -> None:
        """Restore what :meth:`state_dict` returned, from any device.

        An entry that is missing, unknown, of the wrong shape or dtype, or not finite is
        a ValueError that names it; nothing is changed then. A random stream cannot go
        on in a generator of another kind of device: it is then seeded from the saved
        one, with a warning.
        """
        current = self.state_dict()
        if saved.keys() != current.keys():
            raise ValueError(
                f"entries must be {sorted(current)}, got {sorted(saved, key=str)}"
            )
        for name in current.keys() - {"waiting", "generator"}:
            new, old = saved[name], current[name]
            if new.shape != old.shape or new.dtype != old.dtype:
                raise ValueError(
                    f"{name} must have shape {tuple(old.shape)} and be {old.dtype}, "
                    f"got {tuple(new.shape)} and {new.dtype}"
                )
            if not new.isfinite().all():
                raise ValueError(f"{name} must be finite")
        for name in ("state", *self.tensors):
            setattr(self, name, saved[name].to(current[name]).clone())
        self.waiting = [each.to(self.state).clone() for each in saved["waiting"]]
        go_on(self.generator, saved["generator"])

    # What a learner must say for itself.

    def _advance(self, x: Tensor) -> None:
        raise NotImplementedError

    def _per_sequence(self, delta: Tensor) -> Tensor:
        raise NotImplementedError

    def _gradient(self, delta: Tensor) -> Tensor:
        return self._per_sequence(delta).sum(0)

    # Shared small things.

    def _begun_anew(self) -> list[Tensor]:
        """What is zero where a sequence begins, batch first."""
        return [getattr(self, name) for name in ("state", *self.tensors)]

    def _delta(self, dL_dh: Tensor) -> Tensor:
        """(b, S), checked: the loss reads h only."""
        expected = (self.batch_size, self.cell.hidden_size)
        if dL_dh.shape != expected:
            raise ValueError(
                f"dL_dh must have shape {expected} (batch, units), "
                f"got {tuple(dL_dh.shape)}"
            )
        extra = self.cell.state_size - self.cell.hidden_size
        return torch.nn.functional.pad(dL_dh, (extra, 0))

    def _signs(self, *shape: int) -> Tensor:
        return random_signs((self.batch_size, *shape), self.state, self.generator)

    def _zeros(self, *shape: int) -> Tensor:
        return self.state.new_zeros(self.batch_size, *shape)

    def _check_input(self, x: Tensor) -> None:
        expected = (self.batch_size, self.cell.input_size)
        if x.shape != expected:
            raise ValueError(
                f"x must have shape {expected} (batch, input width), "
                f"got {tuple(x.shape)}"
            )
        if x.dtype != self.state.dtype or x.device != self.state.device:
            raise ValueError(
                f"x must be {self.state.dtype} on {self.state.device}, "
                f"got {x.dtype} on {x.device}"
            )
        if x.device.type == "cpu" and not x.isfinite().all():
            row = int((~x.isfinite()).any(1).nonzero()[0])
            raise ValueError(f"x must be finite, sequence {row} is {x[row].tolist()}")
