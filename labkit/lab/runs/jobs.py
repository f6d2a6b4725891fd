"""The job store: a job is done once, whoever carries it out, and survives a kill.

A job is a run of a sweep or a unit of a study. The process that works on a job holds
its lock, and the system frees the lock when that process ends, however it ends. Whoever
gets the lock looks first whether the job is done. What a job leaves is written under
another name and then renamed, so that it is there whole or not at all. A job that takes
long saves its state as a :class:`Checkpoint` and goes on from it after a kill.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

SAVE_EVERY = 60.0  # seconds between two states of a job
Answer = TypeVar("Answer")


class Busy(RuntimeError):
    """Another process is at work on the job."""


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that readers see the old one or the new one, whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # where the disk was full


def once(
    lock: Path,
    finished: Callable[[], Answer | None],
    work: Callable[[], Answer],
    *,
    wait: bool = True,
) -> Answer:
    """Do a job unless it is done; return what it came to.

    Parameters
    ----------
    lock : path, of the lock; its folder is made
    finished : callable, gives what the job came to if it is done, else None
    work : callable, does the job
        Both are called while the lock is held.
    wait : bool, whether to wait for another process that works on the job

    Raises
    ------
    Busy : if another process works on the job and `wait` is False
    """
    from filelock import FileLock, Timeout

    lock.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock)
    try:
        held.acquire(timeout=-1 if wait else 0)
    except Timeout as error:
        raise Busy(f"another process holds {lock}") from error
    try:
        answer = finished()
        return work() if answer is None else answer
    finally:
        held.release()


class Checkpoint:
    """Where a job saves its state, so that it goes on where it was killed.

    Parameters
    ----------
    folder : path, of this job alone
    every : float, seconds between two saves; 0 saves whenever asked
    """

    def __init__(self, folder: Path, every: float = SAVE_EVERY) -> None:
        self.folder, self.every = Path(folder), every
        self.folder.mkdir(parents=True, exist_ok=True)
        self._saved = time.monotonic()

    def load(self, name: str = "state") -> Any:
        """Return what was saved last under a name, or None."""
        import torch

        path = self.folder / f"{name}.pt"
        return torch.load(path, weights_only=False) if path.is_file() else None

    def save(self, state: dict, name: str = "state", *, now: bool = False) -> None:
        """Save a state if the last save is long enough ago, or if it has to be now."""
        import torch

        if not now and time.monotonic() - self._saved < self.every:
            return
        partial = self.folder / f"{name}.tmp"
        torch.save(state, partial)
        os.replace(partial, self.folder / f"{name}.pt")
        self._saved = time.monotonic()

    def clear(self) -> None:
        """Remove all that was saved."""
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()
