"""Processes that execute jobs, one at a time each, on this machine or a cluster.

Those of this machine are joblib's (loky), each in a pool of its own, so that the death
of one ends no other's job. Only their parent holds the pipes that reach them. No port
is opened, so that no other user of the machine can hand them work.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib.util import find_spec
from typing import Any

from labkit.lab.runs.parameters import RunRefused

CONNECT_SECONDS = 5
ATTEMPTS = 2  # at a job whose process died
LOOK = 5.0  # seconds between two looks
GIVE_UP = 6  # looks without a scheduler
LOST = "the scheduler was lost; the same command goes on"


class WorkerDied(RuntimeError):
    """The error that each process to which a job was given died."""


class SchedulerLost(RuntimeError):
    """The error that a cluster's scheduler is gone and a job's fate is unknown."""


def carry_out(
    function: Callable,
    jobs: Mapping[int, tuple],
    *,
    cluster: str = "local",
    workers: int | None = None,
    attempts: int = ATTEMPTS,
) -> Iterator[tuple[int, Any]]:
    """Call a function for every job on a few processes; yield answers as they come.

    Parameters
    ----------
    function : callable, at the top of a module; what it takes and gives can be pickled
    jobs : mapping of int to tuple, the arguments of each call
    cluster : str, ``local`` for processes of this machine, or the address of a Dask
        scheduler
    workers : int, optional, processes of this machine, else one per processor
    attempts : int, how many processes of this machine may die of a job

    Yields
    ------
    number : int, of a job that has ended
    answer : object
        What the function gave or an exception with the words of that which it raised.
        `WorkerDied` after the deaths of `attempts` processes that had this job;
        `SchedulerLost` for what was under way when the scheduler of a cluster was lost.
    """
    with contextlib.ExitStack() as stack:
        if cluster == "local":
            from joblib import cpu_count  # of this process, also in a container

            count = min(workers or cpu_count(), max(1, len(jobs)))
            engine = stack.enter_context(_Processes(count, attempts))
        else:
            from distributed import Client

            client = stack.enter_context(Client(cluster, set_as_default=False))
            engine = client.get_executor(pure=False)
        futures = {
            engine.submit(_caught, function, arguments): number
            for number, arguments in jobs.items()
        }
        left, silent = set(futures), 0
        while left:
            done, left = wait(left, LOOK, return_when=FIRST_COMPLETED)
            for future in done:
                yield futures[future], _answer(future)
            # A client that cannot reach its scheduler may leave a future undone.
            reached = cluster == "local" or client.status == "running"
            silent = 0 if reached else silent + 1
            if silent > GIVE_UP:
                for future in left:
                    yield futures[future], SchedulerLost(LOST)
                return


def check_scheduler(address: str) -> None:
    """Raise RunRefused if no Dask scheduler answers at an address within seconds."""
    if find_spec("distributed") is None:
        raise RunRefused(
            f"a cluster, here {address}, needs Dask, which is not installed; "
            "'pip install \"labkit[cluster]\"' brings it"
        )
    try:
        # in a thread, since a notebook has an event loop of its own in this one
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _identity(address)).result()
    except Exception as error:  # a web server's words may be read as anything
        reason = str(error) or "no answer"
        raise RunRefused(
            f"there is no Dask scheduler at '{address}': {reason}; give the address "
            "that 'dask scheduler' prints, such as tcp://HOST:8786, or --cluster local"
        ) from error


async def _identity(address: str) -> None:
    from distributed import Security, rpc

    arguments = Security().get_connection_args("client")
    async with asyncio.timeout(CONNECT_SECONDS):
        # without a limit of its own it would wait for a silent listener
        async with rpc(address, connection_args=arguments) as scheduler:
            await scheduler.identity(n_workers=0)


class _Processes(ThreadPoolExecutor):
    """Threads that each have a process of this machine, which makes their calls."""

    def __init__(self, count: int, attempts: int) -> None:
        super().__init__(count)
        self.attempts, self.ended = attempts, False
        self.pools = {}  # one of a single process, by the thread that has it

    def submit(self, function: Callable, *arguments: object) -> Future:
        return super().submit(self._call, function, arguments)

    def _call(self, function: Callable, arguments: tuple) -> object:
        from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

        thread = threading.get_ident()
        for _ in range(self.attempts):
            if self.ended:
                break
            if thread not in self.pools:
                self.pools[thread] = ProcessPoolExecutor(
                    1, initializer=_follow, initargs=(os.getpid(),)
                )
            try:
                return self.pools[thread].submit(function, *arguments).result()
            except BrokenProcessPool:
                self.pools.pop(thread).shutdown()
        times = f"{self.attempts} times" if self.attempts > 1 else "once"
        raise WorkerDied(f"its process died {times}")

    def __exit__(self, *_: object) -> None:
        self.ended = True
        for pool in list(self.pools.values()):
            pool.shutdown(kill_workers=True)  # with their kernels
        self.shutdown(cancel_futures=True)


def _follow(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _caught(function: Callable, arguments: tuple) -> object:
    """Return what a call gives, or its error as one that any process can unpickle."""
    try:
        return function(*arguments)
    except RunRefused as error:
        return RuntimeError(str(error))  # a sentence already
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _answer(future: Future) -> object:
    if future.cancelled():
        return SchedulerLost(LOST)
    return future.exception() or future.result()
