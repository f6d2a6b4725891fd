"""The ``labkit`` command: notebooks run headless, exercises, the papers reproduced."""

import sys
from pathlib import Path

from labkit.lab.exercises.command import app as exercise
from labkit.lab.runs import cli
from labkit.lab.runs.parameters import RunRefused

CHECKOUT = Path(__file__).resolve().parents[2]
HELP = "The papers' tables, at their size."


def draw_noise(results: Path) -> list[Path]:
    """Draw a sweep of notebook 06 over noise; see ``labkit.lab.compare.noise``."""
    from labkit.lab.compare.noise import draw_sweep  # draws, which takes imports

    return draw_sweep(results)


@cli.in_a_sentence
def refuse() -> None:
    """Say where ``labkit reproduce`` can be run."""
    raise RunRefused(
        "'labkit reproduce' works in a clone of the repository, which has the studies "
        "and their results; this labkit is an installed package"
    )


app, main = cli.app, cli.main
cli.DRAWN["compare"] = draw_noise
app.add_typer(exercise, name="exercise", help="Exercises, for learners and teachers.")
if (CHECKOUT / "reproduction/command.py").is_file():
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    from reproduction.command import app as reproduce

    app.add_typer(reproduce, name="reproduce", help=HELP)
else:
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command("reproduce", help=HELP, context_settings=anything)(refuse)

if __name__ == "__main__":
    main()
