r"""Online learning on several workers, each with sequences of its own.

The gradient of a batch is a mean over its sequences, and a learner keeps one estimator
per sequence. So the workers exchange gradients, never states or estimators.
"""

import hashlib

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.rtrl.learner import Learner


def join(learner: Learner, weights: list[Tensor], group: dist.ProcessGroup):
    """Begin together: noise of each worker's own, and the weights of the first one.

    ``weights``, to be trained, are copied from the group's first rank to the others.
    ValueError on all workers if two generators of a learner that draws are in the same
    state: the same signs make the same noise in sequences that differ, and their mean
    would keep it.
    """
    state = learner.generator.get_state().numpy().tobytes()
    mine = hashlib.sha256(state).hexdigest() if learner.draws else None
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group)
    known = [each for each in everyone if each is not None]
    if len(set(known)) < len(known):
        raise ValueError(
            "two workers would draw the same noise: give each rank's learner a "
            "generator with a seed of its own, such as "
            "torch.Generator().manual_seed(seed + rank)"
        )
    with torch.no_grad():
        for weight in weights:
            dist.broadcast(weight, dist.get_global_rank(group, 0), group)
