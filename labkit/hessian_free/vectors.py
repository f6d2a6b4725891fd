"""Vectors, as blocks of the shapes of the weights and as one flat tensor.

Emirahmetoglu and Stewart, section 3.1. A step works on directions and weights as
*blocks*, a sequence of tensors of any shapes. The Krylov methods work on one *flat*
tensor (P,), so that an operation on it is one kernel for any number of layers. For k
systems solved at once it is (k, P), and its scalars are (1,) or (k, 1). A caller's
vector is a tensor, a NumPy array, or a tuple of these.

No function here reads a number to the host.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

Blocks = Sequence[Tensor]
Vector = Tensor | np.ndarray | Sequence  # a caller's vector
ROW = 1024  # entries that a CPU sums in one run


def add(x: Blocks, a: float, y: Blocks) -> tuple[Tensor, ...]:
    """Return x + a y, in one pass."""
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
    """Return |x|_2 of blocks, (), in one pass without overflow in the squares.

    Rows are summed first: over a million entries in float32, a single running sum on a
    CPU would lose two digits. For a flat tensor see :func:`flat_norm`.
    """
    parts = []
    for t in x:
        while t.ndim:
            t = torch.linalg.vector_norm(t, dim=-1)
        parts.append(t)
    return torch.linalg.vector_norm(torch.stack(parts))


class Space:
    """The shapes of a vector's blocks, and conversions to a flat tensor and back.

    Parameters
    ----------
    like : tensor, NumPy array, or tuple of these
        A caller's vector. If it holds arrays, so do the vectors that are returned.
    columns : bool
        Whether the one block is (P, k), a column a system; flat it is (k, P).

    A flat complex vector is (2 P,), each number as its real and imaginary parts:
    the adjoint of A is then the transpose, and LSMR and CG are real throughout.
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
        """Return the blocks of a flat tensor as a tuple of views."""
        if self.columns or self.complex:
            return self._complex_blocks(x) if self.complex else (x.mT,)
        if len(self.sizes) == 1:
            return (x if len(self.shapes[0]) == 1 else x.view(self.shapes[0]),)
        parts = x.split(self.sizes)
        return tuple(t.view(s) for t, s in zip(parts, self.shapes, strict=True))

    def factors(self, c: Vector) -> Tensor:
        """Return the real factors of a vector's entries as a flat tensor."""
        if not self.complex:
            return self.flat(c)
        return self._flat_complex([torch.complex(t, t) for t in as_tuple(c)])

    def _complex_blocks(self, x):
        """Return complex views, each number of which is a pair of entries."""
        parts = [x] if self.columns else x.split(self.sizes)
        parts = [torch.view_as_complex(t.unflatten(-1, (-1, 2))) for t in parts]
        if self.columns:
            return (parts[0].mT,)
        return tuple(t.view(s) for t, s in zip(parts, self.shapes, strict=True))

    def _flat_complex(self, parts):
        """Return the real and imaginary parts of each number, next to each other."""
        if self.columns:
            parts = [parts[0].mT]
        parts = [t if t.is_complex() else t + 0j for t in parts]
        parts = [torch.view_as_real(t.resolve_conj()).flatten(-2) for t in parts]
        if self.columns:
            return parts[0]
        return torch.cat([t.reshape(-1) for t in parts])

    def outside(self, blocks: tuple[Tensor, ...]) -> Vector:
        """Return blocks in the caller's form: a tensor, an array, or a tuple."""
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
    """Return |x|_2 of flat vectors, (..., P) -> (..., 1).

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
    """Return a norm to divide by, with 0 raised to the smallest normal number."""
    return norm.clamp_min(torch.finfo(norm.dtype).tiny)


def keep_freed(x: Tensor) -> None:
    """Make the C library keep the memory of vectors like x between iterations.

    On a CPU, glibc returns memory to the system when more than twice the largest block
    freed so far is idle, and maps each page again when it is needed. This function
    allocates a block without writing to it and frees it at once, which raises that
    bound; glibc accepts it up to 32 MB.
    """
    if x.device.type == "cpu":
        torch.UntypedStorage(min(8 * x.nbytes, (32 << 20) - 8192))


def default_check_every(x: Tensor) -> int:
    """Return the number of iterations between two checks of the stopping rule.

    A check costs nothing on a CPU. On an accelerator the host waits for the device,
    which takes longer than an iteration on a small net; on the other hand, on average
    half of these iterations are computed in vain after the stop.
    """
    return 1 if x.device.type == "cpu" else 10
