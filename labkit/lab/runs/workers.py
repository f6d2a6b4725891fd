"""Processes that carry out runs, one at a time each: of this machine, or of a cluster.

Only their parent holds the pipes that reach those of this machine. No port is opened,
so that no other user of the machine can hand them work.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import wait
from typing import Any

ATTEMPTS = 3  # of a run whose process died


class WorkerDied(RuntimeError):
    """The process that a run was given to ended, time and again."""


class SchedulerLost(RuntimeError):
    """The scheduler of a cluster is gone, and nothing is known of a run."""


class Worker:
    """A fresh Python that calls what comes through its pipe."""

    def __init__(self):
        # not forked: the parent may have threads, as every notebook's kernel has
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there,), daemon=True)
        with _deaf_to_interrupts():
            self.process.start()
        there.close()

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def carry_out(
    function: Callable, jobs: Mapping[int, tuple], count: int
) -> Iterator[tuple[int, Any]]:
    """Call a function for every job, on a few processes; yield what comes as it ends.

    Parameters
    ----------
    function : callable, at the top of a module; what it takes and gives can be pickled
    jobs : mapping of int to tuple, the arguments of each call
    count : int, processes at most

    Yields
    ------
    number : int, of a job that has ended
    answer : object
        What the function gave or the exception that it raised. `WorkerDied` after the
        deaths of `ATTEMPTS` processes that had this job.
    """
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
                number = busy.pop(pipe)
                try:
                    answer = pipe.recv()
                    idle.append(workers[pipe])
                except (EOFError, OSError):
                    workers.pop(pipe).end()
                    idle.append(Worker())
                    workers[idle[-1].pipe] = idle[-1]
                    deaths[number] += 1
                    if deaths[number] < ATTEMPTS:
                        waiting.append(number)
                        continue
                    answer = WorkerDied(f"its process died {ATTEMPTS} times")
                yield number, answer
    finally:
        for worker in workers.values():
            worker.end()


def carry_out_on(
    address: str, function: Callable, jobs: Mapping[int, tuple], name: str
) -> Iterator[tuple[int, Any]]:
    """:func:`carry_out` on the workers of a Dask cluster; ``name`` is for its pages.

    Yields `SchedulerLost` for what was under way when the scheduler was lost.
    """
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
                error = future.exception()
                answer = RuntimeError(f"{type(error).__name__}: {error}")
            else:
                answer = SchedulerLost(f"the scheduler was lost ({future.status})")
            yield futures[future], answer
            future.release()


def _serve(pipe) -> None:
    """Call what comes through the pipe, until the parent is gone."""
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    while True:
        function, arguments = pipe.recv()
        try:
            answer = function(*arguments)
        except Exception as error:
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        pipe.send(answer)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Have processes that are started meanwhile leave Ctrl-C to this one."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what becomes of a signal
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
