"""Several workers as one object, the only thing that the papers' rooms know of them.

Only this room imports ``torch.distributed``.
"""

from collections.abc import Sequence
from functools import reduce

import torch
import torch.distributed as dist
from torch import Tensor


class Workers:
    """The processes of a group, which call each method together and in one order.

    Each method returns new tensors, the same to the last bit on every worker, of the
    shapes and dtypes of this worker's. All tensors of a call are on one device.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup

    Attributes
    ----------
    rank : int, the number of this worker, from 0
    size : int, the number of workers
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def __deepcopy__(self, memo: dict) -> "Workers":
        """Return the same workers, so that a model that holds them can be cloned."""
        return self

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over all workers, by one all-reduce.

        Payload: all elements, in the widest of the dtypes.
        """
        return self._reduced(tensors, dist.ReduceOp.SUM)

    def largest(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the largest of each element over all workers, by one all-reduce."""
        return self._reduced(tensors, dist.ReduceOp.MAX)

    def first(self, tensor: Tensor) -> Tensor:
        """Return the tensor of the worker with rank 0."""
        result = tensor.detach().clone(memory_format=torch.contiguous_format)
        dist.broadcast(result, dist.get_global_rank(self.group, 0), group=self.group)
        return result

    def _reduced(self, tensors: Sequence[Tensor], op: dist.ReduceOp) -> list[Tensor]:
        dtype = reduce(torch.promote_types, (each.dtype for each in tensors))
        flat = torch.cat([each.detach().flatten().to(dtype) for each in tensors])
        dist.all_reduce(flat, op=op, group=self.group)
        parts = flat.split([each.numel() for each in tensors])
        return [
            part.view(each.shape).to(each.dtype)
            for part, each in zip(parts, tensors, strict=True)
        ]


def workers(group: dist.ProcessGroup | None = None) -> Workers:
    """Return the workers of a group, by default of all processes.

    Raises
    ------
    ValueError
        If ``torch.distributed.init_process_group`` was not called.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError(
            "there is no process group; call torch.distributed.init_process_group, or "
            "start the script by torchrun and call it there"
        )
    return Workers(group if group is not None else dist.group.WORLD)
