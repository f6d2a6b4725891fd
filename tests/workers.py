"""Groups of processes joined by gloo, for tests of what runs on several workers.

    def mean_of_ranks(rank, world, scale):      # at the top of a module
        x = scale * torch.tensor(float(rank))
        torch.distributed.all_reduce(x)
        return x / world

    def test_it(workers):
        assert workers(mean_of_ranks, 3.0, world=2) == [1.5, 1.5]

Groups are kept for a session, since each process takes seconds to start. They find each
other by a file, so no port is taken. A call in which a rank raises, ends or hangs fails
the test and ends the group; the next call starts a new one.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import tempfile
import traceback
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from datetime import timedelta

import pytest

PRELOADED = ["torch.distributed.tensor", "torch._dynamo", "sklearn.utils", "pytest"]
SECONDS = 600  # that a call may take, on however busy a machine


class WorkerError(AssertionError):
    """What went wrong on a rank, with its traceback."""


class Group:
    """``world`` processes that wait for functions to run, with a thread each."""

    def __init__(self, world):
        # A fork server imports once what all workers need. It has no threads when it
        # forks, unlike pytest itself.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self.folder = tempfile.TemporaryDirectory()
        meeting = f"file://{self.folder.name}/meeting"
        self.pools = [
            ProcessPoolExecutor(1, context, _join, (rank, world, meeting))
            for rank in range(world)
        ]
        begun = [pool.submit(os.getpid) for pool in self.pools]
        self.pids = [call.result(SECONDS) for call in begun]

    def run(self, function, args):
        """``function(rank, world, *args)`` of every rank, in order of ranks."""
        # pickled by value: a pool's own way would share the memory of tensors
        work, world = pickle.dumps((function, args)), len(self.pools)
        ranks = enumerate(self.pools)
        calls = [pool.submit(_call, work, rank, world) for rank, pool in ranks]
        done = wait(calls, SECONDS, FIRST_EXCEPTION).done
        for rank, call in enumerate(calls):
            if call in done and call.exception():
                raise WorkerError(f"rank {rank}: {call.exception()}")
        return [pickle.loads(call.result(0)) for call in calls]

    def close(self):
        """End all processes, which may wait for one another."""
        for pid, pool in zip(self.pids, self.pools, strict=True):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            pool.shutdown()
        self.folder.cleanup()


def _join(rank, world, meeting):
    """Make a process one of the group; Ctrl-C is pytest's, which ends it."""
    import torch
    import torch.distributed as dist

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    options = {"rank": rank, "world_size": world}
    late = timedelta(seconds=SECONDS)
    dist.init_process_group("gloo", init_method=meeting, timeout=late, **options)


def _call(work, rank, world):
    function, args = pickle.loads(work)
    try:
        return pickle.dumps(function(rank, world, *args))
    except BaseException:
        raise RuntimeError(traceback.format_exc()) from None


@pytest.fixture(scope="session")
def workers():
    """Call ``workers(function, *args, world=2)``; see the module."""
    groups = {}

    def run(function, *args, world=2):
        group = groups.pop(world, None) or Group(world)
        try:
            results = group.run(function, args)
        except BaseException:
            group.close()
            raise
        groups[world] = group
        return results

    yield run
    for group in groups.values():
        group.close()
