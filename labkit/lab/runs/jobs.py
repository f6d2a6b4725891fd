"""The job store, in which each job is done once and resumes after a kill.

A job is a run of a sweep or a unit of a study. The process that works on a job holds
its lock, and the system frees the lock when that process ends, however it ends. Whoever
gets the lock looks first whether the job is done. What a job leaves is written under
another name and then renamed, so that it is there whole or not at all. A job that takes
long saves its state as a :class:`Checkpoint`, which knows what it belongs to; after a
kill the job goes on from there.
"""

import dataclasses
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import tempfile
import time
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


def commit() -> str | None:
    """Return the commit of this source, with a + where files were changed after it.

    None where the source is no checkout of git, or git is not installed. It is that of
    the moment at which the process asks first, near that at which it read the source.
    """
    return _commit()


@functools.cache
def _commit() -> str | None:
    def git(*command: str) -> subprocess.CompletedProcess:
        given = ["git", "-c", f"safe.directory={SOURCE}", *command]
        return subprocess.run(given, cwd=SOURCE, capture_output=True, text=True)

    if not (SOURCE / ".git").exists():  # installed into a folder of another checkout
        return None
    try:
        head = git("rev-parse", "--short=10", "HEAD")
        changed = git("status", "--porcelain", "--", "labkit", "reproduction/*.py")
    except OSError:
        return None
    if head.returncode or changed.returncode:
        return None
    return head.stdout.strip() + ("+" if changed.stdout else "")


def versions() -> dict[str, str]:
    """Return the versions of labkit, torch and Python."""
    return {
        "labkit": labkit.__version__,
        "torch": metadata.version("torch"),
        "python": platform.python_version(),
    }


def this_process() -> dict[str, Any]:
    """Return the record of this process for a job: its time, commit and versions."""
    began = datetime.now(UTC).isoformat(timespec="seconds")
    return {"began": began, "commit": commit(), "versions": versions()}


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_folder(folder: str | Path) -> Path:
    """Return a folder's absolute path, or raise an error if it is not writable.

    A file is written and removed again, in the folder or, if it is not there yet, in
    the nearest folder above it. Nothing else is made.
    """
    if not isinstance(folder, str | os.PathLike):
        raise RunRefused(f"the folder must be a path, got {folder!r}")
    folder = Path(folder).absolute()
    nearest = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise RunRefused(
            f"results cannot go to {folder}: {nearest} is not a folder; "
            "give a folder, existing or new"
        )
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"labkit")
    except OSError as error:
        raise RunRefused(
            f"results cannot go to {folder}: {nearest} is not writable "
            f"({error.strerror}); give a folder that is"
        ) from error
    return folder


class StateRefused(RunRefused):
    """The error that a saved state is damaged or belongs to something else."""


class Checkpoint:
    """The saved states of a job, from which it resumes after a kill.

    A state is the file ``<name>-<checksum>.pt``. Beside it ``<name>.json`` says which
    file it is, its checksum, and what it belongs to. The new file is there before the
    old one goes, so that a kill at any moment leaves a whole state. ``processes.json``
    lists the processes that have worked on the job.

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
        self.belongs = json.loads(json.dumps(belongs or {}))  # tuples become lists
        self.folder.mkdir(parents=True, exist_ok=True)
        self._saved = time.monotonic()

    def begin(self) -> list[dict[str, Any]]:
        """Record that this process works on the job; return all that did, in order.

        Raises
        ------
        StateRefused : if the list of earlier processes cannot be read
        """
        path = self.folder / "processes.json"
        earlier = self._json(path, list) if path.exists() else []
        processes = [*earlier, this_process()]
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
        StateRefused
            If the state belongs to something else, is damaged, has instances of other
            classes, or has a tensor that is not finite.
        """
        import torch

        pointer = self.folder / f"{name}.json"
        if not pointer.exists():
            return None
        about = self._json(pointer, dict)
        was, now = about.get("belongs"), self.belongs
        if was != now:
            raise self._refused(pointer, f"belongs to another job: {_change(was, now)}")
        path = self.folder / str(about.get("file"))
        try:
            found = checksum(path)
        except OSError as error:
            raise self._refused(path, f"cannot be read ({error.strerror})") from error
        if found != about.get("sha256"):
            raise self._refused(path, "is damaged: its checksum is another one")
        try:
            with torch.serialization.safe_globals([*classes]):
                # whatever takes it up moves it to its own device
                state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # of pickle, zip files and torch, of many kinds
            words = str(error).strip().splitlines() or [type(error).__name__]
            raise self._refused(path, f"cannot be read: {words[0]}") from error
        if (where := _not_finite(state)) is not None:
            raise self._refused(path, f"is not finite, in {where or 'a tensor'}")
        return state

    def save(self, state: dict, name: str = "state", *, now: bool = False) -> None:
        """Save a state if the last save is long enough ago, or if ``now``.

        A state that has a tensor that is not finite is not saved, since :meth:`load`
        would refuse it: a run that diverged goes on from its last finite state.

        Raises
        ------
        OSError : if it cannot be written; the state that was saved before stays
        """
        import torch

        if not now and time.monotonic() - self._saved < self.every:
            return
        if _not_finite(state) is not None:
            return
        partial = self.folder / f"{name}.tmp"
        try:
            torch.save(_on_cpu(state), partial)
            sha256 = checksum(partial)
            path = self.folder / f"{name}-{sha256[:12]}.pt"
            os.replace(partial, path)
            about = {"file": path.name, "sha256": sha256, "belongs": self.belongs}
            write_atomically(self.folder / f"{name}.json", json.dumps(about))
        except (OSError, RuntimeError) as error:  # torch's of a full disk is the latter
            partial.unlink(missing_ok=True)
            raise OSError(
                f"the state cannot be written to {self.folder} ({error}); make room "
                "there and give the same command again: it goes on from the last state"
            ) from error
        old = re.compile(re.escape(name) + r"-[0-9a-f]{12}\.pt")
        for other in self.folder.iterdir():
            if old.fullmatch(other.name) and other != path:
                other.unlink()
        self._saved = time.monotonic()

    def clear(self) -> None:
        """Remove all that was saved."""
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()

    def _json(self, path: Path, kind: type) -> Any:
        """Return the content of a JSON file, which must be of a kind."""
        try:
            content = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise self._refused(path, f"is damaged ({error})") from error
        if not isinstance(content, kind):
            raise self._refused(path, f"is damaged (it holds no {kind.__name__})")
        return content

    def _refused(self, path: Path, reason: str) -> StateRefused:
        return StateRefused(
            f"{path} {reason}; remove the folder {self.folder} to begin this job anew"
        )


def _change(was: Any, now: Mapping[str, Any]) -> str:
    """Describe how a state's owner differs from the one that it should have."""
    if not isinstance(was, dict):
        return "it does not say to which"
    for key in dict.fromkeys([*now, *was]):
        one, two = was.get(key), now.get(key)
        if one != two:
            if isinstance(one, dict) and isinstance(two, dict):
                return _change(one, two)
            return f"{key} was {one!r} and is {two!r} now"
    return "nothing differs"


def _on_cpu(value: Any) -> Any:
    """Return a state whose tensors, in dicts and lists, are on the CPU.

    Every machine can read it then.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {k: _on_cpu(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_on_cpu(v) for v in value]
    return value


def _not_finite(value: Any, where: str = "") -> str | None:
    """Return the place of a tensor that is not finite in a state, or None."""
    import torch

    if isinstance(value, torch.Tensor):
        floating = value.is_floating_point() or value.is_complex()
        # the sum tells at less memory; it may overflow where all is finite
        if floating and not value.sum().isfinite() and not value.isfinite().all():
            return where
        return None
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        return None
    inner = (_not_finite(v, f"{where}.{k}".strip(".")) for k, v in parts)
    return next((place for place in inner if place is not None), None)
