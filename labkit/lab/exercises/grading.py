"""Grade submitted notebooks by the checks that learners see; a row for each exercise.

Each submission runs in a process of its own, in an empty folder, with limits of time
and memory. A limit ends what is endless or greedy by mistake. It does not protect from
ill will: the code can read the files of this account, use the network, start processes,
and write into the judge, which runs in the same process.
"""

import csv
import json
import linecache
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

SECONDS, MEGABYTES = 60.0, 2000
FILES = 20 << 20  # bytes that a submission may write into one file
MEMORY = ("MemoryError", "can't allocate memory", "not enough memory")
SAID = 300  # characters of a message that are kept


@dataclass(frozen=True)
class Grade:
    """One row of the table.

    ``kind`` is that of a :class:`~labkit.lab.exercises.judging.Judgement`, or
    "missing" (no such function), "time", "memory", "ended" (the process did), or
    "unreadable" (the file is no version that ``labkit exercise make`` wrote).
    """

    submission: str  # path of the notebook, from the folder
    seed: int | None
    exercise: str
    points: int  # 1 if it is right
    kind: str
    slip: str = ""
    said: str = ""


# In the submission's process


def executed(path: Path) -> tuple[dict, dict[str, dict], str]:
    """Run a notebook's code cells without its checks.

    Returns the names at the end, the names after each cell by its id, and the first
    error in words; the cells after an error still run.
    """
    import nbformat

    space: dict = {"__name__": "__main__"}
    after: dict[str, dict] = {}
    first = ""
    for i, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type != "code" or "check" in cell.metadata.get("tags", []):
            continue
        name = f"<cell {i}>"
        lines = cell.source.splitlines(keepends=True)
        linecache.cache[name] = len(cell.source), None, lines, name
        try:
            exec(compile(cell.source, name, "exec"), space)
        except BaseException as error:
            first = first or f"cell {i}: {type(error).__name__}: {error}"
        after[cell.get("id", "")] = dict(space)
    return space, after, first


def grades(path: Path, seed: int, names: Sequence[str]) -> Iterator[dict]:
    """Judge the functions of a submission, one after the other.

    A function is taken as it is after its cell, for two steps may have one name; where
    the cell is gone, as it is at the end.
    """
    from labkit.lab.exercises.judging import judge
    from labkit.lab.exercises.words import exercise

    space, after, error = executed(path)
    for name in names:
        found = exercise(name, seed)
        hers = after.get(f"{name}-step", space).get(found.function.__name__)
        if not hasattr(hers, "__code__"):
            kind = "memory" if any(word in error for word in MEMORY) else "missing"
            said = error or f"there is no function {found.function.__name__}"
            yield {"exercise": name, "kind": kind, "said": said}
            continue
        told = judge(found, hers)
        greedy = told.kind == "error" and any(word in told.text for word in MEMORY)
        kind = "memory" if greedy else told.kind
        yield {"exercise": name, "kind": kind, "slip": told.slip, "said": told.text}


def limit(seconds: float, megabytes: int) -> None:
    """Limit this process: seconds of a CPU, memory above its present one, files."""
    import resource

    pages = Path("/proc/self/statm")
    if pages.exists():  # elsewhere the system does not limit a process's memory
        now = int(pages.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        most = now + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    used = resource.getrusage(resource.RUSAGE_SELF)
    last = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (last, last + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILES, FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Grade one submission; write a line of JSON for each exercise when it is judged.

    The arguments are a file descriptor for the lines, and a JSON list of path, seed,
    exercises, seconds and megabytes.
    """
    out = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    path, seed, names, seconds, megabytes = json.loads(sys.argv[2])
    import torch._dynamo  # what optimisers import late must not be cut off by a limit

    from labkit.lab.exercises.words import exercise

    torch.set_num_threads(1)
    for name in names:
        exercise(name, seed)
    limit(seconds, megabytes)
    for row in grades(Path(path), seed, names):
        out.write(json.dumps(row | {"said": _short(row["said"])}) + "\n")


# In the teacher's process


def submissions(folder: Path) -> list[Path]:
    """Return the notebooks below a folder, without Jupyter's checkpoints."""
    found = (p for p in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    return sorted(found)


def grade(
    path: Path,
    folder: Path,
    *,
    seconds: float = SECONDS,
    megabytes: int = MEGABYTES,
) -> list[Grade]:
    """Grade one submission in a process of its own; a row for each of its exercises."""
    name = str(path.relative_to(folder))
    try:
        seed, names = _version(path)
    except (KeyError, OSError, TypeError, ValueError) as error:
        return [Grade(name, None, "", 0, "unreadable", said=_short(str(error)))]
    told, ended = _run(path, seed, names, seconds, megabytes)
    rows = {row["exercise"]: row for row in told}
    lost = {"kind": ended, "said": "the process ended before it was judged"}
    return [
        Grade(
            name,
            seed,
            each,
            int(row["kind"] == "right"),
            row["kind"],
            row.get("slip", ""),
            row["said"],
        )
        for each in names
        for row in [rows.get(each, lost)]
    ]


def _version(path: Path) -> tuple[int, list[str]]:
    """Return seed and exercises of a version; they must be ones that exist."""
    from labkit.lab.exercises.words import exercise

    metadata = json.loads(path.read_text("utf-8"))["metadata"]["labkit"]
    seed, names = int(metadata["seed"]), [str(name) for name in metadata["exercises"]]
    for name in names:
        exercise(name, seed)
    return seed, names


def _run(
    path: Path, seed: int, names: Sequence[str], seconds: float, megabytes: int
) -> tuple[list[dict], str]:
    """Return what the process told, and the reason why it told no more."""
    read, write = os.pipe()
    task = json.dumps([str(path.resolve()), seed, names, seconds, megabytes])
    command = [sys.executable, "-m", "labkit.lab.exercises.grading", str(write), task]
    with tempfile.TemporaryDirectory() as empty:
        process = subprocess.Popen(
            command,
            cwd=empty,
            env=os.environ | {"HOME": empty, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[write],
            start_new_session=True,
        )
        os.close(write)
        ended = "ended"
        try:
            # Imports come before the limits, and their time is not the student's.
            code = process.wait(2 * seconds + 60)
            ended = "time" if code == -signal.SIGXCPU else ended
        except subprocess.TimeoutExpired:
            ended = "time"
        finally:
            _end(process)
    with os.fdopen(read) as lines:
        told = [json.loads(line) for line in lines if line.endswith("\n")]
    return told, ended


def _end(process: subprocess.Popen) -> None:
    """End the submission's process and what it started in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= SAID else words[: SAID - 1] + "…"


def grade_folder(
    folder: Path,
    *,
    seconds: float = SECONDS,
    megabytes: int = MEGABYTES,
    workers: int = 1,
) -> list[Grade]:
    """Grade all submissions of a folder, ``workers`` of them at a time."""
    one = lambda path: grade(path, folder, seconds=seconds, megabytes=megabytes)  # noqa: E731
    with ThreadPoolExecutor(workers) as pool:
        return [row for rows in pool.map(one, submissions(folder)) for row in rows]


def write_table(rows: Sequence[Grade], path: Path) -> None:
    """Write the rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [field.name for field in fields(Grade)])
        table.writeheader()
        table.writerows(asdict(row) for row in rows)


if __name__ == "__main__":
    main()
