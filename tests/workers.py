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

import multiprocessing
import pickle
import signal
import tempfile
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import wait

import pytest

PRELOADED = ["torch.distributed.tensor", "torch._dynamo", "sklearn.utils", "pytest"]
SECONDS = 600  # that a call may take, on however busy a machine
GRACE = 2  # seconds for the other ranks' own words once one has failed


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
        self.pipes, self.processes = [], []
        for rank in range(world):
            here, there = context.Pipe()
            given = there, rank, world, f"{self.folder.name}/meeting"
            process = context.Process(target=_serve, args=given, daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def run(self, function, args):
        """``function(rank, world, *args)`` of every rank, in order of ranks."""
        # pickled by value: a pipe's own way would share the memory of tensors
        work = pickle.dumps((function, args))
        for pipe in self.pipes:
            pipe.send_bytes(work)
        end, answers, failed = time.monotonic() + SECONDS, {}, {}
        while waiting := {p for p in self.pipes if p not in answers | failed}:
            ready = wait(waiting, max(0.0, end - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                try:
                    fine, value = pickle.loads(pipe.recv_bytes())
                except EOFError:
                    fine, value = False, "the process has ended"
                (answers if fine else failed)[pipe] = value
                if failed:
                    end = min(end, time.monotonic() + GRACE)
        if waiting or failed:
            words = [
                f"rank {rank}: {failed.get(pipe, 'no answer')}"
                for rank, pipe in enumerate(self.pipes)
                if pipe not in answers
            ]
            raise WorkerError("\n".join(words))
        return [answers[pipe] for pipe in self.pipes]

    def close(self):
        """End all processes and wait until they are gone."""
        for process in self.processes:
            process.kill()
            process.join()
        self.folder.cleanup()


def _serve(pipe, rank, world, meeting):
    """Run what comes through the pipe until the other end is gone."""
    import torch
    import torch.distributed as dist

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is pytest's, which ends us
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=SECONDS),
    )
    while True:
        try:
            function, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = pickle.dumps((True, function(rank, world, *args)))
        except BaseException:
            answer = pickle.dumps((False, traceback.format_exc()))
        pipe.send_bytes(answer)


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
