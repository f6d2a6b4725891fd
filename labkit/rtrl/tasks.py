r"""Streams of symbols to learn from (Benzing et al. 2019, section 4.1).

A task is an iterator of :class:`Symbols`, one per time step, for b sequences that are
not aligned in time. ``restart`` lies on the host, so that resetting a learner costs no
synchronisation.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from labkit.ranges import BELOW_ONE, COUNT, check

OPTIONS = dict.fromkeys(("batch_size", "level", "vocabulary"), COUNT)
OPTIONS["reset_probability"] = BELOW_ONE


class Symbols(NamedTuple):
    """What the b sequences see in one time step."""

    x: Tensor  # (b, symbols) one-hot input
    target: Tensor  # (b,) int64, the symbol to predict
    restart: Tensor  # (b,) bool on the CPU: sequences that begin at this symbol


class Resumable:
    """A task that goes on, to the bit, where another of the same options was."""

    carried: tuple[str, ...]  # names of what changes from step to step
    generator: torch.Generator

    def state_dict(self) -> dict:
        """What changes from step to step; safe to keep while going on."""
        values = {name: getattr(self, name) for name in self.carried}
        kept = {k: v.clone() if torch.is_tensor(v) else v for k, v in values.items()}
        return kept | {"generator": self.generator.get_state()}

    def load_state_dict(self, saved: dict) -> None:
        """Restore what :meth:`state_dict` gave."""
        self.generator.set_state(saved["generator"])
        for name in self.carried:
            value = saved[name]
            setattr(self, name, value.clone() if torch.is_tensor(value) else value)


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
    generator : torch.Generator, optional, on the CPU; of lengths and bits
    level : int, T to begin with
    fixed : bool, keep the level whatever the error
    device, dtype : optional, of ``x``

    Examples
    --------
    >>> task = CopyTask(1, level=5, generator=torch.Generator().manual_seed(0))
    >>> "".join(CopyTask.symbols[next(task).target[0]] for _ in range(4))
    '****'
    """

    symbols = ("0", "1", "#", "*")
    carried = ("level", "error", "_length", "_position", "_bits")
    threshold, spread = 0.15, 5

    def __init__(
        self,
        batch_size,
        *,
        generator=None,
        level=1,
        fixed=False,
        device=None,
        dtype=None,
    ):
        check({"batch_size": batch_size, "level": level}, OPTIONS)
        self.batch_size, self.level, self.fixed = batch_size, level, fixed
        self.generator = generator or torch.Generator()
        self.error = 1.0  # running bits per symbol
        self.input_size = len(self.symbols)  # and number of classes
        self._eye = torch.eye(self.input_size, dtype=dtype, device=device)
        self._length = torch.zeros(batch_size, dtype=torch.int64)
        self._position = torch.zeros_like(self._length)
        self._bits = torch.zeros(batch_size, 0, dtype=torch.int64)

    def __iter__(self):
        return self

    def __next__(self) -> Symbols:
        """Return the next symbol of every sequence."""
        restart = self._position == 0
        if restart.any():
            self._begin(restart)
        p, T = self._position, self._length
        read = self._symbol_at(p, p <= T)
        write = self._symbol_at(p - T - 1, p > T)
        self._position = (p + 1) % (2 * T + 2)
        read, write = (each.to(self._eye.device) for each in (read, write))
        return Symbols(self._eye[read], write, restart)

    def observe(self, bits: float) -> None:
        """Take in the mean bits per symbol of the last step; may raise the level."""
        self.error = 0.999 * self.error + 0.001 * bits
        if self.error < self.threshold and not self.fixed:
            self.level += 1
            self.error = 0.3

    def _begin(self, restart):
        low = max(1, self.level - self.spread)
        b, g = self.batch_size, self.generator
        length = torch.randint(low, self.level + 1, (b,), generator=g)
        bits = torch.randint(0, 2, (b, self.level), generator=g)
        self._length = torch.where(restart, length, self._length)
        grow = bits.shape[1] - self._bits.shape[1]
        old = torch.nn.functional.pad(self._bits, (0, max(0, grow)))
        self._bits = torch.where(restart[:, None], bits, old)

    def _symbol_at(self, index, inside):
        """``#`` at 0, bits at 1..T, ``*`` where not ``inside``."""
        column = (index - 1).clamp(0, self._bits.shape[1] - 1)
        bit = self._bits.gather(1, column[:, None])[:, 0]
        symbol = torch.where(index == 0, 2, bit)
        return torch.where(inside, symbol, 3)


class CharStream(Resumable):
    """Next-character prediction: b pointers spread evenly over a text, wrapping around.

    Parameters
    ----------
    tokens : (N,) int64 tensor, N >= batch_size + 1
    vocabulary : int, number of symbols, above every token
    batch_size : int, b pointers
    reset_every : int, steps between a stream's resets (published: 100); 0 for never
    reset_probability : float, of a reset per step and stream instead (the paper: 0.01)
    generator : torch.Generator, optional, on the CPU; of random resets
    device, dtype : optional, of ``x``
    """

    carried = ("_at", "_age", "_first")

    def __init__(
        self,
        tokens,
        vocabulary,
        batch_size,
        *,
        reset_every=100,
        reset_probability=0.0,
        generator=None,
        device=None,
        dtype=None,
    ):
        values = {"batch_size": batch_size, "vocabulary": vocabulary}
        check(values | {"reset_probability": reset_probability}, OPTIONS)
        if tokens.ndim != 1 or len(tokens) <= batch_size:
            raise ValueError(
                f"tokens must be (N,) with N > {batch_size}, "
                f"got shape {tuple(tokens.shape)}"
            )
        if tokens.min() < 0 or tokens.max() >= vocabulary:
            raise ValueError(
                f"tokens must lie in 0..{vocabulary - 1}, "
                f"got {int(tokens.min())}..{int(tokens.max())}"
            )
        if reset_every and reset_probability:
            raise ValueError("give reset_every or reset_probability, not both")
        self.tokens = tokens.to(device)
        self.batch_size, self.input_size = batch_size, vocabulary
        self.reset_every, self.reset_probability = reset_every, reset_probability
        self.generator = generator or torch.Generator()
        self._eye = torch.eye(vocabulary, dtype=dtype, device=device)
        self._at = torch.arange(batch_size, device=device) * (len(tokens) // batch_size)
        spread = torch.arange(batch_size) * max(1, reset_every // batch_size)
        self._age = -(spread % max(1, reset_every))
        self._first = True
        self.level = 0  # no curriculum

    def __iter__(self):
        return self

    def __next__(self) -> Symbols:
        """Return the next character of every stream."""
        restart = self._restarts()
        x = self._eye[self.tokens[self._at]]
        self._at = (self._at + 1) % len(self.tokens)
        return Symbols(x, self.tokens[self._at], restart)

    def observe(self, bits: float) -> None:
        """Ignore it: text has no curriculum."""

    def _restarts(self):
        if self._first:
            self._first = False
            return torch.ones(self.batch_size, dtype=torch.bool)
        if self.reset_probability:
            draw = torch.rand(self.batch_size, generator=self.generator)
            return draw < self.reset_probability
        self._age += 1
        return (self._age % max(1, self.reset_every) == 0) & bool(self.reset_every)
