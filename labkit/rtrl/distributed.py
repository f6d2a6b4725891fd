r"""Online learning on several workers, each with sequences of its own.

The gradient of a batch is a mean over its sequences, and a learner keeps one estimator
per sequence. So sequences are dealt out to the workers, and what they exchange is the
gradient: neither the states nor the estimators ever leave their worker.
"""

import hashlib

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.rtrl.learner import Learner


def join(learner: Learner, weights: list[Tensor], group: dist.ProcessGroup):
    """Begin together: noise of each worker's own, and the weights of the first one.

    Two workers that drew the same signs would make the same noise in sequences that
    differ, and their mean would keep it.

    Parameters
    ----------
    learner : Learner
        Of this worker.
    weights : list of tensors
        To train; those of the group's first rank are copied to the others.

    Raises
    ------
    ValueError
        On all workers, if two generators of a learner that draws are in the same state.
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
