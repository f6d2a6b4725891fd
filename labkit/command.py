"""The ``labkit`` command: notebooks run headless, and the papers reproduced."""

from labkit.reproduction.command import app as reproduce
from labkit.runs.cli import app, main

app.add_typer(reproduce, name="reproduce")

if __name__ == "__main__":
    main()
