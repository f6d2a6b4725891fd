"""Sums of several tensors over the workers of a group in one call."""

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:  # a torch without torch.distributed has none
    from torch.distributed import ProcessGroup


def sum_over(tensors: Sequence[Tensor], group: "ProcessGroup") -> list[Tensor]:
    """Return the sum of each tensor over all ranks, equal to the last bit on each rank.

    Parameters
    ----------
    tensors : sequence of tensors
        Of the same shapes on all ranks, on one device. They are not changed.
    group : ProcessGroup
        The ranks that take part; each of them must make this call.

    Returns
    -------
    list of tensors
        New tensors of the same shapes and dtypes. They are parts of one flat tensor,
        which one all-reduce in the widest dtype adds up. Payload: all their elements.
    """
    return _parts(_added_up(tensors, group), tensors)


def mean_over(
    tensors: Sequence[Tensor], group: "ProcessGroup", *, weight: float = 1.0
) -> list[Tensor]:
    """Return the weighted mean of each tensor over all ranks, as :func:`sum_over`.

    Parameters
    ----------
    tensors, group
        As for :func:`sum_over`.
    weight : float
        The weight of this rank's tensors, such as the number of sequences that they
        are means of. The payload is one number larger for it.

    Returns
    -------
    list of tensors
    """
    flat = _added_up([*tensors, tensors[0].new_ones(())], group, weight)
    return _parts(flat[:-1].div_(flat[-1].clone()), tensors)


def _added_up(
    tensors: Sequence[Tensor], group: "ProcessGroup", weight: float = 1.0
) -> Tensor:
    """Return the weighted sums over the ranks, all in one flat tensor."""
    sizes = [each.numel() for each in tensors]
    dtype = reduce(torch.promote_types, (each.dtype for each in tensors))
    flat = tensors[0].new_empty(sum(sizes), dtype=dtype)
    for part, each in zip(flat.split(sizes), tensors, strict=True):
        torch.mul(each.detach().flatten(), weight, out=part)
    dist.all_reduce(flat, group=group)
    return flat


def _parts(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts of a flat tensor in the shapes and dtypes of the tensors."""
    parts = zip(flat.split([each.numel() for each in tensors]), tensors, strict=True)
    return [part.view_as(each).to(each.dtype) for part, each in parts]
