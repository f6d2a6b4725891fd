"""The groups of processes that tests of several workers run on."""

import os
import signal

import psutil
import pytest
import torch
import torch.distributed as dist

from tests.workers import WorkerError


def ranks(rank, world, x):
    total = torch.tensor([float(rank), 1.0])
    dist.all_reduce(total)
    x += rank  # of each rank its own
    return rank, os.getpid(), total.tolist(), x.tolist()


def test_every_rank_answers_in_order_and_a_group_is_kept(workers):
    first, again = (workers(ranks, torch.zeros(2)) for _ in range(2))
    assert first == again
    assert [answer[0] for answer in first] == [0, 1]
    assert [answer[2:] for answer in first] == [([1, 2], [0, 0]), ([1, 2], [1, 1])]


def fail_on_one(rank, world):
    if rank == 1:
        raise KeyError("the culprit")
    dist.barrier()


def end_on_one(rank, world):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fail_on_one, "rank 1: Traceback[^$]*KeyError: 'the culprit'"),
        (end_on_one, "rank 1: the process has ended"),
    ],
)
def test_a_failure_names_the_rank_and_ends_the_group(workers, function, message):
    before = [answer[1] for answer in workers(ranks, torch.zeros(2))]
    with pytest.raises(WorkerError, match=message):
        workers(function)
    assert not any(map(psutil.pid_exists, before))
    assert len(workers(ranks, torch.zeros(2))) == 2
