"""Algebra on tuples of tensors: the "vectors" of the space of weights.

Emirahmetoglu and Stewart, section 3.1: parameters, directions and Krylov vectors are
never flattened. A function whose name ends with an underscore changes its first
argument, the others make new tensors. Nothing here reads a number back to the host.

A coefficient is a float, or where a tensor is allowed one of the shape of the leading
``batch`` dimensions of every block, one number for each system; 0-d without a batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Blocks = Sequence[Tensor]


def add(x: Blocks, a: float, y: Blocks) -> tuple[Tensor, ...]:
    """x + a y, new. One pass."""
    return tuple(torch._foreach_add(x, y, alpha=a))


def add_(x: Blocks, a: float | Tensor, y: Blocks) -> None:
    """x += a y."""
    if isinstance(a, Tensor):
        for s, t in zip(x, y, strict=True):
            s.addcmul_(t, spread(a, t))
    else:
        torch._foreach_add_(x, y, alpha=a)


def add_product_(x: Blocks, a: float | Tensor, c: Blocks | None, y: Blocks) -> None:
    """x += a (c o y), entrywise; without c, x += a y."""
    if c is None:
        add_(x, a, y)
    elif isinstance(a, Tensor):
        add_(x, a, torch._foreach_mul(c, y))
    else:
        torch._foreach_addcmul_(x, c, y, value=a)


def combine_(x: Blocks, a: float | Tensor, y: Blocks) -> None:
    """x = a x + y. One pass."""
    for s, t in zip(x, y, strict=True):
        if isinstance(a, Tensor):
            torch.addcmul(t, s, spread(a, s), out=s)
        else:
            torch.add(t, s, alpha=a, out=s)


def scale_(x: Blocks, a: float | Tensor) -> None:
    """x *= a."""
    if isinstance(a, Tensor) and a.ndim:
        for s in x:
            s.mul_(spread(a, s))
    else:
        torch._foreach_mul_(x, a)


def scaled(x: Blocks, a: float) -> tuple[Tensor, ...]:
    """a x, new."""
    return tuple(torch._foreach_mul(x, a))


def copied(x: Blocks) -> tuple[Tensor, ...]:
    """A copy that shares no memory."""
    return tuple(t.clone(memory_format=torch.contiguous_format) for t in x)


def dot(x: Blocks, y: Blocks, batch: int = 0) -> Tensor:
    """<x, y>, the sum of the blocks' inner products; batch shape, () without one."""
    parts = [(s * t).flatten(batch).sum(-1) for s, t in zip(x, y, strict=True)]
    return torch.stack(parts).sum(0)


def norm(x: Blocks, batch: int = 0) -> Tensor:
    """|x|_2; batch shape, () without one. One pass, no overflow in the squares.

    By rows first: over a million entries in float32, a CPU's single running sums would
    lose two digits.
    """
    parts = []
    for t in x:
        while t.ndim > batch:
            t = torch.linalg.vector_norm(t, dim=-1)
        parts.append(t)
    return torch.linalg.vector_norm(torch.stack(parts), dim=0)


def spread(a: Tensor, like: Tensor) -> Tensor:
    """The coefficient with trailing dimensions of one, to meet ``like``."""
    return a.reshape(a.shape + (1,) * (like.ndim - a.ndim))
