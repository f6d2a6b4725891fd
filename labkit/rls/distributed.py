r"""RLS on several workers, each with a part of the minibatch.

``DistributedDataParallel`` averages the gradients over the workers. What it knows
nothing of is the mean input $\bar x$ of the whole minibatch, (31), (51), (72), (92):
its sum over the workers is all that RLS adds. P then changes in the same way everywhere
and is never sent.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.collectives import sum_over
from labkit.rls.blocks import Block, InputSum


def unwrap(model: nn.Module) -> tuple[nn.Module, dist.ProcessGroup | None]:
    """The model inside a ``DistributedDataParallel``, and the group that shares it.

    TypeError if it is no module.
    """
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return model.module, model.process_group
    if not isinstance(model, nn.Module):
        raise TypeError(
            "RLS reads the inputs of layers, so it takes the model and not its "
            f"parameters: RLS(model); got a {type(model).__name__}"
        )
    return model, None


def pool(blocks: Sequence[Block], group: dist.ProcessGroup) -> list[InputSum]:
    r"""Inputs of each block, added up over all workers by one all-reduce.

    Every worker's rows weigh the same, however many each has, so that x_mean is that of
    the whole minibatch. A block that no row has reached on this worker counts as 0.
    ``rows`` and ``sequences`` are () tensors: nothing waits for the device. Payload:
    $\sum (n' + 2)$ numbers, n' the inputs of a block without the one for the bias.
    """
    pieces = []
    for block in blocks:
        total, *counts = block.inputs
        if total is None:
            total = block.weight.new_zeros(block.n_inputs)
        pieces += [total, *(total.new_full((), count) for count in counts)]
    sums = sum_over(pieces, group)
    return [InputSum(*sums[i : i + 3]) for i in range(0, len(sums), 3)]


def check_equal_shares(inputs: Tensor, group: dist.ProcessGroup):
    """Raise ValueError, on all workers, if one has more rows than another."""
    extremes = inputs.new_tensor([len(inputs), -len(inputs)], dtype=torch.int64)
    dist.all_reduce(extremes, dist.ReduceOp.MAX, group)
    most, least = extremes.abs().tolist()
    if most != least:
        raise ValueError(
            "each worker must have as many inputs as the others, or the last ones wait "
            f"for ever; there are from {least} to {most}, here {len(inputs)}"
        )
