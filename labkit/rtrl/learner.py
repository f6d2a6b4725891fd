r"""The base of every online gradient learner (Benzing et al. 2019, Algorithm 1).

A learner carries the recurrent state s_t (b, S) and an estimate G'_t of the influence
d s_t / d theta, per sequence. ``step`` reads one input; ``gradient`` multiplies the
loss derivative of the same step into G'. The weights are read, never written.

A step happens in full or not at all: all new values are computed and then assigned
together. After an exception, Ctrl-C included, state and estimator are those of before.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from labkit.check import COUNT, check_kind, check_options, check_tensor
from labkit.precision import outside_modes
from labkit.rtrl.cells import Cell
from labkit.rtrl.low_rank import random_signs


class Learner:
    """Base class of the learners: state, validation, reset and checkpoints.

    Parameters
    ----------
    cell : Cell
        Its weights are read at every step, so an optimiser may change them between two.
    batch_size : int, b >= 1 sequences, each with its own state and estimator
    generator : torch.Generator, optional, on the cell's device
        By default the learner makes one, seeded from torch's stream: two learners draw
        different signs, and ``torch.manual_seed`` repeats them. A learner that draws
        nothing takes no seed from that stream.

    Attributes
    ----------
    state : (b, S) tensor, $s$, recurrent
        May be set, to start from another state; give a copy, as `reset` writes into it.
    waiting : list of tensors
        Gradients of the readout until the next update, so that
        :func:`~labkit.rtrl.train` may stop and go on inside a window.
    """

    tensors: tuple[str, ...] = ()  # names of the estimator's tensors, batch first
    draws: bool = True  # whether a step draws signs
    on_host: str = ""  # what of a step the host decides, so that no graph can hold it

    def __init__(
        self,
        cell: Cell,
        *,
        batch_size: int,
        generator: torch.Generator | None = None,
    ) -> None:
        check_kind("cell", cell, Cell, "a labkit.rtrl cell")
        check_options({"batch_size": batch_size}, {"batch_size": COUNT})
        self.cell, self.batch_size = cell, batch_size
        self.generator = on_device(generator, cell.weight.device, draws=self.draws)
        self.state = cell.initial_state(batch_size)
        self.waiting = []
        self._allocate()

    def step(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Read one input per sequence, advance state and estimator, return h (b, n).

        Parameters
        ----------
        x : (b, d_x) tensor, $x$, of the weights' dtype and device
        mask : (b,) bool tensor, optional, the sequences that read, on that device
            State and estimator of the others, such as those that have ended, stay as
            they are; give these 0 in ``dL_dh``. Noise is drawn for all sequences, so
            that what the readers do is independent of the mask.

        Raises
        ------
        TypeError, ValueError
            If x or mask has another shape, dtype or device, or if x on the CPU is not
            finite. (On an accelerator this look would wait for the device; there
            ``train`` looks at the loss.) Nothing has changed then.
        """
        shape = self.batch_size, self.cell.input_size
        check_tensor("x", x, shape=shape, like=self.state, finite=True)
        if mask is not None:
            self._check_mask(mask)
        with torch.no_grad(), outside_modes():
            new = self._advance(x)
            for name, old in self.kept().items() if mask is not None else ():
                rows = mask.view(-1, *[1] * (old.ndim - 1))
                new[name] = torch.where(rows, new[name], old)
        vars(self).update(new)  # all at once
        return self.cell.hidden(self.state).clone()  # `reset` writes into the state

    @torch.no_grad()
    @outside_modes()
    def gradient(self, dL_dh: Tensor) -> Tensor:
        """Return dL_dh @ G' (m, K n), summed over the batch; dL_dh (b, n) of this step.

        It raises TypeError or ValueError if dL_dh has another shape, dtype or device
        than h, or on the CPU is not finite.
        """
        return self._gradient(self._delta(dL_dh))

    @torch.no_grad()
    @outside_modes()
    def per_sequence_gradient(self, dL_dh: Tensor) -> Tensor:
        """Return dL_dh @ G' of each sequence, (b, m, K n), to measure noise."""
        return self._per_sequence(self._delta(dL_dh))

    @torch.no_grad()
    @outside_modes()
    def backward(self, dL_dh: Tensor) -> Tensor | None:
        """Return the gradient to apply (m, K n); None while :class:`TBPTT` collects."""
        return self._backward(self._delta(dL_dh))

    @torch.no_grad()
    @outside_modes()
    def influence(self) -> Tensor:
        """Return G' as a dense (b, S, m K n) tensor, with theta = W row by row."""
        return self._influence()

    @torch.no_grad()
    def reset(self, mask: Tensor | None = None) -> None:
        """Set state and estimator to 0 for the sequences in ``mask`` (b,) bool, or all.

        The others stay bit-identical. The host waits for no mask; one on the CPU that
        is all False costs an accelerator nothing.
        """
        if mask is None:
            mask = torch.ones(self.batch_size, dtype=torch.bool)
        self._check_mask(mask)
        begun = self._begun_anew()
        if mask.device.type != "cpu":
            for value in begun:
                value.masked_fill_(mask.view(-1, *[1] * (value.ndim - 1)), 0)
        elif rows := mask.nonzero().flatten().tolist():
            torch._foreach_zero_([value[row] for value in begun for row in rows])

    def state_dict(self) -> dict:
        """Return copies of the state, the estimator and the random stream."""
        saved = {name: value.clone() for name, value in self.kept().items()}
        saved["waiting"] = [value.clone() for value in self.waiting]
        saved["generator"] = self.generator.get_state()
        return saved

    def load_state_dict(self, saved: Mapping) -> None:
        """Restore what :meth:`state_dict` returned; random draws go on where they were.

        It raises TypeError or ValueError, with the entry's name, if one is missing,
        unknown, or of another shape or dtype; nothing has changed then.
        """
        current = self.kept()
        known = {*current, "waiting", "generator"}
        if saved.keys() != known:
            raise ValueError(f"entries must be {sorted(known)}, got {sorted(saved)}")
        new = {"waiting": [value.to(self.state).clone() for value in saved["waiting"]]}
        for name, old in current.items():
            check_tensor(name, saved[name], shape=old.shape, dtype=old.dtype)
            new[name] = saved[name].to(old.device).clone()
        self.generator.set_state(saved["generator"].cpu())
        vars(self).update(new)

    def kept(self) -> dict[str, Tensor]:
        """Return the state and the estimator by name, without copies."""
        return {name: getattr(self, name) for name in ("state", *self.tensors)}

    # What a learner must define.

    def _allocate(self) -> None:
        """Set the estimator's tensors to 0, unless their sizes are options."""

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        """Return the new state and estimator's tensors by name, and change neither."""
        raise NotImplementedError

    def _influence(self) -> Tensor:
        raise NotImplementedError

    def _per_sequence(self, delta: Tensor) -> Tensor:
        raise NotImplementedError

    def _gradient(self, delta: Tensor) -> Tensor:
        return self._per_sequence(delta).sum(0)

    def _backward(self, delta: Tensor) -> Tensor | None:
        return self._gradient(delta)

    # Helpers of all learners.

    def _begun_anew(self) -> list[Tensor]:
        """Return what is 0 where a sequence begins, batch first."""
        return list(self.kept().values())

    def _check_mask(self, mask: Tensor) -> None:
        check_tensor("mask", mask, shape=(self.batch_size,), dtype=torch.bool)

    def _delta(self, dL_dh: Tensor) -> Tensor:
        """Return dL_dh checked and padded to (b, S), as the loss reads only h."""
        shape = self.batch_size, self.cell.hidden_size
        check_tensor("dL_dh", dL_dh, shape=shape, like=self.state, finite=True)
        return self._padded(dL_dh)

    def _padded(self, dL_dh: Tensor) -> Tensor:
        extra = self.cell.state_size - self.cell.hidden_size
        return torch.nn.functional.pad(dL_dh, (extra, 0))

    def _signs(self, *shape: int) -> Tensor:
        return random_signs((self.batch_size, *shape), self.state, self.generator)

    def _zeros(self, *shape: int) -> Tensor:
        return self.state.new_zeros(self.batch_size, *shape)


def on_device(
    generator: torch.Generator | None, device: torch.device, *, draws: bool = True
) -> torch.Generator:
    """Return the generator, or a new one; raise ValueError for another device.

    With ``draws`` a new one is seeded from torch's stream, so that no two are alike.
    """
    if generator is None:
        new = torch.Generator(device)
        seed = torch.randint(2**62, (), device="cpu") if draws else new.initial_seed()
        return new.manual_seed(int(seed))
    check_kind("generator", generator, torch.Generator, "a torch.Generator or None")
    if generator.device.type != device.type:
        raise ValueError(
            f"generator must be on {device.type}, as what it draws for, "
            f"got one on {generator.device.type}"
        )
    return generator
