"""The ``labkit`` command."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from labkit.lab.runs.execute import execute, notebooks, own_copy, prepare
from labkit.lab.runs.jobs import check_folder
from labkit.lab.runs.jupyter import lab_command, lab_environment
from labkit.lab.runs.parameters import ParameterError, RunRefused, read_parameters
from labkit.lab.runs.records import keep_records
from labkit.lab.runs.report import report as write_report
from labkit.lab.runs.sweep import parse_values, sweep as run_sweep
from labkit.lab.runs.workers import carry_out

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A lab bench for learning rules beyond back-propagation plus Adam.",
)

Profile = Annotated[str, typer.Option(help="quick, or paper: the paper's own setting.")]
Out = Annotated[Path, typer.Option(help="Folder that holds the runs.")]


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
    typer.echo(f"labkit: {words}", err=True)
    return typer.Exit(code)


def split_assignments(assignments: list[str]) -> dict[str, str]:
    """Read ``name=value`` as given to ``-p``.

    >>> split_assignments(["rank=8", "text=a=b"])
    {'rank': '8', 'text': 'a=b'}
    """
    values = {}
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
def list_notebooks() -> None:
    """Show the notebooks and the parameters that they take."""
    for name, path in notebooks().items():
        typer.echo(name)
        for parameter in read_parameters(path):
            paper = "" if parameter.paper is None else f" (paper: {parameter.paper!r})"
            typer.echo(
                f"  {parameter.name} = {parameter.default!r}{paper}  "
                f"[{parameter.allowed}]  {parameter.help}"
            )


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
    out: Out = Path("runs"),
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="Keep what is measured as the record that notebooks show."
        ),
    ] = False,
) -> None:
    """Run notebooks headless and keep the notebook, its page and its traces."""
    if bool(names) == every:
        raise RunRefused(
            "give the names of notebooks, or --all; 'labkit list' has them"
        )
    values = split_assignments(assignments or [])
    plans = [prepare(name, values, profile, out) for name in names or notebooks()]
    # The last notebooks take longest, and so begin first. One attempt: a notebook for
    # which the memory does not suffice would fail again.
    waiting = {number: (plans[number],) for number in reversed(range(len(plans)))}
    ended = carry_out(execute, waiting, workers=jobs, attempts=1)
    if len(plans) == 1:  # in this process
        ended = (
            (number, execute(plan, progress=True)) for number, plan in enumerate(plans)
        )
    failed = 0
    with contextlib.closing(ended):
        for number, result in ended:
            name = plans[number].name
            if isinstance(result, Exception):
                typer.echo(f"{name} FAILED: {result}")
                failed += 1
                continue
            word = "finished" if result.ok else "FAILED"
            typer.echo(f"{name} {word} in {result.seconds:.1f} s: {result.html}")
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
    out: Out = Path("runs"),
) -> None:
    """Run a notebook with every combination of values and tabulate the results.

    The same command goes on with a sweep that was cut off: it keeps finished runs, and
    starts unfinished and failed ones again.
    """
    given = split_assignments(assignments or [])
    values = {key: parse_values(key, text) for key, text in given.items()}
    result = run_sweep(
        name, values, profile=profile, cluster=cluster, workers=workers, out=out
    )
    shown = result.table[[*values, "state", "seconds"]]
    typer.echo(f"{shown.to_string(index=False, max_rows=60)}\n\nWhat was measured:")
    typer.echo(f"{result.csv}\n{result.html}")
    if not result.ok:
        bad = int((shown["state"] != "finished").sum())
        raise _end(1, f"{bad} of {len(shown)} runs not finished")


@app.command()
@in_a_sentence
def report(out: Out = Path("runs")) -> None:
    """Write the HTML index over all runs."""
    typer.echo(write_report(check_folder(out)))


@app.command()
@in_a_sentence
def lab() -> None:
    """Open JupyterLab at the tour, for this machine only, with a token.

    The file browser is closed, so that live panels have their room.

    An installed labkit first copies its notebooks to ./notebooks, if none are there.
    """
    found = notebooks()
    first = own_copy(found.get("tour", next(iter(found.values()))))
    command = lab_command(first)
    if getattr(os, "geteuid", lambda: None)() == 0:
        typer.echo(ROOT, err=True)
        command.append("--allow-root")
    os.execve(sys.executable, command, lab_environment(os.environ))


def main() -> None:
    """Run the ``labkit`` command."""
    app(prog_name="labkit")


if __name__ == "__main__":
    main()
