r"""What every online gradient learner shares (Benzing et al. 2019, Algorithm 1).

A learner carries the recurrent state s_t (b, S) and an estimate G'_t of the influence
d s_t / d theta, per sequence. ``step`` reads one input; ``gradient`` multiplies the
loss derivative of the same step into G'. The weights are read, never written.
"""

import torch
from torch import Tensor

from labkit.ranges import COUNT, check, integer
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
        One of its own by default, seeded from torch's stream: two learners draw apart,
        and ``torch.manual_seed`` repeats them. One that draws nothing takes no seed.

    Attributes
    ----------
    state : (b, S) tensor, $s$, recurrent; may be set to start from a state of one's own
    waiting : list of tensors
        Gradients of the readout until the next update. So :func:`~labkit.rtrl.train`
        may stop and go on inside a window.
    """

    tensors: tuple[str, ...] = ()  # names of the estimator's tensors, batch first
    draws: bool = True  # whether a step draws signs
    on_host: str = ""  # what of a step the host decides, so that no graph can hold it

    def __init__(self, cell: Cell, *, batch_size: int, generator=None):
        if not isinstance(cell, Cell):
            raise TypeError(f"cell must be a labkit.rtrl cell, got {type(cell)}")
        check({"batch_size": batch_size}, {"batch_size": COUNT})
        if not isinstance(generator, torch.Generator | None):
            raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
        self.cell, self.batch_size = cell, batch_size
        self.generator = on_device(generator, cell.weight.device, draws=self.draws)
        self.state = cell.initial_state(batch_size)
        self.waiting, self._read = [], None

    @torch.no_grad()
    def step(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Read one input per sequence, move state and estimator on; returns h (b, n).

        ValueError, both untouched, if x has a wrong shape or dtype or is not finite
        (on the CPU: elsewhere this would wait for the device; ``train`` sees the loss).

        Parameters
        ----------
        x : (b, d_x) tensor, $x$, of the weights' dtype and device
        mask : (b,) bool tensor, optional, the sequences that read, on that device
            State and estimator of the others, as of those that have ended, stay as they
            are, at the price of a copy; give them 0 in ``dL_dh``. Noise is drawn for
            all: what the readers do is independent of it.
        """
        self._check_input(x)
        if mask is None:
            self._read = x, self.state, None
            self._advance(x)
        else:
            self._advance_some(x, self._mask(mask))
        return self.cell.hidden(self.state)

    def _advance_some(self, x, mask):
        before = {name: each.clone() for name, each in self.kept().items()}
        self._advance(x)
        for name, old in before.items():
            rows = mask.view(-1, *[1] * (old.ndim - 1))
            setattr(self, name, torch.where(rows, getattr(self, name), old))
        self._read = x, before["state"], mask

    @torch.no_grad()
    def input_gradient(self, dL_dh: Tensor) -> Tensor:
        r"""d L / d x of the step just read, (b, d_x): for embeddings and lower layers.

        (1) $\delta_x = W_x D^T \delta$, $W_x$ the rows of W that x meets

        Exact for this step's loss at the old state. What x does to later losses, by way
        of the state, is not in it. Ask before the weights change. Cost of a forward
        pass and 2 b K n d_x.
        """
        if self._read is None:
            raise ValueError("there is no step to differentiate: call step first")
        x, state, mask = self._read
        dz, _ = self.cell.vjp(self.cell.linearise(x, state), self._delta(dL_dh))
        n = self.cell.hidden_size
        dx = dz @ self.cell.weight[n : n + x.shape[1]].T  # (1)
        return dx if mask is None else dx * mask[:, None]

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

    @torch.no_grad()
    def variance(self, xs: Tensor, dL_dh: Tensor, draws: int = 100) -> Tensor:
        """Noise of the gradient after some steps from here, per sequence, (b,).

        $E|g - E g|^2$ of :meth:`per_sequence_gradient` over ``draws`` runs that differ
        in their signs alone; divided by the square of exact RTRL's it is relative. The
        learner, its stream too, is left as it was. 0 of a learner that draws nothing.

        Parameters
        ----------
        xs : (T, b, d_x) tensor, inputs of T >= 1 steps
        dL_dh : (b, n) tensor, of the last one
        draws : int >= 2
        """
        check({"draws": draws}, {"draws": integer(2)})
        before, mean, squares = self.state_dict(), 0, 0
        kept = {name: before[name] for name in self.kept()}
        try:
            for i in range(1, draws + 1):
                for name, value in kept.items():
                    setattr(self, name, value.clone())
                for x in xs:
                    self.step(x)
                apart = self.per_sequence_gradient(dL_dh) - mean
                mean = mean + apart / i
                squares = squares + (i - 1) / i * apart.square().sum((1, 2))
        finally:
            self.load_state_dict(before)
        return squares / (draws - 1)

    def reset(self, mask: Tensor | None = None) -> None:
        """Zero state and estimator of the sequences in ``mask`` (b,) bool, or of all.

        The others stay bit-identical. No mask makes the host wait; one on the CPU that
        is all False costs an accelerator nothing.
        """
        if mask is None:
            mask = torch.ones(self.batch_size, dtype=torch.bool)
        if self._mask(mask).device.type != "cpu":
            for each in self._begun_anew():
                each.masked_fill_(mask.view(-1, *[1] * (each.ndim - 1)), 0)
        elif len(rows := mask.nonzero().flatten()):
            rows = rows.to(self.state.device, non_blocking=True)
            for each in self._begun_anew():
                each.index_fill_(0, rows, 0)

    def state_dict(self) -> dict:
        """State, estimator and random stream; cloned, safe to keep while running."""
        saved = {name: each.clone() for name, each in self.kept().items()}
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
        for name in self.kept():
            setattr(self, name, saved[name].to(current[name]).clone())
        self._read = None
        self.waiting = [each.to(self.state).clone() for each in saved["waiting"]]
        go_on(self.generator, saved["generator"])

    def kept(self) -> dict[str, Tensor]:
        """State and estimator by name, not copied."""
        return {name: getattr(self, name) for name in ("state", *self.tensors)}

    def in_place(self, run, *given):
        """What ``run`` gives, which leaves each tensor of the learner where it lay.

        A recorded step finds it there. Tensors named with _ carry nothing over.
        """
        places = {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}
        found = run(*given)
        for name, place in places.items():
            new = getattr(self, name)
            if new is not place and not name.startswith("_"):
                place.copy_(new)
        vars(self).update(places, _read=None)
        return found

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
        return [*self.kept().values()]

    def _mask(self, mask):
        if mask.shape != (self.batch_size,) or mask.dtype != torch.bool:
            raise ValueError(
                f"mask must be bool of shape ({self.batch_size},), "
                f"got {mask.dtype} of shape {tuple(mask.shape)}"
            )
        return mask

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
