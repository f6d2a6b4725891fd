"""``labkit reproduce``: list the studies, run their units, show what was found."""

from pathlib import Path
from typing import Annotated

import typer

from labkit.lab.runs.cli import told
from labkit.lab.runs.parameters import RunRefused

app = typer.Typer(
    no_args_is_help=True, help="The papers' tables and figures, at their size."
)
Results = Annotated[Path, typer.Option(help="Folder of the results.")]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
RESULTS, OUT = Path("reproduction/results"), Path("runs/reproduce")
DOCS = Path("docs/reproduction")


@app.command("list")
@told
def list_studies(results: Results = RESULTS) -> None:
    """Show the studies, their units and what they take."""
    from reproduction import show
    from reproduction.studies import studies

    for name, each in studies().items():
        units, done = show.state_of(each, results)
        typer.echo(f"{name}  {each.shows}; {len(done)} of {units} units done")
        typer.echo(f"  {each.setting}; {each.data}")
        typer.echo(f"  {show.estimate(each)}: {', '.join(each.units)}")


@app.command()
@told
def run(
    name: Name,
    units: Annotated[
        str, typer.Option(help="Which units: names or patterns, parted by commas.")
    ] = "*",
    workers: Annotated[int, typer.Option(min=1, help="Processes here.")] = 1,
    cluster: Annotated[
        str, typer.Option(help="local, or the address of a Dask scheduler.")
    ] = "local",
    results: Results = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of what is under way.")] = OUT,
) -> None:
    """Run units of a study that are not done; go on with those cut off."""
    from reproduction import units as work
    from reproduction.studies import Refused

    failed = 0
    try:
        where = {"workers": workers, "cluster": cluster}
        for unit, ended in work.run(name, units, results, out, **where):
            typer.echo(f"{name} {unit}: {ended}")
            failed += ended not in (work.DONE, work.BUSY)
    except Refused as error:
        raise RunRefused(str(error)) from error
    if failed:
        raise typer.Exit(1)


@app.command()
@told
def show(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", show_default=False)
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Print the paper's numbers beside ours, and the verdicts."""
    from reproduction import show
    from reproduction.studies import Refused, find_study, studies

    try:
        chosen = [find_study(name) for name in names or studies()]
    except Refused as error:
        raise RunRefused(str(error)) from error
    typer.echo("\n\n".join(show.text(each, results) for each in chosen))


@app.command()
@told
def pages(
    results: Results = RESULTS,
    docs: Annotated[Path, typer.Option(help="Folder of the pages.")] = DOCS,
) -> None:
    """Write a page for each paper from the results."""
    from reproduction import pages

    for path in pages.write(results, docs):
        typer.echo(path)
