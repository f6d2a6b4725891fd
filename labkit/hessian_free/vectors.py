"""Vectors: the blocks that the weights are, and one flat tensor of all of them.

Emirahmetoglu and Stewart, section 3.1. Wherever a step looks at directions and weights
they are *blocks*, a sequence of tensors of any shapes. The Krylov methods work on one
*flat* tensor (P,), so that an operation on it is one kernel however many layers there
are; for k systems solved at once it is (k, P), and a scalar is (1,) or (k, 1) beside
it. A caller's vector is a tensor, a NumPy array, or a tuple of these.

No function here reads a number back to the host.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

Blocks = Sequence[Tensor]
Vector = Tensor | np.ndarray | Sequence  # a caller's: of tensors or of arrays
ROW = 1024  # entries that a CPU sums up in one go


def add(x: Blocks, a: float, y: Blocks) -> tuple[Tensor, ...]:
    """Return x + a y. One pass."""
    return tuple(torch._foreach_add(x, y, alpha=a))


def scaled(x: Blocks, a: float) -> tuple[Tensor, ...]:
    """Return a x."""
    return tuple(torch._foreach_mul(x, a))


def copied(x: Blocks) -> tuple[Tensor, ...]:
    """Return a copy that shares no memory."""
    return tuple(t.clone(memory_format=torch.contiguous_format) for t in x)


def dot(x: Blocks, y: Blocks) -> Tensor:
    """Return <x, y>, the sum of the blocks' inner products, ()."""
    parts = [p.sum() for p in torch._foreach_mul(x, y)]
    return torch.stack(parts).sum()


def norm(x: Blocks) -> Tensor:
    """|x|_2 of blocks, (). One pass, no overflow in the squares.

    It sums by rows first: over a million entries in float32, a CPU's single running
    sums would lose two digits. Of a flat tensor: :func:`flat_norm`.
    """
    parts = []
    for t in x:
        while t.ndim:
            t = torch.linalg.vector_norm(t, dim=-1)
        parts.append(t)
    return torch.linalg.vector_norm(torch.stack(parts))


class Space:
    """The shapes of a vector's blocks, with the ways to the flat tensor and back.

    Parameters
    ----------
    like : tensor, NumPy array, or tuple of these
        A vector of the caller's. If it holds arrays, so do those given back to her.
    columns : bool
        The one block is (P, k), a column for each of k systems; flat it is (k, P).

    A complex vector is flat as (2 P,), each number as its real and its imaginary part:
    the adjoint of A is then the transpose, and all of LSMR and CG is real.
    """

    def __init__(self, like: Vector, columns: bool = False):
        self.bare, self.columns = not isinstance(like, tuple | list), columns
        blocks = (like,) if self.bare else like
        self.arrays = isinstance(blocks[0], np.ndarray)
        self.shapes = [tuple(t.shape) for t in blocks]
        self.complex = as_tuple(like)[0].is_complex()
        parts = 2 if self.complex else 1
        self.sizes = [parts * math.prod(shape) for shape in self.shapes]

    def flat(self, x: Vector) -> Tensor:
        """Return the flat tensor; a view if there is a single block."""
        parts = as_tuple(x)
        if self.columns or self.complex:
            return self._flat_complex(parts) if self.complex else parts[0].mT
        if len(parts) == 1:
            return parts[0].reshape(-1)
        return torch.cat([t.reshape(-1) for t in parts])

    def copied(self, x: Vector) -> Tensor:
        """Return the flat tensor in new memory."""
        if self.columns or not isinstance(x, tuple | list) or len(x) == 1:
            return self.flat(x).clone(memory_format=torch.contiguous_format)
        return self.flat(x)

    def blocks(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return views of a flat tensor, as a tuple in any case."""
        if self.columns or self.complex:
            return self._complex_blocks(x) if self.complex else (x.mT,)
        if len(self.sizes) == 1:
            return (x if len(self.shapes[0]) == 1 else x.view(self.shapes[0]),)
        parts = x.split(self.sizes)
        return tuple(t.view(s) for t, s in zip(parts, self.shapes, strict=True))

    def factors(self, c: Vector) -> Tensor:
        """Return real factors of a vector's entries as a flat tensor."""
        if not self.complex:
            return self.flat(c)
        return self._flat_complex([torch.complex(t, t) for t in as_tuple(c)])

    def _complex_blocks(self, x):
        """Return views whose numbers are pairs of entries."""
        parts = [x] if self.columns else x.split(self.sizes)
        parts = [torch.view_as_complex(t.unflatten(-1, (-1, 2))) for t in parts]
        if self.columns:
            return (parts[0].mT,)
        return tuple(t.view(s) for t, s in zip(parts, self.shapes, strict=True))

    def _flat_complex(self, parts):
        """Return the real and the imaginary part of each number, beside each other."""
        if self.columns:
            parts = [parts[0].mT]
        parts = [t if t.is_complex() else t + 0j for t in parts]
        parts = [torch.view_as_real(t.resolve_conj()).flatten(-2) for t in parts]
        if self.columns:
            return parts[0]
        return torch.cat([t.reshape(-1) for t in parts])

    def outside(self, blocks: tuple[Tensor, ...]) -> Vector:
        """Return blocks as the caller has them: a tensor, an array, or a tuple."""
        if self.arrays:
            blocks = tuple(t.numpy() for t in blocks)
        return blocks[0] if self.bare else blocks


def as_tuple(x: Vector) -> tuple[Tensor, ...]:
    """Return a vector's blocks; arrays become tensors that share their memory."""
    if isinstance(x, Tensor):
        return (x,)
    return tuple(map(_tensor, x)) if isinstance(x, tuple | list) else (_tensor(x),)


def _tensor(x):
    if not isinstance(x, np.ndarray):
        return x
    fine = x.flags.c_contiguous and x.flags.writeable
    return torch.from_numpy(x if fine else x.copy())


def flat_norm(x: Tensor) -> Tensor:
    """|x|_2 of flat vectors, (..., P) -> (..., 1).

    A CPU sums by rows first, as :func:`norm` does. An accelerator sums in a tree, and
    in one kernel.
    """
    rows = x.shape[-1] // ROW
    if rows > 1 and x.device.type == "cpu":
        head, rest = x[..., : rows * ROW], x[..., rows * ROW :]
        head = torch.linalg.vector_norm(head.unflatten(-1, (rows, ROW)), dim=-1)
        x = torch.cat((head, rest), -1)
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def positive(norm: Tensor) -> Tensor:
    """Return a norm to divide by: one of 0 belongs to a vector that stays zero."""
    return norm.clamp_min(torch.finfo(norm.dtype).tiny)


def keep_freed(x: Tensor) -> None:
    """Have the C library keep the memory of vectors like x between iterations.

    On a CPU, glibc gives memory back when more than twice the largest block freed so
    far lies idle, and maps each page anew when it is wanted again. This allocates a
    block that nobody writes to and frees it at once, which raises that bound; glibc
    heeds it up to 32 MB.
    """
    if x.device.type == "cpu":
        torch.UntypedStorage(min(8 * x.nbytes, (32 << 20) - 8192))


def default_check_every(x: Tensor) -> int:
    """Return how many iterations lie between two checks of the stopping rule.

    A check costs nothing on a CPU. On an accelerator the host waits for the device,
    which takes longer than an iteration on a small net, while on average half of these
    iterations are computed past the stop.
    """
    return 1 if x.device.type == "cpu" else 10
