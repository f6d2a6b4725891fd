"""The job store, in which each job is done once and resumes after a kill.

A job is a run of a sweep or a unit of a study. The process that works on a job holds
its lock, and the system frees the lock when that process ends, however it ends. Whoever
gets the lock looks first whether the job is done. What a job leaves is written under
another name and then renamed, so that it is there whole or not at all. A job that takes
long saves its state as a :class:`Checkpoint`, which knows what it belongs to; after a
kill the job goes on from there.
"""

import functools
import json
import os
import platform
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import labkit
from labkit.lab.runs.parameters import RunRefused

SOURCE = Path(__file__).resolve().parents[3]
SAVE_EVERY = 60.0  # seconds between two states of a job
Answer = TypeVar("Answer")


class JobBusy(RuntimeError):
    """The error that another process is working on the job."""


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that readers see either the old or the new one, complete."""
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
    """Do a job unless it is done, and return its result.

    Parameters
    ----------
    lock : path, of the lock; its folder is made
    finished : callable, gives what the job came to if it is done, else None
    work : callable, does the job
        Both are called while the lock is held.
    wait : bool, whether to wait for another process that works on the job

    Raises
    ------
    JobBusy : if another process works on the job and `wait` is False
    """
    from filelock import FileLock, Timeout

    lock.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock)
    try:
        held.acquire(timeout=-1 if wait else 0)
    except Timeout as error:
        raise JobBusy(f"another process holds {lock}") from error
    try:
        answer = finished()
        return work() if answer is None else answer
    finally:
        held.release()


@functools.cache
def commit() -> str | None:
    """Return the commit of this source, with a + where files were changed after it.

    None where the source is no checkout of git, or git is not installed. It is that of
    the moment at which the process asks first, near that at which it read the source.
    """

    def git(*command: str) -> str:
        given = ["git", "-c", f"safe.directory={SOURCE}", *command]
        return subprocess.check_output(
            given, cwd=SOURCE, text=True, stderr=subprocess.DEVNULL
        )

    if not (SOURCE / ".git").exists():  # installed into a folder of another checkout
        return None
    try:
        head = git("rev-parse", "--short=10", "HEAD").strip()
        changed = git("status", "--porcelain", "--", "labkit", "reproduction/*.[pt]*")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}+" if changed else head


def versions() -> dict[str, str]:
    """Return the versions of labkit, torch and Python."""
    return {
        "labkit": labkit.__version__,
        "torch": metadata.version("torch"),
        "python": platform.python_version(),
    }


def check_folder(folder: str | Path) -> Path:
    """Return a folder's absolute path, or raise RunRefused if it takes no files.

    If it is not there yet, the nearest folder above it is looked at.
    """
    folder = Path(folder).absolute()
    nearest = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise RunRefused(
            f"results cannot go to {folder}: {nearest} is not a folder that takes "
            "files; give one, existing or new"
        )
    return folder


class Checkpoint:
    """The saved states of a job, from which it resumes after a kill.

    A state is the file ``<name>.pt``, which also has what it belongs to.
    ``processes.json`` lists the processes that have worked on the job.

    Parameters
    ----------
    folder : path, of this job alone
    belongs : mapping, optional
        What the states belong to, such as the arguments of the job; it can be written
        as JSON. A state of anything else is refused.
    every : float, seconds between two saves; 0 saves whenever asked
    """

    def __init__(
        self,
        folder: Path,
        belongs: Mapping[str, Any] | None = None,
        every: float = SAVE_EVERY,
    ) -> None:
        self.folder, self.every = Path(folder), every
        self.belongs = json.dumps(belongs or {}, sort_keys=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._saved = time.monotonic()

    def begin(self) -> list[dict[str, Any]]:
        """Record that this process works on the job; return all that did, in order."""
        path, processes = self.folder / "processes.json", []
        if path.exists():
            processes = json.loads(path.read_text("utf-8"))
        began = datetime.now(UTC).isoformat(timespec="seconds")
        processes.append({"began": began, "commit": commit(), "versions": versions()})
        write_atomically(path, json.dumps(processes))
        return processes

    def load(self, name: str = "state", classes: Iterable[type] = ()) -> Any:
        """Return the state that was last saved under a name, or None.

        Nothing in the file is executed: it may hold tensors, numbers, words and
        collections of them, and instances of the classes that are named.

        Parameters
        ----------
        name : str, as given to :meth:`save`
        classes : iterable of type, dataclasses that the state has instances of

        Raises
        ------
        RunRefused
            If the state belongs to something else, is damaged, or has instances of
            other classes.
        """
        import torch

        path = self.folder / f"{name}.pt"
        if not path.exists():
            return None
        try:
            with zipfile.ZipFile(path) as file:
                if file.testzip():  # torch does not check its sums
                    raise ValueError("its checksum is another one")
            with torch.serialization.safe_globals([*classes]):
                # whatever takes it up moves it to its own device
                saved = torch.load(path, map_location="cpu", weights_only=True)
            if saved["belongs"] != self.belongs:
                raise ValueError(f"it is of {saved['belongs']}, not of {self.belongs}")
        except Exception as error:  # of pickle, zip files and torch, of many kinds
            reason = str(error).partition("\n")[0]
            raise RunRefused(
                f"{path} cannot be taken up: {reason}; remove the folder "
                f"{self.folder} to begin this job anew"
            ) from error
        return saved["state"]

    def save(self, state: dict, name: str = "state", *, now: bool = False) -> None:
        """Save a state if the last save is long enough ago, or if ``now``.

        Raises
        ------
        OSError : if it cannot be written; the state that was saved before stays
        """
        import torch

        if not now and time.monotonic() - self._saved < self.every:
            return
        path = self.folder / f"{name}.pt"
        partial = path.with_suffix(".tmp")
        try:
            torch.save({"belongs": self.belongs, "state": state}, partial)
            os.replace(partial, path)
        except (OSError, RuntimeError) as error:  # torch's of a full disk is the latter
            partial.unlink(missing_ok=True)
            raise OSError(
                f"the state cannot be written to {self.folder} ({error}); make room "
                "there and give the same command again: it goes on from the last state"
            ) from error
        self._saved = time.monotonic()

    def clear(self) -> None:
        """Remove all that was saved."""
        shutil.rmtree(self.folder)
