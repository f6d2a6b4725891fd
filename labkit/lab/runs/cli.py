"""The ``labkit`` command."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from labkit.lab.runs.execute import (
    execute_all,
    notebooks,
    own_copy,
    prepare,
)
from labkit.lab.runs.jobs import check_folder
from labkit.lab.runs.jupyter import lab_command, lab_environment
from labkit.lab.runs.parameters import ParameterError, RunRefused, read_parameters
from labkit.lab.runs.records import keep_records
from labkit.lab.runs.report import report as write_report
from labkit.lab.runs.sweep import (
    execute_sweep,
    parse_values,
    prepare_sweep,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A lab bench for learning rules beyond back-propagation plus Adam.",
)

Profile = Annotated[str, typer.Option(help="quick, or paper: the paper's own setting.")]
Device = Annotated[str | None, typer.Option(help="Torch device, such as cpu or cuda.")]
Out = Annotated[Path, typer.Option(help="Folder that holds the runs.")]
NotebookDir = Annotated[
    Path | None,
    typer.Option("--notebooks", help="Folder of the notebooks, if not the usual one."),
]


def in_a_sentence(command: Callable) -> Callable:
    """Make a command end with one line on stderr if it is refused or stopped."""

    @functools.wraps(command)
    def wrapped(**options: object) -> None:
        try:
            command(**options)
        except RunRefused as error:
            raise _end(2, str(error)) from error
        except BrokenPipeError:  # as when piped into head; click ends quietly
            raise
        except OSError as error:  # a full disk, a folder that takes no files
            raise _end(1, str(error)) from error
        except KeyboardInterrupt as stop:
            raise _end(130, f"stopped{STOPPED.get(command.__name__, '')}") from stop

    return wrapped


STOPPED = {
    "run": "; the hidden folder of each run keeps the traces that it has written",
    "sweep": "; the same command goes on",
}

ROOT = (
    "labkit: you are root, as in many containers, so the code of every notebook that "
    "you open runs as root, too; elsewhere use an account of your own"
)


def _end(code: int, words: str) -> typer.Exit:
    words = words.encode("utf-8", "backslashreplace").decode("utf-8")
    typer.echo(f"labkit: {words}", err=True)
    return typer.Exit(code)


def split_assignments(assignments: list[str]) -> dict[str, str]:
    """Read ``name=value`` as given to ``-p``.

    >>> split_assignments(["rank=8", "text=a=b"])
    {'rank': '8', 'text': 'a=b'}
    """
    values: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise ParameterError(
                f"-p {assignment} cannot be read; write -p name=value, as in -p rank=8"
            )
        if name in values:
            raise ParameterError(f"-p {name} is given twice; give it once")
        values[name] = value
    return values


@app.command("list")
@in_a_sentence
def list_notebooks(notebook_dir: NotebookDir = None) -> None:
    """Show the notebooks and the parameters that they take."""
    found = notebooks(notebook_dir)
    if not found:
        typer.echo("There are no notebooks yet.")
    bad = []
    for name, path in found.items():
        try:
            parameters = read_parameters(path)
        except RunRefused as error:  # the others can be shown
            bad.append(str(error))
            continue
        typer.echo(name)
        for p in parameters:
            paper = "" if p.paper is None else f" (paper: {p.paper!r})"
            typer.echo(f"  {p.name} = {p.default!r}{paper}  [{p.allowed}]  {p.help}")
    if bad:
        raise RunRefused("\nlabkit: ".join(bad))


@app.command()
@in_a_sentence
def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all notebooks.")] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("-p", metavar="NAME=VALUE", help="Set a parameter; repeatable."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Notebooks that run at a time, if not one per processor."
        ),
    ] = None,
    profile: Profile = "quick",
    device: Device = None,
    out: Out = Path("runs"),
    notebook_dir: NotebookDir = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="Keep what is measured as the record that notebooks show."
        ),
    ] = False,
) -> None:
    """Run notebooks headless and keep the notebook, its page and its traces."""
    values = split_assignments(assignments or [])
    plans = [
        prepare(name, values, profile, device, out, notebook_dir)
        for name in _chosen(names or [], every, notebook_dir)
    ]
    failed = 0
    with contextlib.closing(execute_all(plans, jobs)) as ended:
        for plan, result in ended:
            if isinstance(result, Exception):
                typer.echo(f"{plan.name} FAILED: {result}")
                failed += 1
                continue
            word = "finished" if result.ok else "FAILED"
            typer.echo(f"{plan.name} {word} in {result.seconds:.1f} s: {result.html}")
            for kept in keep_records(result.path) if record and result.ok else ():
                typer.echo(f"  recorded {kept.stem}")
            if result.error:
                typer.echo(f"\n{result.error}\n", err=True)
                failed += 1
    if failed:
        raise typer.Exit(1)


@app.command()
@in_a_sentence
def sweep(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            metavar="NAME=VALUES",
            help="Values parted by commas; 0:5 means 0,1,2,3,4, as in Python. "
            "Repeatable: every combination is run.",
        ),
    ] = None,
    cluster: Annotated[
        str, typer.Option(help="local, or the address of a Dask scheduler.")
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes on this machine, if not one per processor."
        ),
    ] = None,
    profile: Profile = "quick",
    device: Device = None,
    out: Out = Path("runs"),
    notebook_dir: NotebookDir = None,
) -> None:
    """Run a notebook with every combination of values and tabulate the results.

    The same command goes on with a sweep that was cut off: it keeps finished runs, and
    starts unfinished and failed ones again.
    """
    values = split_assignments(assignments or [])
    plan = prepare_sweep(
        name,
        {key: parse_values(key, text) for key, text in values.items()},
        profile=profile,
        device=device,
        cluster=cluster,
        workers=workers,
        out=out,
        notebook_dir=notebook_dir,
    )
    result = execute_sweep(plan)
    shown = result.table[[*plan.varied, "state", "seconds"]]
    typer.echo(f"{shown.to_string(index=False, max_rows=60)}\n\nWhat was measured:")
    typer.echo(f"{result.csv}\n{result.html}")
    if not result.ok:
        bad = int((result.table["state"] != "finished").sum())
        typer.echo(f"labkit: {bad} of {len(plan.runs)} runs not finished", err=True)
        raise typer.Exit(1)


@app.command()
@in_a_sentence
def report(out: Out = Path("runs")) -> None:
    """Write the HTML index over all runs."""
    typer.echo(write_report(check_folder(out)))


@app.command()
@in_a_sentence
def lab(notebook_dir: NotebookDir = None) -> None:
    """Open JupyterLab at the tour, for this machine only, with a token.

    The file browser is closed, so that live panels have their room.

    An installed labkit first copies its notebooks to ./notebooks, if none are there.
    """
    found = notebooks(notebook_dir)
    if not found:
        raise RunRefused("there are no notebooks to open")
    first = own_copy(found.get("tour", next(iter(found.values()))))
    if root := getattr(os, "geteuid", lambda: None)() == 0:
        typer.echo(ROOT, err=True)
    command = [*lab_command(first), *["--allow-root"] * root]
    os.execve(sys.executable, command, lab_environment(os.environ))


def _chosen(names: list[str], every: bool, notebook_dir: Path | None) -> list[str]:
    if bool(names) == every:
        raise RunRefused(
            "give the names of notebooks, or --all; 'labkit list' has them"
        )
    chosen = list(notebooks(notebook_dir)) if every else names
    if not chosen:
        raise RunRefused("there are no notebooks to run yet")
    return chosen


def main() -> None:
    """Run the ``labkit`` command."""
    app(prog_name="labkit")


if __name__ == "__main__":
    main()
