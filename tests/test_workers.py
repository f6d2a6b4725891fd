"""The groups of processes that tests of several workers run on."""

import pytest
import torch
import torch.distributed as dist

from tests.workers import WorkerError


def ranks(rank, world, x):
    total = torch.tensor([float(rank), 1.0])
    dist.all_reduce(total)
    x += rank  # of each rank its own
    return rank, total.tolist(), x.tolist()


def fail_on_one(rank, world):
    if rank == 1:
        raise KeyError("the culprit")
    dist.barrier()


def test_every_rank_answers_in_order_also_after_a_failure(workers):
    for _ in range(2):
        first, second = workers(ranks, torch.zeros(2))
        assert first == (0, [1, 2], [0, 0]) and second == (1, [1, 2], [1, 1])
        with pytest.raises(WorkerError, match=r"rank 1: Trace[^$]*the culprit"):
            workers(fail_on_one)
