"""The ``labkit`` command: notebooks run headless; the papers reproduced, in a clone."""

import sys
from pathlib import Path

import typer

from labkit.lab.runs import cli

CHECKOUT = Path(__file__).resolve().parents[2]


def reproduce_app() -> typer.Typer:
    """Return the commands of the ``reproduction`` folder beside the package."""
    if not (CHECKOUT / "reproduction/command.py").is_file():
        return refusing()
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    from reproduction.command import app

    return app


def refusing() -> typer.Typer:
    """Return a command that says where ``labkit reproduce`` can be run."""
    app = typer.Typer()
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}

    @app.callback(invoke_without_command=True, context_settings=anything)
    def refuse() -> None:
        typer.echo(
            "labkit: 'labkit reproduce' works in a clone of the repository, which has "
            "the experiments and their results; this labkit is an installed package",
            err=True,
        )
        raise typer.Exit(2)

    return app


app = cli.app
app.add_typer(
    reproduce_app(), name="reproduce", help="The papers' tables, at their size."
)
main = cli.main

if __name__ == "__main__":
    main()
