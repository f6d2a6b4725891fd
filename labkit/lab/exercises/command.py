"""``labkit exercise``: list the exercises, make student versions, grade submissions."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)

Out = Annotated[Path, typer.Option(help="Folder for the notebooks; made if it is new.")]
Seeds = Annotated[
    list[int],
    typer.Option("--seed", min=0, help="Of a version; may be given again."),
]
Names = Annotated[
    list[str] | None, typer.Argument(help="Exercises; by default the seed chooses.")
]
Nbgrader = Annotated[bool, typer.Option(help="Give the cells nbgrader's metadata.")]
Folder = Annotated[
    Path, typer.Argument(exists=True, file_okay=False, help="Notebooks, at any depth.")
]
Table = Annotated[
    Path | None, typer.Option(help="The CSV; grades.csv in the folder by default.")
]
Seconds = Annotated[float, typer.Option(min=1, help="Of a CPU, for one submission.")]
Megabytes = Annotated[int, typer.Option(min=100, help="Beside labkit's own.")]
Workers = Annotated[int, typer.Option(min=1, help="Submissions that run at a time.")]


@app.command("list")
def list_exercises() -> None:
    """Show the exercises: their names, and what is to be written."""
    from labkit.lab.exercises.words import exercises

    for name, found in exercises().items():
        typer.echo(f"{name}\n  {found.title}")


@app.command()
def make(
    names: Names = None,
    seed: Seeds = [0],  # noqa: B006 - typer reads it, nobody changes it
    out: Out = Path("exercises"),
    nbgrader: Nbgrader = False,
) -> None:
    """Write a student version for each seed: a notebook with a step of each paper."""
    import nbformat

    from labkit.lab.exercises.judging import Exercise
    from labkit.lab.exercises.student import student_version
    from labkit.lab.exercises.words import exercises

    steps = {n for n, each in exercises().items() if isinstance(each, Exercise)}
    if unknown := [name for name in names or [] if name not in steps]:
        raise typer.BadParameter(
            f"there is no step {', '.join(unknown)}; 'labkit exercise list' shows them"
        )
    out.mkdir(parents=True, exist_ok=True)
    for each in seed:
        path = out / f"version-{each}.ipynb"
        nbformat.write(student_version(each, names or (), nbgrader=nbgrader), path)
        typer.echo(path)


@app.command()
def grade(
    folder: Folder,
    out: Table = None,
    seconds: Seconds = 60,
    megabytes: Megabytes = 2000,
    workers: Workers = 1,
) -> None:
    """Run all submissions, each in a process of its own, and write one table.

    The limits end what is endless or greedy. They do not protect from ill will: grade
    what strangers wrote in a container without a network.
    """
    from labkit.lab.exercises.grading import grade_folder, write_table

    rows = grade_folder(folder, seconds=seconds, megabytes=megabytes, workers=workers)
    if not rows:
        raise typer.BadParameter(f"there is no notebook below {folder}")
    path = folder / "grades.csv" if out is None else out
    write_table(rows, path)
    kinds = Counter(row.kind for row in rows)
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    typer.echo(f"{len({row.submission for row in rows})} submissions: {said}")
    typer.echo(path)
