r"""Streams of symbols to learn from (Benzing et al. 2019, section 4.1).

A task is an iterator of :class:`Symbols`, one per time step, for b sequences that are
not aligned in time. It lives on its device and never waits for it: the curriculum,
which depends on the loss, is computed there.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor

from labkit.check import COUNT, check_making, check_options, check_tensor, integer
from labkit.rtrl.learner import on_device

OPTIONS = {"batch_size": COUNT, "level": COUNT, "vocabulary": COUNT}
OPTIONS["reset_every"] = integer(0)


class Symbols(NamedTuple):
    """The input, target and restarts of b sequences in one time step."""

    x: Tensor  # (b, symbols) one-hot input
    target: Tensor  # (b,) int64, the symbol to predict
    restart: Tensor  # (b,) bool, maybe on the CPU: sequences that begin at this symbol


class Resumable:
    """A task that can continue, to the bit, from a saved state of the same options."""

    carried: tuple[str, ...]  # names of the attributes that change from step to step
    generator: torch.Generator | None = None

    def state_dict(self) -> dict:
        """Return copies of the attributes that change, and of the random stream."""
        values = {name: getattr(self, name) for name in self.carried}
        kept = {
            name: value.clone() if torch.is_tensor(value) else value
            for name, value in values.items()
        }
        if self.generator is not None:
            kept["generator"] = self.generator.get_state()
        return kept

    def load_state_dict(self, saved: Mapping) -> None:
        """Restore what :meth:`state_dict` returned; ValueError if it does not fit."""
        current, new = self.state_dict(), {}
        if saved.keys() != current.keys():
            raise ValueError(f"entries must be {sorted(current)}, got {sorted(saved)}")
        for name in self.carried:
            old, value = current[name], saved[name]
            if torch.is_tensor(old):
                if len(value) != len(old):
                    raise ValueError(f"{name} must be of {len(old)} sequences")
                value = value.to(old.device).clone()
            new[name] = value
        if self.generator is not None:
            self.generator.set_state(saved["generator"].cpu())
        for name, value in new.items():
            setattr(self, name, value)


class CopyTask(Resumable):
    r"""Copy a bit string after a delay, with a curriculum over its length.

    Length T: input ``# b1 .. bT`` and T + 1 times ``*``; target T + 1 times ``*`` and
    ``# b1 .. bT``. Every one of the 2 T + 2 symbols counts. Lengths are uniform in
    max(1, level - 5) .. level. :meth:`observe` raises the level by one whenever the
    running error falls below 0.15 bits per symbol. From the authors' program, not in
    the paper: that error is 0.999 e + 0.001 (bits of this step), starts at 1 and is set
    to 0.3 after a raise.

    Parameters
    ----------
    batch_size : int, b sequences
    generator : torch.Generator, optional, on ``device``; of lengths and bits
        One of its own by default, seeded from torch's stream.
    level : int, T to begin with
    fixed : bool, keep the level whatever the error
    device, dtype : optional, of ``x``

    Attributes
    ----------
    level : int, T now; on an accelerator it waits for the device, as does
    error : float, the running error; both may be set

    Examples
    --------
    >>> task = CopyTask(1, level=5, generator=torch.Generator().manual_seed(0))
    >>> "".join(CopyTask.symbols[next(task).target[0]] for _ in range(4))
    '****'
    """

    symbols = ("0", "1", "#", "*")
    carried = ("level", "error", "_length", "_position", "_bits", "_columns", "_seen")
    threshold, spread = 0.15, 5
    shortest = 693  # steps from one raise to the next: from 0.3 to 0.15 at 0.999 a step

    def __init__(
        self,
        batch_size: int,
        *,
        generator: torch.Generator | None = None,
        level: int = 1,
        fixed: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_options({"batch_size": batch_size, "level": level}, OPTIONS)
        check_making(generator, dtype, device)
        self.batch_size, self.fixed = batch_size, fixed
        self.input_size = len(self.symbols)  # and number of classes
        self._eye = torch.eye(self.input_size, dtype=dtype, device=device)
        self.device = self._eye.device
        self.generator = on_device(generator, self.device)
        self.level, self.error = level, 1.0
        self._length = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self._position = torch.zeros_like(self._length)
        self._bits = self._length.new_zeros(batch_size, 0)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Symbols:
        """Return the next symbol of every sequence."""
        restart = self._position == 0
        # On the CPU it costs nothing to see that nobody begins: then nothing is drawn.
        if self.device.type != "cpu" or restart.any():
            self._begin(restart)
        p, T = self._position, self._length
        read = self._symbol_at(p, p <= T)
        write = self._symbol_at(p - T - 1, p > T)
        self._position = (p + 1) % (2 * T + 2)
        return Symbols(self._eye[read], write, restart)

    @property
    def level(self) -> int:
        """Return the current level, T."""
        return int(self._level)

    @level.setter
    def level(self, value: int) -> None:
        self._level, self._columns, self._seen = self._here(value), value, 0

    @property
    def error(self) -> float:
        """Return the running error in bits per symbol."""
        return float(self._error)

    @error.setter
    def error(self, value: float) -> None:
        self._error = self._here(value, torch.float64)
        self._columns += 1  # it may be below the threshold

    def _here(self, value: float, dtype: torch.dtype = torch.int64):
        """Return a number, or on an accelerator a tensor there."""
        if self.device.type == "cpu":
            return value
        return torch.full((), value, dtype=dtype, device=self.device)

    def observe(self, bits: float | Tensor) -> int | Tensor:
        """Take in the mean bits per symbol of the last step, and return the level."""
        self._error = 0.999 * self._error + 0.001 * bits
        self._seen += 1
        if not self.fixed:
            raised = 1 * (self._error < self.threshold)
            self._level = self._level + raised
            back = 0.3 + 0 * self._error  # in its dtype
            self._error = raised * back + (1 - raised) * self._error
        return self._level

    def _begin(self, restart: Tensor):
        # Numbers below a common multiple of all ranges serve any range.
        multiple = math.lcm(*range(1, self.spread + 2))
        drawn = {"generator": self.generator, "device": self.device}
        level = torch.as_tensor(self._level, device=self.device)
        lengths = level.clamp_max(self.spread + 1)  # so many, the level the longest
        length = torch.randint(multiple, (self.batch_size,), **drawn) % lengths
        # An accelerator's level is not read: it has had no time to be above this.
        most = self._columns + self._seen // self.shortest
        columns = self._level if self.device.type == "cpu" else most
        columns = max(columns, self._bits.shape[1])
        bits = torch.randint(2, (self.batch_size, columns), **drawn)
        self._length = torch.where(restart, level - lengths + 1 + length, self._length)
        old = torch.nn.functional.pad(self._bits, (0, columns - self._bits.shape[1]))
        self._bits = torch.where(restart[:, None], bits, old)

    def _symbol_at(self, index: Tensor, inside: Tensor):
        """Return ``#`` at 0, the bits at 1..T, and ``*`` where not ``inside``."""
        column = (index - 1).clamp(0, self._bits.shape[1] - 1)
        bit = self._bits.gather(1, column[:, None])[:, 0]
        symbol = torch.where(index == 0, 2, bit)
        return torch.where(inside, symbol, 3)


class CharStream(Resumable):
    """Prediction of the next character by b pointers, spread evenly over a text.

    A pointer at the end of the text goes on at its beginning.

    Parameters
    ----------
    tokens : (N,) int64 tensor, N >= batch_size + 1
    vocabulary : int, number of symbols, above every token
    batch_size : int, b pointers
    reset_every : int, steps between a stream's resets (published: 100); 0 for never
    device, dtype : optional, of ``x``

    Attributes
    ----------
    steps : int, characters that each pointer has read
    """

    carried = ("steps",)

    def __init__(
        self,
        tokens: Tensor,
        vocabulary: int,
        batch_size: int,
        *,
        reset_every: int = 100,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        values = {"batch_size": batch_size, "vocabulary": vocabulary}
        values["reset_every"] = reset_every
        check_options(values, OPTIONS)
        check_tensor("tokens", tokens, shape=("N",), dtype=torch.int64)
        if len(tokens) <= batch_size:
            raise ValueError(
                f"tokens must be (N,) with N > {batch_size}, got {len(tokens)}"
            )
        if tokens.min() < 0 or tokens.max() >= vocabulary:
            raise ValueError(
                f"tokens must lie in 0..{vocabulary - 1}, "
                f"got {int(tokens.min())}..{int(tokens.max())}"
            )
        check_making(None, dtype, device)
        self.tokens = tokens.to(device)
        self.batch_size, self.input_size = batch_size, vocabulary
        self.reset_every = reset_every
        self._eye = torch.eye(vocabulary, dtype=dtype, device=device)
        apart = len(tokens) // batch_size
        begin = torch.arange(batch_size, device=device) * apart
        self._begin = torch.stack([begin, begin + 1])  # of what is read and predicted
        apart = max(1, reset_every // batch_size)
        self._late = torch.arange(batch_size) * apart % max(1, reset_every)
        self.steps = 0
        self.level = 0  # no curriculum

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Symbols:
        """Return the next character of every stream."""
        restart = self._restarts(self.steps)
        at = (self._begin + self.steps) % len(self.tokens)
        self.steps += 1
        read, target = self.tokens[at]
        return Symbols(self._eye[read], target, restart)

    def _restarts(self, step: int) -> Tensor:
        """Return who begins anew; on the CPU, where nobody waits for it."""
        if not step or not self.reset_every:
            return torch.full((self.batch_size,), not step)
        return (step - self._late) % self.reset_every == 0
