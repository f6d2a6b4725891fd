"""Algebra on tuples of tensors: the "vectors" of the space of weights.

Emirahmetoglu and Stewart, section 3.1. Directions and weights stay blocks wherever a
step looks at them; only the Krylov methods work on flat copies
(:mod:`labkit.hessian_free.flat`). Every function makes new tensors, and none reads a
number back to the host.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Blocks = Sequence[Tensor]


def add(x: Blocks, a: float, y: Blocks) -> tuple[Tensor, ...]:
    """x + a y. One pass."""
    return tuple(torch._foreach_add(x, y, alpha=a))


def scaled(x: Blocks, a: float) -> tuple[Tensor, ...]:
    """a x."""
    return tuple(torch._foreach_mul(x, a))


def copied(x: Blocks) -> tuple[Tensor, ...]:
    """A copy that shares no memory."""
    return tuple(t.clone(memory_format=torch.contiguous_format) for t in x)


def dot(x: Blocks, y: Blocks) -> Tensor:
    """<x, y>, the sum of the blocks' inner products, ()."""
    parts = [p.sum() for p in torch._foreach_mul(x, y)]
    return torch.stack(parts).sum()


def norm(x: Blocks) -> Tensor:
    """|x|_2, (). One pass, no overflow in the squares.

    By rows first: over a million entries in float32, a CPU's single running sums would
    lose two digits.
    """
    parts = []
    for t in x:
        while t.ndim:
            t = torch.linalg.vector_norm(t, dim=-1)
        parts.append(t)
    return torch.linalg.vector_norm(torch.stack(parts))
