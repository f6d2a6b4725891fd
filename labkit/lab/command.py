"""The ``labkit`` command: notebooks run headless, and the papers reproduced."""

import os
import sys
from pathlib import Path

import typer

from labkit.lab.runs import cli
from labkit.lab.runs.parameters import RunRefused

CHECKOUT = Path(__file__).resolve().parents[2]


def reproduce(context: typer.Context) -> None:
    """Run ``python -m reproduction`` of the checkout, in the place of this process."""
    if not (CHECKOUT / "reproduction/__main__.py").is_file():
        raise RunRefused(
            "'labkit reproduce' works in a clone of the repository, which has the "
            "studies and their results; this labkit is an installed package"
        )
    # Not from the working folder (-P), which may be another checkout.
    command = [sys.executable, "-P", "-m", "reproduction", *context.args]
    paths = filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")])
    sys.stdout.flush()
    os.execve(
        sys.executable, command, {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    )


app = cli.app
main = cli.main
if data := os.environ.get("LABKIT_DATA"):  # a kernel works in another folder
    os.environ["LABKIT_DATA"] = str(Path(data).expanduser().absolute())
handed_on = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "help_option_names": [],
}
app.command(
    "reproduce",
    help="The papers' tables beside ours.",
    context_settings=handed_on,
)(cli.in_a_sentence(reproduce))

if __name__ == "__main__":
    main()
