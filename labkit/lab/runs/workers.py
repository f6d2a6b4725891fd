"""Processes that execute jobs, one at a time each, on this machine or a cluster.

Only their parent holds the pipes that reach those of this machine. No port is opened,
so that no other user of the machine can hand them work.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from typing import Any

from labkit.lab.runs.parameters import RunRefused

CONNECT_SECONDS = 5
ATTEMPTS = 3  # at a job whose process died
GUARD = (
    "each process of a sweep imports the script that begins it: put the call under "
    "'if __name__ == \"__main__\":', so that only the first process makes it"
)


class WorkerDied(RuntimeError):
    """The error that the processes to which a job was given ended repeatedly."""


class SchedulerLost(RuntimeError):
    """The error that a cluster's scheduler is gone and a job's fate is unknown."""


class Worker:
    """A new Python process that makes the calls that come through its pipe."""

    def __init__(self) -> None:
        # not forked: the parent may have threads, as every notebook's kernel has
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there,), daemon=True)
        with _deaf_to_interrupts():
            self.process.start()
        there.close()
        self.begun = False  # whether it has said that it waits for calls

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def carry_out(
    function: Callable,
    jobs: Mapping[int, tuple],
    *,
    cluster: str = "local",
    workers: int | None = None,
    name: str = "labkit",
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
    name : str, of the jobs on the pages of the scheduler
    attempts : int, how many processes of this machine may die of a job

    Yields
    ------
    number : int, of a job that has ended
    answer : object
        What the function gave or the exception that it raised. `WorkerDied` after the
        deaths of `attempts` processes that had this job; `SchedulerLost` for what was
        under way when the scheduler of a cluster was lost.
    """
    if cluster != "local":
        return _carry_out_on(cluster, function, jobs, name)
    return _carry_out_here(function, jobs, workers or processors(), attempts)


def check_begun(worker: Worker) -> None:
    """Say why a process ended by an error of Python before it took any call.

    Raises
    ------
    RunRefused : if it did; what else ends a process is not told here
    """
    worker.process.join(1)
    if not worker.begun and worker.process.exitcode == 1:
        raise RunRefused(f"a process ended as it imported the main script; {GUARD}")


def check_guarded() -> None:
    """Refuse to start processes in a process that `carry_out` has started.

    Raises
    ------
    RunRefused : in such a process, which Python does not allow to have any
    """
    if multiprocessing.current_process().daemon:
        raise RunRefused(f"this process cannot start others; {GUARD}")


def processors() -> int:
    """Return how many processors this process may use, also in a container."""
    from joblib import cpu_count

    return cpu_count()


def _carry_out_here(
    function: Callable, jobs: Mapping[int, tuple], count: int, attempts: int
) -> Iterator[tuple[int, Any]]:
    waiting, deaths = deque(jobs), Counter()
    workers = {w.pipe: w for w in (Worker() for _ in range(min(count, len(jobs))))}
    idle, busy = list(workers.values()), {}
    try:
        while waiting or busy:
            while waiting and idle:
                worker = idle.pop()
                busy[worker.pipe] = waiting.popleft()
                with contextlib.suppress(OSError):  # it is dead: told just below
                    worker.pipe.send((function, jobs[busy[worker.pipe]]))
            for pipe in wait(busy):
                worker, number = workers[pipe], busy.pop(pipe)
                try:
                    answer = pipe.recv()
                    if not worker.begun:  # its first word, before it takes the job
                        worker.begun, busy[pipe] = True, number
                        continue
                    idle.append(worker)
                except (EOFError, OSError):
                    check_begun(worker)
                    workers.pop(pipe).end()
                    idle.append(Worker())
                    workers[idle[-1].pipe] = idle[-1]
                    deaths[number] += 1
                    if deaths[number] < attempts:
                        waiting.append(number)
                        continue
                    times = f"{attempts} times" if attempts > 1 else "once"
                    answer = WorkerDied(f"its process died {times}")
                yield number, answer
    finally:
        for worker in workers.values():
            worker.end()


def _carry_out_on(
    address: str, function: Callable, jobs: Mapping[int, tuple], name: str
) -> Iterator[tuple[int, Any]]:
    from distributed import Client, as_completed

    with Client(address, set_as_default=False) as client:
        futures = {
            client.submit(function, *job, key=f"{name}-{number}"): number
            for number, job in jobs.items()
        }
        for future in as_completed(futures, loop=client.loop):
            if future.status == "finished":
                answer = future.result()
            elif future.status == "error":
                answer = _told(future.exception())
            else:
                answer = SchedulerLost(f"the scheduler was lost ({future.status})")
            yield futures[future], answer
            future.release()


def check_scheduler(address: str) -> None:
    """Raise an error if no Dask scheduler answers at an address within seconds."""
    if find_spec("distributed") is None:
        raise RunRefused(
            f"a cluster, here {address}, needs Dask, which is not installed; "
            "'pip install \"labkit[cluster]\"' brings it"
        )
    try:
        # in a thread, since a notebook has an event loop of its own in this one
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(asyncio.run, _identity(address)).result()
    except TimeoutError:
        reason = f"no answer within {CONNECT_SECONDS} s"
    except (OSError, ValueError) as error:
        reason = str(error)
    except Exception as error:  # a web server's words may be read as anything
        reason = f"what answers there is none ({type(error).__name__}: {error})"
    else:
        if answer["type"] == "Scheduler":
            return
        reason = f"a Dask {answer['type'].lower()} is there"
    raise RunRefused(
        f"there is no Dask scheduler at '{address}': {reason}; give the address that "
        "'dask scheduler' prints, such as tcp://HOST:8786, or --cluster local"
    )


async def _identity(address: str) -> dict:
    from distributed import Security, rpc

    arguments = Security().get_connection_args("client")
    async with asyncio.timeout(CONNECT_SECONDS):
        # without a limit of its own it would wait for a silent listener
        async with rpc(address, connection_args=arguments) as scheduler:
            return await scheduler.identity(n_workers=0)


def _told(error: BaseException) -> RuntimeError:
    """Return an error that any process can unpickle, with the words of another."""
    plain = isinstance(error, RunRefused)  # a sentence already
    return RuntimeError(str(error) if plain else f"{type(error).__name__}: {error}")


def _serve(pipe: Connection) -> None:
    """Make the calls that come through the pipe, until the parent is gone."""
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    pipe.send("begun")
    while True:
        function, arguments = pipe.recv()
        try:
            answer = function(*arguments)
        except Exception as error:
            answer = _told(error)
        pipe.send(answer)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Make processes that are started meanwhile ignore Ctrl-C, for this one."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what becomes of a signal
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
