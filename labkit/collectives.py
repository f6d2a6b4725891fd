"""Sums over the workers of a group, several tensors in one call."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def sum_over(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> list[Tensor]:
    """Sums of each tensor over all ranks, the same to the last bit on each of them.

    Parameters
    ----------
    tensors : of the same shapes on all ranks, on one device.  They are not changed.
    group : who takes part; every rank of it must make this call.

    Returns
    -------
    New tensors of the same shapes and dtypes, from one all-reduce of one flat tensor in
    the widest dtype. Payload: all their elements.
    """
    flat = torch.cat([each.detach().flatten() for each in tensors])
    dist.all_reduce(flat, group=group)
    parts = flat.split([each.numel() for each in tensors])
    return [
        part.view_as(each).to(each.dtype)
        for part, each in zip(parts, tensors, strict=True)
    ]


def mean_over(
    tensors: Sequence[Tensor], group: dist.ProcessGroup, *, weight: float = 1.0
) -> list[Tensor]:
    """Weighted means of each tensor over all ranks, as :func:`sum_over` adds up.

    Parameters
    ----------
    weight : of this rank's tensors, such as the number of sequences that they are means
        of; one number more goes into the payload for it.
    """
    ones = tensors[0].new_full((), weight)
    *sums, total = sum_over([weight * each for each in tensors] + [ones], group)
    return [each / total for each in sums]
