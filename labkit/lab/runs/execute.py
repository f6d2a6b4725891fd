"""Headless runs of a notebook, checked before they begin and named when they end.

A run is executed in the hidden folder ``.<stamp>-<name>.partial``.  Only when it is
complete (executed notebook, page, ``run.json``, all on disk) the folder is renamed
to ``<stamp>-<name>``, or to ``<stamp>-<name>-failed`` when a cell raised.  So a
folder with a finished run's name always holds a finished run, and a run that was
killed leaves its traces where they were written.  A run of a sweep has a name of its
own, without a stamp.
"""

import contextlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from labkit.errors import DataError
from labkit.lab.runs.jobs import check_folder, commit, versions, write_atomically
from labkit.lab.runs.parameters import (
    Parameter,
    ParameterError,
    RunRefused,
    Value,
    read_parameters,
    resolve,
)
from labkit.lab.runs.run_folder import write_measurements
from labkit.lab.runs.workers import carry_out, processors

HERE = Path(__file__).resolve()
SHIPPED = HERE.parents[1] / "notebooks"  # of an installed copy; never run in place
PATTERN = "[0-9][0-9]_*.ipynb"
SET_BY_RUN = ("interactive", "run_dir")
IN_A_SENTENCE = "DataError", "DatasetUnavailable"  # errors that need no traceback
NEEDED = {"device": str, "interactive": bool, "run_dir": str}


@dataclass(frozen=True)
class Plan:
    """A run that has passed every check and has not begun.

    Attributes
    ----------
    name : str, the notebook's name without its digits
    notebook : Path, the notebook file
    profile : str, ``quick`` or ``paper``
    values : dict, every parameter's value, except those that the run itself sets
    out : Path, the folder that will hold the run's folder
    final : Path or None, the run's folder, of a run of a sweep
    """

    name: str
    notebook: Path
    profile: str
    values: dict[str, Value]
    out: Path
    final: Path | None = None


@dataclass(frozen=True)
class RunResult:
    """The files and the outcome of a run.

    Attributes
    ----------
    path : Path, the folder of the run
    notebook, html : Path, the executed notebook and its page, both in ``path``
    seconds : float, wall-clock time from the start of the kernel to its end
    ok : bool, whether every cell ran
    error : str or None, the cell that failed and what it raised
    """

    path: Path
    notebook: Path
    html: Path
    seconds: float
    ok: bool
    error: str | None


def run(
    name: str,
    parameters: Mapping[str, Value] | None = None,
    *,
    profile: str = "quick",
    device: str | None = None,
    out: str | Path = "runs",
    notebook_dir: str | Path | None = None,
) -> RunResult:
    """Run a notebook with typed parameters and keep everything it shows.

    Parameters
    ----------
    name : str, ``"rtrl"`` or ``"05_rtrl"`` for ``05_rtrl.ipynb``
    parameters : mapping, optional, values by parameter name; see `resolve`
    profile : {"quick", "paper"}, where the other values come from
    device : str, optional, the torch device, when not the notebook's own
    out : str or Path, where the run's folder goes
    notebook_dir : str or Path, optional, where the notebooks are; see `notebooks`

    Raises
    ------
    RunRefused
        Before anything is written, when a name, a value, the profile, the device
        or the output folder will not do (`ParameterError` for the first three), or
        when a data set is not on this machine.
        A cell that raises is no exception here; ``ok`` is then False.
    """
    return execute(prepare(name, parameters, profile, device, out, notebook_dir))


def notebooks(notebook_dir: str | Path | None = None) -> dict[str, Path]:
    """Find the notebooks, by name without the digits, in the order of the digits.

    ``{"rtrl": Path(".../05_rtrl.ipynb"), ...}``, from `notebook_dir`, else from
    ``notebooks`` here if there are any in it, else from the one beside the package,
    in a clone, or inside it, installed.
    """
    if notebook_dir is None:
        own = SHIPPED if SHIPPED.is_dir() else HERE.parents[3] / "notebooks"
        here = Path("notebooks")
        notebook_dir = here if any(here.glob(PATTERN)) else own
    if not Path(notebook_dir).is_dir():
        raise RunRefused(f"there is no folder of notebooks at {notebook_dir}")
    found: dict[str, Path] = {}
    for path in sorted(Path(notebook_dir).resolve().glob(PATTERN)):
        name = path.stem[3:]
        if name in found:
            raise RunRefused(f"{found[name].name} and {path.name} are both '{name}'")
        found[name] = path
    return found


def own_copy(notebook: Path) -> Path:
    """Return the path of a notebook to work in: of an installed one, a copy here.

    All of them are copied to ``notebooks``, at once or not at all.
    """
    if notebook.parent != SHIPPED:
        return notebook
    here, partial = Path("notebooks"), Path(f".notebooks-{os.getpid()}.partial")
    try:
        shutil.copytree(SHIPPED, partial)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise RunRefused(
            f"the notebooks cannot be copied to {here.absolute()} "
            f"({error.strerror or 'no room'}); begin in a folder that takes files"
        ) from error
    try:
        os.rename(partial, here)  # onto nothing, or an empty folder
    except OSError as error:
        shutil.rmtree(partial)
        raise RunRefused(
            f"{here.absolute()} is there and holds no notebooks of labkit, which would "
            "be copied there; begin in another folder"
        ) from error
    return here.absolute() / notebook.name


def prepare(
    name: str,
    parameters: Mapping[str, Value] | None,
    profile: str,
    device: str | None,
    out: str | Path,
    notebook_dir: str | Path | None,
) -> Plan:
    """Check all that can be checked before a run; the arguments are those of `run`."""
    notebook = _find(name, notebook_dir)
    declared = read_parameters(notebook)
    _check_needed(notebook, declared)
    given = dict(parameters or {})
    for key in SET_BY_RUN:
        if key in given:
            raise ParameterError(f"'{key}' is set by the run itself")
    if device is not None and given.setdefault("device", device) != device:
        other = given["device"]
        raise ParameterError(f"the device is given twice: {device} and {other}")
    settable = tuple(p for p in declared if p.name not in SET_BY_RUN)
    try:
        values = resolve(settable, given, profile)
    except ParameterError as error:
        raise ParameterError(f"{notebook.stem}: {error}") from error
    check_device(values["device"])
    check_data(values)
    check_files(settable, values)
    return Plan(notebook.stem[3:], notebook, profile, values, check_folder(out))


def check_files(declared: Iterable[Parameter], values: Mapping[str, Value]) -> None:
    """Raise RunRefused if a file of the user's cannot be learned from."""
    files = [values[p.name] for p in declared if p.names_a_file(values[p.name])]
    if not files:
        return
    from labkit.lab.datasets import load

    for path in files:
        try:
            load(path, target=values.get("target", ""))
        except DataError as error:
            raise RunRefused(str(error)) from error


def check_data(values: Mapping[str, Value]) -> None:
    """Raise RunRefused if a data set would have to be downloaded."""
    from labkit.lab.datasets.fetch import FILES

    known = {path.partition("/")[0] for path in FILES}
    named = known & {value for value in values.values() if isinstance(value, str)}
    if not named:
        return  # without the catalogue, which imports torch
    from labkit.lab.datasets import available

    away = [name for name, found in available().items() if not found.here]
    for name in named.intersection(away):
        raise RunRefused(
            f"the data set {name!r} is not on this machine; 'python -c \"from "
            f"labkit.lab import load; load({name!r})\"' downloads it, or set "
            "LABKIT_DATA to the folder that has it"
        )


def check_device(device: str) -> None:
    """Raise RunRefused if a torch device is not on this machine."""
    if device == "cpu":  # always there, and torch takes seconds to import
        return
    import torch

    allowed = ["cpu"]
    if torch.cuda.is_available():
        numbered = (f"cuda:{i}" for i in range(torch.cuda.device_count()))
        allowed += ["cuda", *numbered]
    if torch.backends.mps.is_available():
        allowed += ["mps"]
    if device not in allowed:
        raise RunRefused(
            f"device '{device}' is not available; here are: {', '.join(allowed)}"
        )


def execute(plan: Plan) -> RunResult:
    """Execute a plan; see `run`."""
    # these imports and those below take seconds, which `labkit list` does not need
    from labkit.lab.runs.page import write_page

    started = datetime.now(UTC)
    partial, final = _reserve(plan, started)
    executed, page = partial / f"{plan.name}.ipynb", partial / f"{plan.name}.html"
    summary = _summary(plan, started)
    write_atomically(partial / "run.json", json.dumps(summary, indent=2))
    begin = time.perf_counter()
    error = _execute_notebook(plan, executed, partial)
    seconds = round(time.perf_counter() - begin, 3)
    write_page(executed, page)
    status = "failed" if error else "finished"
    summary |= {"status": status, "seconds": seconds, "error": error}
    write_atomically(partial / "run.json", json.dumps(summary, indent=2))
    if error:
        final = failed(final)
    write_measurements(partial, final.name, plan.values)
    _sync_tree(partial)
    os.rename(partial, final)
    _sync(final.parent)
    executed, page = final / executed.name, final / page.name
    return RunResult(final, executed, page, seconds, not error, error)


def execute_all(
    plans: Sequence[Plan], jobs: int | None = None
) -> Iterator[tuple[Plan, RunResult | Exception]]:
    """Execute plans, several at a time; yield each one and its result as it ends.

    Parameters
    ----------
    plans : sequence of Plan
    jobs : int, optional, how many run at a time, else one per processor
        A single one is carried out in this process, several in processes of their own.

    Yields
    ------
    plan : Plan
    result : RunResult, or Exception if the run came to no end
    """
    count = min(jobs or processors(), len(plans))
    if count == 1:
        yield from ((plan, execute(plan)) for plan in plans)
        return
    # the last notebooks take longest, and so begin first
    waiting = {number: (plan,) for number, plan in reversed([*enumerate(plans)])}
    # one attempt: a notebook for which the memory does not suffice would fail again
    ended = carry_out(execute_quietly, waiting, workers=count, attempts=1)
    with contextlib.closing(ended):
        for number, result in ended:
            yield plans[number], result


def execute_quietly(plan: Plan) -> RunResult:
    """Execute a plan next to others, without papermill's progress bar."""
    with contextlib.redirect_stderr(io.StringIO()):
        return execute(plan)


def _find(name: str, notebook_dir: str | Path | None) -> Path:
    found = notebooks(notebook_dir)
    for path in found.values():
        if isinstance(name, str) and name in (path.stem[3:], path.stem, path.name):
            return path
    listed = ", ".join(found) if found else "none"
    raise RunRefused(f"unknown notebook '{name}'; there are: {listed}")


def _check_needed(notebook: Path, declared: tuple[Parameter, ...]) -> None:
    types = {parameter.name: parameter.type for parameter in declared}
    missing = [
        f"'{name}: {kind.__name__}'"
        for name, kind in NEEDED.items()
        if types.get(name) is not kind
    ]
    if missing:
        raise ParameterError(
            f"{notebook.name}: the parameters cell must declare "
            f"{' and '.join(missing)}, which every run sets"
        )


def failed(final: Path) -> Path:
    """Return the folder of a run that failed, by that which it would have had."""
    return final.with_name(f"{final.name}-failed")


def _reserve(plan: Plan, started: datetime) -> tuple[Path, Path]:
    """Make a partial folder, and reserve its final name for it.

    A run of a sweep has its name, and removes what an earlier try has left; the caller
    must hold its lock. Any other gets the name of the second in which it begins.
    """
    if plan.final:
        partial = plan.final.with_name(f".{plan.final.name}.partial")
        for path in (partial, plan.final, failed(plan.final)):
            # the kernel of a killed worker may still write for a second
            shutil.rmtree(path, ignore_errors=True)
        partial.mkdir(exist_ok=True)
        return partial, plan.final
    plan.out.mkdir(parents=True, exist_ok=True)
    first = f"{started:%Y%m%d-%H%M%S}-{plan.name}"
    for number in itertools.count(1):
        stem = first if number == 1 else f"{first}-{number}"
        partial, final = plan.out / f".{stem}.partial", plan.out / stem
        try:
            partial.mkdir()
        except FileExistsError:
            continue
        # only now: whoever had this partial folder before has renamed it by now
        if not final.exists() and not failed(final).exists():
            return partial, final
        partial.rmdir()


def _summary(plan: Plan, started: datetime) -> dict:
    return {
        "name": plan.name,
        "notebook": plan.notebook.name,
        "profile": plan.profile,
        "parameters": plan.values,
        "device": plan.values["device"],
        "versions": versions(),
        "commit": commit(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": None,
        "status": "running",
        "error": None,
    }


def _execute_notebook(plan: Plan, executed: Path, run_dir: Path) -> str | None:
    """Execute a plan by papermill; return the error in words, or None."""
    import papermill
    from nbclient.exceptions import DeadKernelError

    from labkit.lab.runs.kernel import SavedNowAndThen, ThisPython

    # its own reading of the parameters cell fails on our comments and then warns
    # of unknown parameters; `prepare` has checked them all
    logging.getLogger("papermill").setLevel(logging.ERROR)
    papermill.engines.papermill_engines.register("labkit", SavedNowAndThen)
    folder = plan.notebook.parent
    try:
        papermill.execute_notebook(
            plan.notebook,
            executed,
            {**plan.values, "interactive": False, "run_dir": str(run_dir)},
            engine_name="labkit",
            kernel_name="python3",
            language="python",
            kernel_manager_class=ThisPython,
            # it would warn at every start that it talks over this machine's TCP, and
            # at a Ctrl-C tell at length that nobody listens any more
            extra_arguments=["--log-level=CRITICAL"],
            cwd=Path.cwd() if folder == SHIPPED else folder.parent,
            progress_bar=sys.stderr.isatty(),
        )
    except papermill.PapermillExecutionError as error:
        if error.ename in IN_A_SENTENCE:
            return error.evalue
        traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
        return (
            f"cell [{error.exec_count}]:\n{error.source}\n\n"
            f"{error.ename}: {error.evalue}\n\n{traceback}"
        )
    except DeadKernelError as error:
        return f"{error} (the kernel's process ended, perhaps for want of memory)"
    return None


def _sync_tree(folder: Path) -> None:
    """Write all of a folder to disk before it gets its final name."""
    for path in (*sorted(folder.rglob("*"), reverse=True), folder):
        if path.is_dir() or path.is_file():
            _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
