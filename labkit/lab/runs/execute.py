"""Headless runs of a notebook, checked before they begin and named when they end.

A run is executed in the hidden folder ``.<stamp>-<name>.partial``.  Only when it is
complete (executed notebook, page, ``run.json``) the folder is renamed to
``<stamp>-<name>``, or to ``<stamp>-<name>-failed`` when a cell raised.  So a folder
with a finished run's name always holds a finished run, and a run that was killed
leaves its traces where they were written.  A run of a sweep has a name of its own,
without a stamp.
"""

import json
import logging
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from labkit.errors import DataError
from labkit.lab.runs.jobs import check_folder, commit, versions, write_atomically
from labkit.lab.runs.parameters import (
    SET_BY_RUN,
    Parameter,
    ParameterError,
    RunRefused,
    Value,
    read_parameters,
    resolve,
)
from labkit.lab.runs.run_folder import read_summary, write_measurements

HERE = Path(__file__).resolve()
SHIPPED = HERE.parents[1] / "notebooks"  # of an installed copy; never run in place
PATTERN = "[0-9][0-9]_*.ipynb"
IN_A_SENTENCE = "DataError", "DatasetUnavailable"  # errors that need no traceback


@dataclass(frozen=True)
class Plan:
    """A run that has passed every check and has not begun.

    Attributes
    ----------
    name : str, the notebook's name without its digits
    notebook : Path, the notebook file
    profile : str, ``quick`` or ``paper``
    values : dict, every parameter's value, except those that the run itself sets
    final : Path, the run's folder once it is finished
    """

    name: str
    notebook: Path
    profile: str
    values: dict[str, Value]
    final: Path


@dataclass(frozen=True)
class RunResult:
    """The files and the outcome of a run that has ended.

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
    out: str | Path = "runs",
) -> RunResult:
    """Run a notebook with typed parameters and keep everything it shows.

    Parameters
    ----------
    name : str, ``"rtrl"`` or ``"05_rtrl"`` for ``05_rtrl.ipynb``; see `notebooks`
    parameters : mapping, optional, values by parameter name; see `resolve`
    profile : {"quick", "paper"}, where the other values come from
    out : str or Path, where the run's folder goes

    Raises
    ------
    RunRefused
        Before anything is written, when a name, a value, the profile or the output
        folder will not do (`ParameterError` for the first three), or when a data set
        or device is not on this machine.
        A cell that raises is no exception here; ``ok`` is then False.
    """
    return execute(prepare(name, parameters, profile, out), progress=True)


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
    return {
        path.stem[3:]: path
        for path in sorted(Path(notebook_dir).resolve().glob(PATTERN))
    }


def own_copy(notebook: Path) -> Path:
    """Return the path of a notebook to work in: of an installed one, a copy here.

    All of them are copied to ``notebooks``.
    """
    if notebook.parent != SHIPPED:
        return notebook
    here = Path("notebooks").absolute()
    try:
        shutil.copytree(SHIPPED, here)
    except OSError as error:
        raise RunRefused(
            f"the notebooks cannot be copied to {here} ({error.strerror}); begin in "
            "another folder"
        ) from error
    return here / notebook.name


def prepare(
    name: str,
    parameters: Mapping[str, Value] | None = None,
    profile: str = "quick",
    out: str | Path = "runs",
) -> Plan:
    """Check all that can be checked before a run; the arguments are those of `run`."""
    notebook, known = declared(name)
    return plan_run(notebook, known, parameters, profile, check_folder(out))


def declared(name: str) -> tuple[Path, tuple[Parameter, ...]]:
    """Return a notebook by its name, and the parameters that can be set."""
    found = notebooks()
    for path in found.values():
        if name in (path.stem[3:], path.stem, path.name):
            break
    else:
        listed = ", ".join(found) if found else "none"
        raise RunRefused(f"unknown notebook '{name}'; there are: {listed}")
    every = read_parameters(path)
    types = {parameter.name: parameter.type for parameter in every}
    for key, kind in {"device": str, **SET_BY_RUN}.items():
        if types.get(key) is not kind:
            raise ParameterError(
                f"{path.name}: the parameters cell must declare "
                f"'{key}: {kind.__name__}', which every run sets"
            )
    return path, tuple(
        parameter for parameter in every if parameter.name not in SET_BY_RUN
    )


def plan_run(
    notebook: Path,
    parameters: tuple[Parameter, ...],
    given: Mapping[str, Value] | None,
    profile: str,
    out: Path,
) -> Plan:
    """Check the values of a run of a notebook that has these parameters."""
    for key in SET_BY_RUN:
        if key in (given or {}):
            raise ParameterError(f"'{key}' is set by the run itself")
    try:
        values = resolve(parameters, given, profile)
    except ParameterError as error:
        raise ParameterError(f"{notebook.stem}: {error}") from error
    check_device(values["device"])
    check_data(parameters, values)
    name = notebook.stem[3:]
    final = out / f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{name}"
    return Plan(name, notebook, profile, values, final)


def check_data(declared: Sequence[Parameter], values: Mapping[str, Value]) -> None:
    """Raise RunRefused if data are not here, or a file cannot be learned from."""
    from labkit.lab.datasets.fetch import FILES

    target = values.get("target", "")
    files = [
        values[parameter.name]
        for parameter in declared
        if parameter.names_a_file(values[parameter.name])
        or (target and parameter.name == "data")
    ]
    known = {path.partition("/")[0] for path in FILES}
    named = known.intersection(map(str, values.values()))
    if not files and not named:
        return  # without the catalogue, which imports torch
    from labkit.lab.datasets import available, load

    for path in files:
        try:
            load(path, target=target)
        except DataError as error:
            raise RunRefused(str(error)) from error
    for name, found in available().items():
        if name in named and not found.here:
            raise RunRefused(
                f"the data set {name!r} is not on this machine; 'python -c \"from "
                f"labkit.lab import load; [load({name!r}, part) for part in "
                f"{list(found.splits)}]\"' downloads it, or set LABKIT_DATA to the "
                "folder that has it"
            )


def check_device(device: str) -> None:
    """Raise RunRefused if a torch device is not on this machine."""
    if device == "cpu":  # always there, and torch takes seconds to import
        return
    from labkit import check

    try:
        check.check_device(device)
    except ValueError as error:
        raise RunRefused(str(error)) from error


def execute(plan: Plan, *, progress: bool = False) -> RunResult:
    """Execute a plan; see `run`. ``progress`` shows a bar on a terminal."""
    # these imports and those below take seconds, which `labkit list` does not need
    from labkit.lab.runs.page import write_page

    final, started = plan.final, datetime.now(UTC).isoformat(timespec="seconds")
    partial = final.with_name(f".{final.name}.partial")
    for path in (partial, final, failed(final)):
        # the kernel of a killed worker may still write for a second
        shutil.rmtree(path, ignore_errors=True)
    partial.mkdir(parents=True, exist_ok=True)
    summary = {
        "name": plan.name,
        "notebook": plan.notebook.name,
        "profile": plan.profile,
        "parameters": plan.values,
        "versions": versions(),
        "commit": commit(),
        "started": started,
        "seconds": None,
        "status": "running",
        "error": None,
    }
    write_atomically(partial / "run.json", json.dumps(summary, indent=2))
    executed, begin = partial / f"{plan.name}.ipynb", time.perf_counter()
    error = _execute_notebook(plan, executed, partial, progress)
    seconds = round(time.perf_counter() - begin, 3)
    write_page(executed, executed.with_suffix(".html"))
    status = "failed" if error else "finished"
    summary |= {"status": status, "seconds": seconds, "error": error}
    write_atomically(partial / "run.json", json.dumps(summary, indent=2))
    final = failed(final) if error else final
    write_measurements(partial, final.name, plan.values)
    return result_of(partial.rename(final))


def failed(final: Path) -> Path:
    """Return the folder of a run that failed, by that which it would have had."""
    return final.with_name(f"{final.name}-failed")


def result_of(folder: Path) -> RunResult | None:
    """Return the outcome of a run from its folder, or None if it has not ended."""
    about = read_summary(folder)
    if not about or about["status"] not in ("finished", "failed"):
        return None
    page, ok = folder / f"{about['name']}.html", about["status"] == "finished"
    notebook = page.with_suffix(".ipynb")
    return RunResult(folder, notebook, page, about["seconds"], ok, about["error"])


def _execute_notebook(
    plan: Plan, executed: Path, run_dir: Path, progress: bool
) -> str | None:
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
            # a kernel with ports would warn of them at every start, and any
            # kernel tell at length at a Ctrl-C that nobody listens any more
            extra_arguments=["--log-level=CRITICAL"],
            cwd=Path.cwd() if folder == SHIPPED else folder.parent,
            progress_bar=progress and sys.stderr.isatty(),
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
