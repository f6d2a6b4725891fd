r"""The base of every online gradient learner (Benzing et al. 2019, Algorithm 1).

A learner carries the recurrent state s_t (b, S) and an estimate G'_t of the influence
d s_t / d theta, per sequence. ``step`` reads one input; ``gradient`` multiplies the
loss derivative of the same step into G'. The weights are read, never written.

A step happens in full or not at all: all new values are computed and then assigned.
An exception at any line, Ctrl-C included, leaves the learner as it was, its random
stream too, so that a repeated call gives the result of a single call.
"""

from collections.abc import Callable, Mapping
from copy import copy

import torch
from torch import Tensor

from labkit.check import check_finite, check_options, check_tensor, described, integer
from labkit.rtrl.cells import SIZE, Cell
from labkit.rtrl.low_rank import random_signs
from labkit.rtrl.streams import go_on, on_device


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
    state : (b, S) tensor, $s$, recurrent; may be set, to start from another state
    waiting : list of tensors
        Gradients of the readout until the next update, so that
        :func:`~labkit.rtrl.train` may stop and go on inside a window.
    """

    tensors: tuple[str, ...] = ()  # names of the estimator's tensors, batch first
    draws: bool = True  # whether a step draws signs
    window: int = 1  # number of steps whose losses ``backward`` differentiates at once
    on_host: str = ""  # what of a step the host decides, so that no graph can hold it

    def __init__(
        self,
        cell: Cell,
        *,
        batch_size: int,
        generator: torch.Generator | None = None,
    ) -> None:
        if not isinstance(cell, Cell):
            raise TypeError(f"cell must be a labkit.rtrl cell, got {described(cell)}")
        check_options({"batch_size": batch_size}, {"batch_size": SIZE})
        self.cell, self.batch_size = cell, batch_size
        self.generator = on_device(generator, cell.weight.device, draws=self.draws)
        self.state = cell.initial_state(batch_size)
        self.waiting, self._read = [], None

    @torch.no_grad()
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
            finite or its squares leave its dtype. (On an accelerator this look would
            wait for the device; there ``train`` looks at the loss.) Nothing has changed
            then.
        """
        self._check_numbers("x", x, self.cell.input_size)
        if mask is not None:
            self._check_mask(mask)
        self._assign(lambda: self._stepped(x, mask))
        return self.cell.hidden(self.state)

    def _stepped(self, x: Tensor, mask: Tensor | None) -> dict:
        """Return the attributes that a step assigns, by name."""
        new = self._advance(x)
        if mask is not None:
            for name, old in self.kept().items():
                rows = mask.view(-1, *[1] * (old.ndim - 1))
                new[name] = torch.where(rows, new[name], old)
        new["_read"] = x, self.state, mask
        return new

    @torch.no_grad()
    def input_gradient(self, dL_dh: Tensor) -> Tensor:
        r"""Return d L / d x (b, d_x) of the last step, for embeddings and lower layers.

        (1) $\delta_x = W_x D^T \delta$, $W_x$ the rows of W that x meets

        This is exact for the loss of this step with the old state held fixed. It leaves
        out the effect of x on later losses through the state. Call it before the
        weights change. It costs a forward pass and 2 b K n d_x.
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
        """Return dL_dh @ G' (m, K n), summed over the batch; dL_dh (b, n) of this step.

        It raises TypeError or ValueError if dL_dh has another shape, dtype or device
        than h, or on the CPU is not finite.
        """
        return self._gradient(self._delta(dL_dh))

    @torch.no_grad()
    def per_sequence_gradient(self, dL_dh: Tensor) -> Tensor:
        """Return dL_dh @ G' of each sequence, (b, m, K n), to measure noise."""
        return self._per_sequence(self._delta(dL_dh))

    @torch.no_grad()
    def backward(self, dL_dh: Tensor) -> Tensor | None:
        """Return the gradient to apply (m, K n); None while :class:`TBPTT` collects."""
        return self._backward(self._delta(dL_dh))

    def influence(self) -> Tensor:
        """Return G' as a dense (b, S, m K n) tensor, with theta = W row by row."""
        raise NotImplementedError

    @torch.no_grad()
    def variance(self, xs: Tensor, dL_dh: Tensor, draws: int = 100) -> Tensor:
        """Return the variance (b,) of each sequence's gradient after some more steps.

        It is $E|g - E g|^2$ of :meth:`per_sequence_gradient` over ``draws`` runs that
        differ only in their signs; divided by the square of exact RTRL's it is
        relative. The learner and its random stream do not change. It is 0 for a learner
        that draws nothing.

        Parameters
        ----------
        xs : (T, b, d_x) tensor, inputs of T >= 1 steps
        dL_dh : (b, n) tensor, of the last one
        draws : int in 2..1000000
        """
        check_options({"draws": draws}, {"draws": integer(2, 10**6)})
        shape = ("T", self.batch_size, self.cell.input_size)
        if not len(check_tensor("xs", xs, shape=shape, like=self.state)):
            raise ValueError("xs must hold one step or more, got none")
        twin, mean, squares = copy(self), 0, 0
        twin.generator = torch.Generator(self.generator.device)
        twin.generator.set_state(self.generator.get_state())
        for i in range(1, draws + 1):
            for name, value in self.kept().items():
                setattr(twin, name, value.clone())
            for x in xs:
                twin.step(x)
            apart = twin.per_sequence_gradient(dL_dh) - mean
            mean = mean + apart / i
            squares = squares + (i - 1) / i * apart.square().sum((1, 2))
        return squares / (draws - 1)

    @torch.no_grad()
    def reset(self, mask: Tensor | None = None) -> None:
        """Set state and estimator to 0 for the sequences in ``mask`` (b,) bool, or all.

        The others stay bit-identical. The host waits for no mask; one on the CPU that
        is all False costs an accelerator nothing.
        """
        if mask is None:
            mask = torch.ones(self.batch_size, dtype=torch.bool)
        begun = self._begun_anew()
        if self._check_mask(mask).device.type != "cpu":
            rows = {k: mask.view(-1, *[1] * (v.ndim - 1)) for k, v in begun.items()}
            self._assign(
                lambda: {k: v.masked_fill(rows[k], 0) for k, v in begun.items()}
            )
        elif chosen := mask.nonzero().flatten().tolist():
            # One call zeroes all, so that no exception can come in between.
            torch._foreach_zero_([v[row] for v in begun.values() for row in chosen])

    def state_dict(self) -> dict:
        """Return copies of the state, the estimator and the random stream."""
        saved = {name: each.clone() for name, each in self.kept().items()}
        saved["waiting"] = [each.clone() for each in self.waiting]
        saved["generator"] = self.generator.get_state()
        return saved

    def load_state_dict(self, saved: Mapping) -> None:
        """Restore what :meth:`state_dict` returned, from any device.

        It raises TypeError or ValueError, with the entry's name, if one is missing,
        unknown, of the wrong kind, shape or dtype, or not finite; nothing has changed
        then. A random stream cannot continue in a generator of another kind of device:
        that generator is then seeded from the saved stream, with a warning.
        """
        if not isinstance(saved, Mapping):
            raise TypeError(
                f"the state must be what state_dict() returned, got {described(saved)}"
            )
        current = self.kept()
        known = {*current, "waiting", "generator"}
        if saved.keys() != known:
            raise ValueError(
                f"entries must be {sorted(known)}, got {sorted(saved, key=str)}"
            )
        for name, old in current.items():
            new = check_tensor(name, saved[name], shape=old.shape, dtype=old.dtype)
            if not new.isfinite().all():
                raise ValueError(f"{name} must be finite")
        waiting = _checked_vectors("waiting", saved["waiting"])

        def restored() -> dict:
            new = {k: saved[k].to(old.device).clone() for k, old in current.items()}
            new["waiting"] = [each.to(self.state).clone() for each in waiting]
            new["_read"] = None
            go_on(self.generator, saved["generator"])
            return new

        self._assign(restored)

    def kept(self) -> dict[str, Tensor]:
        """Return the state and the estimator by name, without copies."""
        return {name: getattr(self, name) for name in ("state", *self.tensors)}

    # What a learner must define.

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        """Return the new state and estimator's tensors by name, and change neither."""
        raise NotImplementedError

    def _per_sequence(self, delta: Tensor) -> Tensor:
        raise NotImplementedError

    def _gradient(self, delta: Tensor) -> Tensor:
        return self._per_sequence(delta).sum(0)

    def _backward(self, delta: Tensor) -> Tensor | None:
        return self._gradient(delta)

    # Helpers of all learners.

    def _assign(self, compute: Callable[[], dict]) -> None:
        """Assign all that ``compute`` returns at once, or nothing if it raises.

        The random stream is then restored too, except while a graph is recorded, when
        it must not be read.
        """
        before, stream = vars(self).copy(), None
        if self.state.device.type != "cuda" or not _is_recording():
            stream = self.generator.get_state()
        try:
            vars(self).update(compute())
        except BaseException:
            same = all(vars(self)[name] is old for name, old in before.items())
            if stream is not None and same:
                self.generator.set_state(stream)
            raise

    def _begun_anew(self) -> dict[str, Tensor]:
        """Return by name what is 0 where a sequence begins, batch first."""
        return self.kept()

    def _check_mask(self, mask: Tensor) -> Tensor:
        return check_tensor("mask", mask, shape=(self.batch_size,), dtype=torch.bool)

    def _check_numbers(self, name: str, value: Tensor, width: int) -> None:
        """Raise an error unless value is (b, width), like the state, safe to square."""
        check_tensor(name, value, shape=(self.batch_size, width), like=self.state)
        if value.device.type != "cpu":
            return
        largest = float(value.abs().max())
        if not largest <= (torch.finfo(value.dtype).max / width) ** 0.5:
            check_finite(name, value)
            raise ValueError(
                f"{name} holds values up to {largest:.3g}, whose squares leave "
                f"{value.dtype}; scale it down"
            )

    def _delta(self, dL_dh: Tensor) -> Tensor:
        """Return dL_dh checked and padded to (b, S), as the loss reads only h."""
        self._check_numbers("dL_dh", dL_dh, self.cell.hidden_size)
        return self._padded(dL_dh)

    def _padded(self, dL_dh: Tensor) -> Tensor:
        extra = self.cell.state_size - self.cell.hidden_size
        return torch.nn.functional.pad(dL_dh, (extra, 0))

    def _signs(self, *shape: int) -> Tensor:
        return random_signs((self.batch_size, *shape), self.state, self.generator)

    def _zeros(self, *shape: int) -> Tensor:
        return self.state.new_zeros(self.batch_size, *shape)


def _is_recording() -> bool:
    return torch.cuda.is_current_stream_capturing()


def _checked_vectors(name: str, values: object) -> list[Tensor]:
    """Return finite vectors of one length, or raise TypeError or ValueError."""
    if not isinstance(values, list | tuple):
        raise TypeError(f"{name} must be a list of tensors, got {described(values)}")
    for i, each in enumerate(values):
        place = f"{name}[{i}]"
        check_tensor(place, each, shape=(values[0].numel() if i else "n",))
        if not each.isfinite().all():
            raise ValueError(f"{place} must be finite")
    return list(values)
