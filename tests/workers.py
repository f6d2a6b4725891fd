"""Groups of processes joined by gloo, for tests of what runs on several workers.

    def mean_of_ranks(rank, world, scale):      # at the top of a module
        x = scale * torch.tensor(float(rank))
        torch.distributed.all_reduce(x)
        return x / world

    def test_it(workers):
        assert workers(mean_of_ranks, 3.0, world=2) == [1.5, 1.5]

Groups of one, two and three are kept for a session, since each process takes seconds
to start. They find each other by a file, so no port is taken. A call in which a rank
raises, ends or hangs fails the test and ends the group; the next call starts a new one.
Only a rank that hangs is waited for, ten minutes, as a busy machine may need them.
Whatever becomes of pytest, no worker outlives it.
"""

import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import wait

import pytest

PRELOADED = ["torch.distributed.tensor", "torch._dynamo", "sklearn.utils", "pytest"]
SECONDS = 600  # that a call may take, on however busy a machine
GRACE = 2  # seconds for the other ranks' own words once one has failed


class WorkerError(AssertionError):
    """What went wrong on a rank, with its traceback."""


class Group:
    """``world`` processes that wait for functions to run.

    Parameters
    ----------
    world : number of processes, each with one thread for its arithmetic.
    """

    def __init__(self, world: int):
        # A fork server imports once what all workers need. It has no threads when it
        # forks, unlike pytest itself.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self.folder = tempfile.TemporaryDirectory()
        meeting = os.path.join(self.folder.name, "meeting")
        self.pipes, self.processes = [], []
        for rank in range(world):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(there, rank, world, meeting), daemon=True
            )
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def run(self, function, *args, seconds=SECONDS) -> list:
        """``function(rank, world, *args)`` of every rank, in order of ranks.

        Raises
        ------
        WorkerError
            With rank and traceback of each one that raised, ended or did not answer.
        """
        # pickled by value: a pipe's own way would share the memory of tensors
        work = pickle.dumps((function, args))
        for pipe in self.pipes:
            with suppress(BrokenPipeError):  # told below, with the exit code
                pipe.send_bytes(work)
        end = time.monotonic() + seconds
        answers, troubles = {}, {}
        while len(answers) + len(troubles) < len(self.pipes):
            done = answers.keys() | troubles.keys()
            open_ = [p for r, p in enumerate(self.pipes) if r not in done]
            ready = wait(open_, max(0.0, end - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                rank = self.pipes.index(pipe)
                try:
                    fine, value = pickle.loads(pipe.recv_bytes())
                except EOFError:
                    self.processes[rank].join(60)
                    code = self.processes[rank].exitcode
                    fine, value = False, f"the process ended with code {code}"
                (answers if fine else troubles)[rank] = value
                if not fine:
                    end = min(end, time.monotonic() + GRACE)
        if len(answers) < len(self.pipes):
            silent = set(range(len(self.pipes))) - answers.keys() - troubles.keys()
            told = [f"rank {rank}: {text}" for rank, text in sorted(troubles.items())]
            told += [f"rank {rank}: no answer; it was ended" for rank in sorted(silent)]
            raise WorkerError("\n".join(told))
        return [answers[rank] for rank in range(len(self.pipes))]

    def close(self):
        """End all processes and wait until they are gone."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        self.folder.cleanup()


def _serve(pipe, rank, world, meeting):
    """Run what comes through the pipe until the other end is gone."""
    import torch
    import torch.distributed as dist

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is pytest's, which ends us
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
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
            work = pipe.recv_bytes()
        except EOFError:
            return
        try:
            function, args = pickle.loads(work)
            answer = pickle.dumps((True, function(rank, world, *args)))
        except BaseException:
            answer = pickle.dumps((False, traceback.format_exc()))
        pipe.send_bytes(answer)


@pytest.fixture(scope="session")
def workers():
    """Call ``workers(function, *args, world=2)``; see the module."""
    groups: dict[int, Group] = {}

    def run(function, *args, world=2, seconds=SECONDS):
        group = groups.pop(world, None) or Group(world)
        try:
            results = group.run(function, *args, seconds=seconds)
        except BaseException:
            group.close()
            raise
        groups[world] = group
        return results

    yield run
    for group in groups.values():
        group.close()
