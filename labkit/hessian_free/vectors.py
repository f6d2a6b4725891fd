"""Vectors, as blocks of the shapes of the weights and as one flat tensor.

Emirahmetoglu and Stewart, section 3.1. A step works on directions and weights as
*blocks*, a tuple of tensors of any shapes. The Krylov methods work on one *flat*
tensor (P,), so that an operation on it is one kernel for any number of layers; their
scalars are (1,). A caller's vector is a tensor or a tuple of tensors.

No function here reads a number to the host.
"""

import math

import torch
from torch import Tensor

from labkit.check import check_tensor

Blocks = tuple[Tensor, ...]  # a list where a function only reads them
Vector = Tensor | Blocks  # a caller's vector
ROW = 1024  # entries that a CPU sums in one run


def add(x: Blocks, a: float, y: Blocks) -> Blocks:
    """Return x + a y, in one pass."""
    return tuple(torch._foreach_add(x, y, alpha=a))


def scaled(x: Blocks, a: float) -> Blocks:
    """Return a x."""
    return tuple(torch._foreach_mul(x, a))


def copied(x: Blocks) -> Blocks:
    """Return a copy that shares no memory."""
    return tuple(t.clone(memory_format=torch.contiguous_format) for t in x)


def dot(x: Blocks, y: Blocks) -> Tensor:
    """Return <x, y>, the sum of the blocks' inner products, ()."""
    return torch.stack([p.sum() for p in torch._foreach_mul(x, y)]).sum()


class Space:
    """The shapes of a vector's blocks, and conversions to a flat tensor and back.

    Parameters
    ----------
    like : tensor or tuple of tensors, a caller's vector
    """

    def __init__(self, like: Vector) -> None:
        self.bare = isinstance(like, Tensor)
        self.shapes = [t.shape for t in as_tuple(like)]
        self.sizes = [math.prod(shape) for shape in self.shapes]

    def flat(self, x: Vector) -> Tensor:
        """Return the flat tensor, in new memory."""
        return torch.cat([t.reshape(-1) for t in as_tuple(x)])

    def blocks(self, x: Tensor) -> Blocks:
        """Return the blocks of a flat tensor as a tuple of views."""
        parts = x.split(self.sizes)
        return tuple(t.view(s) for t, s in zip(parts, self.shapes, strict=True))

    def outside(self, x: Blocks) -> Vector:
        """Return blocks in the caller's form: a tensor or a tuple."""
        return x[0] if self.bare else x


def as_tuple(x: Vector) -> Blocks:
    """Return a vector's blocks."""
    return (x,) if isinstance(x, Tensor) else tuple(x)


def check_blocks(name: str, blocks: object, like: Blocks) -> None:
    """Raise an error unless there are tensors of the shapes and dtypes of others."""
    if len(blocks) != len(like):
        raise ValueError(f"{name} must have {len(like)} tensors, got {len(blocks)}")
    for i, own in enumerate(like):
        check_tensor(f"{name}[{i}]", blocks[i], shape=own.shape, like=own)


def check_like(name: str, x: object, like: Vector) -> None:
    """Raise an error unless a caller's vector has the form of another one."""
    if isinstance(like, Tensor):
        check_tensor(name, x, shape=like.shape, like=like)
    else:
        check_blocks(name, x, like)


def flat_norm(x: Tensor) -> Tensor:
    """Return |x|_2 of a flat vector, (P,) -> (1,).

    A CPU sums by rows first: over a million entries in float32, a single running sum
    would lose two digits. An accelerator sums in a tree, and in one kernel.
    """
    rows = len(x) // ROW
    if rows > 1 and x.device.type == "cpu":
        head = torch.linalg.vector_norm(x[: rows * ROW].view(rows, ROW), dim=-1)
        x = torch.cat((head, x[rows * ROW :]))
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
