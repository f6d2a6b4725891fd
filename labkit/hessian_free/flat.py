"""The vectors of the Krylov methods: all blocks in one flat tensor.

Outside, a vector is a tensor, a NumPy array, or a tuple of these of any shapes. Inside,
it is one tensor (P,), so that an operation on it is one kernel however many layers
there are; for k systems solved at once it is (k, P), and a scalar is (1,) or (k, 1)
beside it.
"""

import math

import numpy as np
import torch
from torch import Tensor

ROW = 1024  # entries that a CPU sums up in one go


class Space:
    """The shapes of a vector's blocks: to the flat tensor and back.

    Outside, blocks are tensors, or NumPy arrays if ``like`` is. ``columns``: the one
    block is (P, k), a system a column, inside (k, P).
    """

    def __init__(self, like, columns: bool = False):
        self.bare, self.columns = not isinstance(like, tuple | list), columns
        blocks = (like,) if self.bare else like
        self.arrays = isinstance(blocks[0], np.ndarray)
        self.shapes = [tuple(t.shape) for t in blocks]
        self.sizes = [math.prod(shape) for shape in self.shapes]

    def flat(self, x) -> Tensor:
        """The flat tensor; of a single block a view."""
        parts = as_tuple(x)
        if self.columns:
            return parts[0].mT
        if len(parts) == 1:
            return parts[0].reshape(-1)
        return torch.cat([t.reshape(-1) for t in parts])

    def copied(self, x) -> Tensor:
        """The flat tensor in new memory."""
        if self.columns or not isinstance(x, tuple | list) or len(x) == 1:
            return self.flat(x).clone(memory_format=torch.contiguous_format)
        return self.flat(x)

    def blocks(self, x: Tensor) -> tuple[Tensor, ...]:
        """Views of a flat tensor, as a tuple in any case."""
        if self.columns:
            return (x.mT,)
        if len(self.sizes) == 1:
            return (x if len(self.shapes[0]) == 1 else x.view(self.shapes[0]),)
        parts = x.split(self.sizes)
        return tuple(t.view(s) for t, s in zip(parts, self.shapes, strict=True))

    def outside(self, blocks: tuple[Tensor, ...]):
        """Blocks as the caller has them: a tensor, an array, or a tuple."""
        if self.arrays:
            blocks = tuple(t.numpy() for t in blocks)
        return blocks[0] if self.bare else blocks


def as_tuple(x) -> tuple[Tensor, ...]:
    """The blocks of a vector, one or several; arrays as tensors that share memory."""
    if isinstance(x, Tensor):
        return (x,)
    return tuple(map(_tensor, x)) if isinstance(x, tuple | list) else (_tensor(x),)


def _tensor(x):
    if not isinstance(x, np.ndarray):
        return x
    fine = x.flags.c_contiguous and x.flags.writeable
    return torch.from_numpy(x if fine else x.copy())


def norm(x: Tensor) -> Tensor:
    """|x|_2 of flat vectors, (..., P) -> (..., 1).

    On a CPU by rows first: over a million entries in float32 its single running sums
    would lose two digits. An accelerator sums in a tree, and in one kernel.
    """
    rows = x.shape[-1] // ROW
    if rows > 1 and x.device.type == "cpu":
        head, rest = x[..., : rows * ROW], x[..., rows * ROW :]
        head = torch.linalg.vector_norm(head.unflatten(-1, (rows, ROW)), dim=-1)
        x = torch.cat((head, rest), -1)
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def positive(norm: Tensor) -> Tensor:
    """A divisor: a norm of 0 belongs to a vector of zeros, which stays so."""
    return norm.clamp_min(torch.finfo(norm.dtype).tiny)


def keep_freed(x: Tensor) -> None:
    """Have the C library keep the memory of vectors like x between iterations.

    On a CPU, glibc gives memory back where more than twice the largest block freed so
    far lies idle, and has to map each page anew when it is wanted again. A block that
    nobody writes to, freed at once, raises that bound; 32 MB is the most that it heeds.
    """
    if x.device.type == "cpu":
        torch.UntypedStorage(min(8 * x.nbytes, (32 << 20) - 8192))


def default_check_every(x: Tensor) -> int:
    """Iterations between two looks of the host at the stopping rule.

    A look costs nothing on a CPU. On an accelerator it drains the queue, which takes
    longer than an iteration on a small net, while what is computed past the stop is
    half of this on average.
    """
    return 1 if x.device.type == "cpu" else 10
